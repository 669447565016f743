"""The value of an allotment to a job, by one of several objectives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.common.errors import InputError
from clustergym.scenario.policy import View
from clustergym.trace.trace import Trace

from .finish_times import remaining_s
from .requests import find_requested_level, get_requested_time_s


def compute_normalised_throughput(view: View) -> Floats:
    """Return each job's throughput relative to that on its requested GPUs, (n, T, K); 0 if unknown.

    A job without any known time (its data-parallel profile fits nowhere, say) is worth 1 as
    requested and nothing elsewhere: it runs as its user asked.
    """
    return _with_unknown(view, get_requested_time_s(view))


def raw_throughput(view: View) -> Floats:
    """Return each job's samples per second by GPU type and count, shape (n, T, K); 0 if unknown.

    A job without any known time is worth 1 on its requested GPUs and nothing elsewhere.
    """
    return _with_unknown(view, np.where(np.isfinite(get_requested_time_s(view)), view.global_batch, np.inf))


def _with_unknown(view: View, work: Floats) -> Floats:
    """Return `work` over seconds per iteration, shape (n, T, K); 1 at the request if work is unknown."""
    known = np.isfinite(work)
    value: Floats = np.where(known, work, 0.0)[:, None, None] / view.iteration_time_s()
    unknown = np.flatnonzero(~known)
    level = find_requested_level(view)[unknown]
    types = np.arange(value.shape[1])
    asked = (view.requested_type[unknown, None] < 0) | (view.requested_type[unknown, None] == types)
    value[unknown[:, None], types, level[:, None]] = (
        asked & view.feasible[unknown[:, None], types, level[:, None]]
    )
    return value


THROUGHPUTS: dict[str, Callable[[View], Floats]] = {
    "raw": raw_throughput,
    "normalised": compute_normalised_throughput,
}
"""Throughput of every allotment, shape (n, T, K), by what it is measured in."""


def meets_deadline(view: View) -> Bools:
    """Return on which GPU types and counts each job ends by its deadline; all if it has none, (n, T, K)."""
    late = view.now_s + remaining_s(view) > view.deadline_s[:, None, None]
    return ~late


def behind(view: View) -> Floats:
    """Return each job's (age + remaining time) / total run time, all on its requested GPUs, shape (n,).

    The finish-time fairness a job would have if it ran as requested from now on, against
    a run of its own as requested (Themis, NSDI '20, section 3); 1 where no time is known.
    """
    reference_s = get_requested_time_s(view)
    known = np.isfinite(reference_s)
    time_s = np.where(known, reference_s, 1.0)
    # T_sh / T_id of Themis, with a run of its own as requested in the place of the 1/N share.
    rho = (view.now_s - view.submit_s + view.remaining_iterations * time_s) / (view.iterations * time_s)
    return np.where(known, rho, 1.0)


OBJECTIVES: dict[str, Callable[[View, Floats], Floats]] = {
    "throughput": lambda view, throughput: throughput,
    "deadline": lambda view, throughput: np.where(meets_deadline(view), throughput, 0.0),
    "finish_time_fairness": lambda view, throughput: throughput * behind(view)[:, None, None],
}
"""Value of every allotment, shape (n, T, K), from its throughput, by the name of the objective."""


def check_deadlines(trace: Trace, policy: str, parameter: str, remedy: str) -> None:
    """Raise an `InputError` unless at least one job of the trace has a deadline."""
    if not np.isfinite(trace.deadline_s).any():
        raise InputError(
            f"policy {policy} with {parameter} needs deadlines, trace {trace.name} has none",
            file=trace.path or None,
            field="deadline_s",
            remedy=remedy,
        )
