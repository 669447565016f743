"""The GPUs that each tenant's queue may use, and the queues that give back what others lack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import View
from clustergym.scenario.queue_book import Evictions
from clustergym.scenario.tenants.queue_tree import QueueTree, get_most_gpus, get_reserved_gpus

from .notices import Notice, choose_notices
from .requests import request_options

Reclaim = Literal["shrink", "stop", "never"]
Victims = Literal["recent", "priority", "cheapest"]


class Shares(NamedTuple):
    """The GPUs that each leaf queue holds, asks for and is due, by GPU type, shape (leaves, types).

    Attributes
    ----------
    held, asked, due : ndarray of float
        What its jobs hold; what they ask for, or hold if that is more; what is its own.
    """

    held: Floats
    asked: Floats
    due: Floats


def compute_room(available: Ints, shares: Shares, limits: QueueLimits) -> Ints:
    """Return the GPUs that each leaf queue may use: those it holds, and idle ones up to what it is due."""
    room = shares.held.copy()
    idle = available - room.sum(axis=0)
    served = shares.held / np.maximum(shares.due, 1.0)
    lacks = np.maximum(np.floor(shares.due) - room, 0.0)
    # Who holds least of what it is due comes first, as idle GPUs may not suffice for all.
    order = np.argsort(served, axis=0, kind="stable")
    for gpu_type in np.flatnonzero((idle > 0) & lacks.any(axis=0)).tolist():
        for at in order[lacks[order[:, gpu_type], gpu_type] > 0, gpu_type].tolist():
            most = np.floor(limits.room(at, room, idle)[gpu_type] - room[at, gpu_type])
            more = min(float(most), float(lacks[at, gpu_type]))
            room[at, gpu_type] += more
            idle[gpu_type] -= more
    return room.astype(np.int64)


class ReclaimPlan:
    """A plan of which jobs release GPUs, in queues above their share, for queues that lack GPUs.

    Parameters
    ----------
    view : View
    tree : QueueTree
    since_s : ndarray of float, shape (n,)
        When each job last started.
    rules : tuple of (str, str, str)
        `reclaim`, `victims` and `notice` of `policy=quotas`.
    evictions : Evictions
    """

    def __init__(
        self,
        view: View,
        tree: QueueTree,
        since_s: Floats,
        rules: tuple[Reclaim, Victims, Notice],
        evictions: Evictions,
    ) -> None:
        self.view, self.leaf, self.tree, self.since_s = view, view.queue, tree, since_s
        (self.reclaim, self.victims, notice), self._evictions = rules, evictions
        self._undone, self._relaunch = np.zeros(len(view)), np.zeros(len(view))
        if self.victims == "cheapest":
            costs = view.stop_costs()
            self._undone = np.where(choose_notices(view, notice), costs.save_gpu_s, costs.lost_gpu_s)
            self._relaunch = costs.restart_gpu_s
        evictions.open()
        self.gpus = view.gpus.copy()
        """What each job is left with."""
        self.short = False
        """Whether some queue lacked GPUs of its share that idle ones could not make up for."""

    def take(self, shares: Shares) -> Shares:
        """Plan which jobs release GPUs of every type; return what queues hold and are due after that."""
        if self.reclaim == "never":
            return shares
        lacking = np.maximum(np.minimum(shares.due, shares.asked) - shares.held, 0.0)
        # Idle GPUs serve what is lacking first: only beyond them does anybody give GPUs back.
        short = lacking.sum(axis=0) > self.view.free
        self.short = bool(short.any())
        if not self.short:
            return shares
        held, lacking = shares.held.copy(), self._usable(lacking * self._may_take()[:, None])
        for gpu_type in np.flatnonzero(short).tolist():
            self._take(gpu_type, held[:, gpu_type], shares.due[:, gpu_type], lacking[:, gpu_type])
        self._wait_for_evictions(held)
        return shares._replace(held=held)

    def _wait_for_evictions(self, held: Floats) -> None:
        """Leave jobs what they hold until their eviction is over."""
        gives = np.flatnonzero(self.gpus < self.view.gpus)
        for row, job in zip(gives.tolist(), self.view.job[gives].tolist(), strict=True):
            if not self._evictions.note_eviction(job, self.view.now_s):
                held[self.leaf[row], self.view.gpu_type[row]] += self.view.gpus[row] - self.gpus[row]
                self.gpus[row] = self.view.gpus[row]

    @property
    def shrunk(self) -> int:
        """Number of jobs that release some of their GPUs and keep others."""
        return int(((self.gpus > 0) & (self.gpus < self.view.gpus)).sum())

    @property
    def stopped(self) -> int:
        """Number of jobs that release all of their GPUs."""
        return int(((self.gpus == 0) & (self.view.gpus > 0)).sum())

    def _take(self, gpu_type: int, held: Floats, due: Floats, lacking: Floats) -> None:
        missing = -float(self.view.free[gpu_type])
        for taker in np.argsort(-lacking, kind="stable").tolist():
            missing += float(lacking[taker])
            if missing > 0 and (held > due).any():
                missing = min(self._reclaim_gpus(taker, missing, gpu_type, held, due), 0.0)

    def _reclaim_gpus(self, taker: int, missing: float, gpu_type: int, held: Floats, due: Floats) -> float:
        """Take GPUs back for one leaf; return how many are still missing, below 0 if more came back."""
        of_type = (self.view.gpu_type == gpu_type) & self._find_unprotected(taker)
        while missing > 0:
            # Anew for each victim: what was taken may have moved another queue to the top.
            above = np.maximum(held - due, 0.0)[self.leaf]
            rows = np.flatnonzero(of_type & (self.gpus > 0) & (above > 0))
            if not len(rows):
                break
            row, left = self._victim(rows[above[rows] == above[rows].max()], gpu_type, missing)
            freed = self.gpus[row] - left
            self.gpus[row] = left
            held[self.leaf[row]] -= freed
            missing -= float(freed)
        return missing

    def _usable(self, lacking: Floats) -> Floats:
        """Return the lacking GPUs, rounded down to whole requests of the queues' waiting jobs."""
        view, found = self.view, np.zeros_like(lacking)
        options = request_options(view)
        for row in np.flatnonzero(view.gpus == 0).tolist():
            at, gpus = int(self.leaf[row]), float(view.requested_gpus[row])
            left = np.where(options[row], lacking[at] - found[at], 0.0)
            if view.requested_type[row] < 0 and left.sum() >= gpus:
                # It asked for a part of itself on each type.
                found[at] += left
            elif left.max() >= gpus:
                found[at, int(left.argmax())] += gpus
        return found

    def _may_take(self) -> Bools:
        """Return which leaves have a job that has waited long enough for others to be stopped."""
        found = np.zeros(len(self.tree.leaves), dtype=bool)
        delay_s = np.array([self.tree.preemption_delay_s(name) for name in self.tree.leaves])
        # Running jobs have waited for NaN seconds.
        found[self.leaf[self.view.now_s - self.view.queued_s >= delay_s[self.leaf]]] = True
        return found

    def _find_unprotected(self, taker: int) -> Bools:
        """Return which jobs another queue may take GPUs of."""
        leaves = self.tree.leaves
        least_s = np.array([self.tree.reclaim_min_runtime_s(leaves[taker], name) for name in leaves])
        least_s[taker] = np.inf
        found: Bools = self.view.now_s - self.since_s >= least_s[self.leaf]
        return found

    def _victim(self, rows: Ints, gpu_type: int, missing: float) -> tuple[int, int]:
        """Return the job that gives GPUs back, and how many it keeps.

        Of ways that lose as much, the one that frees least, and then the job that started last.
        """
        if self.reclaim == "shrink":
            row, left, loss = self._ways(rows, gpu_type, missing)
            if len(row):
                freed = self.gpus[row] - left
                first = np.lexsort((-row, -self.since_s[row], freed, loss / np.minimum(freed, missing)))[0]
                return int(row[first]), int(left[first])
        loss = (self._undone[rows] + self._relaunch[rows]) / np.minimum(self.gpus[rows], missing)
        key = self.view.priority[rows] if self.victims == "priority" else loss
        return int(rows[np.lexsort((-rows, -self.since_s[rows], key))[0]]), 0

    def _ways(self, rows: Ints, gpu_type: int, missing: float) -> tuple[Ints, Ints, Floats]:
        """Return the ways to shrink jobs: the job, the GPUs it keeps, and the GPU-seconds lost.

        Each keeps as much as lets all that is missing come free, or else the fewest GPUs it can run on. It
        stands still with them; a job that gives GPUs back already stands still in any case.
        """
        counts, now = self.view.setting.counts, self.gpus[rows, None]
        fits = self.view.feasible[rows, gpu_type] & (counts < now)
        enough = fits & (now - counts >= missing)
        most = len(counts) - 1 - enough[:, ::-1].argmax(axis=1)
        level = np.where(enough.any(axis=1), most, fits.argmax(axis=1))
        some = np.flatnonzero(fits.any(axis=1))
        row, level = rows[some], level[some]
        left = counts[level]
        stands = np.where(self.gpus[row] < self.view.gpus[row], self.gpus[row], 0)
        # What is undone counts once, however often a job is shrunk.
        undone = np.where(stands > 0, 0.0, self._undone[row])
        return row, left, self.view.restart_cost_s()[row, gpu_type, level] * (left - stands) + undone


class QueueLimits:
    """The most GPUs of each type that each queue may use, and the GPUs kept free for it alone.

    Parameters
    ----------
    tree : QueueTree
    gpu_types : sequence of str
    capacity : ndarray of int, shape (T,)
        GPUs of the cluster.

    Attributes
    ----------
    above : ndarray of bool, shape (Q, L)
        Which queues each leaf is in; itself too.
    most : ndarray of float, shape (L, T)
        Of each leaf, by its own limits and those above it.
    """

    def __init__(self, tree: QueueTree, gpu_types: Sequence[str], capacity: Ints) -> None:
        names = list(tree.queues)
        place = {name: at for at, name in enumerate(names)}
        queues = tree.queues.values()
        self._parent = [place.get(queue.parent or "", -1) for queue in queues]
        paths = [{place[name] for name in tree.path(leaf)} for leaf in tree.leaves]
        self.above: Bools = np.array([[at in path for path in paths] for at in range(len(names))])
        beside = [{at for at, up in enumerate(self._parent) if up in {-1, *path}} - path for path in paths]
        self._beside: Bools = np.array([[at in others for at in range(len(names))] for others in beside])
        amounts = [[get_most_gpus(queue, gpu_type) for gpu_type in gpu_types] for queue in queues]
        self._most: Floats = np.array(amounts)
        kept = [[get_reserved_gpus(queue, gpu_type) for gpu_type in gpu_types] for queue in queues]
        self._kept: Floats = np.minimum(kept, capacity)
        self.most: Floats = np.array([self._most[sorted(path)].min(axis=0) for path in paths])
        self._keeps = bool((self._kept > 0).any())
        inner = np.array([bool(tree.children[name]) for name in names])
        self._limited = np.flatnonzero(inner & np.isfinite(self._most).any(axis=1))[::-1]
        self._only_leaves = not (self._keeps or len(self._limited))

    def compute_reserved(self, used: Floats) -> Floats:
        """Return the GPUs to keep idle for each queue by GPU type, given the leaf queues' use."""
        found = np.zeros(self._kept.shape)
        if self._keeps:
            lacking = np.maximum(self._kept - self.above @ used, 0.0)
            for at in range(len(found) - 1, -1, -1):
                found[at] = np.maximum(found[at], lacking[at])
                if self._parent[at] >= 0:
                    found[self._parent[at]] += found[at]
        return found

    def compute_idle_reserve(self, used: Floats) -> Floats:
        """Return the GPUs of each type that stay idle because they are guaranteed to a queue."""
        top = np.array(self._parent) < 0
        kept: Floats = self.compute_reserved(used)[top].sum(axis=0)
        return kept

    def room(self, at: int, used: Floats, idle: Floats | Ints) -> Floats:
        """Return the most GPUs of each type that a leaf queue may hold now, given all use and idle GPUs."""
        more: Floats = np.asarray(idle, dtype=np.float64)
        if not self._only_leaves:
            more = more - self._beside[at] @ self.compute_reserved(used)
            above = self.above[:, at]
            more = np.minimum(more, (self._most[above] - self.above[above] @ used).min(axis=0))
        most: Floats = np.minimum(self.most[at], used[at] + more)
        room: Floats = np.maximum(used[at], most)
        return room

    def limit_shares(self, due: Floats, more: Floats) -> Floats:
        """Cut in place, and return, the GPUs `more` to add to queues' `due`, so that no limit is exceeded."""
        for at in self._limited.tolist():
            below = self.above[at]
            # The excess is cut from all leaves below alike, so that their proportions stay.
            added = more[below].sum(axis=0)
            part = np.maximum(self._most[at] - due[below].sum(axis=0), 0.0) / np.maximum(added, 1.0)
            more[below] = np.floor(more[below] * np.minimum(part, 1.0))
        return more
