"""`clustergym evaluate policies=[…] split=test`: compare policies and checkpoints.

`clustergym evaluate --policy-file FILE.py` scores a single policy from a file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from clustergym.common.errors import exits_on_bad_input
from clustergym.common.writing import write_text

SUMMARY = "Compare any policies and checkpoints on the windows of a split."
PROGRAM_SUMMARY = """\
Compare one policy, or agent, from a file with a task's reference, in the JSON form of program searches:
combined_score, metrics, artifacts (docs/programs-as-policies.md). One that fails scores 0, with an error in
one line."""
MORE = """\
Or, for one policy from a file:
  clustergym evaluate --policy-file FILE.py [--task elastic] [--mode train] [--traces N] [--json FILE]
`clustergym evaluate --policy-file --help` tells more."""


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym evaluate`: compare policies and agents on traces of a split; return the exit status."""
    from clustergym.commands.command_help import print_help_if_asked
    from clustergym.scenario.configuration.hydra_edge import compose_config

    overrides = list(sys.argv[1:] if argv is None else argv)
    if any(word.partition("=")[0] == "--policy-file" for word in overrides):
        return _program(overrides)
    if print_help_if_asked("evaluate", SUMMARY, overrides, more=MORE):
        return 0
    from clustergym.training.evaluation import evaluate, markdown

    config = compose_config("evaluate", overrides)
    outcome = evaluate(config, progress=True)
    text = markdown(outcome, overrides)
    print(text, end="")
    for key, content in (("report", text), ("json", json.dumps(outcome, indent=1) + "\n")):
        if config[key] is not None:
            write_text(Path(str(config[key])), content, key)
            print(f"wrote {config[key]}", file=sys.stderr)
    return 0


def _program(argv: list[str]) -> int:
    """Score a program, and print or write its figures."""
    parser = argparse.ArgumentParser(prog="clustergym evaluate", description=PROGRAM_SUMMARY)
    parser.add_argument(
        "--policy-file", type=Path, required=True, nargs="?", help="the program, a Python file"
    )
    parser.add_argument("--task", default="elastic", help="of conf/task, or a YAML file (default: elastic)")
    traces = parser.add_mutually_exclusive_group()
    traces.add_argument("--mode", default="train", help="train or test (default: train)")
    traces.add_argument("--beacon", help="public value, later than the program, that draws sealed traces")
    parser.add_argument("--traces", type=int, help="first traces of the mode (default: all)")
    parser.add_argument("--user", help="system user that the program runs as; for root alone")
    parser.add_argument("--json", default="-", help="file for the figures (default: -, stdout)")
    given = parser.parse_args(argv)
    if given.policy_file is None:
        parser.error("--policy-file takes a file")
    from clustergym.training.program_task import evaluate_program, load_task

    task = load_task(given.task)
    which = (given.mode, given.traces, given.user, given.beacon)
    outcome = evaluate_program(given.policy_file, task, *which)
    text = json.dumps(outcome, indent=1) + "\n"
    if given.json == "-":
        print(text, end="")
    else:
        write_text(Path(given.json), text, "--json")
        print(f"wrote {given.json}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
