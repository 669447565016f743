"""A View as text with units, for readers that have only a text window."""

from __future__ import annotations

from typing import Any

import numpy as np

from clustergym.common.arrays import Floats

MOST_JOBS = 40
"""Jobs that a text shows; it says how many more there are."""


def describe(view: Any, times: Floats | None, most_jobs: int = MOST_JOBS) -> str:
    """Return a View as text: the time, the free GPUs, and a line for each job.

    Parameters
    ----------
    view : View
    times : ndarray of float, shape (n, T, K), or None
        Seconds per iteration; None: the policy does not know them.
    most_jobs : int
        Jobs shown, the first to be submitted.

    Returns
    -------
    str
        The time, the GPUs of each type, and a line for each job: what it asks for, holds and has left to do,
        and its iteration times where the information class of the policy includes them.
    """
    setting, shown = view.setting, min(most_jobs, len(view))
    counts = ", ".join(map(str, setting.counts.tolist()))
    lines = [
        f"now_s = {view.now_s:.10g} s; {len(view)} jobs in the system",
        f"A job may hold {counts} GPUs of one type.",
        "GPU types (index name: GPUs in all, available to a decision, free now, per node):",
    ]
    for at, name in enumerate(setting.gpu_types):
        amounts = setting.capacity[at], view.available[at], view.free[at], setting.gpus_per_node[at]
        lines.append("  {} {}: {}, {}, {}, {}".format(at, name, *amounts))
    lines.append("Jobs, in order of submission (job = its row of the trace, which a Decision names):")
    lines += [f"  {_job(view, row)}{_options(view, row, times)}" for row in range(shown)]
    if shown < len(view):
        lines.append(f"  and {len(view) - shown} more")
    return "\n".join(lines) + "\n"


def _job(view: Any, row: int) -> str:
    """Return the line of one job: its request, its GPUs and its remaining work."""
    names, asked = view.setting.gpu_types, int(view.requested_type[row])
    words = [
        f"job {view.job[row]}: submitted at {view.submit_s[row]:.10g} s",
        f"asks for {view.requested_gpus[row]} GPUs of {'any type' if asked < 0 else names[asked]}",
    ]
    if view.gpus[row]:
        words.append(f"runs on {view.gpus[row]} {names[view.gpu_type[row]]}")
        if view.standstill_s[row] > 0:
            words.append(f"begins to work in {view.standstill_s[row]:.4g} s")
    else:
        words.append(f"waits since {view.queued_s[row]:.10g} s")
    words.append(f"{view.remaining_iterations[row]:.6g} of {view.iterations[row]:.6g} iterations left")
    words.append(f"{view.restarts[row]} restarts, {view.attained_gpu_s[row]:.6g} GPU-seconds held")
    # What is 0 or not given is left out: a reader's window is small.
    if view.priority[row]:
        words.append(f"priority {view.priority[row]}")
    if np.isfinite(view.deadline_s[row]):
        words.append(f"deadline at {view.deadline_s[row]:.10g} s")
    if view.time_limit_s is not None and np.isfinite(view.time_limit_s[row]):
        words.append(f"time limit {view.time_limit_s[row]:.6g} s")
    if view.partner is not None and view.partner[row] >= 0:
        words.append(f"shares its GPUs with job {view.partner[row]}")
    if view.setting.queues is not None:
        words.append(f"queue {view.setting.queues.leaves[view.queue[row]]}")
    return ", ".join(words)


def _options(view: Any, row: int, times: Floats | None) -> str:
    """Return seconds per iteration on each (type, count) that the job fits on, or those counts alone."""
    parts = []
    for at, name in enumerate(view.setting.gpu_types):
        fits = view.feasible[row, at] if times is None else np.isfinite(times[row, at])
        counts = np.flatnonzero(fits)
        if len(counts):
            gpus = view.setting.counts
            one = [f"{gpus[k]}" if times is None else f"{gpus[k]}: {times[row, at, k]:.4g}" for k in counts]
            parts.append(f"{name} {{{', '.join(one)}}}")
    what = "fits on" if times is None else "seconds per iteration by GPUs"
    return f"; {what} {' '.join(parts)}" if parts else ""
