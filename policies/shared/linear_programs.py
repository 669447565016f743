"""Linear programs over shares of time on GPU types (Gavel, OSDI '20, section 4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints

from .integer_programs import SolverError

INTERIOR_POINT_FROM = 200
"""From this many groups on, HiGHS's interior point with crossover is faster than its dual simplex."""
FLOOR_SLACK = 1e-6
"""Fraction by which floors under progress are lowered: above HiGHS's own tolerance of 1e-7."""
SHADOW_PRICE = 1e-6
"""A job with more than this of the shadow prices, 1 in all, of a max-min program is a bottleneck."""
FINISH_TOLERANCE = 1e-6
"""Relative tolerance of the least finish ratio."""
FINISH_STEPS = 50
"""Most programs solved to find one least finish ratio."""


@dataclass(frozen=True)
class ShareProblem:
    """A linear program for the shares of time that groups of equal jobs get on each GPU type.

    The shares x[m, t] >= 0 of every job of group m sum up to at most 1 over all types, and on each type they
    use at most its GPUs: sum over m of members[m] gpus[m] x[m, t] <= capacity[t].

    Attributes
    ----------
    rate : ndarray of float, shape (m, T)
        Progress per second while running; 0 where the job cannot run.
    gpus : ndarray of int, shape (m,)
        GPUs of one job of the group.
    members : ndarray of int, shape (m,)
        Jobs in the group.
    capacity : ndarray of int, shape (T,)
    """

    rate: Floats
    gpus: Ints
    members: Ints
    capacity: Ints

    def progress(self, share: Floats) -> Floats:
        """Return the progress per second of a job in each group under these shares of time, shape (m,)."""
        rate: Floats = (self.rate * share).sum(axis=1)
        return rate

    def measure_violation(self, share: Floats) -> float:
        """Return by how much shares of time violate a constraint at most, relatively; 0 if none."""
        used = ((self.members * self.gpus)[:, None] * share).sum(axis=0)
        over = np.concatenate([share.sum(axis=1) - 1.0, used / np.maximum(self.capacity, 1) - 1.0])
        return max(float(over.max(initial=0.0)), float((-share).max(initial=0.0)))


def group_like_jobs(*columns: Floats | Ints) -> tuple[Ints, Ints, Ints]:
    """Group jobs with equal values in all columns; return one job of each, each job's group, and sizes.

    A program that treats like jobs alike has an optimum that gives them equal shares: the
    average over their permutations. So grouping is exact.

    Returns
    -------
    first, inverse, members : ndarray of int
        A job of each group; each job's group; the number of jobs per group.
    """
    table = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    _, first, inverse, members = np.unique(
        table, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    return first, inverse.reshape(-1), members


def max_min_shares(problem: ShareProblem, need: Floats, second_stage: bool = True) -> tuple[Floats, float]:
    """Compute the shares of time that maximise the least progress / need; return them and that value.

    Parameters
    ----------
    problem : ShareProblem
    need : ndarray of float, shape (m,)
        Progress per second that counts as 1; 0: the job is left out of the minimum.
    second_stage : bool
        Whether to solve the second program, which spends what the first leaves idle, so that the
        shares are Pareto-optimal. False: some optimum of the first.

    Returns
    -------
    shares : ndarray of float, shape (m, T)
    level : float
        The least progress / need.

    Raises
    ------
    SolverError
    """
    share, level, _ = _level(problem, need, np.zeros_like(need))
    if not second_stage:
        return share, level
    # The second program keeps the level for all (its floor) and maximises the total on top of it.
    weight = np.where(need > 0, 1.0 / np.where(need > 0, need, 1.0), 0.0)
    return max_total_shares(problem, weight, level * need), level


def max_total_shares(problem: ShareProblem, weight: Floats, floor: Floats | None = None) -> Floats:
    """Compute the shares of time that maximise total weight x progress, with progress of at least `floor`.

    Raises
    ------
    SolverError
    """
    worth = (problem.members * weight)[:, None] * problem.rate
    nothing = np.zeros(len(problem.gpus))
    return _solve(problem, worth, 0.0, nothing, nothing if floor is None else floor)[0]


def water_filling_shares(problem: ShareProblem, need: Floats) -> Floats:
    """Compute shares of time by raising progress / need of all jobs equally, each until it cannot rise.

    Gavel, section 4.3. Bottlenecked jobs are those that run all the time on their fastest type,
    found by bisection over the levels at which that happens, and those with a shadow price:
    complementary slackness holds them at the level in every optimum, and one at least has a price.

    Raises
    ------
    SolverError
    """
    floor, left = np.zeros_like(need), need > 0
    most = problem.rate.max(axis=1)
    share = np.zeros_like(problem.rate)
    while left.any():
        full, (share, level, price) = _highest(problem, need, floor, left, most)
        problem = _only_fastest(problem, full)
        bottleneck = left & ~full & (price > SHADOW_PRICE)
        # Gavel, section 4.3: bottlenecked jobs keep the level that they have reached while the others are
        # raised.
        floor = np.where(full, most, np.where(bottleneck, level * need, floor))
        left = left & ~full & ~bottleneck
        if not (bottleneck | full).any():
            raise SolverError("no job is a bottleneck")
    return share


def _highest(
    problem: ShareProblem, need: Floats, floor: Floats, left: Bools, most: Floats
) -> tuple[Bools, tuple[Floats, float, Floats]]:
    """Raise the level of the jobs that are left until some of them can rise no further.

    Returns
    -------
    full : ndarray of bool, shape (m,)
        Jobs left that reach all that they can make, `most`, on the way.
    solution : tuple
        As of `_level`, for the jobs left that are not full.
    """
    ceiling = most / np.where(left, need, 1.0)
    heights = np.unique(ceiling[left])

    def solve_step(steps: int) -> tuple[Bools, tuple[Floats, float, Floats]] | None:
        # Ceilings in ascending order: after so many steps of the bisection's scale these jobs are at their
        # most.
        full = left & (ceiling <= (heights[steps - 1] if steps else -np.inf))
        rising, kept = np.where(left & ~full, need, 0.0), np.where(full, most, floor)
        try:
            fastest = _only_fastest(problem, full)
            found = _solve(fastest, np.zeros_like(problem.rate), float(rising.any()), rising, kept)
        except SolverError:
            if steps == 0:
                raise
            return None
        reached = not rising.any() or not steps or found[1] >= heights[steps - 1] * (1 - FLOOR_SLACK)
        return (full, found) if reached else None

    low, high, best, steps = 0, len(heights) + 1, None, len(heights)
    while high - low > 1:
        answer = solve_step(steps)
        low, high, best = (steps, high, answer) if answer else (low, steps, best)
        steps = (low + high) // 2
    return best or solve_step(0) or (left & False, _level(problem, need, floor))


def _only_fastest(problem: ShareProblem, full: Bools) -> ShareProblem:
    """Forbid the slower types to jobs that must run all the time on their fastest type."""
    slower = problem.rate < problem.rate.max(axis=1, keepdims=True)
    return replace(problem, rate=np.where(full[:, None] & slower, 0.0, problem.rate))


def least_finish_ratio_shares(
    problem: ShareProblem, elapsed_s: Floats, remaining: Floats, ideal_s: Floats, second_stage: bool = True
) -> tuple[Floats, float]:
    """Compute shares of time that minimise the worst job's (elapsed + remaining / progress) / ideal.

    Gavel, section 4.2. For a ratio R a job needs the progress remaining / (R ideal - elapsed),
    and R is attainable if the level of these needs reaches 1. The shadow prices of the level
    bound the least ratio from below, which is the next R (Newton's method, a cut a step).
    `second_stage` is that of `max_min_shares`, at the needs of the least ratio.

    Returns
    -------
    shares : ndarray of float, shape (m, T)
    ratio : float
        Within `FINISH_TOLERANCE` of the least.

    Raises
    ------
    SolverError
    """
    counts = np.isfinite(ideal_s) & (remaining > 0) & (problem.rate > 0).any(axis=1)
    if not counts.any():
        return _equal_shares(problem), 0.0
    jobs = Finishes(elapsed_s, remaining, np.where(counts, ideal_s, 1.0), counts)
    share = _equal_shares(problem)
    ratio = best = jobs.ratio(problem.progress(share))
    least = float((elapsed_s[counts] / ideal_s[counts]).max())
    for _ in range(FINISH_STEPS):
        need = jobs.compute_needed_rates(ratio)
        found, level, price = _level(problem, need, np.zeros_like(need))
        reached = jobs.ratio(problem.progress(found))
        if reached < best:
            share, best = found, reached
        bound = jobs.bound(price / np.where(counts, need, 1.0), level, least, best)
        least = max(least, bound)
        if best - least <= FINISH_TOLERANCE * best:
            break
        # Newton's step where the bound leaves every job time; else bisection, which always makes progress.
        ratio = bound if bound == least and (jobs.room(bound) > 0).all() else (least + best) / 2
    if not second_stage:
        return share, best
    need = jobs.compute_needed_rates(best)
    weight = np.where(counts, 1.0 / np.where(counts, need, 1.0), 0.0)
    return max_total_shares(problem, weight, need), best


class Finishes(NamedTuple):
    """Elapsed time, remaining work and ideal time of jobs, for the ratios of finish time to ideal time."""

    elapsed_s: Floats
    remaining: Floats
    ideal_s: Floats
    counts: Bools

    def ratio(self, progress: Floats) -> float:
        """Return the greatest total time / ideal time of a job, given the jobs' progress per second."""
        if not (progress[self.counts] > 0).all():
            return np.inf
        ratio = (self.elapsed_s + self.remaining / np.where(self.counts, progress, 1.0)) / self.ideal_s
        return float(ratio[self.counts].max())

    def room(self, ratio: float) -> Floats:
        """Return the seconds each job may still take until its total time / ideal time is `ratio`."""
        return np.where(self.counts, ratio * self.ideal_s - self.elapsed_s, 1.0)

    def compute_needed_rates(self, ratio: float) -> Floats:
        """Return the progress per second with which each job's total time / ideal time is `ratio`."""
        need: Floats = np.where(self.counts, self.remaining / self.room(ratio), 0.0)
        return need

    def bound(self, price: Floats, level: float, low: float, high: float) -> float:
        """Return a lower bound on the least ratio, from `low` to `high`, by a linear program's dual values.

        `price` has the dual values, and `level` is the program's value.
        """
        priced = price > 0
        part = Finishes(
            self.elapsed_s[priced], self.remaining[priced], self.ideal_s[priced], self.counts[priced]
        )
        low = max(low, float((part.elapsed_s / part.ideal_s).max()))
        for _ in range(60):
            middle = (low + high) / 2
            room = part.room(middle)
            short = not (room > 0).all() or float((price[priced] * part.remaining / room).sum()) > level
            low, high = (middle, high) if short else (low, middle)
        return low


def _equal_shares(problem: ShareProblem) -> Floats:
    jobs = max(int(problem.members.sum()), 1)
    share = problem.capacity[None, :] / (jobs * problem.gpus[:, None])
    share = np.where(problem.rate > 0, share, 0.0)
    limited: Floats = share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)
    return limited


def _level(problem: ShareProblem, need: Floats, floor: Floats) -> tuple[Floats, float, Floats]:
    """Maximise the level z at which each job progresses by need x z, and by its floor at least."""
    if not (need > 0).any():
        return _equal_shares(problem), 0.0, np.zeros_like(need)
    return _solve(problem, np.zeros_like(problem.rate), 1.0, need, floor)


def _solve(
    problem: ShareProblem, worth: Floats, worth_of_level: float, need: Floats, floor: Floats
) -> tuple[Floats, float, Floats]:
    """Maximise worth . x + worth_of_level z, where progress >= need z + floor of each job."""
    from scipy.optimize import linprog

    m, types = problem.rate.shape
    can = problem.rate > 0
    # Progress in units of the job's fastest type keeps coefficients of slow and fast jobs alike in size.
    unit = np.where(can.any(axis=1), problem.rate.max(axis=1), 1.0)
    scale = float((need / unit).max()) if worth_of_level else 1.0
    rows = _rows(problem, unit, need / scale)
    slack = np.maximum(floor / unit * (1 - FLOOR_SLACK), 0.0)
    bounds = np.zeros((m * types + 1, 2))
    bounds[:-1, 1] = can.ravel()
    bounds[-1, 1] = np.inf if worth_of_level else 0.0
    aim = np.append(-worth.ravel() / max(float(np.abs(worth).max(initial=0.0)), 1e-300), -worth_of_level)
    # The dual simplex is the faster one for few groups, the interior point method for many.
    method = "highs-ds" if m < INTERIOR_POINT_FROM else "highs-ipm"
    limits = np.concatenate([np.ones(m), np.ones(types), -slack])
    solved = linprog(aim, A_ub=rows, b_ub=limits, bounds=bounds, method=method)
    if solved.status != 0:
        raise SolverError(solved.message)
    share: Floats = np.clip(solved.x[:-1].reshape(m, types), 0.0, 1.0)
    if problem.measure_violation(share) > 1e-6:
        raise SolverError(f"a limit is exceeded by {problem.measure_violation(share)}")
    price: Floats = -np.asarray(solved.ineqlin.marginals)[m + types :] * need / (unit * scale)
    return share, float(solved.x[-1]) / scale, price


def _rows(problem: ShareProblem, unit: Floats, need: Floats) -> object:
    """Return the constraint matrix: a row for each job's time, each type and each job's progress."""
    from scipy.sparse import csr_matrix

    m, types = problem.rate.shape
    columns = np.arange(m * types)
    owner, gpu_type = np.divmod(columns, types)
    used = (problem.members * problem.gpus)[owner] / np.maximum(problem.capacity, 1)[gpu_type]
    values = np.concatenate([np.ones(m * types), used, -(problem.rate / unit[:, None]).ravel(), need / unit])
    row = np.concatenate([owner, m + gpu_type, m + types + owner, m + types + np.arange(m)])
    column = np.concatenate([columns, columns, columns, np.full(m, m * types)])
    return csr_matrix((values, (row, column)), shape=(2 * m + types, m * types + 1))
