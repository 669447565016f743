"""Run a policy on a scenario and write its result, unless the folder has it already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.parameters import build
from clustergym.common.progress import show_jobs_progress
from clustergym.results.columns import choose_logs
from clustergym.results.measured_run import simulate
from clustergym.results.result_writing import (
    find_finished_result,
    make_content,
    mark_unfinished,
    run_key,
    write_result,
)
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.child import run_supervised
from clustergym.sim.engine import StalledError
from clustergym.sim.guard import RunOptions, StepWatchdog


def run_policy(
    scenario: Scenario, policy: Policy, placer: Placer, config: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], bool]:
    """Return a policy's result, and whether the policy had to be run for it.

    `config` is the composed configuration, which is written beside the result.
    """
    seed, options = int(config["seed"]), build(RunOptions, config.get("run") or {}, "run")
    logs = choose_logs(options.logs, len(scenario.trace))
    done = find_finished_result(folder, run_key(scenario, policy, placer, seed), options.logs)
    if done is not None:
        print(f"{policy.name}: finished already, not run again ({folder / 'result.json'})")
        return done, False

    def task(watch: StepWatchdog) -> dict[str, Any]:
        with show_jobs_progress(
            policy.name, len(scenario.trace), bool(config.get("progress", True))
        ) as progress:
            result = simulate(scenario, policy, placer, seed, progress, watch, options.engine)
        content = make_content(result, policy, placer, seed)
        write_result(folder, config, result, content, logs)
        return content

    try:
        with mark_unfinished(folder, policy.name):
            return run_supervised(task, policy, placer, options.decision_limit_s), True
    except StalledError as error:
        raise InputError(str(error), field=f"policy {policy.name}", remedy="nothing was written") from error
