"""The limits of a genetic search, in the form that its NumPy and its compiled generations take."""

from __future__ import annotations

from typing import NamedTuple

from clustergym.common.arrays import Ints


class GeneLimits(NamedTuple):
    """What a gene, the index of a job's GPU count, may be, and how many GPUs all jobs may have.

    Attributes
    ----------
    allowed, number : ndarray of int, shape (n, L) and (n,)
        Each job's indices, the allowed ones first, and how many are allowed.
    at_most : ndarray of int, shape (n, L)
        The largest allowed index up to each index.
    gpus : ndarray of int, shape (L,)
    capacity : int
    first : ndarray of int, shape (n,)
        Jobs in the order in which they are cut.
    """

    allowed: Ints
    number: Ints
    at_most: Ints
    gpus: Ints
    capacity: int
    first: Ints
