"""Look-ahead of the auction: candidate decisions, played out under drawn arrivals to the last job's end.

Play-outs hold the same auctions as episodes, at every event and without nodes: jobs run at their known times.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.agents import auction
from clustergym.agents.auction import NONE, Bids
from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compiled, compiled_in_place, compiled_part

ENDED_S = 1e-3
"""A job with less to run has ended."""


class Futures(NamedTuple):
    """What n jobs of a decision point will meet: F draws of m arrivals.

    Attributes
    ----------
    restart_s : ndarray of float, shape (n,)
        Seconds of standstill of every launch of the jobs after the next.
    arrival_s : ndarray of float, shape (F, m)
        Seconds from now, ascending.
    bids : Bids
        Of the F m arriving jobs as they arrive, one draw after the other.
    restarts_s : ndarray of float, shape (F m,)
        Their `restart_s`.
    """

    restart_s: Floats
    arrival_s: Floats
    bids: Bids
    restarts_s: Floats


class Candidates(NamedTuple):
    """Decisions for n jobs; shape (C, n), -1: nothing. The first `filled[0]` rows are."""

    kind: Ints
    level: Ints
    filled: Ints


@compiled_part
def _joined(bids: Bids, more: Bids, first: int, last: int) -> Bids:
    """Return a copy of the bids, and of rows of others after them."""
    return Bids(
        np.concatenate((bids.remaining, more.remaining[first:last])),
        np.concatenate((bids.time_s, more.time_s[first:last])),
        np.concatenate((bids.cost_s, more.cost_s[first:last])),
        np.concatenate((bids.held_type, more.held_type[first:last])),
        np.concatenate((bids.held_level, more.held_level[first:last])),
        np.concatenate((bids.standstill_s, more.standstill_s[first:last])),
        np.concatenate((bids.age_s, more.age_s[first:last])),
        np.concatenate((bids.attained_gpu_s, more.attained_gpu_s[first:last])),
        np.concatenate((bids.slack_s, more.slack_s[first:last])),
    )


@compiled_part
def _of_rows(bids: Bids, rows: Ints) -> Bids:
    return Bids(
        bids.remaining[rows],
        bids.time_s[rows],
        bids.cost_s[rows],
        bids.held_type[rows],
        bids.held_level[rows],
        bids.standstill_s[rows],
        bids.age_s[rows],
        bids.attained_gpu_s[rows],
        bids.slack_s[rows],
    )


@compiled_part
def _barred(bids: Bids, jobs: Ints) -> Bids:
    """Return bids in which jobs can run nowhere."""
    time_s = bids.time_s.copy()
    for j in jobs:
        time_s[j] = np.inf
    return Bids(
        bids.remaining,
        time_s,
        bids.cost_s,
        bids.held_type,
        bids.held_level,
        bids.standstill_s,
        bids.age_s,
        bids.attained_gpu_s,
        bids.slack_s,
    )


@compiled_in_place
def _known(made: Candidates) -> bool:
    """Whether the decision in the first row that does not count yet is a candidate already."""
    last = made.filled[0]
    for at in range(last):
        same = True
        for j in range(made.kind.shape[1]):
            same &= made.kind[at, j] == made.kind[last, j] and made.level[at, j] == made.level[last, j]
        if same:
            return True
    return False


@compiled_part
def _add(made: Candidates, weights: Floats, available: Ints, counts: Ints, bids: Bids, jobs: Ints) -> None:
    """Add the decision in which jobs keep what they hold, or go on waiting, and an auction gives the rest."""
    free, at = available.copy(), made.filled[0]
    for j in jobs:
        if bids.held_level[j] >= 0:
            free[bids.held_type[j]] -= counts[bids.held_level[j]]
    if free.min() < 0:
        return
    kind, level = auction.decide(weights, free, counts, _barred(bids, jobs))
    kind[jobs], level[jobs] = bids.held_type[jobs], bids.held_level[jobs]
    made.kind[at], made.level[at] = kind, level
    if kind.max() >= 0 and not _known(made):
        made.filled[0] += 1


@compiled
def candidates(weights: Floats, available: Ints, counts: Ints, bids: Bids) -> Candidates:
    """Return the auction's own decision first, and others.

    In one all running jobs keep what they hold; in each further one, a job whose allotment the auction
    would change keeps what it holds.
    """
    n = len(bids.remaining)
    made = Candidates(np.empty((n + 3, n), np.int64), np.empty((n + 3, n), np.int64), np.ones(1, np.int64))
    kind, level = auction.decide(weights, available, counts, bids)
    made.kind[0], made.level[0] = kind, level
    _add(made, weights, available, counts, bids, np.flatnonzero(bids.held_level >= 0))
    for j in range(n):
        if kind[j] != bids.held_type[j] or level[j] != bids.held_level[j]:
            _add(made, weights, available, counts, bids, np.array([j]))
    return made


@compiled_in_place
def _enact(bids: Bids, restart_s: Floats, rows: Ints, kind: Ints, level: Ints) -> None:
    """Give jobs their allotments."""
    for at in range(len(rows)):
        j, t, k = rows[at], kind[at], level[at]
        if t == bids.held_type[j] and k == bids.held_level[j]:
            continue
        bids.standstill_s[j] = 0.0 if t == NONE else bids.cost_s[j, t, k]
        bids.cost_s[j] = restart_s[j]
        if t != NONE:
            bids.cost_s[j, t, k] = 0.0
        bids.held_type[j], bids.held_level[j] = t, k


@compiled_in_place
def _next_end_s(bids: Bids, rows: Ints) -> float:
    """Return the seconds to the next completion; inf: nothing runs."""
    soonest = np.inf
    for j in rows:
        if bids.held_level[j] >= 0:
            work_s = bids.remaining[j] * bids.time_s[j, bids.held_type[j], bids.held_level[j]]
            soonest = min(soonest, bids.standstill_s[j] + work_s)
    return soonest


@compiled_in_place
def _pass(bids: Bids, rows: Ints, counts: Ints, seconds: float) -> None:
    """Let time pass; jobs that end have -1 iterations left."""
    for j in rows:
        bids.age_s[j] += seconds
        bids.slack_s[j] -= seconds
        if bids.held_level[j] < 0:
            continue
        bids.attained_gpu_s[j] += seconds * counts[bids.held_level[j]]
        time_s = bids.time_s[j, bids.held_type[j], bids.held_level[j]]
        bids.remaining[j] -= max(seconds - bids.standstill_s[j], 0.0) / time_s
        bids.standstill_s[j] = max(bids.standstill_s[j] - seconds, 0.0)
        if bids.remaining[j] * time_s + bids.standstill_s[j] < ENDED_S:
            bids.remaining[j] = -1.0


@compiled
def play_out(
    weights: Floats,
    available: Ints,
    counts: Ints,
    bids: Bids,
    restart_s: Floats,
    arrival_s: Floats,
    kind: Ints,
    level: Ints,
    limit_s: float,
) -> float:
    """Return the seconds that all jobs together spend in the system from now on.

    Parameters
    ----------
    weights : ndarray of float
        Of the auctions after the first decision.
    available, counts : ndarray of int, shape (T,) and (K,)
    bids : Bids
        Of the jobs in the system and then of those to come; it changes.
    restart_s, arrival_s : ndarray of float, shape (all jobs,) and (jobs to come,)
    kind, level : ndarray of int, shape (jobs in the system,)
        The first decision.
    limit_s : float
        inf is returned as soon as the sum is above it, or if jobs wait that nothing lets run.
    """
    present, to_come = len(kind), len(arrival_s)
    rows, ahead, total, now = np.arange(present), 0, 0.0, 0.0
    _enact(bids, restart_s, rows, kind, level)
    while len(rows) > 0 or ahead < to_come:
        seconds = _next_end_s(bids, rows)
        if ahead < to_come:
            seconds = min(seconds, arrival_s[ahead] - now)
        total += seconds * len(rows)
        if seconds == np.inf or total > limit_s:
            return np.inf
        _pass(bids, rows, counts, seconds)
        now += seconds
        rows = rows[bids.remaining[rows] >= 0.0]
        while ahead < to_come and arrival_s[ahead] <= now:
            rows = np.append(rows, present + ahead)
            ahead += 1
        if len(rows) > 0:
            kinds, levels = auction.decide(weights, available, counts, _of_rows(bids, rows))
            _enact(bids, restart_s, rows, kinds, levels)
    return total


@compiled
def decide(
    weights: Floats, available: Ints, counts: Ints, bids: Bids, futures: Futures
) -> tuple[Ints, Ints, int]:
    """Return type and level of each job by the candidate that is best over all futures, and its number.

    The first future has no arrivals: with drawn ones alone, waiting for the next one looks better than it is.
    A candidate is given up once its sum over the futures so far is above that of the auction's own decision,
    candidate 0, which wins ties.
    """
    made = candidates(weights, available, counts, bids)
    draws, m = futures.arrival_s.shape
    count = made.filled[0]
    total = np.zeros(count)
    for f in range(-1, draws if count > 1 else -1):
        first, last = (f * m, f * m + m) if f >= 0 else (0, 0)
        restart_s = np.concatenate((futures.restart_s, futures.restarts_s[first:last]))
        arrival_s = futures.arrival_s[f] if f >= 0 else np.empty(0)
        for at in range(count):
            if total[at] < np.inf:
                limit_s = np.inf if at == 0 else total[0] - total[at]
                total[at] += play_out(
                    weights,
                    available,
                    counts,
                    _joined(bids, futures.bids, first, last),
                    restart_s,
                    arrival_s,
                    made.kind[at],
                    made.level[at],
                    limit_s,
                )
    best = int(np.argmin(total))
    return made.kind[best], made.level[best], best
