"""What goodput policies share: base, configurations, restart factor, observed times, choice of batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import FractionBelowOne, PositiveInt
from clustergym.scenario.policy import BatchOptions, Decision, Policy, Setting, View
from clustergym.trace.trace import Trace

from .integer_programs import FAILED, LIMIT, Choices, ProgramSolution, Solver, check_solver, solve
from .requests import find_held_level

LATE_S = 1e-3
"""Seconds after its decision from which a launch counts as late; less is rounding."""


def restart_factor(view: View, waiting: bool = False, each_s: float | None = None) -> Floats:
    """Return the factor by which a restart lowers each job's goodput, by GPU type and count, shape (n, T, K).

    The share of its age that a job will have worked after one more restart (Sia, section 3.4; Pollux,
    section 4.2); 1 for the allotment a job holds, and, unless `waiting`, for jobs that hold none. Restarts
    cost what the scenario charges, or `each_s` seconds.
    """
    restart_s = view.restart_cost_s() if each_s is None else np.full(view.feasible.shape, each_s)
    # Sia, equation for r_i, and Pollux, RE_FACTOR: (T_i - N_i S_i) / (T_i + S_i), with T the age, N the
    # restarts and S their cost.
    age_s = (view.now_s - view.submit_s)[:, None, None]
    left_s = np.maximum(age_s - view.restarts[:, None, None] * restart_s, 0.0)
    total_s = age_s + restart_s
    factor = np.divide(left_s, total_s, out=np.ones_like(total_s), where=total_s > 0)
    if not waiting:
        factor[view.gpus == 0] = 1.0
    held = np.flatnonzero(view.gpus > 0)
    factor[held, view.gpu_type[held], find_held_level(view)[held]] = 1.0
    return factor


def configurations(setting: Setting) -> Bools:
    """Return which GPU types and counts Sia uses: powers of two in a node, or whole nodes, shape (T, K).

    Powers of two inside a node, then whole nodes, so that jobs on several nodes share none.
    """
    counts, per_node = setting.counts, setting.gpus_per_node[:, None]
    inside = (counts <= per_node) & (counts & (counts - 1) == 0)
    whole = (counts >= per_node) & (counts % per_node == 0)
    configured: Bools = (inside | whole) & (counts <= setting.capacity[:, None])
    return configured


def open_configurations(view: View, most_gpus: Ints | None, growth: int) -> Bools:
    """Return which GPU types and counts each job may have: those Sia uses, up to `growth` x `most_gpus`.

    Shape (n, T, K).

    Only allotments that fit in memory are allowed. A job that fits no configuration anywhere may have
    any count that fits. A job may always keep what it holds.

    Parameters
    ----------
    view : View
    most_gpus : ndarray of int, shape (n,), or None
        The most GPUs each job has held: it may have at most `growth` times as many, and its least count in
        any case. None: no limit.
    growth : int
    """
    counts = view.setting.counts
    allowed = view.feasible & configurations(view.setting)
    nowhere = ~allowed.any(axis=(1, 2))
    # A job that fits on none of the shapes that Sia knows may have any that it runs on.
    allowed[nowhere] = view.feasible[nowhere]
    if most_gpus is not None:
        least = counts[np.argmax(allowed, axis=2)][..., None]
        allowed &= counts <= np.maximum(most_gpus[:, None, None] * growth, least)
    # Last, so that no rule above takes a running job's present allotment from its choices.
    held = np.flatnonzero(view.gpus > 0)
    allowed[held, view.gpu_type[held], find_held_level(view)[held]] = True
    return allowed


class ObservedSpeeds:
    """Iteration times observed in the run, from which those on other GPUs are estimated.

    The policy shows every View before it decides (`observe`) and every Decision (`record_decision`), with the
    batches that it may choose. While a job worked on one allotment from a decision to the next View, the fall
    of its remaining iterations says how long an iteration takes there. On a real cluster a launch comes after
    its decision: what a job did not hold its GPUs for is not counted. If the job trained at another batch
    than it requested, the seconds observed beyond the known time of that batch are taken to be added at the
    requested batch as well.
    """

    def __init__(self) -> None:
        self._observed_s = np.empty((0, 0, 0))
        self._most_gpus = np.zeros(0, dtype=np.int64)
        self._job = self._gpu_type = self._gpus = np.empty(0, dtype=np.int64)
        self._remaining = self._ready_s = self._attained_gpu_s = np.empty(0)
        self._decided_s = 0.0
        self._batch = np.empty(0, dtype=np.int64)
        self._at_batch = np.empty((0, 3))

    def observe(self, view: View, options: BatchOptions | None = None) -> Ints:
        """Record the speeds that a View shows; return the positions of jobs whose observed times changed."""
        self._make_room(view)
        self._most_gpus[view.job] = np.maximum(self._most_gpus[view.job], view.gpus)
        if not len(self._job):
            return np.empty(0, dtype=np.int64)
        at = np.minimum(np.searchsorted(self._job, view.job), len(self._job) - 1)
        same = self._job[at] == view.job
        # A time is credited to an allotment only where the job held that one all the while.
        same &= (self._gpu_type[at] == view.gpu_type) & (self._gpus[at] == view.gpus)
        # Service tells when the launch really came: seconds since the decision that are not in it were waited
        # for.
        held_s = (view.attained_gpu_s - self._attained_gpu_s[at]) / np.maximum(view.gpus, 1)
        late_s = view.now_s - self._decided_s - held_s
        worked_s = view.now_s - self._ready_s[at] - np.where(late_s > LATE_S, late_s, 0.0)
        done = self._remaining[at] - view.remaining_iterations
        row = np.flatnonzero(same & (worked_s > 1e-3) & (done > 0))
        level = np.searchsorted(view.setting.counts, view.gpus[row])
        time_s = worked_s[row] / done[row]
        if options is not None:
            seen = self._at_requested(view, options, row, at[row], time_s)
            row, level, time_s = row[~np.isnan(seen)], level[~np.isnan(seen)], seen[~np.isnan(seen)]
        before = self._observed_s[view.job[row], view.gpu_type[row], level]
        # NaN compares as new; what moved by less than a thousandth keeps its fit.
        new = ~(np.abs(before - time_s) <= 1e-3 * time_s)
        row, level, time_s = row[new], level[new], time_s[new]
        self._observed_s[view.job[row], view.gpu_type[row], level] = time_s
        return row

    def _at_requested(self, view: View, options: BatchOptions, row: Ints, at: Ints, time_s: Floats) -> Floats:
        """Convert observed seconds per iteration to seconds at the requested batch.

        NaN where the efficiency of the job's batch has changed meanwhile.
        """
        batch, (worth, known_s, requested_s) = self._batch[at], self._at_batch[at].T
        other = batch != view.global_batch[row]
        now = batch / view.global_batch[row] * options.efficiency[row, _column(options, row, batch)]
        seen_s = time_s * worth
        more_s = seen_s - known_s
        moved = np.where(more_s >= 0, requested_s + more_s, requested_s * seen_s / known_s)
        return np.where(other, np.where(now == worth, moved, np.nan), time_s)

    def record_decision(self, view: View, decision: Decision, options: BatchOptions | None = None) -> None:
        """Record from a decision when each job begins to work, and on which GPU type and count."""
        order = np.argsort(decision.job)
        job, gpu_type, gpus = decision.job[order], decision.gpu_type[order], decision.gpus[order]
        at = np.searchsorted(view.job, job)
        level = np.searchsorted(view.setting.counts, gpus)
        kept = (view.gpu_type[at] == gpu_type) & (view.gpus[at] == gpus)
        wait_s = np.where(kept, view.standstill_s[at], view.restart_cost_s()[at, gpu_type, level])
        self._job, self._gpu_type, self._gpus = job, gpu_type, gpus
        self._remaining, self._ready_s = view.remaining_iterations[at], view.now_s + wait_s
        self._attained_gpu_s, self._decided_s = view.attained_gpu_s[at], view.now_s
        if options is not None and decision.batch is not None:
            batch = self._batch = decision.batch[order]
            column = _column(options, at, batch)
            worth = batch / view.global_batch[at] * options.efficiency[at, column]
            known = options.iteration_time_s[at, gpu_type, level]
            each = np.arange(len(at))
            own = find_requested_column(view, options)[at]
            self._at_batch = np.stack([worth, known[each, column], known[each, own]], axis=1)

    def get_observed_times(self, view: View) -> Floats:
        """Return observed seconds per iteration, shape (n, T, K); NaN where a job never ran."""
        return self._observed_s[view.job]

    def most_gpus(self, view: View) -> Ints:
        """Return the most GPUs that each job has held so far, shape (n,); 0 if none."""
        return self._most_gpus[view.job]

    def estimates(self, view: View, prior: Floats) -> Floats:
        """Return the iteration times `prior`, corrected by observed ones as in Sia, shape (n, T, K).

        Observed times are returned as they are. On a type where a job ran, the logarithm of the ratio of
        observed time to prior is interpolated linearly between known counts and stays constant beyond the
        last; the least count that fits counts as known from the prior. A type where the job never ran on more
        than that count starts from its own ratio there and follows, over the counts, the mean of the types
        where it did.

        Parameters
        ----------
        view : View
        prior : ndarray of float, shape (n, T, K)
            Bootstrap estimates, seconds; inf where infeasible.
        """
        seen = self.get_observed_times(view)
        rows = np.flatnonzero(np.isfinite(seen).any(axis=(1, 2)))
        if not len(rows):
            return prior
        estimate = prior.copy()
        estimate[rows] = _correct_times(prior[rows], seen[rows])
        return estimate

    def _make_room(self, view: View) -> None:
        types, counts = view.feasible.shape[1:]
        if not self._observed_s.size:
            self._observed_s = np.empty((0, types, counts))
        need = int(view.job[-1]) + 1 if len(view) else 0
        if need > len(self._observed_s):
            more = max(need, 2 * len(self._observed_s)) - len(self._observed_s)
            self._observed_s = np.concatenate([self._observed_s, np.full((more, types, counts), np.nan)])
            self._most_gpus = np.concatenate([self._most_gpus, np.zeros(more, dtype=np.int64)])


def _column(options: BatchOptions, row: Ints, batch: Ints) -> Ints:
    column: Ints = np.argmax(options.sizes[row] == batch[:, None], axis=1)
    return column


def _correct_times(prior: Floats, seen: Floats) -> Floats:
    """Return the prior times corrected by the observed ones (NaN: none), shape (n, T, K)."""
    feasible = np.isfinite(prior)
    ran = np.isfinite(seen) & feasible
    least = np.argmax(feasible, axis=2)[..., None]
    known = ran.copy()
    np.put_along_axis(known, least, feasible.any(axis=2, keepdims=True), axis=2)
    # The least count that fits is known from the bootstrap itself: its ratio is 1 unless the job ran there.
    ratio = np.ones_like(prior)
    np.divide(seen, prior, out=ratio, where=ran)
    log_slowdown = _interpolate_times(np.log(ratio), known)
    levels = np.arange(prior.shape[2])
    more = (ran & (levels > least)).any(axis=2)
    # Where a job ran on its least count alone, nothing is known of scaling there: the mean curve is borrowed.
    curves = (
        np.where(more[..., None], log_slowdown, 0.0).sum(axis=1) / np.maximum(more.sum(axis=1), 1)[:, None]
    )
    borrowed = curves[:, None, :] - np.take_along_axis(
        curves[:, None, :], np.minimum(least, levels[-1]), axis=2
    )
    # Shifted so that the borrowed curve passes through the type's own ratio at its least count.
    own = np.take_along_axis(log_slowdown, least, axis=2)
    log_slowdown = np.where(more[..., None], log_slowdown, own + borrowed)
    corrected: Floats = np.where(ran, seen, prior * np.exp(log_slowdown))
    return corrected


def _interpolate_times(values: Floats, known: Bools) -> Floats:
    """Interpolate the last axis linearly between known values, the nearest outside; 0 if none is known."""
    levels = np.arange(values.shape[-1])
    last = len(levels) - 1
    left = np.maximum.accumulate(np.where(known, levels, -1), axis=-1)
    right = np.minimum.accumulate(np.where(known, levels, last + 1)[..., ::-1], axis=-1)[..., ::-1]
    left, right = np.where(left < 0, right, left), np.where(right > last, left, right)
    none = left > last
    left, right = np.clip(left, 0, last), np.clip(right, 0, last)
    low, high = np.take_along_axis(values, left, -1), np.take_along_axis(values, right, -1)
    share = np.where(right > left, (levels - left) / np.maximum(right - left, 1), 0.0)
    return np.where(none, 0.0, low + share * (high - low))


BatchMode = Literal["known", "chosen", "requested"]
"""The policy chooses the batch of jobs that have a choice; of all, or it is an error; of none."""


def jobs_with_a_choice(mode: str, trace: Trace, setting: Setting) -> int:
    """Return for how many jobs a policy chooses the batch: 0 if `mode` is requested, else all with a choice.

    Raises
    ------
    InputError
        If a batch must be chosen for every job and a job has no choice; the error names the first.
    """
    if mode == "requested":
        return 0
    chosen = [trace.model_class(row) in setting.batch_models for row in range(len(trace))]
    if mode == "chosen" and not all(chosen):
        row = chosen.index(False)
        model = trace.model_class(row)
        raise InputError(
            f"job {trace.job_id[row]}: model {model.model} at batch {model.global_batch} has no noise scale "
            "and times at other batches",
            file=trace.path or None,
            line=int(trace.line[row]) or None,
            field="policy.batch",
            remedy="give known or requested, or an oracle that has them, as oracle=sia",
        )
    return sum(chosen)


def batch_options(mode: str, view: View) -> BatchOptions | None:
    """Return the batches among which a policy may choose for each job; None if `mode` is "requested"."""
    return None if mode == "requested" else view.batch_options()


def find_requested_column(view: View, options: BatchOptions) -> Ints:
    """Return the column of each job's requested batch in the batch options, shape (n,)."""
    column: Ints = np.argmax(options.sizes == view.global_batch[:, None], axis=1)
    return column


def get_requested_time_s(view: View, options: BatchOptions | None) -> Floats:
    """Return the known seconds per iteration at the requested batch by GPU type and count, (n, T, K)."""
    if options is None:
        return view.iteration_time_s()
    column = find_requested_column(view, options)[:, None, None, None]
    return np.take_along_axis(options.iteration_time_s, column, axis=3)[..., 0]


def goodput_at_best_batch(view: View, options: BatchOptions | None, time_s: Floats) -> tuple[Floats, Ints]:
    """Return goodput (samples/s) at the best batch, and that batch, by job, GPU type and count, (n, T, K).

    Goodput is throughput times statistical efficiency; samples count as at the requested batch. Times at
    other batches follow from those known: the seconds by which an estimate exceeds the known time, such as
    synchronisation that a bootstrap does not see, are added at every batch; an estimate below the known time
    scales the times of all batches by the same ratio.

    Parameters
    ----------
    view : View
    options : BatchOptions or None
        None: all train at the requested batch.
    time_s : ndarray of float, shape (n, T, K)
        Estimates at the requested batch; inf where infeasible: the goodput is 0 there.
    """
    requested = view.global_batch[:, None, None]
    if options is None:
        return requested / time_s, np.broadcast_to(requested, time_s.shape)
    known, prior = options.iteration_time_s, get_requested_time_s(view, options)
    fits = np.isfinite(prior) & np.isfinite(time_s)
    # Seconds beyond the known time are taken for communication, which does not depend on the batch, and are
    # added; a job that is faster than known is faster in all it does, and is scaled.
    more = np.where(fits, time_s, 1.0) - np.where(fits, prior, 1.0)
    share = np.where(fits, time_s, 1.0) / np.where(fits, prior, 1.0)
    at_batch = np.where((more >= 0)[..., None], known + more[..., None], known * share[..., None])
    good = (options.sizes * options.efficiency)[:, None, None, :] / at_batch
    good = np.where(fits[..., None], good, 0.0)
    best = np.argmax(good, axis=3)
    sizes = np.broadcast_to(options.sizes[:, None, None, :], good.shape)
    chosen = np.take_along_axis(sizes, best[..., None], axis=3)[..., 0]
    return np.take_along_axis(good, best[..., None], axis=3)[..., 0], chosen


@dataclass
class GoodputPolicy(Policy):
    """Base of policies that choose GPUs and batches of great goodput by an integer program.

    Parameters
    ----------
    batch : str
        Whose batch is chosen: `known`, of jobs whose model has a noise scale and times at other
        batches in the scenario; `chosen`, of all jobs, and one without is an error; `requested`, of none.
    solver : str
        `highs` or `scip`.
    gap : float
        Relative gap at which a solution counts as optimal.
    nodes : int
        Most nodes of a search.
    """

    batch: BatchMode = "known"
    solver: Solver = "scip"
    gap: FractionBelowOne = 1e-4
    nodes: PositiveInt = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_solver(self.solver)
        self._choosing = 0
        self.forget_solutions()

    def forget_solutions(self) -> None:
        """Count the solver's failures and limits from 0."""
        self._failures = self._limits = 0

    def check(self, trace: Trace, setting: Setting) -> None:
        """Raise an `InputError` if the policy must choose a batch for a job that has only one."""
        self._choosing = jobs_with_a_choice(self.batch, trace, setting)

    def counters(self) -> Mapping[str, int]:
        """Return how many jobs have a choice of batch, and how often the solver failed or met its limit."""
        return {
            "jobs_choosing_batch": self._choosing,
            "solver_failures": self._failures,
            "node_limits": self._limits,
        }

    def solve(self, problem: Choices, held: Ints) -> ProgramSolution:
        """Solve a program, beginning with what jobs hold, (n,); count failures and limits met."""
        solution = solve(problem, held, self.solver, self.gap, self.nodes)
        self._failures += solution.status == FAILED
        self._limits += solution.status == LIMIT
        return solution
