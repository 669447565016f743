"""Find the cheapest schedule of a single job if GPU time has a price (compiled).

docs/lower-bound.md has the proof. A job holds one allotment at a time; each second held does the
allotment's rate of the job, and each launch after the first undoes `relaunch_s` seconds of it. The job
is done when this adds up to 1. GPUs of a type cost a price per GPU-second in each interval of time, and
nothing after the last. For a fixed end the least payment is bounded by its Lagrangian dual: `alpha` is
paid for the whole job, and a schedule is chosen, by dynamic programming over intervals, that gains most
from it. Every alpha gives a lower bound, so a search for the best one that ends too early makes the
bound weaker, never wrong.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place, compile_part

SCANNED = 24
"""Values of alpha that are tried for every end before the best ends are looked at closely."""
CUTS = 60
CLOSE = 1e-10
HIGHEST = 1e30
CLOSE_LOOKS = 100
STAY, FIRST, AGAIN = 0, 1, 2
"""How a schedule comes to hold an allotment: since the interval before, at first, or by a relaunch."""


class PricedJobs(NamedTuple):
    """Jobs as arrays, and the GPU types and counts that each job may hold, for the proof of a bound.

    Attributes
    ----------
    arrival_s, weight : ndarray of float, shape (n,)
        When a job may first hold GPUs; what each second until its end costs it.
    deadline_s : ndarray of float, shape (n,)
        inf: none.
    relaunch_s : ndarray of float, shape (n,)
        Seconds held that each launch after the first undoes.
    first : ndarray of int, shape (n + 1,)
        Row of each job's first allotment; those of a job follow each other.
    gpu_type : ndarray of int, shape (rows,)
    gpus, rate : ndarray of float, shape (rows,)
        GPUs held; share of the whole job done per second held.
    """

    arrival_s: Floats
    weight: Floats
    deadline_s: Floats
    relaunch_s: Floats
    first: Ints
    gpu_type: Ints
    gpus: Floats
    rate: Floats


class PriceList(NamedTuple):
    """Prices of GPU time by GPU type and time interval.

    Attributes
    ----------
    edges_s : ndarray of float, shape (I + 1,)
        Ascending edges of the intervals.
    price : ndarray of float, shape (T, I + 1)
        Per GPU-second of each type in each interval, at least 0; the last column, after the last edge, is 0.
    """

    edges_s: Floats
    price: Floats


class Scratch(NamedTuple):
    """Reusable arrays for the dynamic programme that finds one job's cheapest schedule.

    Attributes
    ----------
    gain, work : ndarray of float, shape (rows,)
        Of the best schedule that holds an allotment at the end of an interval.
    came : ndarray of int, shape (I + 1, rows)
        How it came to hold it there.
    top : ndarray of int, shape (I + 1,)
        The allotment whose schedule is the best so far at the end of an interval; -1: an earlier one is.
    reached : ndarray of float, shape (I + 1,)
        Best dual value found for an end in each interval.
    """

    gain: Floats
    work: Floats
    came: Ints
    top: Ints
    reached: Floats


class Search(NamedTuple):
    """What all steps of a search take: the jobs, the prices, and arrays to work in."""

    jobs: PricedJobs
    prices: PriceList
    scratch: Scratch


@compile_entry
def least_costs(jobs: PricedJobs, prices: PriceList, value: Floats, use: Floats) -> None:
    """Write each job's least cost, weight x (end - arrival) + payment, to `value`; add its GPU time to `use`.

    Parameters
    ----------
    jobs, prices
    value : ndarray of float, shape (n,)
        Is filled; 0 for jobs of weight 0 or without allotments.
    use : ndarray of float, shape (T, I)
        GPU-seconds that the cheapest schedules hold are added.
    """
    search = Search(jobs, prices, _scratch(jobs, prices))
    for job in range(len(value)):
        value[job] = 0.0
        if jobs.weight[job] > 0 and jobs.first[job] < jobs.first[job + 1]:
            value[job] = _least_cost(search, job, use)


@compile_entry
def least_payments(jobs: PricedJobs, prices: PriceList, value: Floats, use: Floats) -> None:
    """Write into `value` the least price of GPU time at which each job meets its deadline; inf if none.

    Arguments are those of `least_costs`; only jobs that pay less than 1 add to `use`.
    """
    search = Search(jobs, prices, _scratch(jobs, prices))
    for job in range(len(value)):
        value[job] = np.inf
        if jobs.first[job] < jobs.first[job + 1] and jobs.deadline_s[job] > jobs.arrival_s[job]:
            start = _interval(prices.edges_s, jobs.arrival_s[job])
            last = _interval(prices.edges_s, jobs.deadline_s[job])
            value[job] = _close_look(search, job, (start, last), 0.0, 1.0, use, 1.0)


@compile_part
def _scratch(jobs: PricedJobs, prices: PriceList) -> Scratch:
    rows, columns = np.max(np.diff(jobs.first)), len(prices.edges_s)
    came, top = np.zeros((columns, rows), np.int64), np.zeros(columns, np.int64)
    return Scratch(np.zeros(rows), np.zeros(rows), came, top, np.zeros(columns))


@compile_in_place
def _fastest(jobs: PricedJobs, job: int) -> float:
    fastest = 0.0
    for row in range(jobs.first[job], jobs.first[job + 1]):
        fastest = max(fastest, jobs.rate[row])
    return fastest


@compile_in_place
def _interval(edges_s: Floats, time_s: float) -> int:
    """Return the interval in which a time lies; that after the last edge is the last one."""
    low, high = 0, len(edges_s)
    while low < high:
        middle = (low + high) // 2
        if edges_s[middle] <= time_s:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


@compile_in_place
def _length(jobs: PricedJobs, job: int, edges_s: Floats, at: int) -> float:
    """Return the seconds of an interval in which a job may hold GPUs.

    After the last edge GPUs are free: the time that the whole job takes at its fastest, from a launch of
    its own, is enough.
    """
    start = max(edges_s[at], jobs.arrival_s[job])
    if at + 1 == len(edges_s):
        end = start + 1.0 / _fastest(jobs, job) + jobs.relaunch_s[job]
    else:
        end = edges_s[at + 1]
    return max(min(end, jobs.deadline_s[job]) - start, 0.0)


@compile_in_place
def _clear(jobs: PricedJobs, job: int, scratch: Scratch) -> None:
    for at in range(jobs.first[job + 1] - jobs.first[job]):
        scratch.gain[at], scratch.work[at] = -np.inf, 0.0


@compile_in_place
def _advance(
    search: Search, job: int, alpha: float, at: int, before: tuple[float, float]
) -> tuple[float, float]:
    """Extend the best schedules by an interval; return the gain and work of the best that has launched.

    `before` is what the last call returned; (-inf, 0) at first. Within an interval prices do not change, so
    that the gain is linear in the seconds of each allotment: to launch at the interval's start, or not in
    it, is as good as anything.
    """
    jobs, prices, scratch = search.jobs, search.prices, search.scratch
    length, start = _length(jobs, job, prices.edges_s, at), jobs.first[job]
    best, best_work = before
    scratch.top[at] = -1
    for row in range(start, jobs.first[job + 1]):
        rate, own = jobs.rate[row], row - start
        gain, work, came = scratch.gain[own], scratch.work[own], STAY
        # A relaunch is charged as the work of its standstill, so that no state for a job that stands still is
        # needed.
        undone = jobs.relaunch_s[job] * rate
        if before[0] - alpha * undone > gain:
            gain, work, came = before[0] - alpha * undone, before[1] - undone, AGAIN
        # To start here costs nothing that was spent before: a schedule that has gained less than nothing is
        # given up.
        if gain < 0.0:
            gain, work, came = 0.0, 0.0, FIRST
        gain += length * (alpha * rate - jobs.gpus[row] * prices.price[jobs.gpu_type[row], at])
        work += length * rate
        scratch.gain[own], scratch.work[own], scratch.came[at, own] = gain, work, came
        if gain > best:
            best, best_work, scratch.top[at] = gain, work, own
    return best, best_work


@compile_in_place
def _dual(
    search: Search, job: int, alpha: float, span: tuple[int, int], weight: float
) -> tuple[float, float, bool]:
    """Return the dual value at alpha of an end in the last interval of a span, the work, and when it ends.

    In that interval the gain is convex in the end: either its end (True) or its start (False) is best.
    """
    jobs, prices, scratch = search.jobs, search.prices, search.scratch
    start, last = span
    _clear(jobs, job, scratch)
    state = (-np.inf, 0.0)
    for at in range(start, last):
        state = _advance(search, job, alpha, at, state)
    begin = max(prices.edges_s[last], jobs.arrival_s[job])
    value = alpha + weight * (begin - jobs.arrival_s[job])
    length = _length(jobs, job, prices.edges_s, last)
    end = _advance(search, job, alpha, last, state)
    if end[0] - weight * length > max(state[0], 0.0):
        return value - end[0] + weight * length, end[1], True
    if state[0] > 0.0:
        return value - state[0], state[1], False
    return value, 0.0, False


@compile_in_place
def _take(
    search: Search, job: int, alpha: float, span: tuple[int, int], weight: float, share: float, use: Floats
) -> None:
    """Add a share of the GPU-seconds of the schedule of `_dual`."""
    jobs, prices, scratch = search.jobs, search.prices, search.scratch
    work, whole = _dual(search, job, alpha, span, weight)[1:]
    if work == 0.0 and not whole:
        return
    at, own = span[1] if whole else span[1] - 1, -1
    while at >= span[0]:
        if own < 0:
            own = scratch.top[at]
        if own >= 0:
            row = jobs.first[job] + own
            if at < use.shape[1]:
                held = share * _length(jobs, job, prices.edges_s, at) * jobs.gpus[row]
                use[jobs.gpu_type[row], at] += held
            came = scratch.came[at, own]
            if came == FIRST:
                return
            if came == AGAIN:
                own = -1
        at -= 1


@compile_in_place
def _close_look(
    search: Search, job: int, span: tuple[int, int], weight: float, high: float, use: Floats, limit: float
) -> float:
    """Return the dual value at the best alpha of an end in the last interval of a span; inf: there is none.

    `high` is a guess of an alpha that buys the whole job. Adds to `use`, if the value is below `limit`, the
    schedule of that value: a mixture of those at two alphas that meet, whose work is 1.
    """
    possible_s = 0.0
    for at in range(span[0], span[1] + 1):
        possible_s += _length(search.jobs, job, search.prices.edges_s, at)
    if possible_s * _fastest(search.jobs, job) < 1.0 - 1e-9:
        return np.inf
    low, best = 0.0, 0.0
    low_value, low_work, _ = _dual(search, job, low, span, weight)
    high_value, high_work, _ = _dual(search, job, high, span, weight)
    while high_work < 1.0 and high < HIGHEST:
        # `alpha` is the price of a job's whole work: too low a one leaves some undone, so it is doubled until
        # it pays for all.
        low, low_value, low_work = high, high_value, high_work
        high *= 2.0
        high_value, high_work, _ = _dual(search, job, high, span, weight)
    for _ in range(CUTS):
        best = max(best, low_value, high_value)
        if high_work <= low_work:
            break
        # The dual is concave: the tangents at both sides meet above it.
        ahead = (high_value - low_value + (high_work - 1.0) * (high - low)) / (high_work - low_work)
        meet = low_value + (1.0 - low_work) * ahead
        middle = low + ahead
        value, work, _ = _dual(search, job, middle, span, weight)
        best = max(best, value)
        if value >= meet - CLOSE * abs(meet):
            break
        if work >= 1.0:
            high, high_value, high_work = middle, value, work
        else:
            low, low_value, low_work = middle, value, work
    if best < limit:
        # Between the two values the schedule is a mixture of theirs that does exactly all of the work.
        share = (1.0 - low_work) / (high_work - low_work) if high_work > low_work else 1.0
        _take(search, job, high, span, weight, share, use)
        _take(search, job, low, span, weight, 1.0 - share, use)
    return best


@compile_in_place
def _latest(jobs: PricedJobs, job: int, prices: PriceList, start: int, within_s: float) -> tuple[int, float]:
    """Return the last interval that begins within `within_s` of arrival, and an alpha that pays for it.

    Where it pays to end at an instant, a second more would gain the weight: alpha is then about the cost of
    a job that is done at the prices of that instant.
    """
    last, most, weight = start, 0.0, jobs.weight[job]
    for at in range(start, len(prices.edges_s)):
        if prices.edges_s[at] - jobs.arrival_s[job] > within_s:
            break
        last, least = at, np.inf
        for row in range(jobs.first[job], jobs.first[job + 1]):
            paid = jobs.gpus[row] * prices.price[jobs.gpu_type[row], at]
            least = min(least, (weight + paid) / jobs.rate[row])
        most = max(most, least)
    return last, most


@compile_in_place
def _at_once(jobs: PricedJobs, job: int, prices: PriceList, start: int) -> float:
    """Return the cost of the best schedule that starts on arrival and keeps one allotment."""
    best = np.inf
    for row in range(jobs.first[job], jobs.first[job + 1]):
        left, cost = 1.0 / jobs.rate[row], jobs.weight[job] / jobs.rate[row]
        for at in range(start, len(prices.edges_s) - 1):
            if left <= 0.0 or cost >= best:
                break
            held = min(left, _length(jobs, job, prices.edges_s, at))
            cost += held * jobs.gpus[row] * prices.price[jobs.gpu_type[row], at]
            left -= held
        best = min(best, cost)
    return best


@compile_in_place
def _least_cost(search: Search, job: int, use: Floats) -> float:
    """Return a lower bound of a job's cost over all ends, and add the GPU-seconds of the cheapest schedule.

    An end so late that waiting alone costs more than a schedule at once is left out.
    """
    jobs, prices, scratch = search.jobs, search.prices, search.scratch
    weight, edges_s, reached = jobs.weight[job], prices.edges_s, scratch.reached
    start = _interval(edges_s, jobs.arrival_s[job])
    enough = _at_once(jobs, job, prices, start)
    alpha = weight / _fastest(jobs, job)
    last, most = _latest(jobs, job, prices, start, enough / weight)
    for at in range(start, last + 1):
        reached[at] = -np.inf
    factor = (max(most, alpha) * (1.0 + 1e-9) / alpha) ** (1.0 / (SCANNED - 1))
    for _ in range(SCANNED):
        state = (-np.inf, 0.0)
        _clear(jobs, job, scratch)
        for at in range(start, last + 1):
            earlier = max(state[0], 0.0)
            state = _advance(search, job, alpha, at, state)
            waited = max(edges_s[at], jobs.arrival_s[job]) - jobs.arrival_s[job]
            gained = max(earlier, state[0] - weight * _length(jobs, job, edges_s, at))
            reached[at] = max(reached[at], weight * waited + alpha - gained)
        alpha *= factor
    looked, at = -1, _lowest(reached, start, last)
    for _ in range(CLOSE_LOOKS):
        if at == looked:
            break
        looked = at
        found = _close_look(search, job, (start, at), weight, most, use, -np.inf)
        reached[at] = max(found, reached[at])
        at = _lowest(reached, start, last)
    _close_look(search, job, (start, at), weight, most, use, np.inf)
    return min(reached[at], enough)


@compile_in_place
def _lowest(values: Floats, start: int, last: int) -> int:
    lowest = start
    for at in range(start, last + 1):
        if values[at] < values[lowest]:
            lowest = at
    return lowest
