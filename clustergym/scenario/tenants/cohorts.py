"""Quotas that queues of a cohort lend each other, and who is admitted or gives way (Kueue).

Source: Kueue's KEP-1714 (fair sharing) and KEP-4136 (cohorts in cohorts).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Cohort:
    """A queue, or a cohort of queues and cohorts.

    Attributes
    ----------
    name : str
    nominal : mapping of str to float
        GPUs by type that are its own.
    weight : float
        Its part of what is lent; 0: it gives way first.
    lending_limit, borrowing_limit : mapping of str to float
        Most of its own that others may use, and most of others' that it may use, by GPU type.
    children : tuple of Cohort
        None: a queue, which takes jobs.
    """

    name: str
    nominal: Mapping[str, float] = field(default_factory=dict)
    weight: float = 1.0
    lending_limit: Mapping[str, float] = field(default_factory=dict)
    borrowing_limit: Mapping[str, float] = field(default_factory=dict)
    children: tuple[Cohort, ...] = ()

    def below(self) -> Iterator[Cohort]:
        """Yield this and all that is in it."""
        yield self
        for child in self.children:
            yield from child.below()


class Usage:
    """GPUs by type that the queues of a tree of cohorts hold.

    Parameters
    ----------
    root : Cohort
    """

    def __init__(self, root: Cohort) -> None:
        self.root = root
        self.nodes = {one.name: one for one in root.below()}
        self.parent = {child.name: one.name for one in root.below() for child in one.children}
        self.held: dict[str, dict[str, float]] = {name: {} for name in self.nodes}
        """What counts on each node: of a cohort what its children use beyond what is kept for them."""
        self._quota: dict[tuple[str, str], float] = {}
        self._types = sorted({kind for one in self.nodes.values() for kind in one.nominal})

    def quota(self, name: str, gpu_type: str) -> float:
        """Return the GPUs that a node has of its own, and that its children lend."""
        if (name, gpu_type) not in self._quota:
            self._quota[name, gpu_type] = self._summed_quota(name, gpu_type)
        return self._quota[name, gpu_type]

    def _summed_quota(self, name: str, gpu_type: str) -> float:
        node = self.nodes[name]
        lent = (
            self.quota(child.name, gpu_type) - self._kept(child.name, gpu_type) for child in node.children
        )
        return node.nominal.get(gpu_type, 0.0) + sum(lent)

    def available(self, name: str, gpu_type: str) -> float:
        """Return the GPUs that a node may use more, of its own and borrowed."""
        held, quota = self.held[name].get(gpu_type, 0.0), self.quota(name, gpu_type)
        if name not in self.parent:
            return quota - held
        kept = self._kept(name, gpu_type)
        above = self.available(self.parent[name], gpu_type)
        most = self.nodes[name].borrowing_limit.get(gpu_type, math.inf)
        return max(0.0, kept - held) + min(above, quota - kept - max(0.0, held - kept) + most)

    def take(self, queue: str, gpu_type: str, gpus: float) -> None:
        """Count GPUs that a queue takes; below 0 it gives them back."""
        name: str | None = queue
        while name is not None and gpus:
            held, kept = self.held[name].get(gpu_type, 0.0), self._kept(name, gpu_type)
            self.held[name][gpu_type] = held + gpus
            gpus = max(held + gpus - kept, 0.0) - max(held - kept, 0.0)
            name = self.parent.get(name)

    def share(self, name: str, gpu_type: str = "", more: float = 0.0) -> float:
        """Return what a node uses beyond its own, of all that its cohort could have, over its weight.

        Parameters
        ----------
        name : str
            Not of the root.
        gpu_type, more : str, float
            GPUs of a type that it would use besides; below 0 less.
        """
        node, beyond = self.nodes[name], 0.0
        for kind in self._types:
            held = self.held[name].get(kind, 0.0) + (more if kind == gpu_type else 0.0)
            beyond += max(held - self.quota(name, kind), 0.0)
        lendable = sum(self._most(self.parent[name], kind) for kind in self._types)
        if beyond == 0 or lendable == 0:
            return 0.0
        return beyond / lendable / node.weight if node.weight else math.inf

    def next_queue(self, wanted: Mapping[str, float], gpu_type: str) -> str | None:
        """Return the queue to admit from: at each level the child of least share with its next job.

        Parameters
        ----------
        wanted : mapping of str to float
            GPUs of the next job of each queue that has one.
        gpu_type : str
            Type that they are asked of.
        """
        fitting = {
            name: gpus for name, gpus in wanted.items() if gpus <= self.available(name, gpu_type) + 1e-9
        }

        def best(node: Cohort) -> tuple[float, str] | None:
            """Return the GPUs and the name of the next queue below a node."""
            if not node.children:
                return (fitting[node.name], node.name) if node.name in fitting else None
            found = [(child.name, one) for child in node.children if (one := best(child)) is not None]
            shares = [(self.share(child, gpu_type, gpus), at) for at, (child, (gpus, _)) in enumerate(found)]
            return found[min(shares)[1]][1] if found else None

        chosen = best(self.root)
        return None if chosen is None else chosen[1]

    def may_preempt(self, taker: str, gpus: float, victim: str, gives: float, gpu_type: str) -> str | None:
        """Return the rule by which a queue may take GPUs of a type of another's job, or None.

        Compared are the two nodes below what the queues have in common. `within-nominal`: the taker stays
        within its own, and the other borrows. `final-share`: the other's share, without the job, is still
        no less than the taker's with it. `initial-share`: the other's share is greater now; Kueue tries this
        only if the former finds too few jobs.
        """
        mine, other = self._sides(taker, victim)
        if not self._borrows(other, gpu_type):
            return None
        if not self._borrows(mine, gpu_type, gpus):
            return "within-nominal"
        share = self.share(mine, gpu_type, gpus)
        if self.share(other, gpu_type, -gives) >= share:
            return "final-share"
        return "initial-share" if self.share(other) > share else None

    def _borrows(self, name: str, gpu_type: str, more: float = 0.0) -> bool:
        return self.held[name].get(gpu_type, 0.0) + more > self.quota(name, gpu_type)

    def _sides(self, one: str, other: str) -> tuple[str, str]:
        first, second = self._path(one), self._path(other)
        depth = next(at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        return first[depth], second[depth]

    def _path(self, name: str) -> list[str]:
        path = [name]
        while path[-1] in self.parent:
            path.append(self.parent[path[-1]])
        return path[::-1]

    def _kept(self, name: str, gpu_type: str) -> float:
        """Return the GPUs of a node that nobody else may use."""
        limit = self.nodes[name].lending_limit.get(gpu_type, math.inf)
        return max(0.0, self.quota(name, gpu_type) - limit)

    def _most(self, name: str, gpu_type: str) -> float:
        """Return the GPUs that a node could use if nobody else used any."""
        quota = self.quota(name, gpu_type)
        if name not in self.parent:
            return quota
        borrowed = self.nodes[name].borrowing_limit.get(gpu_type, math.inf)
        return min(quota + borrowed, self._kept(name, gpu_type) + self._most(self.parent[name], gpu_type))
