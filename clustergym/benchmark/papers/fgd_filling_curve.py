"""Allocation and fragmentation over what has arrived, in whole per cents, as FGD's results have them."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, Ints

LAST = 130


def at_arrived_pct(arrived_milli: Ints, value_milli: Ints | Floats, installed_milli: int) -> Floats:
    """Return the mean of a value over the arrivals at each per cent of arrived GPUs.

    Parameters
    ----------
    arrived_milli : ndarray of int, shape (A,)
        Thousandths of GPUs that have been asked for, rejected ones too, after each arrival.
    value_milli : ndarray, shape (A,)
    installed_milli : int

    Returns
    -------
    ndarray of float, shape (LAST + 1,)
        Per cent of the installed GPUs; NaN where nothing has arrived so far, or near.
    """
    pct = np.rint(100.0 * arrived_milli / installed_milli).astype(np.int64)
    value = np.round(100.0 * value_milli / installed_milli, 2)
    inside = pct <= LAST
    number = np.bincount(pct[inside], minlength=LAST + 1).astype(np.float64)
    total = np.bincount(pct[inside], value[inside], minlength=LAST + 1)
    # An empty per cent takes the mean of its neighbours.
    near_number, near_total = (np.convolve(counts, np.ones(3), "same") for counts in (number, total))
    empty = number == 0
    with np.errstate(invalid="ignore"):
        return np.where(empty, near_total, total) / np.where(empty, near_number, number)
