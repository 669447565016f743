"""`clustergym run policy=… scenario=…`: run a policy on a scenario and write the result."""

from __future__ import annotations

import sys
from pathlib import Path

from clustergym.common.errors import exits_on_bad_input
from clustergym.results.run_job import run_job
from clustergym.scenario.configuration.hydra_edge import run_hydra


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym run`: simulate a policy on scenarios, and write results; return the exit status."""
    from clustergym.commands.command_help import RUN_MORE, RUN_SUMMARY, print_help_if_asked

    given = sys.argv[1:] if argv is None else argv
    if print_help_if_asked("run", RUN_SUMMARY, given, "config", RUN_MORE):
        return 0
    return run_hydra(run_job, given, "clustergym.run", after_sweep=print_sweep)


def print_sweep(folder: Path) -> None:
    """Print one table of all runs of a sweep that have a result."""
    if any(folder.glob("*/result.json")):
        from clustergym.results.report.collection import print_tables
        from clustergym.results.report.groups import group_results
        from clustergym.results.result_files import read_results

        print_tables(group_results(read_results([folder])), None)


if __name__ == "__main__":
    sys.exit(main())
