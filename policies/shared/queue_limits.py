"""How many GPUs a queue may use, by its limits and by what other queues keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.tenants.queue_tree import QueueTree, get_most_gpus, get_reserved_gpus


class QueueLimits:
    """Limits of Q queues on T GPU types: the most each may use, and the part of its quota it does not lend.

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
    plain : bool
        Whether nothing but the limits of leaves counts.
    """

    def __init__(self, tree: QueueTree, gpu_types: Sequence[str], capacity: Ints) -> None:
        names = list(tree.queues)
        place = {name: at for at, name in enumerate(names)}
        self._parent = [place.get(queue.parent or "", -1) for queue in tree.queues.values()]
        paths = [{place[name] for name in tree.path(leaf)} for leaf in tree.leaves]
        self.above: Bools = np.array([[at in path for path in paths] for at in range(len(names))])
        beside = [{at for at, up in enumerate(self._parent) if up in {-1, *path}} - path for path in paths]
        self._beside: Bools = np.array([[at in others for at in range(len(names))] for others in beside])
        amounts = [
            [get_most_gpus(queue, gpu_type) for gpu_type in gpu_types] for queue in tree.queues.values()
        ]
        self._most: Floats = np.array(amounts)
        kept = [
            [get_reserved_gpus(queue, gpu_type) for gpu_type in gpu_types] for queue in tree.queues.values()
        ]
        self._kept: Floats = np.minimum(kept, capacity)
        self.most: Floats = np.array([self._most[sorted(path)].min(axis=0) for path in paths])
        self._keeps = bool((self._kept > 0).any())
        inner = np.array([bool(tree.children[name]) for name in names])
        self._limited = np.flatnonzero(inner & np.isfinite(self._most).any(axis=1))[::-1]
        self.plain = not (self._keeps or len(self._limited))

    def compute_reserved(self, used: Floats) -> Floats:
        """Return the GPUs to keep idle for each queue, shape (Q, T), given what leaves use, shape (L, T)."""
        found = np.zeros(self._kept.shape)
        if self._keeps:
            lacking = np.maximum(self._kept - self.above @ used, 0.0)
            for at in range(len(found) - 1, -1, -1):
                found[at] = np.maximum(found[at], lacking[at])
                if self._parent[at] >= 0:
                    found[self._parent[at]] += found[at]
        return found

    def compute_idle_reserve(self, used: Floats) -> Floats:
        """Return the GPUs of each type that stay idle as some queue's guarantee, shape (T,)."""
        if not self._keeps:
            return np.zeros(used.shape[1])
        top = np.array(self._parent) < 0
        kept: Floats = self.compute_reserved(used)[top].sum(axis=0)
        return kept

    def room(self, at: int, used: Floats, idle: Floats | Ints) -> Floats:
        """Return the GPUs of each type, shape (T,), that a leaf may use, of its own and of idle ones."""
        more: Floats = np.asarray(idle, dtype=np.float64)
        if not self.plain:
            more = more - self._beside[at] @ self.compute_reserved(used)
            above = self.above[:, at]
            more = np.minimum(more, (self._most[above] - self.above[above] @ used).min(axis=0))
        most: Floats = np.minimum(self.most[at], used[at] + more)
        room: Floats = np.maximum(used[at], most)
        return room

    def fits(self, queue: Ints, wanted: Floats, used: Floats, idle: Floats) -> Bools:
        """Return which leaves have `room` for one of n jobs, where limits are `plain`.

        Parameters
        ----------
        queue : ndarray of int, shape (n,)
        wanted : ndarray of float, shape (n, T)
            GPUs that each job asks for; inf: none of this type.
        used, idle : ndarray of float, shape (L, T) and (T,)
        """
        more = np.maximum(np.minimum(self.most - used, idle), 0.0)
        found = np.zeros(len(used), dtype=np.bool_)
        found[queue[(wanted <= more[queue]).any(axis=1)]] = True
        return found

    def limit_shares(self, due: Floats, more: Floats) -> Floats:
        """Reduce additions to shares, shape (L, T), so that no queue exceeds its limit."""
        for at in self._limited.tolist():
            below = self.above[at]
            # The excess is cut from all leaves below alike, so that their proportions stay.
            added = more[below].sum(axis=0)
            part = np.maximum(self._most[at] - due[below].sum(axis=0), 0.0) / np.maximum(added, 1.0)
            more[below] = np.floor(more[below] * np.minimum(part, 1.0))
        return more
