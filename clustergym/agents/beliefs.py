"""Estimate iteration times from the progress of jobs that ran, for an agent that measures jobs.

It knows none, or those of profiles, at which jobs need not run and which some jobs lack.

Every figure is a ratio to a job's own iterations, so that it does not matter what an iteration is.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from clustergym.agents import auction
from clustergym.agents import auction_features as features
from clustergym.agents.auction import NONE, Bids
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place, compile_part

NAMES = (
    "run_time",  # log of hours that a job which has not been measured takes at its request
    "run_time_gpus",  # power of the requested GPUs by which that is more
    "grow",  # logit of the power of GPUs by which jobs are faster on more
    "shrink",  # logit of the power by which they are slower on fewer
    "own_power",  # logit of the share of a job's own power, where it was measured on two counts
    "power_doubt",  # log of the number of measurements that the first two powers count as
    "type_doubt",  # log of the number of measurements that equal types count as
    "type_hope",  # log of how much faster a type on which a job was not measured is believed to be
)
COUNT = len(NAMES)
START = (0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0)
"""An hour, powers of 0.73, half of a job's own power."""
NAMES_TOLD = (
    *NAMES,
    "profile_doubt",  # logit of the share of powers of GPUs, beside its profile, in how a job scales
)
"""Of an agent that knows the times of profiles."""
START_TOLD = (*START, 0.0)
LEAST_WORKED_S = 30.0
"""Seconds that a job works on an allotment before its speed there is measured."""


class RunStats(NamedTuple):
    """What was measured so far of N jobs' speeds and progress, in the order of the trace.

    Attributes
    ----------
    time_s : ndarray of float, shape (N, T, K)
        Seconds per iteration as measured; 0: not measured.
    works_from_s, remaining : ndarray of float, shape (N,)
        When a job began to work on the allotment that it has, and iterations left then.
    gpu_type, level : ndarray of int, shape (N,)
        That allotment; NONE: none.
    ratio, ratios : ndarray of float, shape (T, T)
        Sum and number of log(seconds on the second type / on the first), over jobs measured on both.
    power : ndarray of float, shape (2,)
        Sum and number of the powers of GPUs by which jobs were faster on more; 0 for one that was slower.
    """

    time_s: Floats
    works_from_s: Floats
    remaining: Floats
    gpu_type: Ints
    level: Ints
    ratio: Floats
    ratios: Floats
    power: Floats


class JobsView(NamedTuple):
    """Properties of jobs when a decision is made, such as total iterations and requested GPUs.

    Attributes
    ----------
    rows : ndarray of int, shape (n,)
        Of the trace.
    now_s : float
    iterations : ndarray of float, shape (n,)
        All that a job makes.
    requested : ndarray of int, shape (n,)
        GPUs.
    feasible : ndarray of bool, shape (n, T, K)
    """

    rows: Ints
    now_s: float
    iterations: Floats
    requested: Ints
    feasible: Bools


def split(weights: Floats) -> tuple[Floats, Floats]:
    """Split an agent's weights into those of the auction and those that estimate iteration times, if any."""
    last = (len(weights) - features.COUNT) % (auction.INPUTS + 2)
    scores = len(weights) - (last if last in (COUNT, len(NAMES_TOLD)) else 0)
    return weights[:scores].copy(), weights[scores:].copy()


def nothing_observed(jobs: int, types: int, levels: int) -> RunStats:
    """Return empty measurements for a run's start, of a given number of jobs, GPU types and GPU counts."""
    return RunStats(
        np.zeros((jobs, types, levels)),
        np.zeros(jobs),
        np.zeros(jobs),
        np.full(jobs, NONE, dtype=np.int64),
        np.full(jobs, NONE, dtype=np.int64),
        np.zeros((types, types)),
        np.zeros((types, types)),
        np.zeros(2),
    )


def with_room(observed: RunStats, jobs: int) -> RunStats:
    """Return a copy of the measurements with room for `jobs` jobs, or themselves if there is room."""
    had = len(observed.gpu_type)
    if jobs <= had:
        return observed
    _, types, levels = observed.time_s.shape
    longer = nothing_observed(max(jobs, 2 * had), types, levels)
    for name in ("time_s", "works_from_s", "remaining", "gpu_type", "level"):
        getattr(longer, name)[:had] = getattr(observed, name)
    return longer._replace(ratio=observed.ratio, ratios=observed.ratios, power=observed.power)


@compile_in_place
def _estimate_power(counts: Ints, time_s: Floats, low: int, high: int) -> float:
    """Return the exponent x for which a job's speed grows with GPUs^x between two GPU counts."""
    return math.log(time_s[low] / time_s[high]) / math.log(counts[high] / counts[low])


@compile_in_place
def _learn(observed: RunStats, counts: Ints, row: int, gpu_type: int, level: int) -> None:
    """Update the estimates of speedups and of ratios between types by a job's first measurement."""
    time_s = observed.time_s[row]
    for k in range(time_s.shape[1]):
        if k != level and time_s[gpu_type, k] > 0.0:
            # A job that is slower on more GPUs need not hold them, so its power counts as 0. If the mean were
            # below 0, no job would be tried on more GPUs, and nothing measured later could correct it.
            power = _estimate_power(counts, time_s[gpu_type], min(k, level), max(k, level))
            observed.power[0] += max(power, 0.0)
            observed.power[1] += 1.0
    for t in range(time_s.shape[0]):
        if t != gpu_type and time_s[t, level] > 0.0:
            log = math.log(time_s[gpu_type, level] / time_s[t, level])
            # Antisymmetric, so that either direction can be looked up.
            observed.ratio[t, gpu_type] += log
            observed.ratio[gpu_type, t] -= log
            observed.ratios[t, gpu_type] += 1.0
            observed.ratios[gpu_type, t] += 1.0


@compile_in_place
def measure(observed: RunStats, counts: Ints, shown: JobsView, bids: Bids) -> None:
    """Measure each running job's seconds per iteration since it got its present GPUs."""
    for at in range(len(shown.rows)):
        row, gpu_type, level = shown.rows[at], bids.held_type[at], bids.held_level[at]
        if level == NONE or gpu_type != observed.gpu_type[row] or level != observed.level[row]:
            continue
        # A standstill that was not planned, as after a failure, begins the measurement anew.
        if bids.standstill_s[at] > 0.0:
            observed.works_from_s[row] = shown.now_s + bids.standstill_s[at]
            observed.remaining[row] = bids.remaining[at]
        worked_s = shown.now_s - observed.works_from_s[row]
        done = observed.remaining[row] - bids.remaining[at]
        if worked_s < LEAST_WORKED_S or done <= 0.0:
            continue
        first = observed.time_s[row, gpu_type, level] == 0.0
        observed.time_s[row, gpu_type, level] = worked_s / done
        if first:
            _learn(observed, counts, row, gpu_type, level)


@compile_in_place
def note(observed: RunStats, shown: JobsView, bids: Bids, gpu_type: Ints, level: Ints) -> None:
    """Record for each job that gets new GPUs when its work on them begins and how many iterations remain."""
    for at in range(len(shown.rows)):
        row = shown.rows[at]
        if level[at] != NONE and (gpu_type[at] != bids.held_type[at] or level[at] != bids.held_level[at]):
            observed.works_from_s[row] = shown.now_s + bids.cost_s[at, gpu_type[at], level[at]]
            observed.remaining[row] = bids.remaining[at]
        observed.gpu_type[row], observed.level[row] = gpu_type[at], level[at]


@compile_in_place
def _nearest(time_s: Floats, level: int) -> int:
    """Return the index of the measured GPU count nearest to `level`, the lower of two, or NONE."""
    for distance in range(len(time_s)):
        if level >= distance and time_s[level - distance] > 0.0:
            return level - distance
        if level + distance < len(time_s) and time_s[level + distance] > 0.0:
            return level + distance
    return NONE


@compile_in_place
def _share(logit: float) -> float:
    return 1.0 / (1.0 + math.exp(-logit))


@compile_in_place
def _own_power(counts: Ints, time_s: Floats) -> float:
    """Return a job's speedup exponent between its least and greatest measured count; NaN if just one."""
    low, high = NONE, NONE
    for k in range(len(time_s)):
        if time_s[k] > 0.0:
            low = k if low == NONE else low
            high = k
    return math.nan if low == high else _estimate_power(counts, time_s, low, high)


@compile_in_place
def _take_for_measured(told_s: Floats, measured: Floats, taken: Floats) -> None:
    """Write a job's measured times or, if there are none, the known times on its least GPU counts."""
    none = True
    for t in range(len(measured)):
        none &= _nearest(measured[t], 0) == NONE
    for t in range(len(measured)):
        least = auction.first_level(told_s[t])
        for k in range(measured.shape[1]):
            taken[t, k] = told_s[t, k] if none and k == least else measured[t, k]


@compile_in_place
def _believe_job(
    beliefs: Floats, observed: RunStats, counts: Ints, powers: tuple[float, float], shown: JobsView, at: int,
    told_s: Floats, measured: Floats, time_s: Floats,
) -> None:  # fmt: skip
    """Write the estimated seconds per iteration of a job, shape (T, K)."""
    types = time_s.shape[0]
    guess_s = 3600.0 * math.exp(beliefs[0]) * float(shown.requested[at]) ** beliefs[1] / shown.iterations[at]
    share = _share(beliefs[4])
    for t in range(types):
        source, factor = t, 1.0
        # Nothing measured on this type: take it from the type that most jobs were measured on besides this
        # one, by their mean ratio, shrunk towards 1 (`type_doubt`).
        if _nearest(measured[t], 0) == NONE:
            most = -1.0
            for u in range(types):
                if _nearest(measured[u], 0) != NONE and observed.ratios[u, t] > most:
                    source, most = u, observed.ratios[u, t]
            known = _nearest(measured[source], 0) != NONE
            source = source if known else 0
            doubt = observed.ratios[source, t] + math.exp(beliefs[6])
            factor = math.exp(observed.ratio[source, t] / doubt - (beliefs[7] if known else 0.0))
        own = _own_power(counts, measured[source])
        for k in range(time_s.shape[1]):
            if not shown.feasible[at, t, k]:
                time_s[t, k] = np.inf
                continue
            near = _nearest(measured[source], k)
            from_s = guess_s if near == NONE else measured[source, near]
            from_gpus = shown.requested[at] if near == NONE else counts[near]
            # Different powers up and down: what is unknown upwards is a hope, and downwards a risk.
            power = powers[0] if counts[k] > from_gpus else powers[1]
            if not math.isnan(own):
                power += share * (own - power)
            time_s[t, k] = factor * from_s * (from_gpus / counts[k]) ** power
            if near != NONE and told_s[t, k] < np.inf and told_s[source, near] < np.inf:
                # What the profile says of the ratio of two allotments, applied to what was measured; then the
                # geometric mean of both, weighted by doubt.
                as_told_s, doubt = from_s * told_s[t, k] / told_s[source, near], _share(beliefs[8])
                time_s[t, k] = time_s[t, k] ** doubt * as_told_s ** (1.0 - doubt)


@compile_part
def believe(beliefs: Floats, observed: RunStats, counts: Ints, shown: JobsView, bids: Bids) -> None:
    """Estimate seconds per iteration with parameters `beliefs`, and write them to `bids.time_s`.

    inf where a job cannot run.

    Parameters
    ----------
    beliefs : ndarray of float
        As in `NAMES`, or in `NAMES_TOLD`: `bids.time_s` then has the known times, inf where none is known.
    """
    told_s, taken = np.full(bids.time_s.shape, np.inf), np.empty(bids.time_s.shape[1:])
    if len(beliefs) > COUNT:
        told_s[:] = bids.time_s
    doubt = math.exp(beliefs[5])
    # The prior counts as `doubt` measurements: with many seen, what is seen decides.
    grow = (doubt * _share(beliefs[2]) + observed.power[0]) / (doubt + observed.power[1])
    shrink = (doubt * _share(beliefs[3]) + observed.power[0]) / (doubt + observed.power[1])
    for at in range(len(shown.rows)):
        _take_for_measured(told_s[at], observed.time_s[shown.rows[at]], taken)
        _believe_job(beliefs, observed, counts, (grow, shrink), shown, at, told_s[at], taken, bids.time_s[at])


@compile_entry
def decide(
    weights: Floats,
    beliefs: Floats,
    observed: RunStats,
    available: Ints,
    counts: Ints,
    shown: JobsView,
    bids: Bids,
) -> tuple[Ints, Ints]:
    """Run an auction with estimated iteration times; return jobs' GPU types and indices into `counts`.

    `bids.time_s` receives the beliefs.
    """
    measure(observed, counts, shown, bids)
    believe(beliefs, observed, counts, shown, bids)
    gpu_type, level = auction.decide(weights, available, counts, bids)
    note(observed, shown, bids, gpu_type, level)
    return gpu_type, level
