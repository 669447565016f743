"""Arnold's optimum from the trade-off of minipods used against minipods of one group."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from clustergym.cluster.spec import Ints
from clustergym.placement.instances import Assignment, Instance, Solution
from policies.placement.arnold_patterns import fits

EPSILON = 1e-9


def solve_counts(instance: Instance, node_limit: int) -> Assignment:
    """Return the optimum over T = 1, 2, … of minipods used at that T.

    Proof
    -----
    Write n for the groups, g for their nodes, c_1 >= c_2 >= … for the free nodes, and k(T) for the
    fewest minipods in which n groups fit with at most T minipods each. The score depends on the
    assignment through minipods used and T alone, and grows with both, so that the optimum is the least
    weighted sum of k(T) and T over all T.

    1. Some optimum uses the roomiest minipods: exchanging a used minipod for an unused one with as
       many free nodes or more changes neither number. So k(T) is the shortest prefix that will do,
       and a longer prefix will do as well.
    2. k(1) is the shortest prefix with sum floor(c_j / g) >= n.
    3. No k(T) is below k0, the shortest prefix with sum c_j >= n g; so once k0 is reached, or k0
       and the next T would not beat the best score, no further T can.
    4. `construct` shows that a prefix will do by an assignment. Where all c_j >= g - 1 it succeeds for
       T = 2 at k0: groups laid end to end over the minipods are cut at the end of a minipod only,
       and the rest of at most g - 1 nodes fits in the next (McNaughton's rule).
    5. Where minipods with fewer than g - 1 free nodes keep it from that, the pattern programme
       decides whether a prefix that would beat the best score will do (`arnold_patterns.fits`); if it
       will not, no shorter one does, by 1.

    Splitting groups over small minipods is bin packing with splittable items and cardinality
    constraints (Chung et al., 2006), NP-hard in general, so that step 5 is not to be had in closed form.
    """
    order = np.argsort(-instance.free_nodes, kind="stable")
    search = _Search(instance, instance.free_nodes[order], node_limit)
    search.run()
    assert search.best is not None
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    counts[:, order[: search.best.shape[1]]] = search.best
    bound = min([search.score, *search.open])
    gap = (search.score - bound) / search.score
    proven = gap < EPSILON
    return Assignment(
        counts, solution=Solution("counts", proven, bound, 0.0 if proven else gap, search.nodes, 0.0)
    )


class _Search:
    """The best assignment so far, and lower bounds of what limits left open."""

    def __init__(self, instance: Instance, free: Ints, node_limit: int) -> None:
        self.instance, self.free, self.node_limit = instance, free, node_limit
        self.groups, self.size = instance.groups, instance.group_nodes
        self.fewest = int(np.searchsorted(np.cumsum(free), instance.job.nodes)) + 1
        self.score, self.used = np.inf, int((free > 0).sum()) + 1
        self.best: Ints | None = None
        self.open: list[float] = []
        self.nodes = 0

    def run(self) -> None:
        for most in range(1, min(self.size, len(self.free)) + 1):
            if self.used == self.fewest or self.weighed(self.fewest, most) >= self.score - EPSILON:
                return
            self._construct(most)
            if most > 1:
                self._decide(most)

    def weighed(self, used: int, most: int) -> float:
        return self.instance.minipod_weight * used + self.instance.group_weight * most

    def _take(self, counts: Ints, used: int, most: int) -> None:
        self.used = min(self.used, used)
        if self.weighed(used, most) < self.score - EPSILON:
            self.score, self.best = self.weighed(used, most), counts

    def _construct(self, most: int) -> None:
        for used in range(self.fewest, self.used):
            counts = construct(self.free[:used], self.groups, self.size, most)
            if counts is not None:
                self._take(counts, used, most)
                return

    def _decide(self, most: int) -> None:
        """Try prefixes that would beat the best score, the longest first."""
        for used in range(self.used - 1, self.fewest - 1, -1):
            if self.weighed(used, most) >= self.score - EPSILON:
                continue
            counts, outcome = fits(self.free[:used], self.groups, self.size, most, self.node_limit)
            self.nodes += outcome.nodes
            if counts is None:
                if not outcome.complete:
                    self.open.append(self.weighed(self.fewest, most))
                return
            self._take(counts, used, most)


def construct(free: Ints, groups: int, size: int, most: int) -> Ints | None:
    """Return an assignment with at most `most` minipods a group, or None if no recipe here finds one.

    Parameters
    ----------
    free : ndarray of int, shape (M,)
        Descending.
    groups, size, most : int

    Returns
    -------
    ndarray of int, shape (groups, M), or None
    """
    if int((free // size).sum()) >= groups:
        return _stack(_whole(free, size), groups, len(free))
    if most == 1:
        return None
    for bundled in range(1, most):
        counts = _stack(_chain(free, size, bundled), groups, len(free))
        if counts is not None:
            return counts
    return _stack(_end_to_end(free.copy(), size, most), groups, len(free))


Parts = list[tuple[int, int]]
"""(minipod, nodes) of one group."""


def _stack(made: Iterator[Parts], groups: int, minipods: int) -> Ints | None:
    counts = np.zeros((groups, minipods), dtype=np.int64)
    for group in range(groups):
        parts = next(made, None)
        if parts is None:
            return None
        for minipod, nodes in parts:
            counts[group, minipod] += nodes
    return counts


def _whole(free: Ints, size: int) -> Iterator[Parts]:
    for minipod, room in enumerate(free.tolist()):
        for _ in range(room // size):
            yield [(minipod, size)]


def _chain(free: Ints, size: int, bundled: int) -> Iterator[Parts]:
    """Yield groups of up to `bundled` small minipods and a rest from a large one, then the large end to end.

    Small are those with fewer than `size - 1` free nodes. A large one gives a rest only where it
    keeps `size - 1` nodes, so that step 4 of the proof holds for what is left.
    """
    left = free.copy()
    small: list[int] = np.flatnonzero((free > 0) & (free < size - 1)).tolist()
    while small:
        bundle, small = _bundle(left, small, size, bundled)
        rest = size - int(left[bundle].sum())
        large = int(left.argmax())
        if rest and left[large] - rest < size - 1:
            break
        yield [(j, int(left[j])) for j in bundle] + ([(large, rest)] if rest else [])
        left[bundle] = 0
        left[large] -= rest
    left[left < size - 1] = 0
    yield from _end_to_end(left, size, 2)


def _bundle(left: Ints, small: list[int], size: int, bundled: int) -> tuple[list[int], list[int]]:
    """Return up to `bundled` small minipods that fill at most a group, the largest first, and the others."""
    bundle: list[int] = []
    filled = 0
    for j in small:
        if len(bundle) < bundled and filled + int(left[j]) <= size:
            bundle.append(j)
            filled += int(left[j])
    return bundle, [j for j in small if j not in bundle]


def _end_to_end(left: Ints, size: int, most: int) -> Iterator[Parts]:
    """Yield groups laid end to end; the first part of one that would have too many is left free."""
    parts: Parts = []
    for minipod, room in enumerate(left.tolist()):
        while room:
            missing = size - sum(nodes for _, nodes in parts)
            taken = min(missing, room)
            if taken < missing and len(parts) == most - 1:
                parts = parts[1:]
                continue
            parts.append((minipod, taken))
            room -= taken
            if taken == missing:
                yield parts
                parts = []
