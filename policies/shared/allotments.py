"""A table of allotments that a policy changes before it decides."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.policy import Decision, View

from .requests import find_held_level


class Allotments:
    """The allotment that each job would hold, and the GPUs that would be free.

    Parameters
    ----------
    view : View
    empty : bool
        Start with nothing allotted instead of from what jobs hold.

    Attributes
    ----------
    gpu_type, level : ndarray of int, shape (n,)
        Index of the GPU type and of the count; -1: none.
    free : ndarray of int, shape (T,)
    counts : ndarray of int, shape (K,)
    cost_s : ndarray of float, shape (n, T, K)
        Standstill that a change to an allotment costs.
    """

    def __init__(self, view: View, *, empty: bool = False) -> None:
        none = np.full(len(view), -1, dtype=np.int64)
        self.view, self.counts = view, view.setting.counts
        self.gpu_type: Ints = none if empty else view.gpu_type.copy()
        self.level: Ints = none.copy() if empty else find_held_level(view)
        self.free: Ints = (view.available if empty else view.free).copy()
        self.cost_s = view.restart_cost_s()

    def give(self, at: int, gpu_type: int, level: int) -> None:
        """Give the job at a position of the View type `gpu_type` (-1: nothing) and count index `level`."""
        if self.gpu_type[at] >= 0:
            self.free[self.gpu_type[at]] += self.counts[self.level[at]]
        self.gpu_type[at], self.level[at] = gpu_type, level
        if gpu_type >= 0:
            self.free[gpu_type] -= self.counts[level]

    def decision(self) -> Decision:
        """Return the Decision that enacts the allotments."""
        held = np.flatnonzero(self.gpu_type >= 0)
        return Decision(self.view.job[held], self.gpu_type[held], self.counts[self.level[held]])
