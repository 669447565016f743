"""Statistics of runs: means that account for unfinished jobs, and intervals over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats


def restricted_mean(duration: Floats, observed: Bools, limit: float) -> float:
    """Return the restricted mean duration up to a limit, by the Kaplan-Meier estimate of survival.

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
    """A value over several seeds, with its interval.

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
    """Return the mean of independent values (at least one) with Student's interval."""
    array = np.asarray(values, dtype=np.float64)
    mean, least, greatest, count = float(array.mean()), float(array.min()), float(array.max()), len(array)
    if count < 3 or least == greatest:
        return Estimate(mean, least, greatest, least, greatest, count)
    from scipy.special import stdtrit  # Slow to import, and a single run needs no interval.

    half = float(stdtrit(count - 1, 0.975) * array.std(ddof=1) / np.sqrt(count))
    return Estimate(mean, mean - half, mean + half, least, greatest, count)


def estimate_within(values: Sequence[float], most: float | None = None) -> Estimate:
    """Return the mean of independent values with an interval, for a quantity that is never below 0.

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
