"""Iteration times of jobs: each is its own model class, and placement does not matter."""

from __future__ import annotations

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Floats, Ints
from clustergym.oracle.base import OracleTables, six_digits
from clustergym.scenario.scenario import LOCALITIES
from clustergym.trace.trace import Trace


def job_tables(
    trace: Trace, cluster: ClusterSpec, counts: Ints, times: Floats, known: Floats
) -> tuple[OracleTables, list[int]]:
    """Return tables of real and known seconds per iteration at every locality, and their order of jobs.

    Parameters
    ----------
    trace : Trace
        Each job has a model family of its own.
    cluster : ClusterSpec
    counts : ndarray of int, shape (K,)
    times, known : ndarray of float, shape (n, T, K)
    """
    classes = [trace.model_class(row) for row in range(len(trace))]
    order = sorted(range(len(trace)), key=lambda row: classes[row])

    def spread(table: Floats) -> Floats:
        return np.repeat(six_digits(table)[..., None], LOCALITIES, axis=3)

    estimates, sorted_classes = spread(known[order]), tuple(classes[row] for row in order)
    times = spread(times[order])
    return OracleTables(sorted_classes, cluster.gpu_types, counts, times, estimates, estimates), order
