"""Means that account for unfinished jobs, and intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats


def compute_restricted_mean(duration: Floats, observed: Bools, limit: float) -> float:
    """Return the Kaplan-Meier mean of min(duration, limit); durations not `observed` to end are censored.

    Parameters
    ----------
    duration : ndarray of float, shape (n,)
        Not negative; how long each one lasted, or had lasted when it was last seen.
    observed : ndarray of bool, shape (n,)
        False: it had not ended then (right-censored).
    limit : float
        The mean is that of min(duration, limit).

    Returns
    -------
    float
        The area under the survival curve up to `limit`; beyond the last duration the curve stays
        where it is. With everything observed below `limit` it is the plain mean. NaN if n is 0.

    Notes
    -----
    Unbiased where being censored tells nothing about how long it would have lasted; a policy that
    starves long jobs breaks that, and then it is too low.
    """
    if len(duration) == 0:
        return float("nan")
    times, index = np.unique(duration, return_inverse=True)
    ended = np.bincount(index, weights=observed)
    seen = np.bincount(index)
    at_risk = len(duration) - np.cumsum(seen) + seen
    survival = np.concatenate(([1.0], np.cumprod(1 - ended / at_risk)))
    edges = np.clip(np.concatenate(([0.0], times, [limit])), 0.0, limit)
    return float(np.dot(survival, np.diff(edges)))


class Estimate(NamedTuple):
    """The mean of a value over several seeds, with its confidence interval.

    Attributes
    ----------
    mean : float
    low, high : float
        From three seeds on, the 95 % interval of the mean, computed by the function that returns the
        estimate; for two seeds the least and greatest value, for one seed the value itself.
    least, greatest : float
    seeds : int
    """

    mean: float
    low: float
    high: float
    least: float
    greatest: float
    seeds: int


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of independent values (at least one) with Student's 95 % confidence interval."""
    array = np.asarray(values, dtype=np.float64)
    mean, least, greatest, count = float(array.mean()), float(array.min()), float(array.max()), len(array)
    if count < 3 or least == greatest:
        return Estimate(mean, least, greatest, least, greatest, count)
    from scipy.special import stdtrit  # Slow to import, and a single run needs no interval.

    half = float(stdtrit(count - 1, 0.975) * array.std(ddof=1) / np.sqrt(count))
    return Estimate(mean, mean - half, mean + half, least, greatest, count)


def estimate_nonnegative(values: Sequence[float], most: float | None = None) -> Estimate:
    """Return the mean of values from 0 up to `most` (None: no limit), with an interval inside that range.

    The interval is Student's on the logarithm of the mean, or on its log-odds where the quantity is never
    above `most`, with the standard error carried there by the delta method: it stays inside of the
    quantity's range, and is Student's of `estimate` where that is narrow.

    Parameters
    ----------
    values : sequence of float
        At least one; not below 0, not above `most`.
    most : float, optional
    """
    plain = estimate(values)
    if plain.seeds < 3 or plain.least == plain.greatest:
        return plain
    mean, half = plain.mean, plain.high - plain.mean
    room = 1.0 if most is None else 1.0 - mean / most
    times = float(np.exp(half / (mean * room)))
    low, high = (mean * factor / (room + (1.0 - room) * factor) for factor in (1.0 / times, times))
    return plain._replace(low=low, high=high)


RESAMPLES = 2000


class Aggregate(NamedTuple):
    """A value with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float


def interquartile_mean(scores: Floats) -> Floats:
    """Return the mean of the middle half of the values along the last axis."""
    ordered = np.sort(np.asarray(scores, dtype=np.float64), axis=-1)
    n = ordered.shape[-1]
    # The share of each observation's interval [i/n, (i+1)/n] inside [1/4, 3/4].
    edges = np.arange(n + 1) / n
    weight = np.clip(np.minimum(edges[1:], 0.75) - np.maximum(edges[:-1], 0.25), 0.0, None)
    return np.asarray((ordered * weight).sum(axis=-1) / weight.sum())


def aggregate_paired_ratio(mine: Floats, other: Floats) -> Aggregate | None:
    """Return the ratio of two means over the same seeds, with a paired bootstrap interval; None if undefined.

    With up to three seeds, the interval is the range of the ratios of single seeds, because more than
    2.5 % of the resamples consist of one seed alone.

    Parameters
    ----------
    mine, other : ndarray of float, shape (seeds,)
        Not negative, in one order of seeds.

    Returns
    -------
    Aggregate or None
        None if `other` is 0 for some seed, as a resample may then have no ratio.
    """
    if not other.all():
        return None
    rng = random_streams.RATIO_BOOTSTRAP.generator(0)
    drawn = rng.integers(len(mine), size=(RESAMPLES, len(mine)))
    ratios = mine[drawn].mean(axis=1) / other[drawn].mean(axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return Aggregate(float(mine.mean() / other.mean()), float(low), float(high))
