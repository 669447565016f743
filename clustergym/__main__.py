"""The command line `clustergym COMMAND …`, which lists and runs every command."""

from __future__ import annotations

import importlib
import sys

from clustergym.common.errors import InputError, exits_on_bad_input, nearest

COMMANDS = {
    "run": ("clustergym.commands.run", "run a policy on a scenario and compare it with a reference policy"),
    "live": ("clustergym.operators.commands.live", "let a policy drive Slurm, beside the simulator"),
    "train": ("clustergym.commands.train", "train an agent and write its checkpoint"),
    "evaluate": (
        "clustergym.commands.evaluate",
        "compare policies and checkpoints on the windows of a split",
    ),
    "bound": ("clustergym.commands.bound", "prove what no schedule of a scenario can beat"),
    "replay": ("clustergym.commands.replay", "rebuild a result from its decision log and compare digests"),
    "leaderboard": ("clustergym.commands.leaderboard", "check, score, render and add leaderboard entries"),
    "study": (
        "clustergym.commands.study",
        "run scenarios x policies x seeds of a file; write tables and plots",
    ),
    "tune": ("clustergym.commands.tune", "search for the values of keys that better a metric"),
    "offline": ("clustergym.commands.offline", "write episodes of an environment for offline learning"),
    "collect": ("clustergym.commands.collect", "tabulate the results under one or more folders"),
    "report": ("clustergym.commands.report", "draw the results under one or more folders in one page"),
    "trace": ("clustergym.commands.trace", "import, validate, describe, generate or slice traces"),
    "twin": ("clustergym.operators.commands.twin", "replay one's own cluster, and ask what if"),
    "reproduce": ("clustergym.papers.reproduce", "run a paper's comparison beside its published figures"),
    "cluster": ("clustergym.commands.cluster", "describe or draw a cluster"),
    "oracle": ("clustergym.commands.oracle", "explain, fit and validate the performance oracle"),
    "bench": ("clustergym.bench.command", "compare placement algorithms; time the engine and decisions"),
}


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command that `argv` (default: `sys.argv[1:]`) names; return its exit status."""
    given = sys.argv[1:] if argv is None else argv
    if not given or given[0] in ("-h", "--help"):
        print("usage: clustergym COMMAND …\n")
        for name, (_, summary) in COMMANDS.items():
            print(f"  {name:<12}{summary}")
        print("\n`clustergym COMMAND --help` tells more; `python -m clustergym.COMMAND` is the same.")
        return 0
    if given[0] in ("-V", "--version"):
        print(f"clustergym {importlib.import_module('clustergym').__version__}")
        return 0
    if given[0] not in COMMANDS:
        raise InputError(f"unknown command {given[0]!r}", remedy=nearest(given[0], COMMANDS))
    command = importlib.import_module(COMMANDS[given[0]][0])
    status: int = command.main(given[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
