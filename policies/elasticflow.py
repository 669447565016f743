"""ElasticFlow: a policy that admits jobs by deadline and scales them by marginal return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.parameter_types import Factor, Period
from clustergym.scenario.policy import Decision, InformationClass, Policy, Setting, View
from clustergym.trace.trace import Trace

from .shared.finish_times import request_times, standstill_s
from .shared.objectives import check_deadlines
from .shared.requests import find_requested_level
from .shared.reservations import Reservations, demands


class Jobs(NamedTuple):
    """The jobs on one GPU type in ascending order of deadline, as arrays of length m.

    Attributes
    ----------
    at : ndarray of int
        Positions in the View.
    rate, standstill_s : ndarray of float, shape (m, K)
        Iterations per second, 0 where unknown or infeasible; seconds before it works there.
    iterations, deadline_s : ndarray of float
        Work left; seconds from now.
    held : ndarray of int
        Index of the count held; -1: none.
    """

    at: Ints
    rate: Floats
    standstill_s: Floats
    iterations: Floats
    deadline_s: Floats
    held: Ints

    def select(self, rows: Ints) -> Jobs:
        """Return the jobs at the given indices of these arrays."""
        return Jobs(
            self.at[rows],
            self.rate[rows],
            self.standstill_s[rows],
            self.iterations[rows],
            self.deadline_s[rows],
            self.held[rows],
        )


class Shares(NamedTuple):
    """Each job's GPU count now and least cap that meets its deadline (index; -1: none), and if it does."""

    now: Ints
    cap: Ints
    kept: Bools


@dataclass
class ElasticFlow(Policy):
    """The policy ElasticFlow (ASPLOS '23), which admits jobs by deadline and scales those that gain most.

    The paper's Algorithms 1 and 2.

    A job's minimum satisfactory share is the least GPU count with which, taking as much of it as is free
    at any time, it ends by its deadline; shares are reserved in order of deadline. A new job is admitted
    if every admitted job then keeps its deadline, else it is dropped. GPUs left over go, one doubling at
    a time, where a further GPU now saves most GPU time later (the speed gained per GPU, divided by the
    speed per GPU at the minimum share). All is decided anew when a job arrives or leaves, and when a node
    fails or is back.

    `loosened` (the ElasticFlow-LS baseline of Arena, section 5.1) drops no job: the allowed time of a job
    is doubled until its deadline can be kept.

    Differences from the paper: a cluster for each GPU type, jobs on the type they request (a request of
    any goes where the least work waits); time is continuous instead of slotted; restarts are charged as
    work of the job, and a job is scaled up only if that is worth its restart; a running job gets back the
    count it holds before others grow. A job whose data-parallel profile fits nowhere runs as requested,
    at a guessed speed. An admitted job whose deadline becomes impossible because its profile is wrong
    continues as fast as it can.

    Parameters
    ----------
    mode : str
        `strict` or `loosened`.
    least_slack : float
        With `loosened`: a job is allowed at least this many times its run time as requested,
        and just that where it has no deadline.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "elasticflow"
    information_class: ClassVar[InformationClass] = InformationClass.DATA_PARALLEL
    mode: Literal["strict", "loosened"] = "strict"
    least_slack: Factor = 1.0
    round_s: Period | None = 300.0
    _deadline_s: dict[int, float] = field(default_factory=dict, init=False, repr=False)
    _admitted: set[int] = field(default_factory=set, init=False, repr=False)
    _home: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _guessed: set[int] = field(default_factory=set, init=False, repr=False)
    _last: bytes = field(default=b"", init=False, repr=False)
    _running: list[int] = field(default_factory=list, init=False, repr=False)

    def check(self, trace: Trace, setting: Setting) -> None:
        """Raise an `InputError` for a trace without deadlines in the strict mode."""
        if self.mode == "strict":
            remedy = "give it deadlines, or run policy=elasticflow-ls"
            check_deadlines(trace, self.name, "mode=strict", remedy)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all jobs of the last run."""
        self._deadline_s, self._home, self._last = {}, {}, b""
        self._admitted, self._guessed, self._running = set(), set(), []

    def counters(self) -> Mapping[str, int]:
        """Return the number of jobs that no GPU count can run with data parallelism alone."""
        return {"jobs_without_profile": len(self._guessed)}

    def schedule(self, view: View) -> Decision:
        """Admit, drop and scale jobs if jobs or GPUs have come or left; otherwise repeat the decision."""
        # The plan is for continuous time and already says what happens later, so between events it stays
        # valid.
        held = np.isin(self._running, view.job[view.gpus > 0]).all()
        if not len(view) or (held and self._key(view.job, view) == self._last):
            return Decision.keep(view)
        rate, at_request_s = self._rates(view)
        gpu_type = self._types(view, rate, at_request_s)
        allotments: list[tuple[int, int, int]] = []
        dropped: list[int] = []
        for t in range(len(view.setting.gpu_types)):
            group = self._group(view, np.flatnonzero(gpu_type == t), t, rate)
            if len(group.at):
                chosen, out = self._divide(view, group, int(view.available[t]))
                allotments += [(int(view.job[at]), t, gpus) for at, gpus in chosen]
                dropped += view.job[out].tolist()
        self._last = self._key(np.setdiff1d(view.job, dropped), view)
        self._running = [job for job, _, _ in allotments]
        return Decision.of(allotments, dropped)

    def _key(self, jobs: Ints, view: View) -> bytes:
        return jobs.tobytes() + view.available.tobytes()

    def _rates(self, view: View) -> tuple[Floats, Floats]:
        """Return iterations per second, shape (n, T, K), and seconds per iteration, (n, T).

        The latter is at the request; on a type that cannot run the request, at the fastest count.
        """
        rate: Floats = 1.0 / view.iteration_time_s()
        times = request_times(view)
        lost = np.flatnonzero(~(rate > 0).any(axis=(1, 2)))
        level = find_requested_level(view)[lost]
        # Without any data-parallel profile that fits, the one known point is the guess at the request.
        rate[lost[:, None], np.arange(rate.shape[1]), level[:, None]] = 1.0 / times.time_s[lost]
        self._guessed.update(view.job[lost].tolist())
        fastest = rate.max(axis=2)
        fastest_s = np.divide(1.0, fastest, out=np.full_like(fastest, np.inf), where=fastest > 0)
        return rate, np.where(np.isfinite(times.time_s), times.time_s, fastest_s)

    def _types(self, view: View, rate: Floats, at_request_s: Floats) -> Ints:
        """Return each job's GPU type: the requested one, or for a request of any the one first chosen."""
        gpu_type = view.requested_type.copy()
        runs = np.asarray((rate > 0).any(axis=2), dtype=np.bool_)
        astray = (gpu_type >= 0) & ~runs[np.arange(len(view)), gpu_type]
        gpu_type = np.where(astray, -1, gpu_type)
        for at in np.flatnonzero(gpu_type < 0):
            # A job stays on the type that it was first planned on: its reservation is in that type's plan.
            home = self._home.get(int(view.job[at]), -1)
            # The type may have been guessed before all types were profiled, and the job cannot run on it.
            gpu_type[at] = home if home >= 0 and runs[at, home] else -1
        work_s = view.remaining_iterations[:, None] * at_request_s * view.requested_gpus[:, None]
        for at in np.flatnonzero(gpu_type < 0):
            settled = np.flatnonzero(gpu_type >= 0)
            known = np.where(np.isfinite(work_s), work_s, 0.0)
            backlog = np.bincount(gpu_type[settled], known[settled, gpu_type[settled]], rate.shape[1])
            # The paper has one type of GPU; a job of any type joins the type where the least GPU time per GPU
            # waits.
            load = np.where(runs[at], (backlog + work_s[at]) / view.setting.capacity, np.inf)
            gpu_type[at] = self._home[int(view.job[at])] = int(np.argmin(load))
        return gpu_type

    def _group(self, view: View, at: Ints, gpu_type: int, rate: Floats) -> Jobs:
        """Return the jobs of one GPU type in ascending order of deadline."""
        wanted = rate[at, gpu_type, find_requested_level(view)[at]]
        rate_s = np.where(wanted > 0, wanted, rate[at, gpu_type].max(axis=1))
        # A job without a rate still waits for the profiles of the types that can run its request.
        at_request_s = np.divide(1.0, rate_s, out=np.full(len(at), np.inf), where=rate_s > 0)
        deadline_s = np.array(
            [self._get_deadline(view, int(p), float(s)) for p, s in zip(at, at_request_s, strict=True)]
        )
        # Section 4.1: shares are reserved in the order of deadlines.
        at = at[np.lexsort((view.submit_s[at], deadline_s))] if len(at) else at
        held = np.where(view.gpus[at] > 0, np.searchsorted(view.setting.counts, view.gpus[at]), -1)
        held = np.where(view.gpu_type[at] == gpu_type, held, -1)
        return Jobs(
            at,
            rate[at, gpu_type],
            standstill_s(view)[at, gpu_type],
            view.remaining_iterations[at],
            np.sort(deadline_s) - view.now_s,
            held,
        )

    def _get_deadline(self, view: View, at: int, at_request_s: float) -> float:
        """Return a job's present deadline; with `loosened` the trace's may have been put off."""
        given = float(view.deadline_s[at])
        if self.mode == "strict":
            return given if np.isfinite(given) else np.inf
        job = int(view.job[at])
        if not np.isfinite(at_request_s) and job not in self._deadline_s:
            return given if np.isfinite(given) else np.inf
        if job not in self._deadline_s:
            least = float(view.submit_s[at]) + self.least_slack * float(view.iterations[at]) * at_request_s
            self._deadline_s[job] = max(given, least) if np.isfinite(given) else least
        return self._deadline_s[job]

    def _divide(self, view: View, jobs: Jobs, gpus: int) -> tuple[list[tuple[int, int]], list[int]]:
        """Divide a type's GPUs; return (position, GPUs) of jobs to run and the positions of jobs to drop."""
        dropped: list[int] = []
        if self.mode == "strict":
            rows = self._admit(view, jobs, gpus)
            dropped = [int(at) for at in np.delete(jobs.at, rows)]
            jobs = jobs.select(rows)
        shares = self._fill(view, jobs, gpus)
        level = scale_up(jobs, shares, view.setting.counts, gpus)
        counts = view.setting.counts
        return [(int(jobs.at[row]), int(counts[level[row]])) for row in np.flatnonzero(level >= 0)], dropped

    def _admit(self, view: View, jobs: Jobs, gpus: int) -> Ints:
        """Return the rows of jobs that are or can now be admitted, in order of deadline."""
        names = view.job[jobs.at]
        rows = np.flatnonzero([int(name) in self._admitted for name in names])
        kept: Bools = np.zeros(len(names), dtype=np.bool_)
        kept[rows] = self._fill(view, jobs.select(rows), gpus).kept
        # Jobs are tried in the order in which they came: an earlier one is not refused for a
        # later.
        new = np.setdiff1d(np.arange(len(names)), rows)
        for row in new[np.lexsort((names[new], view.submit_s[jobs.at[new]]))]:
            trial = np.sort(np.append(rows, row))
            then = np.zeros_like(kept)
            then[trial] = self._fill(view, jobs.select(trial), gpus).kept
            # Admission guarantees: a new job may break no promise, neither its own nor that of an admitted
            # job.
            if then[row] and not (kept & ~then).any():
                rows, kept = trial, then
        self._admitted.update(names[rows].tolist())
        return rows

    def _fill(self, view: View, jobs: Jobs, gpus: int) -> Shares:
        """Reserve minimum satisfactory shares in order of deadline."""
        m, book = len(jobs.at), Reservations(gpus, view.setting.counts)
        now, cap, kept = np.full(m, -1), np.full(m, -1), np.zeros(m, dtype=np.bool_)
        for row, job in enumerate(demands(jobs.rate, jobs.iterations, jobs.standstill_s)):
            # No GPU is free now, and this mode drops nobody, so plans of later jobs would change nothing now.
            if self.mode == "loosened" and not book.free[0]:
                break
            plans = book.plans(job)
            best_s = float(plans.finish_s.min())
            if not np.isfinite(best_s):
                continue
            deadline_s = float(jobs.deadline_s[row])
            kept[row] = best_s <= deadline_s
            if self.mode == "loosened" and not kept[row]:
                deadline_s = self._loosen(view, int(jobs.at[row]), view.now_s + best_s) - view.now_s
            # A job that cannot be in time any more goes on as fast as it can, hence the maximum.
            in_time = np.isfinite(plans.finish_s) & (plans.finish_s <= max(deadline_s, best_s))
            # Minimum satisfactory share (section 4.1): the least count with which the job ends by its
            # deadline.
            cap[row] = int(np.argmax(in_time))
            now[row] = plans.level_now[cap[row]]
            book.take(int(cap[row]), job, float(plans.finish_s[cap[row]]))
        return Shares(now, cap, kept)

    def _loosen(self, view: View, at: int, finish_s: float) -> float:
        """Double the time that a job is allowed until it suffices; return the new deadline."""
        job, submit_s = int(view.job[at]), float(view.submit_s[at])
        allowed_s = self._deadline_s[job] - submit_s
        # As many doublings at once as the earliest possible end needs; at least one, or nothing would change.
        doublings = math.ceil(math.log2((finish_s - submit_s) / allowed_s))
        self._deadline_s[job] = submit_s + allowed_s * 2.0 ** max(doublings, 1)
        return self._deadline_s[job]


def scale_up(jobs: Jobs, shares: Shares, counts: Ints, gpus: int) -> Ints:
    """Give GPUs beyond the minimum shares to the jobs that gain most; return each job's count index.

    Returns
    -------
    ndarray of int, shape (m,)
        Index of the count each job holds now; -1: none.
    """
    # Algorithm 2: start from the minimum shares and give what is left by marginal return.
    level = shares.now.copy()
    free = gpus - int(counts[level[level >= 0]].sum())
    rows = np.arange(len(level))
    # Ours, before Algorithm 2: jobs get back the count they hold, for keeping it costs no restart.
    for row in np.argsort(-_returns(jobs, shares, counts, level, jobs.held), kind="stable"):
        more = int(counts[jobs.held[row]] - counts[level[row]])
        if (
            0 <= level[row] < jobs.held[row]
            and more <= free
            and jobs.rate[row, jobs.held[row]] > jobs.rate[row, level[row]]
        ):
            level[row] = jobs.held[row]
            free -= more
    above, worth = _doublings(jobs, shares, counts, level, rows)
    while free > 0:
        fits = np.where(counts[above] - counts[level] <= free, worth, 0.0)
        best = int(np.argmax(fits)) if len(fits) else 0
        if not len(fits) or not fits[best] > 0:
            break
        free -= int(counts[above[best]] - counts[level[best]])
        level[best] = above[best]
        # What the other jobs would gain depends on their own counts alone.
        above[[best]], worth[[best]] = _doublings(jobs, shares, counts, level, rows[[best]])
    return level


def _doublings(jobs: Jobs, shares: Shares, counts: Ints, level: Ints, rows: Ints) -> tuple[Ints, Floats]:
    """Return each row's next faster GPU count and what the growth is worth; 0: it does not pay."""
    jobs, level = jobs.select(rows), level[rows]
    shares = Shares(shares.now[rows], shares.cap[rows], shares.kept[rows])
    above, each = _next_level(jobs, level), np.arange(len(rows))
    with np.errstate(divide="ignore", invalid="ignore"):
        saved_s = jobs.iterations * (1 / jobs.rate[each, level] - 1 / jobs.rate[each, above])
    pays = saved_s > jobs.standstill_s[each, above] - jobs.standstill_s[each, level]
    may = (level >= 0) & (above > level) & pays
    return above, np.where(may, _returns(jobs, shares, counts, level, above), 0.0)


def _next_level(jobs: Jobs, level: Ints) -> Ints:
    """Return the next count index at which each job is faster; its present one if there is none."""
    rows, width = np.arange(len(level)), jobs.rate.shape[1]
    faster = (jobs.rate > jobs.rate[rows, level][:, None]) & (np.arange(width) > level[:, None])
    found: Ints = np.where(faster.any(axis=1), np.argmax(faster, axis=1), level)
    return found


def _returns(jobs: Jobs, shares: Shares, counts: Ints, level: Ints, above: Ints) -> Floats:
    """Return speed gained per added GPU / speed per GPU at the minimum share, shape (m,)."""
    rows = np.arange(len(level))
    gained = jobs.rate[rows, above] - jobs.rate[rows, level]
    more = counts[above] - counts[level]
    base = jobs.rate[rows, shares.cap] / counts[shares.cap]
    usable = (level >= 0) & (above > level) & (base > 0)
    found: Floats = np.where(usable, gained, 0.0) / np.where(
        usable, more * np.where(base > 0, base, 1.0), 1.0
    )
    return found
