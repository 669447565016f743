"""Type aliases of NumPy arrays by what they hold, and their product in an order of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
"""Real numbers; units and shape stand where an array is described."""

Ints = npt.NDArray[np.int64]
"""Whole numbers: counts and positions."""

Bools = npt.NDArray[np.bool_]
"""Masks and flags."""


def dot_in_order(of_rows: npt.NDArray[Any], weights: npt.NDArray[Any]) -> Floats:
    """Return `of_rows @ weights`, the same to the last bit on every processor, shape (...).

    BLAS takes its kernel, and with it the order of a sum, by the processor: a decision on its product, `@`
    or `np.dot`, may differ between machines. The sum of an axis has NumPy's own order everywhere.

    Parameters
    ----------
    of_rows : ndarray, shape (..., n)
    weights : ndarray, shape (n,)
    """
    return np.asarray((of_rows * weights).sum(axis=-1), dtype=np.float64)
