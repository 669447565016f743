"""The best pipeline of given stages: dynamic programming over operators and GPUs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.oracle.grid.layer_costs import GraphAllocations
from clustergym.oracle.grid.pipelines import Pipelines, within_node
from clustergym.oracle.grid.stages import StageTable, run_index

LADDER = np.array([1.0, 1.01, 1.03, 1.06, 1.1, 1.2, 1.4, np.inf])
"""Limits tried on the time of the slowest stage, as multiples of the least that is possible."""


def best_pipelines(
    rows: GraphAllocations, table: StageTable, transfer: Floats, micro_batches: Floats
) -> Pipelines:
    """Return the pipeline of least sum of stages + (micro-batches - 1) x slowest stage.

    As Alpa (Zheng et al., OSDI '22, section 5.2): for each limit on the slowest stage, dynamic programming
    finds the least sum of stages. Alpa tries every stage time that occurs as a limit, here `LADDER` is tried.

    Parameters
    ----------
    table : StageTable
    transfer : ndarray of float, shape (R, K + 1, 2, M)
        See `pipelines.transfer_s`.
    micro_batches : ndarray of float, shape (R,)
    """
    steps = _Steps(rows, table, transfer)
    slowest = steps.least_slowest()
    # A little above, so that rounding does not put the slowest stage beyond its own limit.
    limits = np.where(np.isfinite(slowest), slowest, 1.0)[:, None] * LADDER * (1 + 1e-12)
    return steps.backtrack(*steps.least_sum(limits), micro_batches)


class _Steps:
    """The dynamic programme: values by (first operator, GPUs left), from the last operator backwards.

    Arrays have the shape (R, limits, J, M, D + 1): the stage's last operator, its size, and GPUs left before
    it. Stages are laid over the nodes one after another. One that needs no more than a node must lie in
    one, and one that needs several begins on a node of its own, as Alpa's submeshes do (Zheng et al.,
    OSDI '22, section 5.2): so a boundary amid a node is between two stages that lie wholly in it. A stage
    is taken to send and receive at its own rate, as the size of the other is not known here;
    `pipelines.price` charges what the slower of the two takes.
    """

    def __init__(self, rows: GraphAllocations, table: StageTable, transfer: Floats) -> None:
        self.table, self.transfer = table, transfer
        self.operators, self.rows = rows.operators, len(rows)
        self.gpus = rows.layout.gpus.astype(np.int64)
        self.most = int(self.gpus.max())
        self.sizes = table.sizes[table.sizes <= self.most]
        several, per_node = rows.layout.nodes[:, None, None] > 1, rows.layout.per_node[:, None, None]
        start, gpus = self.gpus[:, None, None] - np.arange(self.most + 1), self.sizes[:, None]
        self.receives = several & (start % per_node == 0)
        self.sends = several & ((start + gpus) % per_node == 0)
        laid = within_node(start, gpus, per_node) | ((gpus > per_node) & (start % per_node == 0))
        self.misplaced = several & ~laid

    def stage_s(self, operator: int) -> Floats:
        """Return seconds of stages that begin at an operator, with transfers, shape (R, 1, J, M, D + 1)."""
        last = np.arange(operator, self.operators)
        count = len(self.sizes)
        seconds = self.table.seconds[:, run_index(self.operators, np.array(operator), last), :count]
        before = self.transfer[:, operator, :, :count, None]
        received = np.where(self.receives, before[:, 1], before[:, 0])
        after = self.transfer[:, operator + 1 :, :, :count, None]
        sent = np.where(self.sends[:, None], after[:, :, 1], after[:, :, 0])
        sent += seconds[..., None]
        sent += received[:, None]
        np.copyto(sent, np.inf, where=self.misplaced[:, None])
        return np.asarray(sent[:, None])

    def least_slowest(self) -> Floats:
        """Return the least slowest stage of any pipeline, shape (R,)."""
        shifted = self._shifted(1)
        value = np.empty(0)
        for operator in range(self.operators - 1, -1, -1):
            times = np.maximum(self.stage_s(operator), shifted[:, :, operator + 1 :])
            value = times.min(axis=(2, 3))
            self._shift(shifted, operator, value)
        return np.asarray(value[np.arange(self.rows), 0, self.gpus])

    def least_sum(self, limits: Floats) -> tuple[Bools, list[Ints]]:
        """Return whether a pipeline keeps within the limits, and the best stage from each operator on."""
        shifted, choices = self._shifted(limits.shape[1]), []
        value = np.empty(0)
        for operator in range(self.operators - 1, -1, -1):
            stage = self.stage_s(operator)
            times = stage + shifted[:, :, operator + 1 :]
            np.copyto(times, np.inf, where=stage > limits[:, :, None, None, None])
            times = times.reshape(*times.shape[:2], -1, self.most + 1)
            choices.append(times.argmin(axis=2))
            value = times.min(axis=2)
            self._shift(shifted, operator, value)
        return np.isfinite(value[np.arange(self.rows), :, self.gpus]), choices[::-1]

    def _shifted(self, limits: int) -> Floats:
        """Return the value after a stage, by its next operator, its size and the GPUs left before it."""
        shape = (self.rows, limits, self.operators + 1, len(self.sizes), self.most + 1)
        shifted = np.full(shape, np.inf)
        shifted[:, :, -1, np.arange(len(self.sizes)), self.sizes] = 0.0
        return shifted

    def _shift(self, shifted: Floats, operator: int, value: Floats) -> None:
        for index, size in enumerate(self.sizes.tolist()):
            shifted[:, :, operator, index, size:] = value[:, :, : self.most + 1 - size]

    def backtrack(self, fits: Bools, choices: list[Ints], micro_batches: Floats) -> Pipelines:
        """Return the best of the limits' pipelines, row by row."""
        limits = fits.shape[1]
        row, limit = (part.ravel() for part in np.indices(fits.shape))
        trail = self._trail(row, limit, fits.ravel(), choices)
        total = sum(stage.seconds for stage in trail)
        slowest = np.max([stage.seconds for stage in trail], axis=0)
        cost = np.where(fits.ravel(), total + (micro_batches[row] - 1) * slowest, np.inf)
        pick = np.argmin(cost.reshape(fits.shape), axis=1) + limits * np.arange(self.rows)
        first, last, gpus, tensor, cut = (
            np.stack([getattr(stage, name)[pick] for stage in trail], axis=1)
            for name in ("first", "last", "gpus", "tensor", "cut")
        )
        return Pipelines((gpus > 0).sum(axis=1), first, last, gpus, tensor, cut)

    def _trail(self, row: Ints, limit: Ints, fits: Bools, choices: list[Ints]) -> list[_Link]:
        operator, left = np.where(fits, 0, self.operators), self.gpus[row]
        trail: list[_Link] = []
        count = len(self.sizes)
        code = np.zeros(len(row), dtype=np.int64)
        while True:
            going = operator < self.operators
            for start in np.unique(operator[going]).tolist():
                here = np.flatnonzero(operator == start)
                code[here] = choices[start][row[here], limit[here], left[here]]
            start = np.where(going, operator, 0)
            last = np.where(going, start + code // count, 0)
            index = np.where(going, code % count, 0)
            run = run_index(self.operators, start, last)
            gpus = np.where(going, self.sizes[index], 0)
            receives = self.receives[row, 0, left].astype(np.int64)
            # A stage sends across nodes where the next one receives across nodes.
            sends = self.receives[row, 0, left - gpus].astype(np.int64)
            seconds = self.table.seconds[row, run, index] + self.transfer[row, start, receives, index]
            seconds = seconds + self.transfer[row, last + 1, sends, index]
            trail.append(
                _Link(
                    first=start,
                    last=last,
                    gpus=gpus,
                    tensor=np.where(going, self.table.tensor[row, run, index], 1),
                    cut=np.where(going, self.table.cut[row, run, index], 0),
                    seconds=np.where(going, seconds, 0.0),
                )
            )
            operator, left = np.where(going, last + 1, operator), left - gpus
            if not (operator < self.operators).any():
                return trail


class _Link(NamedTuple):
    """One stage of every plan, shape (R x limits,); 0 GPUs if a plan has no such stage."""

    first: Ints
    last: Ints
    gpus: Ints
    tensor: Ints
    cut: Ints
    seconds: Floats
