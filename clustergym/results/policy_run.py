"""Run a policy on a scenario and write its result, unless the folder has it already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.parameters import build
from clustergym.common.progress import progress_of
from clustergym.results.measured_run import simulate
from clustergym.results.result_writing import content_of, finished, run_key, unfinished_mark, write_result
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.child import guarded
from clustergym.sim.engine import StalledError
from clustergym.sim.guard import RunOptions, Watch


def run_policy(
    scenario: Scenario, policy: Policy, placer: Placer, config: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], bool]:
    """Return a policy's result, and whether the policy had to be run for it.

    `config` is the composed configuration, which is written beside the result.
    """
    seed, options = int(config["seed"]), build(RunOptions, config.get("run") or {}, "run")
    done = finished(folder, run_key(scenario, policy, placer, seed))
    if done is not None:
        print(f"{policy.name}: finished already, not run again ({folder / 'result.json'})")
        return done, False

    def task(watch: Watch) -> dict[str, Any]:
        with progress_of(policy.name, len(scenario.trace), bool(config.get("progress", True))) as progress:
            result = simulate(scenario, policy, placer, seed, progress, watch)
        content = content_of(result, policy, placer, seed)
        write_result(folder, config, result, content)
        return content

    try:
        with unfinished_mark(folder, policy.name):
            return guarded(task, policy, placer, options.decision_limit_s), True
    except StalledError as error:
        raise InputError(str(error), field=f"policy {policy.name}", remedy="nothing was written") from error
