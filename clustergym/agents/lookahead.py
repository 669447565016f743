"""Look-ahead of the auction: candidate decisions, played out under drawn arrivals to the last job's end.

Play-outs hold the same auctions as episodes, at every event and without nodes: jobs run at their known times.

Look-ahead at decision time: what a policy has seen of arrivals, and draws of what may come.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.agents import auction
from clustergym.agents.auction import NONE, Bids
from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.policy import View
from clustergym.sim.compiled.numba_cache import compile_entry, compile_fields, compile_in_place, compile_part

ENDED_S = 1e-3
"""A job with less to run has ended."""


class Futures(NamedTuple):
    """Sampled future arrivals of jobs after a decision point: F futures of m arrivals each.

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
    """Up to C candidate decisions: n jobs' GPU types and GPU count indices, -1 for no GPUs, shape (C, n)."""

    gpu_type: Ints
    level: Ints
    filled: Ints


_join_bids = compile_fields(
    Bids, "bids, more, first, last", "np.concatenate((bids.{0}, more.{0}[first:last]))"
)
"""(Auction's inputs, others, first, last) -> the inputs, followed by rows first..last - 1 of the others."""
_of_rows = compile_fields(Bids, "bids, rows", "bids.{}[rows]")
_at_times = compile_fields(Bids, "bids, time_s", "bids.{}", time_s="time_s")


@compile_part
def _bar_jobs(bids: Bids, jobs: Ints) -> Bids:
    """Return a copy of an auction's inputs in which some jobs can run nowhere."""
    time_s = bids.time_s.copy()
    for j in jobs:
        time_s[j] = np.inf
    return _at_times(bids, time_s)


@compile_in_place
def _is_known(made: Candidates) -> bool:
    """Return whether the decision just written is a candidate already."""
    last = made.filled[0]
    for at in range(last):
        same = True
        for j in range(made.gpu_type.shape[1]):
            same &= (
                made.gpu_type[at, j] == made.gpu_type[last, j] and made.level[at, j] == made.level[last, j]
            )
        if same:
            return True
    return False


@compile_part
def _add(made: Candidates, weights: Floats, available: Ints, counts: Ints, bids: Bids, jobs: Ints) -> None:
    """Add the decision that leaves some jobs as they are and lets an auction divide the other GPUs."""
    free, at = available.copy(), made.filled[0]
    for j in jobs:
        if bids.held_level[j] >= 0:
            free[bids.held_type[j]] -= counts[bids.held_level[j]]
    # Nodes may have failed: what jobs held need not be there any more.
    if free.min() < 0:
        return
    gpu_type, level = auction.decide(weights, free, counts, _bar_jobs(bids, jobs))
    gpu_type[jobs], level[jobs] = bids.held_type[jobs], bids.held_level[jobs]
    made.gpu_type[at], made.level[at] = gpu_type, level
    if gpu_type.max() >= 0 and not _is_known(made):
        made.filled[0] += 1


@compile_entry
def candidates(weights: Floats, available: Ints, counts: Ints, bids: Bids) -> Candidates:
    """Return candidate decisions: first the auction's own, then variations in which jobs keep their GPUs.

    In one all running jobs keep what they hold; in each further one, a job whose allotment the auction
    would change keeps what it holds.
    """
    n = len(bids.remaining)
    made = Candidates(np.empty((n + 3, n), np.int64), np.empty((n + 3, n), np.int64), np.ones(1, np.int64))
    gpu_type, level = auction.decide(weights, available, counts, bids)
    made.gpu_type[0], made.level[0] = gpu_type, level
    _add(made, weights, available, counts, bids, np.flatnonzero(bids.held_level >= 0))
    for j in range(n):
        if gpu_type[j] != bids.held_type[j] or level[j] != bids.held_level[j]:
            _add(made, weights, available, counts, bids, np.array([j]))
    return made


@compile_in_place
def _enact(bids: Bids, restart_s: Floats, rows: Ints, gpu_type: Ints, level: Ints) -> None:
    """Give jobs the GPU types and counts of a decision, with the restarts that follow."""
    for at in range(len(rows)):
        j, t, k = rows[at], gpu_type[at], level[at]
        if t == bids.held_type[j] and k == bids.held_level[j]:
            continue
        bids.standstill_s[j] = 0.0 if t == NONE else bids.cost_s[j, t, k]
        # From its next launch on the job pays a plain restart, whatever the first one cost.
        bids.cost_s[j] = restart_s[j]
        if t != NONE:
            bids.cost_s[j, t, k] = 0.0
        bids.held_type[j], bids.held_level[j] = t, k


@compile_in_place
def _next_end_s(bids: Bids, rows: Ints) -> float:
    """Return the seconds to the next completion; inf: nothing runs."""
    soonest = np.inf
    for j in rows:
        if bids.held_level[j] >= 0:
            work_s = bids.remaining[j] * bids.time_s[j, bids.held_type[j], bids.held_level[j]]
            soonest = min(soonest, bids.standstill_s[j] + work_s)
    return soonest


@compile_in_place
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


@compile_entry
def run_playout(
    weights: Floats,
    available: Ints,
    counts: Ints,
    bids: Bids,
    restart_s: Floats,
    arrival_s: Floats,
    gpu_type: Ints,
    level: Ints,
    limit_s: float,
) -> float:
    """Simulate a decision in one future; return the sum of jobs' seconds in the system, inf above `limit_s`.

    Parameters
    ----------
    weights : ndarray of float
        Of the auctions after the first decision.
    available, counts : ndarray of int, shape (T,) and (K,)
    bids : Bids
        Of the jobs in the system and then of those to come; it changes.
    restart_s, arrival_s : ndarray of float, shape (all jobs,) and (jobs to come,)
    gpu_type, level : ndarray of int, shape (jobs in the system,)
        The first decision.
    limit_s : float
        inf is returned as soon as the sum is above it, or if jobs wait that nothing lets run.
    """
    present, to_come = len(gpu_type), len(arrival_s)
    rows, ahead, total, now = np.arange(present), 0, 0.0, 0.0
    _enact(bids, restart_s, rows, gpu_type, level)
    while len(rows) > 0 or ahead < to_come:
        seconds = _next_end_s(bids, rows)
        if ahead < to_come:
            seconds = min(seconds, arrival_s[ahead] - now)
        total += seconds * len(rows)
        # The sum only grows, so a candidate that is worse already can be given up.
        if seconds == np.inf or total > limit_s:
            return np.inf
        _pass(bids, rows, counts, seconds)
        now += seconds
        rows = rows[bids.remaining[rows] >= 0.0]
        while ahead < to_come and arrival_s[ahead] <= now:
            rows = np.append(rows, present + ahead)
            ahead += 1
        if len(rows) > 0:
            gpu_types, levels = auction.decide(weights, available, counts, _of_rows(bids, rows))
            _enact(bids, restart_s, rows, gpu_types, levels)
    return total


@compile_entry
def decide(
    weights: Floats, available: Ints, counts: Ints, bids: Bids, futures: Futures
) -> tuple[Ints, Ints, int]:
    """Simulate candidate decisions; return the best's GPU types, its indices into `counts`, and its number.

    The first future has no arrivals: with drawn ones alone, waiting for the next one looks better than it is.
    A candidate is given up once its sum over the futures so far is above that of the auction's own decision,
    candidate 0, which wins ties.
    """
    made = candidates(weights, available, counts, bids)
    draws, m = futures.arrival_s.shape
    count = made.filled[0]
    total = np.zeros(count)
    # Future -1 has no arrivals; with a single candidate nothing needs to be compared.
    for f in range(-1, draws if count > 1 else -1):
        first, last = (f * m, f * m + m) if f >= 0 else (0, 0)
        restart_s = np.concatenate((futures.restart_s, futures.restarts_s[first:last]))
        arrival_s = futures.arrival_s[f] if f >= 0 else np.empty(0)
        for at in range(count):
            if total[at] < np.inf:
                # Candidate 0 is played out first in each future, so its sum is known when others are compared
                # with it.
                limit_s = np.inf if at == 0 else total[0] - total[at]
                total[at] += run_playout(
                    weights,
                    available,
                    counts,
                    _join_bids(bids, futures.bids, first, last),
                    restart_s,
                    arrival_s,
                    made.gpu_type[at],
                    made.level[at],
                    limit_s,
                )
    best = int(np.argmin(total))
    return made.gpu_type[best], made.level[best], best


ARRIVALS = 16
"""Jobs that arrive in a play-out."""
GAPS = 100
"""Gaps between the latest submissions that arrivals are drawn from."""
LEAST_GAPS = 10
"""With fewer gaps seen, nothing arrives in play-outs."""


class LookAhead:
    """A decision-maker that simulates candidate decisions in several sampled futures and takes the best.

    Gaps and jobs are drawn from those seen in Views of the run so far, each independently.

    Parameters
    ----------
    futures : int
    rng : Generator
    """

    def __init__(self, futures: int, rng: np.random.Generator) -> None:
        self.futures, self.rng = futures, rng
        self._submit_s: dict[int, float] = {}
        self._job: list[tuple[float, Floats, Floats, float]] = []
        self._restart_s: dict[int, float] = {}

    def decide(
        self, weights: Floats, view: View, available: Ints, counts: Ints, bids: Bids
    ) -> tuple[Ints, Ints]:
        """Return the best decision: each job's GPU type and index into `counts`, -1 for no GPUs."""
        self._remember(view, bids)
        gpu_type, level, _ = decide(weights, available, counts, bids, self._draw(view, bids))
        return gpu_type, level

    def _remember(self, view: View, bids: Bids) -> None:
        dearest = bids.cost_s.max(axis=(1, 2)).tolist()
        for at, row in enumerate(view.job.tolist()):
            if row not in self._submit_s:
                self._submit_s[row] = float(view.submit_s[at])
                ahead_s = float(view.deadline_s[at] - view.submit_s[at])
                job = float(view.iterations[at]), bids.time_s[at].copy(), bids.cost_s[at].copy(), ahead_s
                self._job.append(job)
            # What a launch will cost is shown of a job that has been launched.
            if dearest[at] > 0.0:
                self._restart_s[row] = dearest[at]

    def _draw(self, view: View, bids: Bids) -> Futures:
        seen = list(self._restart_s.values()) or [0.0]
        usual_s = float(np.mean(seen))
        restart_s = np.array([self._restart_s.get(row, usual_s) for row in view.job.tolist()])
        # The latest gaps alone, as the load of a trace drifts.
        gaps_s = np.diff(np.sort(list(self._submit_s.values())))[-GAPS:]
        shape = self.futures, ARRIVALS if len(gaps_s) >= LEAST_GAPS else 0
        arrival_s = np.cumsum(self.rng.choice(gaps_s, shape), axis=1) if shape[1] else np.zeros(shape)
        # Gaps and jobs are drawn apart: correlations between them are not kept.
        drawn = [self._job[at] for at in self.rng.integers(len(self._job), size=arrival_s.size)]
        n, of_allotments = len(drawn), bids.time_s.shape[1:]
        times = np.array([time_s for _, time_s, _, _ in drawn]).reshape(n, *of_allotments)
        costs = np.array([cost_s for _, _, cost_s, _ in drawn]).reshape(n, *of_allotments)
        nothing, none = np.zeros(n), np.full(n, NONE, dtype=np.int64)
        arriving = Bids(
            np.array([iterations for iterations, _, _, _ in drawn]),
            times,
            costs,
            none,
            none,
            nothing,
            nothing,
            nothing,
            np.array([ahead_s for _, _, _, ahead_s in drawn]),
        )
        return Futures(restart_s, arrival_s, arriving, self.rng.choice(seen, n))
