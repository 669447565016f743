"""Gavel: a policy that solves for shares of time by a linear program and enacts them in rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import require
from clustergym.common.parameter_types import NonNegativeFloat, OneOf, Period
from clustergym.scenario.policy import Decision, InformationClass, PairOptions, Setting, View

from .shared import finish_times, linear_programs
from .shared.integer_programs import SolverError
from .shared.linear_programs import ShareProblem
from .shared.packed_programs import compute_packed_shares, fifo_decision
from .shared.restart_guard import GuardedPolicy
from .shared.rounds import PackedRounds, RoundMechanism


@dataclass
class Gavel(GuardedPolicy):
    """The policy Gavel (OSDI '20), which runs rounds of jobs by shares of time from linear programs.

    An objective of section 4 is solved for x[job, type], the share of time each job has of
    each GPU type, anew when jobs arrive or leave; the round mechanism of section 5 then
    fills rounds with gangs of the requested size. Objectives:

    - `max_min_fairness` (4.1): the least throughput relative to the isolated share.
    - `max_min_water_filling` (4.3): the same, raised further for jobs that are not a bottleneck.
    - `finish_time_fairness` (4.2): the greatest ratio of finish time to that on an isolated
      share.
    - `min_makespan` (4.2): the time at which the last job ends.
    - `max_total_throughput` (4.2): the sum of throughputs in iterations per second.
    - `fifo`: see below.

    As in Gavel's own simulator, two solutions are at least `solve_interval_s` apart (its reset interval).
    Jobs that arrive in between have no share until the next solution: until then they get only GPUs that
    would be idle. The share of a job that has left counts as idle, too.

    Differences from the paper: throughput is normalised by the isolated share (1/N of each
    type, at most all of the time, on types where the job fits), which is the paper's
    normalisation by an equal share of each type times the scale factor whenever no job's
    isolated share is capped; groups of like jobs are solved as one; what a job is owed is kept
    from one solution to the next, where Gavel's simulator begins anew; a job without a share
    gets idle GPUs only if its restart is shorter than a round. All weights are 1. Ours, off by
    default: `second_stage`, `hold_ties` and `guard`.

    Packed (3.1): pairs of jobs of equal GPU count share GPUs where the scenario has speeds of pairs
    (`scenario.pairs`). The programs then have shares of pairs too, and rounds are filled with jobs and
    pairs; `hold_ties` does not apply, and `guard` is refused. The share of two groups' pairs is divided
    among all pairs of their jobs.

    `fifo` is Gavel's FIFO, without shares of time: jobs start in order of arrival on the fastest type
    with room, none overtakes, all run to their ends. With packing, the first job that finds no room
    shares the GPUs of a job that runs alone: the one with which both together keep the most speed, if
    that is more than 1.5 times one job's speed.

    Types on which pure data parallelism does not fit count as unavailable; the speed of a job
    that fits on none by that measure is guessed (`finish_times.request_times`). A program
    that HiGHS does not solve is replaced by the isolated shares. `counters` has both.

    Parameters
    ----------
    objective : str
        One of the above.
    packed : bool
        Let pairs of jobs share GPUs; without effect where the scenario has no pairs.
    solve_interval_s : float
        Least seconds between two solutions; 0: one whenever jobs have changed.
    second_stage : bool
        Solve a second program that spends what max-min fairness, finish-time fairness or makespan
        leaves idle, for the greatest total; the other objectives leave nothing. False: any optimum.
    hold_ties : bool
        Of equal priorities, the job that holds the GPUs comes first; False: the first type does.
    guard : bool
        Whether a job's turn lasts for 20 restarts (`GuardedPolicy`); False: for a round.
    round_s : float or None
        Seconds between decision points (Gavel: 360).
    """

    name: ClassVar[str] = "gavel"
    information_class: ClassVar[InformationClass] = InformationClass.DATA_PARALLEL
    objective: Annotated[str, OneOf([*OBJECTIVES, FIFO])] = "max_min_fairness"
    packed: bool = False
    solve_interval_s: NonNegativeFloat = 1920.0
    second_stage: bool = False
    hold_ties: bool = False
    round_s: Period | None = 360.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require(not (self.guard and self.packed), "policy.guard", True, "give false, as pairs have none")
        self._start()

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all jobs of the last run."""
        super().reset(setting, rng)
        self._start()

    def _start(self) -> None:
        self._rounds = RoundMechanism(self.round_s or 360.0, self.hold_ties)
        self._packed_rounds = PackedRounds(self.round_s or 360.0)
        self._solved_for: tuple[bytes, ...] = ()
        self._solved_s = -np.inf
        self._guessed: set[int] = set()
        self._programs = self._failures = 0

    def counters(self) -> Mapping[str, int]:
        """Return the number of linear programs solved, of solver failures, and of guessed speeds."""
        return {
            "programs": self._programs,
            "solver_fallbacks": self._failures,
            "jobs_without_profile": len(self._guessed),
        }

    def schedule(self, view: View) -> Decision:
        """Compute new shares of time if jobs have changed and the interval is over; fill the next round."""
        times = finish_times.request_times(view)
        self._guessed.update(view.job[times.guessed].tolist())
        pairs = view.pair_options() if self.packed else None
        if self.objective == FIFO:
            return fifo_decision(view, times.time_s, pairs)
        if pairs is not None:
            return self._decide_packed(view, times, pairs)
        # Section 5: what each job was owed and got is booked before new shares are solved.
        self._rounds.account(view)
        share = self._solve(view, times) if self._due(view, times) else self._rounds.share[view.job]
        return self._rounds.decide(view, share, times.time_s, self.find_guarded(view))

    def _decide_packed(self, view: View, times: finish_times.RequestTimes, pairs: PairOptions) -> Decision:
        rounds = self._packed_rounds
        rounds.account(view)
        share = self._solve_packed(view, times, pairs) if self._due(view, times) else rounds.share
        return rounds.decide(view, share, times.time_s)

    def _due(self, view: View, times: finish_times.RequestTimes) -> bool:
        """Return whether shares are solved for anew now: jobs have changed and the interval is over."""
        jobs = (view.job.tobytes(), np.isfinite(times.time_s).tobytes())
        # Which types a job has times on is part of the key: a profile that ends changes the program as an
        # arrival does.
        due = jobs != self._solved_for and view.now_s - self._solved_s >= self.solve_interval_s
        if due:
            self._solved_for, self._solved_s = jobs, view.now_s
        return due

    def _solve_packed(self, view: View, times: finish_times.RequestTimes, pairs: PairOptions) -> Floats:
        self._programs += 1
        try:
            return compute_packed_shares(self.objective, view, times, pairs, self.second_stage)
        except SolverError:
            self._failures += 1
            # Shares of pairs are in a matrix of (job, job, type); a job by itself stands on the diagonal.
            share = finish_times.compute_isolated_shares(view, times)
            alone = np.zeros((len(view), *share.shape))
            alone[np.arange(len(view)), np.arange(len(view))] = share
            return alone

    def _solve(self, view: View, times: finish_times.RequestTimes) -> Floats:
        self._programs += 1
        try:
            return OBJECTIVES[self.objective](view, times, self.second_stage)
        except SolverError:
            self._failures += 1
            return finish_times.compute_isolated_shares(view, times)


def _problem(
    view: View, times: finish_times.RequestTimes, *columns: Floats
) -> tuple[ShareProblem, tuple[Floats, ...], Ints]:
    """Return the program over groups of jobs that are equal in speed, GPUs and further columns."""
    # T of section 3: throughput by job and type, 0 where the job cannot run.
    rate = np.where(np.isfinite(times.time_s), 1.0 / times.time_s, 0.0)
    first, group, members = linear_programs.group_like_jobs(rate, view.requested_gpus, *columns)
    problem = ShareProblem(rate[first], view.requested_gpus[first], members, view.setting.capacity)
    return problem, tuple(column[first] for column in columns), group


def _max_min_fairness(view: View, times: finish_times.RequestTimes, second_stage: bool) -> Floats:
    problem, (need,), group = _problem(view, times, finish_times.compute_isolated_rate(view, times))
    return linear_programs.max_min_shares(problem, need, second_stage)[0][group]


def _water_filling(view: View, times: finish_times.RequestTimes, _second_stage: bool) -> Floats:
    problem, (need,), group = _problem(view, times, finish_times.compute_isolated_rate(view, times))
    return linear_programs.water_filling_shares(problem, need)[group]


def _finish_time_fairness(view: View, times: finish_times.RequestTimes, second_stage: bool) -> Floats:
    columns = (view.now_s - view.submit_s, view.remaining_iterations, finish_times.ideal_s(view, times))
    # Section 4.2, as Themis has it: time so far plus remaining time, over the time on an isolated share.
    problem, (elapsed_s, remaining, ideal_s), group = _problem(view, times, *columns)
    given = (elapsed_s, remaining, ideal_s, second_stage)
    return linear_programs.least_finish_ratio_shares(problem, *given)[0][group]


def _min_makespan(view: View, times: finish_times.RequestTimes, second_stage: bool) -> Floats:
    # The last job ends earliest if the least throughput over remaining iterations is greatest, so this is
    # max-min fairness with another divisor (section 4.2).
    need = np.where(np.isfinite(times.time_s).any(axis=1), view.remaining_iterations, 0.0)
    problem, (need,), group = _problem(view, times, need)
    return linear_programs.max_min_shares(problem, need, second_stage)[0][group]


def _max_total_throughput(view: View, times: finish_times.RequestTimes, _second_stage: bool) -> Floats:
    problem, _, group = _problem(view, times)
    return linear_programs.max_total_shares(problem, np.ones(len(problem.gpus)))[group]


OBJECTIVES: dict[str, Callable[[View, finish_times.RequestTimes, bool], Floats]] = {
    "max_min_fairness": _max_min_fairness,
    "max_min_water_filling": _water_filling,
    "finish_time_fairness": _finish_time_fairness,
    "min_makespan": _min_makespan,
    "max_total_throughput": _max_total_throughput,
}
"""Shares of time, shape (n, T), by objective; the last argument is `second_stage`."""
FIFO = "fifo"
