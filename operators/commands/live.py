"""`clustergym live policy=… scenario=…`: let a policy drive a real scheduler."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.common.errors import exits_on_bad_input
from clustergym.scenario.configuration.hydra_edge import run_hydra

if TYPE_CHECKING:
    from clustergym.operators.live.checks import LiveOptions

SUMMARY = """\
Let a policy drive Slurm on a scenario, beside the simulator with the same policy, and write the results of
both. The jobs are allocations that hold the GPUs for as long as the scenario's jobs would run."""
MORE = """\
Examples:
  clustergym live policy=ares
  clustergym live policy=arena live.clock=scaled live.seconds_per_hour=60
  clustergym live policy=fcfs live.dry_run=true
  clustergym live policy=sia live.engine=slurm live.partition=gpu scenario.failures=null
  clustergym live policy=fcfs live.engine=slurm live.jobs=scripts

Killed and started again by the same command, it goes on with what runs (journal.jsonl)."""


def live_job(config: Mapping[str, Any], folder: Path) -> bool:
    """Run a live configuration; return whether its events differ from a simulation's, or a script failed."""
    from clustergym.operators.live.checks import LiveOptions as Options
    from clustergym.operators.live.live_run import call_lines, dry_run, first_difference, run_live

    from clustergym.common.parameters import build
    from clustergym.common.tables import print_table
    from clustergym.results.report.metric_tables import comparison_table
    from clustergym.results.report.run_text import print_heading
    from clustergym.results.report.write import write_run_report
    from clustergym.results.run_job import run_policy
    from clustergym.scenario.registry import make_placer, make_policy
    from clustergym.scenario.scenario_config import build_scenario

    options: LiveOptions = build(Options, config["live"], "live")
    if options.jobs is not None:
        return _drive_own_scripts(config, options, folder)
    scenario, policy = build_scenario(config), make_policy(config["policy"])
    if options.dry_run:
        dry_run(scenario, policy, config, options)
        return False
    print_heading(scenario, [policy], config["seed"])
    live = run_live(scenario, policy, config, options, folder)
    again, placer, beside = make_policy(config["policy"]), make_placer(config["placer"]), folder / "simulated"
    simulated, _ = run_policy(scenario, again, placer, {**config, "progress": False}, beside)
    if config["report"]:
        write_run_report([folder, beside])
    if config["table"]:
        columns = [{**live, "policy": f"{policy.name}, live"}, {**simulated, "policy": "simulated"}]
        print_table(comparison_table(columns, [name for name in live["metrics"] if live["metrics"][name]]))
    for line in call_lines(live["live"]):
        print(line)
    if options.clock == "scaled":
        ratio = live["metrics"]["jct_mean"] / simulated["metrics"]["jct_mean"]
        told = f"mean JCT {ratio:.4f} times the simulator's"
        print(f"scaled clock: {told}; wrote {folder}/ and simulated/ in it")
        return False
    difference = first_difference(folder, beside)
    if difference:
        print(f"lock-step: DIFFERS from the simulator at {difference}")
    else:
        equal = f"decisions, nodes and times equal the simulator's (digest {live['digest'][:16]}…)"
        print(f"lock-step: {equal}; wrote {folder}/ and simulated/ in it")
    return bool(difference)


def _drive_own_scripts(config: Mapping[str, Any], options: LiveOptions, folder: Path) -> bool:
    """Drive a user's scripts; return whether one of them did not complete."""
    from clustergym.operators.live.own.drive import JOBS_CSV, drive_scripts
    from clustergym.operators.live.slurm import Slurm

    from clustergym.scenario.registry import make_placer, make_policy

    policy, placer, queues = config["policy"], config["placer"], config["scenario"].get("queues")
    found = drive_scripts(
        options, folder, lambda: (make_policy(policy), make_placer(placer)), Slurm(), queues
    )
    states = ", ".join(f"{count} {state.lower()}" for state, count in sorted(found.items()))
    print(f"{sum(found.values())} scripts: {states}; wrote {folder / JOBS_CSV}")
    return set(found) != {"COMPLETED"}


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym live`: let a policy allocate GPUs on a real scheduler; return the exit status.

    It is 1 if the events of a lock-step run differ from the simulation's.
    """
    from clustergym.commands.command_help import print_help_if_asked

    given = sys.argv[1:] if argv is None else argv
    if print_help_if_asked("live", SUMMARY, given, more=MORE):
        return 0
    differs = []

    def job(config: Mapping[str, Any], folder: Path) -> None:
        differs.append(live_job(config, folder))

    return run_hydra(job, given, "clustergym.live", name="live") or int(any(differs))


if __name__ == "__main__":
    sys.exit(main())
