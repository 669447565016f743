"""Linear programs over shares of time in which jobs may run alone or in pairs (Gavel, OSDI '20)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.policy import Decision, PairOptions, View

from . import finish_times, packed_programs
from .integer_programs import SolverError
from .linear_programs import (
    FINISH_STEPS,
    FINISH_TOLERANCE,
    FLOOR_SLACK,
    SHADOW_PRICE,
    Finishes,
    group_like_jobs,
)
from .requests import find_requested_level

ALONE = -1
"""The partner of a job that runs alone."""


@dataclass(frozen=True)
class PackedProblem:
    """A linear program for how long groups of equal jobs run alone, or in pairs that share GPUs.

    A way is a group on a GPU type, alone or beside a group (maybe the same). Its variable is a number of
    places, in which jobs run one by one, or two by two, all the time. The jobs of a group run at most
    as long as there is time; a place takes the GPUs of one job, whether it has one or two.

    Attributes
    ----------
    first, second, gpu_type : ndarray of int, shape (C,)
        Groups and GPU type of each way; `second` is `ALONE` where there is one group.
    speed : ndarray of float, shape (C, 2)
        Progress per second of a job of each of the two.
    gpus, members : ndarray of int, shape (m,)
        GPUs of one job of a group; jobs in the group.
    capacity : ndarray of int, shape (T,)
    """

    first: Ints
    second: Ints
    gpu_type: Ints
    speed: Floats
    gpus: Ints
    members: Ints
    capacity: Ints

    @classmethod
    def from_groups(
        cls, rate: Floats, kept: Floats, gpus: Ints, members: Ints, capacity: Ints
    ) -> PackedProblem:
        """Build the linear program from groups of equal jobs, their speeds alone and in pairs, and GPUs.

        Parameters
        ----------
        rate : ndarray of float, shape (m, T)
            Progress per second alone; 0 where the group cannot run.
        kept : ndarray of float, shape (m, m, T)
            Share of its speed that a job keeps beside another group's; 0: they may not share. Pairs that
            together keep no more than one job alone are left out: taking turns is as good.
        gpus, members : ndarray of int, shape (m,)
        capacity : ndarray of int, shape (T,)
        """
        at, gpu_type = np.nonzero(rate > 0)
        runs = (rate > 0)[:, None, :] & (rate > 0)[None, :, :] & (gpus[:, None] == gpus)[..., None]
        gains = runs & (kept > 0) & (kept + kept.swapaxes(0, 1) > 1.0)
        # Each pair of groups once; a group with itself only if it has two jobs.
        gains &= np.triu(np.ones((len(gpus), len(gpus)), dtype=np.bool_))[..., None]
        gains[np.arange(len(gpus)), np.arange(len(gpus))] &= (members > 1)[:, None]
        one, other, on = np.nonzero(gains)
        mine, theirs = rate[one, on] * kept[one, other, on], rate[other, on] * kept[other, one, on]
        alone = np.stack([rate[at, gpu_type], np.zeros(len(at))], axis=1)
        return cls(
            np.concatenate([at, one]),
            np.concatenate([np.full(len(at), ALONE), other]),
            np.concatenate([gpu_type, on]),
            np.concatenate([alone, np.stack([mine, theirs], axis=1)]),
            gpus,
            members,
            capacity,
        )

    def progress(self, places: Floats) -> Floats:
        """Return a job's progress per second in each group, given how long jobs and pairs run (`places`)."""
        total = np.bincount(self.first, self.speed[:, 0] * places, len(self.gpus))
        pair = self.second != ALONE
        total += np.bincount(self.second[pair], (self.speed[:, 1] * places)[pair], len(self.gpus))
        rate: Floats = total / self.members
        return rate


class PackedSolution(NamedTuple):
    """A solution of `PackedProblem`: times of jobs and pairs, the least progress / need, and dual values."""

    places: Floats
    level: float
    price: Floats


def highest_level(
    problem: PackedProblem, need: Floats, floor: Floats | None = None, second_stage: bool = False
) -> PackedSolution:
    """Maximise z: every job's progress, alone or in a pair on its GPUs, is at least need x z and `floor`.

    Parameters
    ----------
    problem : PackedProblem
    need : ndarray of float, shape (m,)
        Progress per second that counts as 1; 0: left out of the minimum.
    floor : ndarray of float, shape (m,), optional
    second_stage : bool
        Spend what that leaves idle, for the greatest total of progress / need.

    Raises
    ------
    SolverError
    """
    nothing = np.zeros_like(need)
    lowest = nothing if floor is None else floor
    if not (need > 0).any():
        return greatest_total(problem, nothing + 1.0, lowest)
    found = _solve(problem, nothing, 1.0, need, lowest)
    if not second_stage:
        return found
    weight = np.where(need > 0, 1.0 / np.where(need > 0, need, 1.0), 0.0)
    return found._replace(places=greatest_total(problem, weight, found.level * need).places)


def greatest_total(problem: PackedProblem, weight: Floats, floor: Floats | None = None) -> PackedSolution:
    """Maximise the sum over jobs of weight x progress, with progress of at least `floor`."""
    nothing = np.zeros_like(weight)
    return _solve(problem, problem.members * weight, 0.0, nothing, nothing if floor is None else floor)


def water_filled(problem: PackedProblem, need: Floats) -> PackedSolution:
    """Raise progress / need of all jobs equally, each until it is limited by the GPUs (as Gavel)."""
    floor, left = np.zeros_like(need), need > 0
    found = PackedSolution(np.zeros(len(problem.first)), 0.0, floor)
    while left.any():
        # Section 4.3: raise the level of those left; a job with a positive price cannot be raised further.
        found = _solve(problem, np.zeros_like(need), 1.0, np.where(left, need, 0.0), floor)
        stops = left & (found.price > SHADOW_PRICE)
        if not stops.any():
            raise SolverError("no job is a bottleneck")
        floor, left = np.where(stops, found.level * need, floor), left & ~stops
    return found


def least_finish_ratio(problem: PackedProblem, jobs: Finishes, second_stage: bool = False) -> PackedSolution:
    """Minimise the greatest total time / ideal time of the jobs, which may run alone or in pairs."""
    counts, nothing = jobs.counts, np.zeros(len(problem.gpus))
    best = highest_level(problem, np.where(counts, jobs.remaining / jobs.ideal_s, 0.0))
    ratio = reached = jobs.ratio(problem.progress(best.places))
    least = float((jobs.elapsed_s[counts] / jobs.ideal_s[counts]).max(initial=0.0))
    if not np.isfinite(ratio):
        return best
    # The ratio is not linear in the shares: bisect it by linear programs, whose prices bound it from below.
    for _ in range(FINISH_STEPS):
        need = jobs.compute_needed_rates(ratio)
        found = _solve(problem, nothing, 1.0, need, nothing)
        now = jobs.ratio(problem.progress(found.places))
        best, reached = (found, now) if now < reached else (best, reached)
        bound = jobs.bound(found.price / np.where(counts, need, 1.0), found.level, least, reached)
        least = max(least, bound)
        if reached - least <= FINISH_TOLERANCE * reached:
            break
        ratio = bound if bound == least and (jobs.room(bound) > 0).all() else (least + reached) / 2
    if not second_stage:
        return best
    need = jobs.compute_needed_rates(reached)
    weight = np.where(counts, 1.0 / np.where(counts, need, 1.0), 0.0)
    return greatest_total(problem, weight, need)


def _solve(
    problem: PackedProblem, worth: Floats, worth_of_level: float, need: Floats, floor: Floats
) -> PackedSolution:
    """Maximise worth . progress + worth_of_level z, where progress >= need z + floor of each job."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix

    m, types, ways = len(problem.gpus), len(problem.capacity), len(problem.first)
    pair, members = problem.second != ALONE, np.maximum(problem.members, 1)
    # In units of each job's own fastest speed, or rows would differ by orders of magnitude.
    unit = np.maximum(np.zeros(m), 1e-300)
    np.maximum.at(unit, problem.first, problem.speed[:, 0])
    scale = float((need / unit).max()) if worth_of_level else 1.0
    way = np.arange(ways)
    group = np.concatenate([problem.first, problem.second[pair]])
    column = np.concatenate([way, way[pair]])
    done = np.concatenate([problem.speed[:, 0], problem.speed[pair, 1]]) / (members * unit)[group]
    room = problem.gpus[problem.first] / np.maximum(problem.capacity, 1)[problem.gpu_type]
    values = np.concatenate([1.0 / members[group], room, -done, need / (unit * scale)])
    rows = np.concatenate([group, m + problem.gpu_type, m + types + group, m + types + np.arange(m)])
    columns = np.concatenate([column, way, column, np.full(m, ways)])
    matrix = csr_matrix((values, (rows, columns)), shape=(2 * m + types, ways + 1))
    # linprog minimises, so what is to be maximised is negative.
    aim = np.append(-np.bincount(column, (worth * unit)[group] * done, ways), -worth_of_level)
    aim[:-1] /= max(float(np.abs(aim[:-1]).max(initial=0.0)), 1e-300)
    slack = np.maximum(floor / unit * (1 - FLOOR_SLACK), 0.0)
    # Rows: time of each group, GPUs of each type, then progress of each group at least need z + floor.
    limits = np.concatenate([np.ones(m), np.ones(types), -slack])
    bounds = np.zeros((ways + 1, 2))
    bounds[:, 1] = np.inf
    bounds[-1, 1] = np.inf if worth_of_level else 0.0
    solved = linprog(aim, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs")
    if solved.status != 0:
        raise SolverError(solved.message)
    price = -np.asarray(solved.ineqlin.marginals)[m + types :] * need / (unit * scale)
    return PackedSolution(np.maximum(solved.x[:-1], 0.0), float(solved.x[-1]) / scale, price)


FIFO_GAIN = 1.5
"""FIFO pairs a job only where both together keep more than this many times one job's speed."""


def compute_packed_shares(
    objective: str, view: View, times: finish_times.RequestTimes, pairs: PairOptions, second_stage: bool
) -> Floats:
    """Return the share of time of each job [i, i] and each pair [i, j] on each type, shape (n, n, T).

    Raises
    ------
    SolverError
    """
    rate = np.where(np.isfinite(times.time_s), 1.0 / times.time_s, 0.0)
    columns = _columns(objective, view, times)
    first, group, members = group_like_jobs(rate, pairs.job_class, view.requested_gpus, *columns)
    kept = find_kept_speeds(view, pairs, first)
    problem = PackedProblem.from_groups(
        rate[first], kept, view.requested_gpus[first], members, view.setting.capacity
    )
    solved = _solve_program(objective, problem, [column[first] for column in columns], second_stage)
    return _divide_places(problem, solved, group)


def find_kept_speeds(view: View, pairs: PairOptions, jobs: Ints) -> Floats:
    """Return the share of its speed that each job keeps beside each other job, shape (m, m, T)."""
    if pairs.kept is None:
        raise ValueError("the information class knows no speeds of pairs")
    of, level = pairs.job_class[jobs], find_requested_level(view)[jobs]
    kept: Floats = pairs.kept[of[:, None], of[None, :], :, level[:, None]]
    return np.where((level[:, None] == level)[..., None], kept, 0.0)


def _columns(objective: str, view: View, times: finish_times.RequestTimes) -> list[Floats]:
    if objective == "finish_time_fairness":
        ideal_s = finish_times.ideal_s(view, times)
        return [view.now_s - view.submit_s, view.remaining_iterations, ideal_s]
    if objective == "min_makespan":
        return [np.where(np.isfinite(times.time_s).any(axis=1), view.remaining_iterations, 0.0)]
    if objective == "max_total_throughput":
        return []
    return [finish_times.compute_isolated_rate(view, times)]


def _solve_program(
    objective: str, problem: PackedProblem, columns: list[Floats], second_stage: bool
) -> PackedSolution:
    if objective == "max_total_throughput":
        return packed_programs.greatest_total(problem, np.ones(len(problem.gpus)))
    if objective == "max_min_water_filling":
        return packed_programs.water_filled(problem, columns[0])
    if objective == "finish_time_fairness":
        elapsed_s, remaining, ideal_s = columns
        counts = np.isfinite(ideal_s) & (remaining > 0)
        jobs = Finishes(elapsed_s, remaining, np.where(counts, ideal_s, 1.0), counts)
        return packed_programs.least_finish_ratio(problem, jobs, second_stage)
    return packed_programs.highest_level(problem, columns[0], second_stage=second_stage)


def _divide_places(problem: PackedProblem, solved: PackedSolution, group: Ints) -> Floats:
    """Divide the places of each way among its jobs, or among all pairs of its jobs."""
    n, types = len(group), len(problem.capacity)
    share = np.zeros((n, n, types))
    jobs = [np.flatnonzero(group == at) for at in range(len(problem.gpus))]
    for way in np.flatnonzero(solved.places > 0).tolist():
        one, other, gpu_type = int(problem.first[way]), int(problem.second[way]), int(problem.gpu_type[way])
        if other == ALONE:
            share[jobs[one], jobs[one], gpu_type] = solved.places[way] / len(jobs[one])
            continue
        i, j = (index.ravel() for index in np.meshgrid(jobs[one], jobs[other], indexing="ij"))
        if one == other:
            i, j = i[i < j], j[i < j]
        share[np.minimum(i, j), np.maximum(i, j), gpu_type] = solved.places[way] / len(i)
    return share


def fifo_decision(view: View, time_s: Floats, pairs: PairOptions | None) -> Decision:
    """Start waiting jobs by arrival; once GPUs run out, let them share other jobs' GPUs while that pays."""
    decision, free = Decision.keep(view), view.free.copy()
    waiting = [int(at) for at in np.flatnonzero(view.gpus == 0) if np.isfinite(time_s[at]).any()]
    started: list[tuple[int, int]] = []
    while waiting:
        at, gpus = waiting[0], int(view.requested_gpus[waiting[0]])
        on = np.where(free >= gpus, time_s[at], np.inf)
        if not np.isfinite(on).any():
            break
        started.append((at, int(np.argmin(on))))
        free[started[-1][1]] -= gpus
        waiting.pop(0)
    if pairs is None or view.partner is None:
        return decision.also(
            (int(view.job[at]), gpu_type, int(view.requested_gpus[at])) for at, gpu_type in started
        )
    held = [(int(at), int(view.gpu_type[at])) for at in np.flatnonzero((view.gpus > 0) & (view.partner < 0))]
    lone, joined = [*held, *started], list[tuple[int, int]]()
    kept = find_kept_speeds(view, pairs, np.arange(len(view)))
    for at in waiting:
        gains = [float(kept[at, i, t] + kept[i, at, t]) * float(kept[at, i, t] > 0) for i, t in lone]
        best = int(np.argmax(gains)) if gains else 0
        # In order of arrival: where the first that waits gains too little, those behind it do not share
        # either.
        if not gains or gains[best] <= FIFO_GAIN:
            break
        partner, gpu_type = lone.pop(best)
        started.append((at, gpu_type))
        joined.append((int(view.job[at]), int(view.job[partner])))
    table = [(int(view.job[at]), gpu_type, int(view.requested_gpus[at])) for at, gpu_type in started]
    lasting = [
        (int(row), int(other)) for row, other in zip(view.job, view.partner, strict=True) if row < other
    ]
    return decision.also(table).paired([*lasting, *joined])
