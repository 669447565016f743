"""Run the policies of one configuration, unless their results are there; write and print them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError, require_known
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


def run_job(config: Mapping[str, Any], folder: Path) -> float | None:
    """Simulate one configuration, write its result to a folder, and return its objective's value, if any."""
    from clustergym.results.metrics.catalogue import METRICS

    if config.get("objective") is not None:
        require_known(config["objective"], METRICS, "metric", "objective")
    from clustergym.results.report.run_text import print_heading, print_results
    from clustergym.results.report.wandb_logger import log_result, read_logger_choice
    from clustergym.scenario.registry import make_placer, make_policy
    from clustergym.scenario.scenario_config import kept_scenario

    logger = read_logger_choice(config)
    scenario = kept_scenario(config)
    policies = [make_policy(config["policy"])]
    compare = config.get("compare")
    if compare is not None and compare != policies[0].name:
        policies.append(make_policy({"name": compare}))
    print_heading(scenario, policies, config["seed"], make_placer(config["placer"]))
    results, folders, fresh = [], [], False
    for policy in policies:
        main = policy is policies[0]
        target = folder if main else folder / "compare" / policy.name
        own = {
            **config,
            "policy": config["policy"] if main else {"name": compare},
            "compare": compare if main else None,
        }
        result, ran = run_policy(scenario, policy, make_placer(config["placer"]), own, target)
        results.append(result)
        folders.append(target)
        fresh |= ran
    asked = config.get("report", "auto")
    if asked and (fresh or not (folder / "report.html").is_file()):
        from clustergym.results.report.write import MANY_JOBS, write_run_report

        write_run_report(folders, asked == "auto" and len(scenario.trace) > MANY_JOBS)
    if logger.name == "wandb" and fresh:
        page = folder / "report.html"
        log_result(logger, config, results[0], folder, page if page.is_file() else None)
    print_results(results, scenario, folder, bool(config.get("table", True)))
    value = results[0]["metrics"].get(config.get("objective"))
    return None if value is None else float(value)


def run_policy(
    scenario: Scenario, policy: Policy, placer: Placer, config: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], bool]:
    """Run a policy, or read its finished result; return the result's content, and whether it ran now.

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
