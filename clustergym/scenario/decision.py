"""The answer of a policy: which job holds how many GPUs of which type from now on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.view import View

if TYPE_CHECKING:
    from clustergym.cluster.spec import Nodes


@dataclass(frozen=True)
class Decision:
    """A policy's decision: the GPU type and count of every job that is to run from now on.

    A running job that is left out is preempted; one whose allotment is unchanged keeps running. A job
    whose batch alone changes continues without a restart, as jobs of Pollux change their batch while they
    train (OSDI '21, section 4.1).

    Attributes
    ----------
    job, gpu_type, gpus : ndarray of int, shape (m,)
        Trace row, index of the GPU type, GPU count.
    drop : ndarray of int
        Trace rows of jobs to drop for good.
    batch : ndarray of int, shape (m,), or None
        Global batch, samples; 0: the requested one. None: all train at the requested one.
    partner : ndarray of int, shape (m,), or None
        Trace row of the job that shares all its GPUs, which names it in turn and has the same type and
        count; -1: none. The GPUs of a pair count once. None: no job shares.
    avoid : mapping of int to tuple of int, or None
        Nodes that the launch of a job may not use, by row of the trace, such as those reserved for others.
    notice : ndarray of int
        Trace rows of running jobs that save before they are stopped, which they hold their GPUs for, or
        before they are launched on other GPUs, which then stands still for longer. Allowed only where jobs do
        not save whenever they are stopped (`StopCosts.loses`).
    move : mapping of int to Nodes or int, or None
        Nodes, as (node, GPUs), or the NVLink domain that jobs of the decision are to be on. A running job
        that is elsewhere moves there, at the price of a restart.
    again_s : float or None
        When the policy wants to decide next, if no event comes before. Counts where decision points are
        events; of several only the last.
    """

    job: Ints
    gpu_type: Ints
    gpus: Ints
    drop: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    batch: Ints | None = None
    partner: Ints | None = None
    avoid: Mapping[int, tuple[int, ...]] | None = None
    notice: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    move: Mapping[int, Nodes | int] | None = None
    again_s: float | None = None

    @staticmethod
    def of(allotments: Iterable[tuple[int, int, int]], drop: Iterable[int] = ()) -> Decision:
        """Build a decision from (trace row, GPU type index, GPU count) triples, and trace rows to drop."""
        table = np.array(list(allotments), dtype=np.int64).reshape(-1, 3)
        return Decision(table[:, 0], table[:, 1], table[:, 2], np.array(list(drop), dtype=np.int64))

    def also(self, allotments: Iterable[tuple[int, int, int]]) -> Decision:
        """Return a copy of this decision with further (trace row, GPU type index, GPU count) triples."""
        more = Decision.of(allotments)
        if not len(more.job):
            return self
        none = np.full_like(more.gpus, -1)
        return replace(
            self,
            job=np.concatenate([self.job, more.job]),
            gpu_type=np.concatenate([self.gpu_type, more.gpu_type]),
            gpus=np.concatenate([self.gpus, more.gpus]),
            batch=None if self.batch is None else np.concatenate([self.batch, np.zeros_like(more.gpus)]),
            partner=None if self.partner is None else np.concatenate([self.partner, none]),
        )

    def paired(self, pairs: Iterable[tuple[int, int]]) -> Decision:
        """Return a copy of this decision in which the two jobs of each pair (trace rows) share their GPUs."""
        beside = {row: other for pair in pairs for row, other in (pair, pair[::-1])}
        partner = np.array([beside.get(row, -1) for row in self.job.tolist()], dtype=np.int64)
        return replace(self, partner=partner)

    @staticmethod
    def keep(view: View) -> Decision:
        """Build the decision in which every job keeps what it holds."""
        held = np.flatnonzero(view.gpus > 0)
        partner = None if view.partner is None else view.partner[held]
        table = view.job[held], view.gpu_type[held], view.gpus[held]
        return Decision(*table, batch=view.batch[held], partner=partner)
