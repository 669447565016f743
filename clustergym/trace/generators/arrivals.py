"""Draw submission times: a Poisson process whose rate varies by hour, weekday, and random bursts.

The rate is a product of independent factors: the source's hour of day and day of week; an hourly
gamma factor with memory (the ranks of a sum of first-order autoregressions of different correlation
times); and log-normal factors of ever shorter periods within the hour. Given the number of jobs,
arrivals of such a process are independent draws from the rate, so any number of jobs fits any span:
the rate scales with jobs / span, and the relative burstiness (excess variance of counts over their
squared mean) stays the source's.

The hourly factor is made for at least the source's whole length; a shorter trace is the piece of it in
which a random job finds itself. Its values are exact quantiles of the gamma distribution, in the random
order of the process, so that no seed's bursts are far from the source's.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.trace.generators.sources import Arrivals, Source, SourcePart

HOUR_S = 3600
LONGEST_SPAN_S = 2 * 366 * 86_400
BURSTS, BURST_SHARE = 4, 0.1
"""Bursts of a bursty tenant in a trace, and the share of the time in which they come."""


def arrival_times(source: Source, jobs: int, span_s: float, seed: int, start_hour: int = 0) -> Floats:
    """Generate random submission times in seconds, ascending, in whole milliseconds, shape (jobs,).

    Parameters
    ----------
    source : Source
    jobs : int
    span_s : float
        Seconds from the first job to the last: the first comes at 0, the last at `span_s`.
    seed : int
    start_hour : int
        Hour of the week at which the trace starts; 0 is Monday 00:00.
    """
    if span_s > LONGEST_SPAN_S:
        remedy = "ask for fewer jobs, a higher load or a shorter span"
        raise InputError(f"{span_s:.6g} s is longer than two years", field="span_s", remedy=remedy)
    if jobs == 1 or span_s == 0:
        return np.zeros(jobs)
    edges, rate = rate_profile(source, span_s, seed, start_hour)
    area = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges))])
    # Given their number, arrivals of a Poisson process with a rate over time are independent draws from the
    # rate's distribution: its inverse is applied to sorted uniform numbers.
    level = np.sort(random_streams.ARRIVALS.generator(seed).random(jobs)) * area[-1]
    # The first and the last job are at the ends, so that the span, on which the load depends, is exactly the
    # one asked for.
    level[0], level[-1] = 0.0, area[-1]
    times = np.interp(level, area, edges)
    times[0], times[-1] = 0.0, span_s
    return whole_milliseconds(times)


def in_bursts(submit_s: Floats, tenants: Sequence[str], share: float, seed: int) -> Floats:
    """Move submission times so that a share of the tenants submit their jobs in bursts, shape (n,).

    The trace's span is divided into `BURSTS` periods, which begin at another time for each tenant; all that
    a bursty tenant submits in a period comes in the first `BURST_SHARE` of it, in the same order.

    Parameters
    ----------
    submit_s : ndarray of float, shape (n,)
    tenants : sequence of str
        Of each job.
    share : float
        Of the tenants, from 0 to 1; drawn from the seed.
    seed : int
    """
    names = sorted(set(tenants))
    draws = random_streams.TENANT_BURSTS.generator(seed)
    bursty = set(draws.permutation(len(names))[: round(share * len(names))].tolist())
    period_s = float(submit_s.max(initial=0.0)) / BURSTS
    offset_s = draws.random(len(names)) * period_s
    at = np.array([names.index(name) for name in tenants], dtype=np.int64)
    rows = np.flatnonzero(np.isin(at, list(bursty)) & (period_s > 0))
    found, begins_s = submit_s.copy(), offset_s[at[rows]]
    begins_s += np.floor((submit_s[rows] - begins_s) / (period_s or 1.0)) * period_s
    begins_s = np.maximum(begins_s, 0.0)
    found[rows] = begins_s + BURST_SHARE * (submit_s[rows] - begins_s)
    return whole_milliseconds(found)


def whole_milliseconds(seconds: Floats) -> Floats:
    """Return seconds rounded to whole milliseconds (still in seconds), equal on all machines."""
    return np.rint(np.asarray(seconds, dtype=np.float64) * 1000.0) / 1000.0


def rate_profile(source: Source, span_s: float, seed: int, start_hour: int = 0) -> tuple[Floats, Floats]:
    """Return edges of time slots (s), shape (n + 1,), and relative arrival rates in them, shape (n,)."""
    arrivals = source.arrivals
    slot_s = min([HOUR_S, *(level.period_s for level in arrivals.within_hour)])
    slots = math.ceil(span_s / slot_s)
    hours = math.ceil(span_s / HOUR_S)
    by_hour = _hour_profile(arrivals, hours, start_hour) * _hourly_factor(source, hours, seed)
    rate = np.repeat(by_hour, HOUR_S // slot_s)[:slots]
    for index, level in enumerate(arrivals.within_hour):
        each = level.period_s // slot_s
        # Of a lognormal with this squared coefficient of variation; its mean does not matter, as rates are
        # relative.
        sigma = math.sqrt(math.log1p(level.cv2))
        normal = random_streams.ARRIVALS_WITHIN_HOURS.generator(seed, index).standard_normal(
            -(-slots // each)
        )
        rate *= np.repeat(np.exp(sigma * normal), each)[:slots]
    edges = np.minimum(np.arange(slots + 1, dtype=np.float64) * slot_s, span_s)
    return edges, rate


def _hour_profile(arrivals: Arrivals, hours: int, start_hour: int) -> Floats:
    hour = start_hour + np.arange(hours)
    by_day = np.array(arrivals.day_of_week)[hour // 24 % 7]
    by_hour = np.array(arrivals.hour_of_day)[hour % 24]
    return np.asarray(by_hour * by_day, dtype=np.float64)


def _hourly_factor(source: Source, hours: int, seed: int) -> Floats:
    """Sample the random factor on the arrival rate of each hour, shape (hours,)."""
    bursts = source.arrivals.hourly
    # As long as the source's own log, of which a shorter trace is a piece: so its rate varies as much as a
    # piece of the log's does, and not as much as the whole.
    length = max(hours, math.ceil(source.span_s / HOUR_S))
    noise = [
        random_streams.HOURLY_ARRIVALS.generator(seed, index).standard_normal(length)
        for index in range(len(bursts.parts))
    ]
    factor = np.empty(length)
    # The marginal distribution is exact (quantiles of a gamma distribution), and the order of a Gaussian
    # process gives it memory: a copula.
    factor[_order(noise, bursts.parts)] = _gamma_quantiles(bursts.cv2, length)
    area = np.concatenate([[0.0], np.cumsum(factor)])
    # A piece is chosen in proportion to its jobs: a user who takes a part of a log looks where jobs are.
    jobs_in_piece = np.cumsum(area[hours:] - area[: length - hours + 1])
    chance = float(random_streams.ARRIVAL_HOURS.generator(seed).random()) * jobs_in_piece[-1]
    start = min(int(np.searchsorted(jobs_in_piece, chance, side="right")), length - hours)
    return factor[start : start + hours]


def _order(noise: Sequence[Floats], parts: Sequence[SourcePart]) -> Ints:
    """Return the hours in ascending order of the sum of autoregressions that noise drives."""
    process = np.zeros(len(noise[0]))
    for each, part in zip(noise, parts, strict=True):
        process += math.sqrt(part.share) * _with_memory(each, part.correlation_h)
    return np.argsort(process, kind="stable")


def _with_memory(noise: Floats, correlation_h: float) -> Floats:
    """Turn white noise into a stationary first-order autoregression of unit variance.

    Plain Python, whose digits are the same on every machine, and which takes 0.6 ms for 5,000 hours: a solver
    of SciPy's is faster, but takes 40 ms to import.
    """
    keep, value = math.exp(-1.0 / correlation_h), float(noise[0])
    # An autoregression of variance 1 from the first hour on, so that there is no start to wait for.
    fresh = (math.sqrt(1.0 - keep * keep) * noise[1:]).tolist()
    return np.array([value, *(value := keep * value + new for new in fresh)])


@lru_cache(maxsize=8)
def _gamma_quantiles(cv2: float, length: int) -> Floats:
    """Return quantiles of the gamma distribution of mean 1, ascending, shape (length,).

    They are kept on disk beside the tables of oracles: SciPy takes 0.2 s to import.
    """
    if cv2 == 0:
        return np.ones(length)
    from clustergym.oracle.table_cache import Store, cache_folder

    store = Store(cache_folder())
    key = hashlib.sha256(f"gamma quantiles {cv2!r} {length}".encode()).hexdigest()
    values = store.read(key, (length,))
    if values is None:
        from scipy.special import gammaincinv

        ranks = (np.arange(length) + 0.5) / length
        values = np.asarray(gammaincinv(1.0 / cv2, ranks) * cv2, dtype=np.float64)
        store.write(key, values)
    values.flags.writeable = False
    return values
