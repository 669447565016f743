"""Capacity: queues with a guarantee, a deserved share that comes back on demand, and a cap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .shared.gang_queues import GangQueues, Gangs


@dataclass
class Capacity(GangQueues):
    """A policy of queues that may use each other's idle GPUs, as in Volcano's and YARN's capacity scheduler.

    A queue deserves its quota, never has more than its limit, and may use the GPUs that others leave
    idle, except the unused part of their guarantees. The queue that holds least of what it deserves
    starts a job first; a job that does not fit lets others pass. A job that keeps its queue within what
    it deserves takes GPUs back from queues that hold more than they deserve, first from the one with the
    greatest excess, and there from the job of least priority that started last. Within a queue, a job
    takes GPUs from jobs of lower priority. No job is stopped before its minimum run time.

    Sources: Volcano's design of capacity scheduling, and the documentation of Apache Hadoop's scheduler.

    Every departure from Volcano and YARN: jobs start and stop whole, so that a
    queue that gives a job back may be left with less than it deserves; there is no time between a warning and
    the stop, and no limit to what is taken back at once.

    Parameters
    ----------
    victims, notice, round_s : str, str, float or None
        As of `GangQueues` and `NoticePolicy`; that victims may be the `cheapest` is our own choice.
    """

    name: ClassVar[str] = "capacity"
    needs_queues: ClassVar[bool] = True

    def rank_queue(self, gangs: Gangs, queue: str, at: int) -> Any:
        """Return the order of a queue: the least part held of what it deserves is first."""
        served = max(self.compute_excess(queue, gpu_type) for gpu_type in range(len(self.book.types)))
        return served, sum(self.book.held[queue]), self.book.index[queue]

    def may_have(self, leaf: str, gpu_type: int, gpus: int) -> bool:
        """Return whether a leaf queue may have more GPUs: free, not kept for others, within its limits."""
        tree, path = self.book.tree, self.book.paths[leaf]
        others = (
            other for name in path for other in tree.children[tree.queues[name].parent] if other != name
        )
        kept = sum(self._compute_kept(other, gpu_type) for other in others)
        return self.book.free[gpu_type] - kept >= gpus and super().may_have(leaf, gpu_type, gpus)

    def _compute_kept(self, queue: str, gpu_type: int) -> float:
        """Return the GPUs that a queue is guaranteed and does not use."""
        # What a queue keeps free covers its children's guarantees: the larger of the two, not their sum.
        below = sum(self._compute_kept(child, gpu_type) for child in self.book.tree.children[queue])
        return max(self.book.guarantee[queue][gpu_type] - self.book.held[queue][gpu_type], below)

    def may_claim(self, gangs: Gangs, at: int, gpu_type: int) -> bool:
        """Return whether the job keeps its queue within what it deserves, to reclaim."""
        return self.book.within_quota(gangs.leaf[at], gpu_type, gangs.gpus[at])

    def may_stop(self, gangs: Gangs, at: int, gpu_type: int, victim: int) -> bool:
        """Return whether the victim's queues are above what they deserve."""
        (mine, *_), theirs = self.book.sides(gangs.leaf[at], gangs.leaf[victim])
        within = self.book.within_quota(mine, gpu_type, gangs.gpus[at])
        return within and not any(self.book.within_quota(name, gpu_type, 0) for name in theirs)

    def compute_excess(self, queue: str, gpu_type: int) -> float:
        """Return the part that a queue holds of what it deserves."""
        held, deserved = self.book.held[queue][gpu_type], self.book.quota[queue][gpu_type]
        if deserved:
            return held / deserved
        return np.inf if held else 0.0
