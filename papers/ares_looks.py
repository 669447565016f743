"""Looks at one trace, job by job, and how long Ares's decisions take (sections 5.4 and 5.6)."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from . import ares_runs
from .ares_runs import AresRuns, build_run_scenario, build_timed_scenario
from .reproduction import Figures, Options, RunSpec, load_or_make

LOOKED_AT = ("ares", "pollux", "optimus", "themis", "tiresias")
"""Section 5.4 names Themis in its text and Optimus in its captions."""
DEEP_TRACE = "helios sia 1"
GPUS = (64, 128, 256, 512, 1024, 2048)
QUICK_GPUS = (64, 512, 2048)
LIMIT_S = 0.06
"""Ares reports that its decisions at 2,048 GPUs and 640 jobs an hour take less than this."""


def looks(options: Options, study: AresRuns) -> dict[str, Figures]:
    """Run each policy on one trace, or read cached results; return fairness and makespan by policy."""
    runs = {}
    for policy in (name for name in LOOKED_AT if name in study.policies):
        spec = RunSpec(DEEP_TRACE, None, study.length, policy, ares_runs.FIXED.get(policy, ()))
        what = f"{build_run_scenario(options.data, spec).sha256} {spec.label} job by job"
        runs[policy] = load_or_make(options.work, what, partial(_measure_looks, options, spec))
    return runs


def _measure_looks(options: Options, spec: RunSpec) -> Figures:
    from clustergym.results.measured_run import simulate

    result = simulate(build_run_scenario(options.data, spec), spec.make_policy())
    return {"fairness": result.fairness.tolist(), "makespan_s": float(result.timeline.time_s[-1])}


def on_time(run: Figures) -> float:
    """Return the share of a run's jobs that end no later than if jobs always shared the GPUs equally."""
    return float(np.mean(np.array(run["fairness"]) <= 1 + 1e-9))


def decision_times(options: Options, gpus: int) -> Figures:
    """Measure how long Ares's decisions take on a cluster of this many GPUs, or read the cached result."""
    what = f"{build_timed_scenario(gpus).sha256} decisions {LIMIT_S}"
    return load_or_make(options.work, what, partial(_decision_times, gpus))


def _decision_times(gpus: int) -> Figures:
    from clustergym.results.measured_run import simulate

    policy, taken = RunSpec("", None, "", "ares").make_policy(), []
    decide = policy.schedule

    def decide_and_time(view: Any) -> Any:
        started = time.perf_counter()
        decision = decide(view)
        taken.append((time.perf_counter() - started, len(view)))
        return decision

    policy.schedule = decide_and_time  # type: ignore[method-assign]
    simulate(build_timed_scenario(gpus), policy)
    seconds, jobs = np.array(taken).T
    return {
        "gpus": gpus,
        "jobs_most": int(jobs.max()),
        "decision_s_mean": float(seconds.mean()),
        "decision_s_p99": float(np.quantile(seconds, 0.99)),
        "under_limit": float(np.mean(seconds < LIMIT_S)),
    }


def growth(timed: Sequence[Figures]) -> float:
    """Return the mean decision time on the largest cluster divided by that on the smallest."""
    return float(timed[-1]["decision_s_mean"] / timed[0]["decision_s_mean"])


def logarithmic(timed: Sequence[Figures]) -> float:
    """Return by what factor decision times would grow if they were logarithmic in the number of GPUs."""
    return float(np.log(timed[-1]["gpus"]) / np.log(timed[0]["gpus"]))
