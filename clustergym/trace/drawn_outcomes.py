"""Keep, ignore or draw the outcomes of jobs; the expected shares of drawn ones are a cluster's published."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, dot_in_order
from clustergym.common.errors import InputError, require_known
from clustergym.trace.outcomes import (
    CHOICES,
    SHARES,
    UNKNOWN,
    Shares,
    compute_asked_iterations,
    compute_shares,
    draw_asked,
    no_outcomes,
)
from clustergym.trace.trace import OUTCOMES, Trace
from clustergym.trace.trace_statistics import build_tables, offer

if TYPE_CHECKING:
    from clustergym.trace.draw import TablesOf


def with_outcomes(
    trace: Trace,
    choice: str,
    cluster: ClusterSpec,
    seed: int,
    field: str = "trace.outcomes",
    tables_of: TablesOf | None = None,
) -> Trace:
    """Return a trace with its own, random or no outcomes (completed, failed, killed), as `choice` says.

    `cluster` is where drawn ones' durations are measured, by the tables of `tables_of` (`build_tables`).
    """
    require_known(choice, CHOICES, "choice", field)
    if choice == "ignore":
        return trace.as_ran()
    if choice == "keep":
        if trace.outcome is None:
            raise no_outcomes(trace.path)
        return trace
    # A log that says how its jobs ended, even if that was ignored, is not to get others' shares by an
    # oversight.
    if trace.outcome is not None or "outcomes" in trace.provenance:
        message, remedy = "says itself how its jobs ended", f"choose {field}=keep for its log"
        raise InputError(message, file=trace.path or None, field=field, remedy=remedy)
    duration_s = offer(trace, cluster, build_tables(trace, cluster, tables_of)).duration_s
    return with_drawn_outcomes(trace, choice, duration_s, seed)


def with_drawn_outcomes(trace: Trace, cluster: str, duration_s: Floats, seed: int) -> Trace:
    """Return the trace with random outcomes, in a published cluster's shares, and the work asked for.

    The odds of failing and of being killed, against completing, are each a power of the job's GPU time; the
    two powers and the two factors are those at which the expected shares, by number and by GPU time, are the
    published ones.

    Parameters
    ----------
    trace : Trace
        Without outcomes; its iterations are what each job ran.
    cluster : str
    duration_s : ndarray of float, shape (n,)
        Seconds that each job runs at its request; NaN: not known, its outcome stays unknown.
    seed : int
    """
    known = np.isfinite(duration_s)
    gpu_s = duration_s * trace.gpus
    chances = np.full((len(trace), len(OUTCOMES)), np.nan)
    chances[known] = _chances(gpu_s[known], SHARES[cluster], trace, cluster)
    # Two numbers for every job, used or not: a job's outcome does not depend on those of the jobs before it.
    dice = random_streams.OUTCOMES.generator(seed).random((len(trace), 2))
    picked = (np.cumsum(chances, axis=1)[:, :-1] <= dice[:, :1]).sum(axis=1)
    outcome = [OUTCOMES[index] if there else UNKNOWN for index, there in zip(picked, known, strict=True)]
    asked_s, facts = draw_asked(outcome, duration_s, trace.gpus, dice[:, 1])
    drawn = {"drawn_by": cluster, "seed": seed, **facts, "shares": compute_shares(outcome, gpu_s)}
    return replace(
        trace,
        outcome=tuple(outcome),
        end_iterations=trace.iterations,
        iterations=compute_asked_iterations(trace.iterations, duration_s, asked_s),
        provenance={**trace.provenance, "outcomes": drawn},
    )


def _chances(gpu_s: Floats, shares: Shares, trace: Trace, cluster: str) -> npt.NDArray[np.float64]:
    """Return the probability of each of `OUTCOMES` for jobs of these GPU-seconds, shape (n, 3)."""
    from scipy.optimize import root

    # Relative to the geometric mean, so that the search for the odds is well scaled whatever the unit.
    size = np.log(gpu_s / np.exp(np.log(gpu_s).mean())) if len(gpu_s) else gpu_s
    # Shares are met in expectation, over the jobs of this trace: what is drawn differs from them by chance.
    weight = gpu_s / gpu_s.sum()

    def chances(at: Floats) -> Floats:
        # A multinomial logit in the log of the GPU time: two parameters for each outcome, which meet two
        # shares each, by number and by GPU time.
        odds = np.stack([np.zeros_like(size), at[0] + at[1] * size, at[2] + at[3] * size], axis=1)
        # Less their greatest, so that no exponential overflows on the way of the search.
        part = np.exp(odds - odds.max(axis=1, keepdims=True))
        return np.asarray(part / part.sum(axis=1, keepdims=True))

    def off(at: Floats) -> Floats:
        part = chances(at)
        by_number, by_time = part.mean(axis=0), dot_in_order(part.T, weight)
        found: Floats = np.array([by_number[1], by_time[1], by_number[2], by_time[2]]) - wanted
        return found

    wanted = np.array([shares.failed, shares.failed_gpu_time, shares.killed, shares.killed_gpu_time])
    found = root(off, np.zeros(4), method="lm") if len(gpu_s) else None
    if found is None or np.abs(off(found.x)).max() > 1e-6:
        raise InputError(
            f"{len(gpu_s)} jobs cannot have the shares of {cluster} by number and by GPU time",
            file=trace.path or None,
            field="trace.outcomes",
            remedy="give a trace of more jobs, or of more unequal ones",
        )
    return chances(found.x)
