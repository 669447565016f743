"""Gavel's objectives, and its FIFO, where jobs may share GPUs in pairs."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.policy import Decision, PairOptions, View

from . import finish_times, packed_programs
from .linear_programs import Finishes, group_like_jobs
from .packed_programs import ALONE, PackedProblem, PackedSolution
from .requests import find_requested_level

FIFO_GAIN = 1.5
"""FIFO pairs a job only where both together keep more than this many times one job's speed."""


def compute_packed_shares(
    objective: str, view: View, times: finish_times.RequestTimes, pairs: PairOptions, second_stage: bool
) -> Floats:
    """Return the share of time of each job, [i, i], and of each pair, [i, j] with i < j, shape (n, n, T).

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
    """Return the share of their speed that jobs keep beside each other at their requests, shape (m, m, T)."""
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
    """Start waiting jobs in order of arrival; if the first has no room, let it share GPUs if that gains."""
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
