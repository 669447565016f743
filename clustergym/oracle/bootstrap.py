"""Extrapolates iteration times from a job's times on few GPUs."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.oracle.base import six_digits


def linear(times: Floats, feasible: Bools, counts: Ints, precise: int = 1) -> Floats:
    """Keep the times of the least counts, and scale the last of them linearly to larger counts.

    Parameters
    ----------
    times : ndarray of float, shape (..., K)
    feasible : ndarray of bool, shape (..., K)
    counts : ndarray of int, shape (K,)
    precise : int
        How many of the least feasible counts keep their times. 1 is the bootstrap of Sia (SOSP '23, section
        3.2); larger values are the knob of Arena (EuroSys '26, section 2.3).

    Returns
    -------
    ndarray of float, shape (..., K)
        Scaled values carry six significant digits; inf where infeasible.

    Raises
    ------
    InputError
        If `precise` is below 1.
    """
    if precise < 1:
        raise InputError(f"{precise} is not valid", field="precise", remedy="give at least 1")
    known = feasible & np.isfinite(times)
    rank = np.cumsum(known, axis=-1)
    exact = known & (rank <= precise)
    positions = np.where(exact, np.arange(times.shape[-1]), -1)
    last = positions.max(axis=-1, keepdims=True, initial=-1)
    base = np.take_along_axis(times, np.maximum(last, 0), axis=-1)
    scaled = np.where(last < 0, np.inf, base * counts[np.maximum(last, 0)] / counts)
    out = np.where(feasible & ~exact, six_digits(scaled), np.inf)
    return np.where(exact, times, out)


def same_local_batch(times: Floats, sizes: Ints, feasible: Bools, counts: Ints) -> Floats:
    """Return times at several global batches, extrapolated from each type's smallest feasible count.

    An iteration of batch M on N GPUs is taken to last as long as one of batch M x least / N on the least
    count, where each GPU has equally many samples: synchronisation is taken to last no longer (Sia, SOSP '23,
    section 3.2). Times between two batches are interpolated; below the smallest batch its time is used.

    Parameters
    ----------
    times : ndarray of float, shape (C, T, K, B)
        Seconds per iteration; inf where infeasible.
    sizes : ndarray of int, shape (C, B)
        Global batches, ascending, 0 after the last one of a class.
    feasible : ndarray of bool, shape (C, T, K)
    counts : ndarray of int, shape (K,)

    Returns
    -------
    ndarray of float, shape (C, T, K, B)
        To six significant digits.
    """
    out = np.where(feasible[..., None], times, np.inf)
    for c, t in np.argwhere(feasible.any(axis=2)).tolist():
        least = int(np.argmax(feasible[c, t]))
        has = np.flatnonzero(sizes[c])
        fits = feasible[c, t] & (counts > counts[least])
        local = sizes[c, has] * counts[least] / counts[fits, None]
        out[c, t, fits, : len(has)] = np.interp(local, sizes[c, has], times[c, t, least, has])
    return six_digits(out)
