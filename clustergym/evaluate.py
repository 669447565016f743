"""`clustergym evaluate policies=[…] split=test`: any policies and checkpoints, compared."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from clustergym.inputs.errors import exits_on_bad_input
from clustergym.inputs.writing import write_text

SUMMARY = "Compare any policies and checkpoints on the windows of a split."


def _quoted(word: str) -> str:
    """Quote a word for the shell, in double quotes where it has single ones and nothing the shell expands."""
    plain = "'" in word and not set(word) & set('"$`\\!')
    return f'"{word}"' if plain else shlex.quote(word)


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    from clustergym.configuration.command_help import helped
    from clustergym.configuration.hydra_edge import composed

    overrides = list(sys.argv[1:] if argv is None else argv)
    if helped("evaluate", SUMMARY, overrides):
        return 0
    from clustergym.learn.evaluation import evaluate
    from clustergym.learn.evaluation_tables import markdown

    config = composed("evaluate", overrides)
    outcome = evaluate(config, progress=True)
    # What the command wrote to is no part of what it measured.
    shown = [_quoted(one) for one in overrides if not one.startswith(("report=", "json=", "processes="))]
    text = markdown(outcome, " ".join(["clustergym evaluate", *shown]))
    print(text, end="")
    for key, content in (("report", text), ("json", json.dumps(outcome, indent=1) + "\n")):
        if config[key] is not None:
            write_text(Path(str(config[key])), content, key)
            print(f"wrote {config[key]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
