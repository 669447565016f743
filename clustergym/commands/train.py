"""`clustergym train agent=auction_es`: train an agent and write its checkpoint."""

from __future__ import annotations

import sys

from clustergym.common.errors import exits_on_bad_input

SUMMARY = "Train an agent and write its checkpoint."


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym train`: train an agent, and write its checkpoint; return the exit status."""
    from clustergym.commands.command_help import print_help_if_asked
    from clustergym.scenario.configuration.hydra_edge import compose_config

    overrides = list(sys.argv[1:] if argv is None else argv)
    if print_help_if_asked("train", SUMMARY, overrides):
        return 0
    from clustergym.training.training import train

    # `env=NAME` says the id alone, so every parameter of the environment is a new key to Hydra.
    words = [f"++{word}" if word.startswith("env.") else word for word in overrides]
    path = train(compose_config("train", words), overrides)
    print(f"wrote {path} and {path.with_suffix('.yaml').name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
