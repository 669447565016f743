"""`clustergym run policy=… scenario=…`: run a policy on a scenario and write the result."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clustergym.configuration.hydra_edge import run_hydra
from clustergym.inputs.errors import InputError, exits_on_bad_input
from clustergym.interface.policy import Placer, Policy


def run_job(config: Mapping[str, Any], folder: Path) -> float | None:
    """Run one composed configuration, write into a folder, and return the objective's metric, if any."""
    _check_objective(config.get("objective"))
    from clustergym.interface.registry import make_placer, make_policy
    from clustergym.report.wandb_logger import log_result, logger_of
    from clustergym.scenarios.scenario_config import build_scenario

    logger = logger_of(config)
    scenario = build_scenario(config)
    policies = [make_policy(config["policy"])]
    compare = config.get("compare")
    if compare is not None and compare != policies[0].name:
        policies.append(make_policy({"name": compare}))
    _print_heading(scenario, policies, config["seed"])
    results, folders, fresh = [], [], False
    for policy in policies:
        main = policy is policies[0]
        target = folder if main else folder / "compare" / policy.name
        own = {
            **config,
            "policy": config["policy"] if main else {"name": compare},
            "compare": compare if main else None,
        }
        result, ran = _run_policy(scenario, policy, make_placer(config["placer"]), own, target)
        results.append(result)
        folders.append(target)
        fresh |= ran
    if config.get("report", True) and (fresh or not (folder / "report.html").is_file()):
        from clustergym.report.write import write_run_report

        write_run_report(folders)
    if logger.name == "wandb" and fresh:
        page = folder / "report.html"
        log_result(logger, config, results[0], folder, page if page.is_file() else None)
    _print_results(results, scenario, folder, bool(config.get("table", True)))
    value = results[0]["metrics"].get(config.get("objective"))
    return None if value is None else float(value)


def _check_objective(name: object) -> None:
    from clustergym.inputs.errors import nearest
    from clustergym.metrics.catalogue import METRICS

    names = list(METRICS)
    if name is not None and name not in names:
        raise InputError(f"unknown metric {name!r}", field="objective", remedy=nearest(str(name), names))


def _run_policy(
    scenario: Any, policy: Policy, placer: Placer, config: Mapping[str, Any], folder: Path
) -> tuple[dict[str, Any], bool]:
    """Return a policy's result, and whether the policy had to be run for it."""
    from clustergym.inputs.parameters import build
    from clustergym.results.measured_run import simulate
    from clustergym.results.writing import content_of, finished, run_key, unfinished_mark, write_result
    from clustergym.sim.child import guarded
    from clustergym.sim.engine import StalledError
    from clustergym.sim.guard import RunOptions, Watch
    from clustergym.terminal.progress import progress_of

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


def _print_heading(scenario: Any, policies: list[Policy], seed: int) -> None:
    gpus = " + ".join(
        f"{count} {name}"
        for count, name in zip(scenario.cluster.capacity, scenario.cluster.gpu_types, strict=True)
    )
    names = " against ".join(policy.name for policy in policies)
    until = "to completion" if scenario.horizon_s is None else f"for {scenario.horizon_s:,.0f} s"
    print(
        f"{names} on scenario {scenario.name} v{scenario.version}: trace {scenario.trace.name} "
        f"({len(scenario.trace):,} jobs), cluster {scenario.cluster.name} ({gpus}), seed {seed}, {until}"
    )
    from clustergym.workload.describe import print_drawn

    print_drawn(scenario.trace, "trace.rule, trace.any_type")
    changed = int(scenario.request_changed.sum())
    if changed:
        print(
            f"note: {changed} requests were raised or moved to the least allotment that fits (see jobs.csv)"
        )


def _print_results(results: list[dict[str, Any]], scenario: Any, folder: Path, in_full: bool) -> None:
    from clustergym.report.metric_tables import comparison_table, verdict
    from clustergym.results.writing import FILES
    from clustergym.terminal.tables import print_table

    where = os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)
    if not in_full:
        stopped = scenario.horizon_s is not None
        jct_s = results[0]["metrics"]["jct_mean_censored" if stopped else "jct_mean"]
        counted = ", unfinished jobs counted to the horizon" * stopped
        print(f"mean JCT {'-' if jct_s is None else f'{jct_s:,.0f} s'}{counted}; wrote {where}/")
        return
    metrics = [name for name in results[0]["metrics"] if any(result["metrics"][name] for result in results)]
    print_table(comparison_table(results, metrics))
    if len(results) > 1 and (sentence := verdict(results, scenario.horizon_s is not None)):
        print(sentence)
    print(f"wrote {where}/: {', '.join(FILES)}" + (" (and compare/)" if len(results) > 1 else ""))
    if (folder / "report.html").is_file():
        print(f"report: {where}/report.html")


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (default: the process's)."""
    from clustergym.configuration.command_help import RUN_MORE, RUN_SUMMARY, helped

    given = sys.argv[1:] if argv is None else argv
    if helped("run", RUN_SUMMARY, given, "config", RUN_MORE):
        return 0
    return run_hydra(run_job, given, "clustergym.run")


if __name__ == "__main__":
    sys.exit(main())
