"""Figures of a run that the metrics lack and pages need, padded JCTs, and figures as texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clustergym.results.measured_run import Result
from clustergym.results.metrics.intervals import Outcome


def number(value: float | int | None, decimals: int = 0) -> str:
    """Return a figure for a table; `-` where there is none."""
    return "-" if value is None else f"{value:,.{decimals}f}"


def column(values: Sequence[float | None], decimals: int = 0) -> list[str]:
    """Return figures for a column of a table; `-` where there is none."""
    return [number(value, decimals) for value in values]


def change(value: float | None, reference: float | None) -> str:
    """Return a relative difference in percent, signed; `-` where it has no meaning."""
    return "-" if value is None or not reference else f"{100 * (value / reference - 1):+.0f} %"


def details_of(result: Result) -> dict[str, Any]:
    """Return figures of a run as plain JSON values.

    `jct_max` is the longest JCT (seconds; None where no job finished). `gpu_s_per_sample` is, by model, the
    GPU-seconds of work that a sample took. `by_priority` is, where a trace has priorities, by priority: the
    jobs, the mean JCT of all (unfinished ones up to now) and the longest wait, seconds.
    """
    trace, records = result.run.simulation.scenario.trace, result.jobs
    finished = np.isfinite(records.jct_s)
    classes = map(trace.model_class, range(len(trace)))
    models = np.array([f"{model.family}-{model.size} {model.global_batch}" for model in classes])
    work_s = records.held_gpu_s - records.overhead_gpu_s
    samples = records.iterations_done * trace.global_batch
    per_sample = {}
    for model in sorted(set(models.tolist())):
        rows = models == model
        if samples[rows].sum() > 0:
            per_sample[model] = float(work_s[rows].sum() / samples[rows].sum())
    return {
        "jct_max": float(records.jct_s[finished].max()) if finished.any() else None,
        "gpu_s_per_sample": per_sample,
        "by_priority": _by_priority(result),
    }


def _by_priority(result: Result) -> dict[str, dict[str, float]]:
    simulation, records = result.run.simulation, result.jobs
    trace, submitted = simulation.scenario.trace, records.outcome != Outcome.NOT_SUBMITTED
    so_far_s = np.where(np.isfinite(records.jct_s), records.jct_s, simulation.now_s - trace.submit_s)
    priorities, found = np.unique(trace.priority).tolist(), {}
    for priority in priorities if len(priorities) > 1 else ():
        rows = submitted & (trace.priority == priority)
        if rows.any():
            found[str(priority)] = {
                "jobs": int(rows.sum()),
                "jct_mean_so_far": float(so_far_s[rows].mean()),
                "queue_max": float(records.queue_s[rows].max()),
            }
    return found


def padded_jct(runs: Mapping[str, Mapping[str, Any]], reference: str) -> dict[str, float]:
    """Return mean JCTs by policy, in seconds, as Arena's and Crius's figures and artifact have them.

    The list of a policy that finished fewer jobs than the reference is padded to as many with the greatest
    JCT of any policy; the mean of any other policy is over its finished jobs. Empty where the reference
    finished no job.
    """
    count = int(runs[reference]["jobs_finished"])
    if not count:
        return {}
    greatest = max(float(run["jct_max"] or 0.0) for run in runs.values())
    means = {}
    for name, run in runs.items():
        finished = int(run["jobs_finished"])
        total = finished * float(run["jct_mean"] or 0.0) + max(count - finished, 0) * greatest
        means[name] = total / max(count, finished)
    return means
