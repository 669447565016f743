"""`clustergym run policy=… scenario=…`: run a policy on a scenario and write the result."""

from __future__ import annotations

import sys

from clustergym.common.errors import exits_on_bad_input
from clustergym.results.run_job import run_job
from clustergym.scenario.configuration.hydra_edge import run_hydra


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    from clustergym.commands.command_help import RUN_MORE, RUN_SUMMARY, print_help_if_asked

    given = sys.argv[1:] if argv is None else argv
    if print_help_if_asked("run", RUN_SUMMARY, given, "config", RUN_MORE):
        return 0
    return run_hydra(run_job, given, "clustergym.run")


if __name__ == "__main__":
    sys.exit(main())
