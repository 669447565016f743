"""Random speedup curves: how fast each job of a training scenario runs on each GPU type and count."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, Ints

SPEED_SPREAD = 0.25
"""Standard deviation of a job's log speed on a type about the type's own."""
LIMITS = (0.8, 0.4)
"""Shares of the jobs that run from one GPU on, and that may shrink to half or less of their request."""


def speedups(rng: np.random.Generator, jobs: int, counts: Ints) -> Floats:
    """Return throughput on each count / throughput on a single GPU, shape (jobs, K).

    A third of the jobs each follows a power law (exponent 0.5 to 1), Amdahl's law (serial part 10^-3 to
    10^-0.5), and compute plus communication that grows with the count and can win, so that more GPUs
    can be slower.
    """
    g = counts[None, :].astype(np.float64)
    law = rng.integers(3, size=jobs)[:, None]
    power = g ** rng.uniform(0.5, 1.0, size=(jobs, 1))
    serial = 10 ** rng.uniform(-3.0, -0.5, size=(jobs, 1))
    amdahl = 1.0 / (serial + (1.0 - serial) / g)
    talk = 10 ** rng.uniform(-3.0, -0.7, size=(jobs, 1)) * (g > 1)
    growth = rng.uniform(0.0, 0.6, size=(jobs, 1))
    communication = 1.0 / (1.0 / g + talk * g**growth)
    chosen: Floats = np.choose(law, [power, amdahl, communication])
    return chosen


def least_counts(rng: np.random.Generator, gpus: Ints) -> Ints:
    """Return the least GPUs that each job fits on, shape (n,): 1 for most jobs, at most its request."""
    chance = rng.random(len(gpus))
    halved = np.maximum(gpus // 2 ** rng.integers(0, 3, size=len(gpus)), 1)
    return np.where(chance < LIMITS[0], 1, halved).astype(np.int64)


def iteration_times(
    rng: np.random.Generator, gpus: Ints, at_request_s: Floats, types: int, counts: Ints, capacity: Ints
) -> Floats:
    """Return seconds per iteration, shape (n, T, K); inf where a job does not fit.

    Parameters
    ----------
    rng : Generator
    gpus : ndarray of int, shape (n,)
        Requested GPUs.
    at_request_s : ndarray of float, shape (n,)
        Seconds per iteration at the request on the fastest type.
    types : int
        The first is the fastest; each next one is 1.2 to 2.5 times slower on average.
    counts, capacity : ndarray of int, shape (K,) and (T,)
    """
    n = len(gpus)
    slower = np.concatenate([[1.0], np.cumprod(rng.uniform(1.2, 2.5, size=types - 1))])
    factor = slower * np.exp(rng.normal(0.0, SPEED_SPREAD, size=(n, types)) * (np.arange(types) > 0))
    curve = speedups(rng, n, counts)
    at_request = np.take_along_axis(curve, np.searchsorted(counts, gpus)[:, None], axis=1)
    seconds = at_request_s[:, None, None] * factor[:, :, None] * (at_request / curve)[:, None, :]
    fits = counts >= least_counts(rng, gpus)[:, None]
    room = counts <= capacity[:, None]
    times: Floats = np.where(fits[:, None, :] & room[None], seconds, np.inf)
    return times
