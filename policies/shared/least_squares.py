"""Least squares of a few coefficients that are at least 0, the same to the last bit on every processor."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, dot_in_order

NO_GAIN = 1e-14
"""A column stays out if its part in what is left of the target is no more than this share of the target."""


def fit_nonnegative(terms: Floats, target: Floats) -> Floats:
    """Return x >= 0 of least |terms x - target|, shape (n,), by the active set of Lawson and Hanson.

    Source: Solving Least Squares Problems, 1974, chapter 23. SciPy's `nnls` is the same method by BLAS and
    LAPACK, whose kernel is chosen by the processor: its answers to badly conditioned fits differ in the
    eighth digit between kernels.

    Parameters
    ----------
    terms : ndarray of float, shape (m, n)
        Of full rank.
    target : ndarray of float, shape (m,)
    """
    x, free = np.zeros(terms.shape[1]), np.zeros(terms.shape[1], dtype=bool)
    # Columns of length 1, so that a coefficient's unit does not decide whether it stays 0.
    length = np.sqrt((terms**2).sum(axis=0))
    terms, least = terms / length, NO_GAIN * float(np.sqrt((target**2).sum()))
    # Each round frees one coefficient; more rounds than this are those of a rounding error in a circle.
    for _ in range(3 * len(x)):
        gain = np.where(free, -np.inf, dot_in_order(terms.T, target - dot_in_order(terms, x)))
        if gain.max() <= least:
            break
        free[np.argmax(gain)] = True
        while True:
            trial = np.zeros(len(x))
            trial[free] = _solve(terms[:, free], target)
            below = free & (trial <= 0)
            if not below.any():
                break
            x = x + (x[below] / (x[below] - trial[below])).min(initial=1.0) * (trial - x)
            # The first that reaches 0 is held there, and so is what has not left it.
            free &= (x > 0) & ~(below & (x <= NO_GAIN * np.abs(x).max()))
            x[~free] = 0.0
        x = trial
    return np.asarray(x / length)


def _solve(terms: Floats, target: Floats) -> Floats:
    """Return the least squares of columns of full rank by modified Gram-Schmidt, shape (n,)."""
    columns, rest, n = terms.T.copy(), target.copy(), terms.shape[1]
    upper, right = np.zeros((n, n)), np.zeros(n)
    for at in range(n):
        upper[at, at] = np.sqrt((columns[at] ** 2).sum())
        columns[at] /= upper[at, at]
        upper[at, at + 1 :] = dot_in_order(columns[at + 1 :], columns[at])
        columns[at + 1 :] -= upper[at, at + 1 :, None] * columns[at]
        right[at] = dot_in_order(columns[at], rest)
        rest -= right[at] * columns[at]
    x = np.zeros(n)
    for at in reversed(range(n)):
        x[at] = (right[at] - dot_in_order(upper[at, at + 1 :], x[at + 1 :])) / upper[at, at]
    return x
