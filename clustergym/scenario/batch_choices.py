"""Progress of jobs at global batches other than the requested one."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.base import BatchTables
from clustergym.scenario.policy import BatchOptions
from clustergym.trace.trace import Trace


class BatchChoices:
    """The batches that jobs of a trace may train at, and how their efficiency changes with progress.

    Work is counted in iterations at the requested batch M0, so that a job's total work is the same
    whatever its batch. One iteration at batch M does the work of M / M0 x E(M) requested iterations. The
    statistical efficiency E is constant within each segment of a job's training; the end point of a
    segment belongs to the next one.

    Parameters
    ----------
    tables : BatchTables
    class_of : ndarray of int, shape (n,)
        Row of the tables of each job.
    trace : Trace
    """

    def __init__(self, tables: BatchTables, class_of: Ints, trace: Trace) -> None:
        self._sizes, self._class_of, self._requested = tables.sizes, class_of, trace.global_batch
        self._efficiency = tables.efficiency
        self._left = trace.iterations[:, None] * (1.0 - tables.ends[class_of])
        self._left[:, -1] = 0.0

    def column(self, row: int, batch: int) -> int:
        """Return the column of a batch in `BatchTables.sizes`; -1 for the requested batch."""
        if batch == self._requested[row]:
            return -1
        return int(np.flatnonzero(self._sizes[self._class_of[row]] == batch)[0])

    def allowed(self, rows: Ints, batch: Ints) -> Bools:
        """Whether each job may train at its given batch, shape of `rows`."""
        mine: Bools = (self._sizes[self._class_of[rows]] == batch[:, None]).any(axis=1)
        return mine

    def worth(self, row: int, column: int, remaining: float) -> float:
        """Return how many requested iterations one iteration at a batch is worth.

        Parameters
        ----------
        row, column : int
            The job, and the batch's column in `BatchTables.sizes`.
        remaining : float
            Requested iterations the job has left, which set its segment.
        """
        model = self._class_of[row]
        scale = float(self._sizes[model, column] / self._requested[row])
        return scale * float(self._efficiency[model, self._segment(row, remaining), column])

    def next_end(self, row: int, remaining: float) -> float:
        """Return the iterations left when a job's efficiency next changes; 0 if it does not change again."""
        return float(self._left[row, self._segment(row, remaining)])

    def options(self, rows: Ints, remaining: Floats, time_s: Floats) -> BatchOptions:
        """Return the batch options of jobs with `remaining` iterations and times of shape (n, T, K, B)."""
        model = self._class_of[rows]
        segments = (remaining[:, None] <= self._left[rows, :-1]).sum(axis=1)
        return BatchOptions(self._sizes[model], self._efficiency[model, segments], time_s)

    def _segment(self, row: int, remaining: float) -> int:
        return int((remaining <= self._left[row, :-1]).sum())
