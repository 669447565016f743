"""`clustergym evaluate policies=[…] split=test`: compare policies and checkpoints on a split."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from clustergym.common.errors import exits_on_bad_input
from clustergym.common.writing import write_text

SUMMARY = "Compare any policies and checkpoints on the windows of a split."


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    from clustergym.commands.command_help import helped
    from clustergym.scenario.configuration.hydra_edge import composed

    overrides = list(sys.argv[1:] if argv is None else argv)
    if helped("evaluate", SUMMARY, overrides):
        return 0
    from clustergym.training.evaluation import evaluate
    from clustergym.training.evaluation_tables import markdown

    config = composed("evaluate", overrides)
    outcome = evaluate(config, progress=True)
    text = markdown(outcome, overrides)
    print(text, end="")
    for key, content in (("report", text), ("json", json.dumps(outcome, indent=1) + "\n")):
        if config[key] is not None:
            write_text(Path(str(config[key])), content, key)
            print(f"wrote {config[key]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
