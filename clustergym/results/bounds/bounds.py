"""Bounds that no schedule of a scenario can beat, with the prices that prove them (docs/lower-bound.md)."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError, nearest
from clustergym.results.bounds.priced_jobs import PricedJobs, PriceList, least_costs, least_payments
from clustergym.results.metrics.fairness import simulate_fluid
from clustergym.results.metrics.tenants import list_quotas, whole_tree
from clustergym.scenario.clock import TICKS_PER_S
from clustergym.scenario.scenario import Scenario


class Bounds(NamedTuple):
    """Lower bounds on mean JCT and makespan, in seconds, that hold for every scheduler.

    Attributes
    ----------
    jct_mean, makespan : float
        Seconds; 0 without jobs.
    """

    jct_mean: float
    makespan: float


def least_work(scenario: Scenario) -> tuple[Floats, Floats]:
    """Return each job's least run time (s) and least work (GPU-seconds) on any GPUs, both of shape (n,).

    They are minima over all types, counts and localities; inf for a job that is dropped, as its request
    fits nowhere. Waiting, profiling, plan search and restarts only add to them. Parts of GPUs count as such.
    Where jobs share GPUs in pairs, a job may be as much faster as any keeps beside another, and a GPU-second
    do the work that the best pair does in one.
    """
    times = scenario.execution
    counts = scenario.tables.counts
    # A table may have times for more GPUs than a type has: no schedule can use them.
    room = counts[None, :] <= scenario.cluster.capacity[:, None]
    times = np.where(room[None, :, :, None], times, np.inf)
    fastest = times.min(axis=(1, 2, 3))[scenario.class_of]
    leanest = (times * counts[None, None, :, None]).min(axis=(1, 2, 3))[scenario.class_of]
    if scenario.parts is not None:
        # A part of a GPU is held for as long as the job runs, and its times are of one placement: its work
        # follows.
        leanest = fastest * scenario.parts.gpus
    iterations = np.where(scenario.request_gpus > 0, scenario.trace.work_iterations, np.inf)
    if scenario.pairs is not None:
        kept = scenario.pairs.kept
        # Measured tables may let two jobs do more together than one alone. The bound must hold for the best
        # pair, so work is divided by the most that two jobs keep together.
        fastest = fastest / max(1.0, float(kept.max(initial=0.0)))
        leanest = leanest / max(1.0, float((kept + kept.swapaxes(0, 1)).max(initial=0.0)))
    return fastest * iterations, leanest * iterations


def lower_bounds(scenario: Scenario) -> Bounds:
    """Compute lower bounds on a scenario's mean JCT and makespan.

    The mean JCT is at least that of every job alone at its fastest, and at least that of the least
    GPU-seconds served by one machine of all GPUs, shortest remaining work first, which is optimal for
    one machine with preemption (Schrage, 1968). The makespan is at least that of every job alone, and
    of the work that arrives from any instant on, at all GPUs. Where jobs of a window are scored, these alone
    count: the others could only take GPUs from them.
    """
    alone_s, work = least_work(scenario)
    fits = np.isfinite(alone_s) & scenario.scored
    submit, alone_s = scenario.trace.submit_s[fits], alone_s[fits]
    if not len(submit):
        return Bounds(0.0, 0.0)
    # Relaxed to one machine as fast as all GPUs together that may interrupt jobs freely. There the shortest
    # remaining work first is optimal for the mean (Schrage 1968), so its mean bounds every schedule's.
    served_s = work[fits] / float(scenario.cluster.capacity.sum())
    # The trace is in order of submission, so the jobs that arrive from an instant on are a suffix.
    pending = served_s[::-1].cumsum()[::-1]
    last = max(float((submit + alone_s).max()), float((submit + pending).max()))
    jct = max(float(alone_s.mean()), shortest_remaining_first(submit, served_s) / len(submit))
    return Bounds(jct, last - float(submit.min()))


def shortest_remaining_first(submit_s: Floats, work_s: Floats) -> float:
    """Return the sum of JCTs if one machine always serves the job with the least remaining work.

    Parameters
    ----------
    submit_s, work_s : ndarray of float, shape (n,)
        Submission times, ascending; seconds the machine needs for each job.
    """
    left: list[float] = []
    # The sum of completion times less that of submissions is the sum of completion durations.
    total, now = -float(submit_s.sum()), 0.0
    for row in range(len(submit_s) + 1):
        until = float(submit_s[row]) if row < len(submit_s) else np.inf
        while left and now + left[0] <= until:
            now += heapq.heappop(left)
            total += now
        if left:
            # Only the job at the head is served, and it stays the shortest: what others have left does not
            # change.
            heapq.heapreplace(left, left[0] - (until - now))
        now = until
        if row < len(submit_s):
            heapq.heappush(left, float(work_s[row]))
    return total


MEANS = ("jct_mean", "ftf_mean", "tenant_ftf_mean")
"""Metrics that are weighted sums of JCTs, which have a lower bound."""
BOUNDED = (*MEANS, "deadline_satisfaction")
"""Metrics that have a bound; that of the last is an upper one."""
TICK_S = 1 / TICKS_PER_S
ROUNDING = 1e-9
"""Relative margin for the rounding of iteration times and of the sums that make a bound."""


class Programme(NamedTuple):
    """The optimisation problem whose optimum is a lower bound on a metric of a scenario.

    Attributes
    ----------
    metric : str
        Of `BOUNDED`.
    jobs : PricedJobs
        Those of weight above 0 count; the weights add up to 1.
    capacity : ndarray of float, shape (T,)
    before : float
        Weighted time from submission until jobs can hold GPUs, which the metric counts too.
    """

    metric: str
    jobs: PricedJobs
    capacity: Floats
    before: float


class Certificate(NamedTuple):
    """Prices of GPU time that prove a lower bound on a metric; better prices prove a closer bound.

    Attributes
    ----------
    edges_s : ndarray of float, shape (I + 1,)
        Ascending, the first no later than the first job.
    price : ndarray of float, shape (T, I)
        Per GPU-second of each type in each interval, at least 0. After the last edge GPUs are free.
    """

    edges_s: Floats
    price: Floats


def build_programme(scenario: Scenario, metric: str) -> Programme:
    """Build the optimisation problem whose optimum is a lower bound on a metric of a scenario."""
    check_has_bound(scenario, metric)
    jobs, capacity = _jobs(scenario, metric), scenario.cluster.capacity.astype(np.float64)
    return Programme(metric, jobs, capacity, float(jobs.weight @ (jobs.arrival_s - scenario.trace.submit_s)))


def check_has_bound(scenario: Scenario, metric: str) -> None:
    """Raise an `InputError` if a lower bound on the metric would not hold for runs of this scenario.

    A bound counts whole GPUs, one job on each, and its means are over all jobs that fit somewhere. So there
    is none where GPUs are divided or shared, or where jobs leave before their work is done. Failures, slow
    nodes, maintenance, planned jobs, queues and contention only forbid schedules or lengthen them. What jobs
    do by their outcomes is their work, and choices of a global batch are part of the least times.
    """
    if metric not in BOUNDED:
        raise InputError(f"{metric!r} has no bound", field="metric", remedy=nearest(metric, BOUNDED))
    ending = "".join([f"scenario.{found.key}" for found in scenario.disturbances if found.ends_jobs][:1])
    of_jobs_that_end = metric in MEANS
    cases = (
        (
            scenario.horizon_s is not None,
            "horizon_s",
            "a run that stops at its horizon leaves jobs out of its means, so that they have no bound",
            "give horizon_s=null",
        ),
        (
            scenario.parts is not None,
            "cluster",
            "jobs may ask for parts of GPUs, which the bound counts whole",
            "name a cluster whose nodes cannot be divided",
        ),
        (
            scenario.pairs is not None,
            "scenario.pairs",
            "two jobs may share GPUs, which the bound gives to one job at a time",
            "give scenario.pairs=null",
        ),
        (
            of_jobs_that_end and ending != "",
            ending,
            "jobs may be ended before their work is done, and means leave them out: these have no bound",
            f"leave {ending} out, or bound deadline_satisfaction",
        ),
        (
            of_jobs_that_end and bool(np.isfinite(scenario.trace.deadline_s).any()),
            "trace",
            "policies may drop jobs that have deadlines, and means leave them out: these have no bound",
            "give trace.deadlines=false or a trace without deadlines, or bound deadline_satisfaction",
        ),
    )
    for there, field, message, remedy in cases:
        if there:
            raise InputError(message, field=field, remedy=remedy)


def evaluate_certificate(programme: Programme, certificate: Certificate) -> tuple[float, Floats]:
    """Return the lower bound that prices prove, and its gradient by price, shape (GPU types, intervals).

    The value is that of the metric; of `deadline_satisfaction`, the share with its sign changed, so that
    more is tighter. The slope is the GPU-seconds that jobs take at their cheapest less those there are.
    """
    jobs, edges_s, price = programme.jobs, certificate.edges_s, certificate.price
    value, use = np.zeros(len(jobs.weight)), np.zeros(price.shape)
    # In one order of memory, for which alone Numba compiles.
    per_interval = np.ascontiguousarray(np.append(price, np.zeros((len(price), 1)), axis=1))
    prices = PriceList(edges_s, per_interval)
    there = programme.capacity[:, None] * np.diff(edges_s)
    paid = float((price * there).sum())
    if programme.metric == "deadline_satisfaction":
        least_payments(jobs, prices, value, use)
        # Lagrangian relaxation of the capacity: whatever the prices are, what jobs gain beyond what they pay,
        # and all that is paid, is at least what any schedule can reach.
        met = float((jobs.weight > 0) @ np.maximum(1.0 - value, 0.0))
        return -(met + paid) * (1 + ROUNDING) * _unit(programme), (use - there) * _unit(programme)
    least_costs(jobs, prices, value, use)
    waits = float(value.sum())
    return programme.before + waits - paid - ROUNDING * (waits + paid), use - there


def _unit(programme: Programme) -> float:
    """Return the weight of one job in the mean that is bounded."""
    return float(programme.jobs.weight.max(initial=0.0))


def proven(programme: Programme, certificate: Certificate) -> float:
    """Return the lower bound that a certificate's prices prove; any prices prove some bound."""
    _check(programme, certificate)
    value = evaluate_certificate(programme, certificate)[0]
    if programme.metric != "deadline_satisfaction":
        return max(value, 0.0)
    unit = _unit(programme)
    # A share of met deadlines is a whole number of jobs, so the bound may be rounded down to one.
    return min(unit * float(np.floor(-value / unit)), 1.0) if unit else 1.0


def _check(programme: Programme, certificate: Certificate) -> None:
    edges_s, price = certificate.edges_s, certificate.price
    arrivals = programme.jobs.arrival_s[programme.jobs.weight > 0]
    wrong = (
        ("edges_s", edges_s.ndim != 1 or len(edges_s) < 1 or not (np.diff(edges_s) > 0).all(), "ascend"),
        ("edges_s", not np.isfinite(edges_s).all(), "be finite"),
        ("edges_s", (edges_s[:1] > arrivals.min(initial=np.inf)).any(), "begin before the first job"),
        ("price", price.shape != (len(programme.capacity), len(edges_s) - 1), "be one a type and interval"),
        ("price", not (np.isfinite(price) & (price >= 0)).all(), "be finite and not below 0"),
    )
    for key, is_wrong, must in wrong:
        if is_wrong:
            remedy = "search for it anew with `clustergym bound`"
            raise InputError(f"must {must}", field=f"certificate.{key}", remedy=remedy)


def _jobs(scenario: Scenario, metric: str) -> PricedJobs:
    trace, n = scenario.trace, len(scenario.trace)
    weight, deadline_s = np.zeros(n), np.full(n, np.inf)
    if metric == "deadline_satisfaction":
        decided = np.isfinite(trace.deadline_s)
        weight[decided] = 1.0 / max(int(decided.sum()), 1)
        met = decided & (scenario.request_gpus > 0)
        # Times of the simulator are whole ticks: a margin on each side keeps the bound valid for them, at a
        # cost far below its precision.
        deadline_s = np.where(met, trace.deadline_s + 2 * TICK_S, -np.inf)
    else:
        weight = compute_weights(scenario, metric)
    return PricedJobs(_arrivals(scenario), weight, deadline_s, *_allotments(scenario))


def compute_weights(scenario: Scenario, metric: str) -> Floats:
    """Return how much a second of each job's JCT adds to a metric that is a mean over jobs, shape (n,).

    0 for jobs that do not count, as they fit nowhere or are not scored; every other job is to complete.
    """
    runs = scenario.request_gpus > 0
    if metric == "jct_mean":
        runs = runs & scenario.scored
        return runs / max(int(runs.sum()), 1)
    if metric == "ftf_mean":
        return _fair_weights(scenario, runs, float(scenario.cluster.capacity.sum()))
    if scenario.tenants is None:
        message, remedy = (
            "there are no tenants, whose mean it is",
            "name their queues, as scenario.queues=user",
        )
        raise InputError(message, field=f"metric {metric}", remedy=remedy)
    leaf, quotas = scenario.tenants.leaf, list_quotas(whole_tree(scenario.tenants.tree, scenario.cluster))
    of_leaves = [
        _fair_weights(scenario, runs & (leaf == at), quota)
        for at, quota in enumerate(quotas.tolist())
        if quota > 0 and (runs & (leaf == at)).any()
    ]
    return np.sum(of_leaves, axis=0) / len(of_leaves) if of_leaves else np.zeros(len(leaf))


def _fair_weights(scenario: Scenario, known: Bools, gpus: float) -> Floats:
    """Return the share of their mean finish-time fairness that a second of each JCT makes, shape (n,).

    `known` jobs have so many GPUs to themselves in the reference.
    """
    weight = np.zeros(len(known))
    if known.any():
        submit_s, asked = scenario.trace.submit_s[known], scenario.request_gpus[known]
        work = (scenario.trace.work_iterations * scenario.fair_iteration_time_s)[known] * asked
        weight[known] = 1.0 / (simulate_fluid(submit_s, work, asked, gpus) - submit_s)
    return weight * scenario.scored / max(int((known & scenario.scored).sum()), 1)


def _arrivals(scenario: Scenario) -> Floats:
    """Return when each job can hold GPUs at the earliest, less two ticks, shape (n,).

    In rounds of a fixed length that is a round; reservations alone start jobs between rounds.
    """
    submit_s = scenario.trace.submit_s - TICK_S
    if isinstance(scenario.rounds, str) or scenario.disturbances:
        return submit_s - TICK_S
    # With rounds of the scenario's own, no schedule starts a job before the next round; rounds of a policy
    # are its choice, and the bound must hold for any.
    rounds: Floats = np.ceil(submit_s / scenario.rounds) * scenario.rounds - TICK_S
    return rounds


def least_iteration_s(scenario: Scenario) -> Floats:
    """Return each job's least seconds per iteration by GPU type and count, shape (n, T, K); inf: cannot run.

    The least over placements that the cluster has room for, and over global batches and stages of training.
    """
    locality = np.arange(scenario.execution.shape[-1])
    # No placement is closer than the most compact one, so that times at closer tiers are not reachable.
    there = locality >= scenario.compact[..., None]
    fits = scenario.feasible[scenario.class_of]
    least: Floats = np.where(there, scenario.execution, np.inf).min(axis=-1)[scenario.class_of]
    batches = scenario.tables.batches
    if batches is not None:
        at = np.where(there[..., None], scenario.batch_execution, np.inf).min(axis=3)[scenario.class_of]
        scale = batches.sizes[scenario.class_of] / scenario.trace.global_batch[:, None]
        worth = (scale * batches.efficiency.max(axis=1)[scenario.class_of])[:, None, None, :]
        least = np.minimum(
            least, np.where(worth > 0, at / np.where(worth > 0, worth, 1), np.inf).min(axis=-1)
        )
    return np.where(fits, least, np.inf)


def _allotments(scenario: Scenario) -> tuple[Floats, Ints, Ints, Floats, Floats]:
    """Return `relaunch_s`, `first`, `gpu_type`, `gpus` and `rate` of `PricedJobs`.

    A job that works on an allotment has stood still on it before: for the search of a plan where it is the
    first launch of all, else at least for a checkpoint. A launch whose standstill is cut short leaves a
    plan that the next one need not search for, so that a checkpoint can take the place of any search.
    """
    counts, costs = scenario.tables.counts, scenario.costs
    checkpoint_s = scenario.checkpoint_s[scenario.class_of]
    first_s = costs.search_s(counts) + (checkpoint_s[:, None] if costs.first_launch else 0.0)
    # The least standstill that any first launch has; what a relaunch costs beyond it is charged for each.
    still_s = np.minimum(first_s, checkpoint_s[:, None])
    iterations = scenario.trace.work_iterations.astype(np.float64)[:, None, None]
    total_s = least_iteration_s(scenario) * iterations * (1 - ROUNDING) + still_s[:, None, :] - 2 * TICK_S
    rate = 1.0 / np.maximum(total_s, ROUNDING)
    # An allotment with more GPUs and no higher rate than another of its type is never better.
    before = np.maximum.accumulate(np.pad(rate, ((0, 0), (0, 0), (1, 0)))[..., :-1], axis=-1)
    job, gpu_type, at = np.nonzero(rate > before)
    first = np.searchsorted(job, np.arange(len(rate) + 1))
    relaunch_s = np.maximum(checkpoint_s - still_s.max(axis=1, initial=0.0) - 2 * TICK_S, 0.0)
    return relaunch_s, first, gpu_type, counts[at].astype(np.float64), rate[job, gpu_type, at]
