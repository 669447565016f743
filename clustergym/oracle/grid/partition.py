"""The best pipeline of given stages: dynamic programming over operators and GPUs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.arrays import Bools, Floats, Ints
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


ACROSS, INSIDE = 0, 1
"""How a stage receives from the one before it, or sends to the next: over the network, or on a shared node."""


class _Steps:
    """The dynamic programme: values by (first operator, GPUs left), from the last operator backwards.

    Arrays have the shape (R, limits, J, M, D + 1): the stage's last operator, its size, and GPUs left before
    it. There are two values: the best pipeline whose first stage receives `ACROSS` nodes, and the best one
    whose first stage receives `INSIDE` a node, which it must lie wholly in (see `pipelines.crossings`). Which of
    them a stage goes on with decides how it sends. Two stages that could share a node always do, as sending
    inside is never slower.
    """

    def __init__(self, rows: GraphAllocations, table: StageTable, transfer: Floats) -> None:
        self.table, self.transfer = table, transfer
        self.operators, self.rows = rows.operators, len(rows)
        self.gpus = rows.layout.gpus.astype(np.int64)
        self.most = int(self.gpus.max())
        self.sizes = table.sizes[table.sizes <= self.most]
        self.several = rows.layout.nodes > 1
        per_node = rows.layout.per_node.astype(np.int64)[:, None, None]
        start = self.gpus[:, None, None] - np.arange(self.most + 1)
        end = start + self.sizes[:, None]
        whole = self.several[:, None, None] & within_node(start, self.sizes[:, None], per_node)
        self.can_receive = whole & (start % per_node != 0)
        self.can_send = whole & (end % per_node != 0)
        shares = (self.several & (rows.layout.per_node > 1)).any()
        self.ways = (ACROSS, INSIDE) if shares else (ACROSS,)

    def stage_s(self, operator: int) -> list[list[Floats]]:
        """Return seconds of stages that begin at an operator, by how they receive, then by how they send.

        Each has the shape (R, 1, J, M, D + 1), and is inf where a stage cannot receive or send so.
        """
        last = np.arange(operator, self.operators)
        count = len(self.sizes)
        seconds = self.table.seconds[:, run_index(self.operators, np.array(operator), last), :count, None]
        before, after = self.transfer[:, operator, ..., None], self.transfer[:, operator + 1 :, ..., None]
        found = []
        for receives in self.ways:
            received = self._moved(before, receives, 1)[:, :, :count]
            if receives == INSIDE:
                received = np.where(self.can_receive, received[:, 0], np.inf)[:, None]
            ways = []
            for sends in self.ways:
                stage = seconds + self._moved(after, sends, 2)[:, :, :count] + received
                if sends == INSIDE:
                    stage = np.where(self.can_send[:, None], stage, np.inf)
                ways.append(np.broadcast_to(stage, (*stage.shape[:3], self.most + 1))[:, None])
            found.append(ways)
        return found

    def _moved(self, transfer: Floats, way: int, axis: int) -> Floats:
        """Return seconds of a transfer, shape (R, J, M, 1), J 1 if `axis`, that of `pipelines.transfer_s`, is 1."""
        inside, across = np.take(transfer, 0, axis), np.take(transfer, 1, axis)
        several = self.several.reshape(-1, *[1] * (inside.ndim - 1))
        moved = np.where(several & (way == ACROSS), across, inside)
        return moved[:, None] if axis == 1 else moved

    def least_slowest(self) -> Floats:
        """Return the least slowest stage of any pipeline, shape (R,)."""
        shifted = self._shifted(1)
        values: list[Floats] = []
        for operator in range(self.operators - 1, -1, -1):
            values = [
                np.min(
                    [
                        np.maximum(stage, following[:, :, operator + 1 :]).min(axis=(2, 3))
                        for stage, following in zip(ways, shifted, strict=True)
                    ],
                    axis=0,
                )
                for ways in self.stage_s(operator)
            ]
            self._shift(shifted, operator, values)
        return np.asarray(values[ACROSS][np.arange(self.rows), 0, self.gpus])

    def least_sum(self, limits: Floats) -> tuple[Bools, list[Ints]]:
        """Return whether a pipeline keeps within the limits, and the best stage from each operator on.

        The choices have the shape (R, limits, ways to receive, D + 1).
        """
        shifted, choices = self._shifted(limits.shape[1]), []
        values: list[Floats] = []
        for operator in range(self.operators - 1, -1, -1):
            values, chosen = [], []
            for ways in self.stage_s(operator):
                value, choice = self._best(ways, shifted, operator, limits)
                values.append(value)
                chosen.append(choice)
            choices.append(np.stack(chosen, axis=2))
            self._shift(shifted, operator, values)
        fits = np.isfinite(values[ACROSS][np.arange(self.rows), :, self.gpus])
        return fits, choices[::-1]

    def _best(
        self, ways: list[Floats], shifted: list[Floats], operator: int, limits: Floats
    ) -> tuple[Floats, Ints]:
        """Return the least sum of stages, and the choice of way to send, last operator and size behind it."""
        value, choice, first = np.empty(0), np.empty(0, dtype=np.int64), 0
        for sends, (stage, following) in enumerate(zip(ways, shifted, strict=True)):
            times = stage + following[:, :, operator + 1 :]
            np.copyto(times, np.inf, where=stage > limits[:, :, None, None, None])
            times = times.reshape(*times.shape[:2], -1, self.most + 1)
            least, position = times.min(axis=2), times.argmin(axis=2) + first
            if sends == ACROSS:
                value, choice = least, position
            else:
                choice = np.where(least < value, position, choice)
                value = np.minimum(least, value)
            first += times.shape[2]
        return value, choice

    def _shifted(self, limits: int) -> list[Floats]:
        """Return the values after a stage, by its next operator, its size and the GPUs left before it."""
        shape = (self.rows, limits, self.operators + 1, len(self.sizes), self.most + 1)
        shifted = [np.full(shape, np.inf) for _ in self.ways]
        shifted[ACROSS][:, :, -1, np.arange(len(self.sizes)), self.sizes] = 0.0
        return shifted

    def _shift(self, shifted: list[Floats], operator: int, values: list[Floats]) -> None:
        for after, value in zip(shifted, values, strict=True):
            for index, size in enumerate(self.sizes.tolist()):
                after[:, :, operator, index, size:] = value[:, :, : self.most + 1 - size]

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
        code, receives = np.zeros(len(row), dtype=np.int64), np.full(len(row), ACROSS)
        while True:
            going = operator < self.operators
            for start in np.unique(operator[going]).tolist():
                here = np.flatnonzero(operator == start)
                code[here] = choices[start][row[here], limit[here], receives[here], left[here]]
            start = np.where(going, operator, 0)
            sends, code = np.divmod(code, np.where(going, self.operators - start, 1) * count)
            last = np.where(going, start + code // count, 0)
            index = np.where(going, code % count, 0)
            run = run_index(self.operators, start, last)
            gpus = np.where(going, self.sizes[index], 0)
            seconds = self.table.seconds[row, run, index]
            for position, way in ((start, receives), (last + 1, sends)):
                across = (self.several[row] & (way == ACROSS)).astype(np.int64)
                seconds = seconds + self.transfer[row, position, across, index]
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
            receives = np.where(going, sends, ACROSS)
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
