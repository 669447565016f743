"""The fit of a job's speedup to a power of its GPUs."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, Ints

EXPONENTS = (0.01, 0.99)
"""Bounds of a fitted exponent: speedup must be strictly concave."""


def fit_speedup(counts: Ints, time_s: Floats) -> tuple[Floats, Floats]:
    """Fit speed = k^p / t, with k the GPU count, to each job's fastest times.

    Parameters
    ----------
    counts : ndarray of int, shape (K,)
    time_s : ndarray of float, shape (n, T, K)
        Seconds per iteration, inf where infeasible.

    Returns
    -------
    (p, t)
        Exponents within `EXPONENTS`, and seconds per iteration on one GPU by the fit, shape
        (n,); t inf for a job that runs nowhere.
    """
    fastest = time_s.min(axis=1)
    known = np.isfinite(fastest)
    points = np.maximum(known.sum(axis=1), 1)
    x = np.where(known, np.log(counts), 0.0)
    y = np.where(known, -np.log(np.where(known, fastest, 1.0)), 0.0)
    x_mean, y_mean = x.sum(axis=1) / points, y.sum(axis=1) / points
    dx = np.where(known, x - x_mean[:, None], 0.0)
    dy = np.where(known, y - y_mean[:, None], 0.0)
    variance = (dx**2).sum(axis=1)
    slope = np.divide((dx * dy).sum(axis=1), variance, out=np.zeros(len(x)), where=variance > 0)
    # A least-squares slope of log speed over log count; one point alone has no slope and counts as 0.01.
    exponent = np.clip(slope, *EXPONENTS)
    one_gpu_s = np.where(known.any(axis=1), np.exp(exponent * x_mean - y_mean), np.inf)
    return exponent, one_gpu_s
