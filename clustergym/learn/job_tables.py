"""Iteration times of jobs: each is its own model class, and placement does not matter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from clustergym.cluster.spec import ClusterSpec
from clustergym.oracle.base import OracleTables, six_digits
from clustergym.scenario import LOCALITIES
from clustergym.workload.trace import ModelClass

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def job_tables(
    classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Ints, times: Floats, known: Floats
) -> OracleTables:
    """Return tables of real and known seconds per iteration, each of shape (n, T, K), at every locality."""

    def spread(table: Floats) -> Floats:
        return np.repeat(six_digits(table)[..., None], LOCALITIES, axis=3)

    estimates = spread(known)
    return OracleTables(tuple(classes), cluster.gpu_types, counts, spread(times), estimates, estimates)
