"""What queues of tenants hold, ask for and are due; and who gives back what others lack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from clustergym.arrays import Bools, Floats, Ints
from clustergym.interface.policy import View
from clustergym.tenants.division import DivisionRule, divided
from clustergym.tenants.queue_tree import QueueTree

from .requests import request_options

Reclaim = Literal["shrink", "stop", "never"]


class Shares(NamedTuple):
    """GPUs of each type by leaf, shape (L, T).

    Attributes
    ----------
    held, asked, due : ndarray of float
        What its jobs hold; what they ask for, or hold if that is more; what is its own.
    """

    held: Floats
    asked: Floats
    due: Floats


def shares_of(
    view: View, leaf: Ints, tree: QueueTree, rule: DivisionRule, usage: Mapping[str, float]
) -> Shares:
    """Return what each leaf holds, asks for, and is due.

    A job of any type that waits asks for each type that it can run on, in proportion to the cluster's GPUs.
    What nobody asks for is divided too, among those that have jobs, for jobs that may grow.
    """
    leaves, types = len(tree.leaves), len(view.available)
    held, asked = np.zeros((2, leaves, types))
    running = view.gpus > 0
    np.add.at(held, (leaf[running], view.gpu_type[running]), view.gpus[running])
    np.add.at(asked, leaf, _by_type(view) * np.maximum(view.requested_gpus, view.gpus)[:, None])
    asked = np.ceil(asked - 1e-9)
    due = np.zeros((leaves, types))
    for at, gpu_type in enumerate(view.setting.gpu_types):

        def divide(total: float, requests: Floats, gpu_type: str = gpu_type) -> Floats:
            by_leaf = dict(zip(tree.leaves, requests.tolist(), strict=True))
            found = divided(tree, rule, gpu_type, total, by_leaf, usage)
            return np.array([found[name] for name in tree.leaves])

        total = float(view.available[at])
        due[:, at] = divide(total, asked[:, at])
        left = total - due[:, at].sum()
        if left > 0:
            wider = divide(total, np.where(asked[:, at] > 0, total, 0.0))
            more = np.maximum(wider - due[:, at], 0.0)
            due[:, at] += np.floor(more * min(left / max(more.sum(), 1.0), 1.0))
    return Shares(held, asked, due)


def _by_type(view: View) -> Floats:
    """Return what part of its request each job asks of each type, shape (n, T)."""
    weights = request_options(view) * view.setting.capacity
    parts: Floats = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1)
    kind = np.where(view.gpus > 0, view.gpu_type, view.requested_type)
    parts[kind >= 0] = np.eye(len(view.available))[kind[kind >= 0]]
    return parts


def room_of(view: View, shares: Shares) -> Ints:
    """Return what each leaf may use: what it holds, and of idle GPUs what it lacks, shape (L, T)."""
    room = shares.held.copy()
    idle = view.available - room.sum(axis=0)
    served = shares.held / np.maximum(shares.due, 1.0)
    for gpu_type in range(len(idle)):
        for at in np.argsort(served[:, gpu_type], kind="stable"):
            lacks = max(np.floor(shares.due[at, gpu_type]) - room[at, gpu_type], 0.0)
            given = min(idle[gpu_type], lacks)
            room[at, gpu_type] += given
            idle[gpu_type] -= given
    return room.astype(np.int64)


class TakingBack:
    """Lowers what jobs hold of queues above their share, by what other queues lack of theirs.

    Parameters
    ----------
    view : View
    leaf : ndarray of int, shape (n,)
        The leaf of each job.
    tree : QueueTree
    since_s : ndarray of float, shape (n,)
        When each job last started.
    reclaim : str
        `shrink`, `stop` or `never`.
    """

    def __init__(self, view: View, leaf: Ints, tree: QueueTree, since_s: Floats, reclaim: Reclaim) -> None:
        self.view, self.leaf, self.tree, self.since_s = view, leaf, tree, since_s
        self.reclaim = reclaim
        self.gpus = view.gpus.copy()
        """What each job is left with."""
        self.shrunk = self.stopped = 0

    def take(self, shares: Shares) -> Shares:
        """Take back what is due, of every type; return the shares with what is then held."""
        held = shares.held.copy()
        for gpu_type in range(len(self.view.available)):
            if self.reclaim != "never":
                self._take(gpu_type, held[:, gpu_type], shares.asked[:, gpu_type], shares.due[:, gpu_type])
        return shares._replace(held=held)

    def _take(self, gpu_type: int, held: Floats, asked: Floats, due: Floats) -> None:
        lacking = np.where(self._may_take(), np.maximum(np.minimum(due, asked) - held, 0.0), 0.0)
        taker = int(lacking.argmax())
        missing = lacking.sum() - self.view.free[gpu_type]
        if missing <= 0:
            return
        of_type = (self.view.gpu_type == gpu_type) & self._unprotected(taker)
        while missing > 0:
            above = np.maximum(held - due, 0.0)[self.leaf]
            rows = np.flatnonzero(of_type & (self.gpus > 0) & (above > 0))
            if not len(rows):
                return
            row, left = self._victim(rows[above[rows] == above[rows].max()], gpu_type)
            freed = self.gpus[row] - left
            self.gpus[row] = left
            held[self.leaf[row]] -= freed
            missing -= freed
            self.shrunk += left > 0
            self.stopped += left == 0

    def _may_take(self) -> Bools:
        """Return which leaves have a job that has waited long enough for others to be stopped."""
        found = np.zeros(len(self.tree.leaves), dtype=bool)
        delay_s = np.array([self.tree.queues[name].preemption_delay_s for name in self.tree.leaves])
        # Running jobs have waited for NaN seconds.
        found[self.leaf[self.view.now_s - self.view.queued_s >= delay_s[self.leaf]]] = True
        return found

    def _unprotected(self, taker: int) -> Bools:
        """Return which jobs another queue may take GPUs of."""
        leaves = self.tree.leaves
        least_s = np.array([self.tree.reclaim_min_runtime_s(leaves[taker], name) for name in leaves])
        least_s[taker] = np.inf
        found: Bools = self.view.now_s - self.since_s >= least_s[self.leaf]
        return found

    def _victim(self, rows: Ints, gpu_type: int) -> tuple[int, int]:
        """Return the job that gives GPUs back, and how many it keeps: the widest half, or the last all."""
        if self.reclaim == "shrink":
            counts, half = self.view.setting.counts, self.gpus[rows] // 2
            level = np.minimum(np.searchsorted(counts, half), len(counts) - 1)
            runs = (counts[level] == half) & self.view.feasible[rows, gpu_type, level]
            if runs.any():
                rows = rows[runs]
                widest = rows[np.lexsort((rows, self.since_s[rows], self.gpus[rows]))[-1]]
                return int(widest), int(self.gpus[widest] // 2)
        return int(rows[np.lexsort((rows, self.since_s[rows]))[-1]]), 0
