"""Split groups of equal size over minipods, at most T minipods for each group: an exact method.

Draw groups and minipods as nodes of a graph, with an edge where a group has nodes in a minipod. Shifting
nodes around a cycle empties one of its edges, so that some assignment is a forest. A tree of a groups and
b minipods has a + b - 1 edges, at most T for each group, hence

    b <= a (T - 1) + 1      and      free nodes of the minipods >= a * nodes of a group.        (1)

(1) is enough as well; `split` is the proof. Add empty minipods until b = a (T - 1) + 1, take free nodes away
until they just suffice, and order the minipods by free nodes. The first T - 1 of them hold less than one
group. Shift a window of T - 1 minipods upwards until it holds a group together with the roomiest
minipod: it does at the latest where it takes the next roomiest ones, as T roomiest minipods that hold less
would leave too little to the others. One shift adds less than the roomiest minipod has, so that the window
alone does not hold more than a group. The window and a rest from the roomiest are one group, and (1)
is left for a - 1 groups.

Two components of which one has fewer minipods than (1) allows may be joined. So n groups fit in k
minipods with at most T each if and only if

    - k <= n (T - 1) + 1, and the free nodes suffice: one component; or
    - the k minipods part into k - n (T - 1) components for which (1) holds with equality (a = 0: a
      minipod that is left unused).

The second is bin packing of g - (T - 1) c_j into bins of g with a rule on how many items a bin has
(Chung et al., 2006, splittable items with cardinality constraints): NP-hard, and met only where groups are
about as large as whole minipods. `find_components` searches it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Ints

Part = tuple[int, int]
"""(minipod, nodes) of one group."""


class FabricComponent(NamedTuple):
    """Minipods (groups of nodes), and how many communication groups have all their nodes in them."""

    minipods: tuple[int, ...]
    groups: int


def one_component(free: Ints, groups: int, size: int, most: int) -> bool:
    """Return whether `groups` groups of `size` nodes fit on minipods, each over at most `most` minipods."""
    return int(free[: groups * (most - 1) + 1].sum()) >= groups * size


def split(free: Ints, groups: int, size: int, most: int) -> Ints:
    """Split `groups` groups of `size` nodes over M minipods; return node counts, shape (groups, M).

    As few groups as this way allows are split: the fewest for which the nodes that whole groups
    leave over fulfil (1).

    Parameters
    ----------
    free : ndarray of int, shape (M,)
    groups, size, most : int
        Groups, nodes of each, and T.

    Returns
    -------
    ndarray of int, shape (groups, M)

    Raises
    ------
    ValueError
        If neither is true.
    """
    # As many whole groups as fit, minipod by minipod; what is left over must then satisfy (1).
    whole = np.diff(np.minimum(np.cumsum(free // size), groups), prepend=0)
    while True:
        parts = groups - int(whole.sum())
        left = free - whole * size
        if not parts or one_component(np.sort(left)[::-1], parts, size, most):
            break
        if not whole.any():
            raise ValueError(f"{groups} groups of {size} nodes do not fit with {most} minipods each")
        # Give one whole group back to the splits: from the minipod with most nodes left, which frees most
        # together.
        whole[np.where(whole > 0, left, -1).argmax()] -= 1
    counts = np.zeros((groups, len(free)), dtype=np.int64)
    counts[np.arange(groups - parts), np.repeat(np.arange(len(free)), whole)] = size
    for row, pieces in enumerate(_windows(left, parts, size, most), start=groups - parts):
        for minipod, nodes in pieces:
            counts[row, minipod] = nodes
    return counts


def _windows(left: Ints, groups: int, size: int, most: int) -> Iterator[list[Part]]:
    """Yield the parts of each group, by the windows of the proof above."""
    if not groups:
        return
    bins = sorted(((int(room), minipod) for minipod, room in enumerate(left)), reverse=True)
    # The roomiest b = a (T - 1) + 1 of the proof, trimmed until they just suffice, with empty ones added.
    bins = bins[: groups * (most - 1) + 1]
    bins = _trim_bins(bins, sum(room for room, _ in bins) - groups * size)
    bins += [(0, -1)] * (groups * (most - 1) + 1 - len(bins))
    for _ in range(groups):
        bins.sort()
        # The window of T - 1 minipods and a rest from the roomiest are one group; (1) is left for the others.
        roomiest, minipod = bins.pop()
        first = _first_window([room for room, _ in bins], most - 1, size - roomiest)
        window = bins[first : first + most - 1]
        rest = size - sum(room for room, _ in window)
        yield [(j, room) for room, j in [*window, (rest, minipod)] if room]
        bins[first : first + most - 1] = []
        bins.append((roomiest - rest, minipod))


def _trim_bins(bins: list[tuple[int, int]], excess: int) -> list[tuple[int, int]]:
    """Return the minipods with `excess` nodes taken away, from the smallest minipods first."""
    while bins[-1][0] <= excess:
        excess -= bins.pop()[0]
    room, minipod = bins.pop()
    return [*bins, (room - excess, minipod)]


def _first_window(rooms: Sequence[int], width: int, needed: int) -> int:
    """Return the first position from which `width` minipods together have the nodes needed."""
    held = sum(rooms[:width])
    for first in range(len(rooms) - width):
        if held >= needed:
            return first
        held += rooms[first + width] - rooms[first]
    return len(rooms) - width


class BestSplit(NamedTuple):
    """A search's result: the sets of minipods or None, whether it was complete, and the choices tried."""

    components: list[FabricComponent] | None
    complete: bool
    nodes: int


def find_components(free: Ints, groups: int, size: int, most: int, node_limit: int) -> BestSplit:
    """Search at most `node_limit` choices for sets of minipods that hold `groups` groups of `size` nodes.

    Depth-first search: the smallest minipod that is left is unused or in some component, whose other
    minipods are tried. What a component or an unused minipod holds over its groups is wasted,
    and no more can be than the free nodes exceed the groups.

    Parameters
    ----------
    free : ndarray of int, shape (M,)
        Descending.
    groups, size, most : int
        Groups, nodes of each, and most minipods of one.
    node_limit : int
        Choices tried.
    """
    if most == 1:
        fit = int((free // size).sum()) >= groups
        return BestSplit([FabricComponent(tuple(range(len(free))), groups)] if fit else None, True, 0)
    if one_component(free, groups, size, most):
        return BestSplit([FabricComponent(tuple(range(len(free))), groups)], True, 0)
    search = _Search(size, most, node_limit)
    chosen = search.run(tuple(sorted(free.tolist())), groups)
    if chosen is None:
        return BestSplit(None, not search.stopped, search.nodes)
    return BestSplit(_translate_positions(chosen, free), True, search.nodes)


Rooms = tuple[int, ...]
"""Free nodes of minipods, ascending."""


def _translate_positions(chosen: list[tuple[Rooms, int]], free: Ints) -> list[FabricComponent]:
    """Return the chosen components with the positions of their minipods in place of their rooms."""
    stock: dict[int, list[int]] = {}
    for minipod, room in enumerate(free.tolist()):
        stock.setdefault(room, []).append(minipod)
    return [
        FabricComponent(tuple(sorted(stock[room].pop() for room in rooms)), groups)
        for rooms, groups in chosen
    ]


Chosen = tuple[Rooms, int]
"""Rooms and groups of a component; no groups: of a minipod that is left unused."""
State = tuple[Rooms, int]
"""Rooms and groups that are left."""

DEEPEST = 400
"""Rooms of a component's subset, which the stack bounds; the search is not complete where one has more."""


class _Search:
    """A depth-first search over components that remembers the states that failed."""

    def __init__(self, size: int, most: int, node_limit: int) -> None:
        self.size, self.most, self.node_limit = size, most, node_limit
        self.nodes, self.stopped = 0, False
        self.failed: set[State] = set()

    def run(self, rooms: Rooms, groups: int) -> list[Chosen] | None:
        """Return sets of minipods that together hold all the groups, or None if none are found."""
        state, path = self._trim_state(rooms, groups), list[Chosen]()
        stack = [(state, self._choices(*state))]
        while stack:
            state, choices = stack[-1]
            chosen = next(choices, None)
            if chosen is None:
                stack.pop()
                path = path[:-1]
                # A search that was cut short proves nothing about the state.
                self.failed.update([] if self.stopped else [state])
                continue
            path = [*path[: len(stack) - 1], chosen]
            # All groups that were left are in this component: the path is a solution.
            if chosen[1] == state[1]:
                return [component for component in path if component[1]]
            left = self._trim_state(_remove_taken(state[0], chosen[0]), state[1] - chosen[1])
            stack.append((left, self._choices(*left)))
        return None

    def _trim_state(self, rooms: Rooms, groups: int) -> State:
        """Return the state without minipods beyond T for each group."""
        return rooms[-groups * self.most :], groups

    def _choices(self, rooms: Rooms, groups: int) -> Iterator[Chosen]:
        """Yield the ways to fill the smallest minipod with groups, and to leave it unused where allowed.

        If one component can hold all groups, only that is yielded; if no division can, nothing is.
        """
        waste = sum(rooms) - groups * self.size
        if waste < 0 or self.stopped or (rooms, groups) in self.failed:
            return
        largest = self._largest_share(rooms, groups)
        if largest == groups:
            yield rooms[-(groups * (self.most - 1) + 1) :], groups
        # The second case of the module's theorem: k - n (T - 1) components, each of at most `largest` groups.
        elif largest * (len(rooms) - groups * (self.most - 1)) >= groups:
            yield from self._components(rooms, largest, waste)
            if rooms[0] <= waste:
                yield rooms[:1], 0

    def _largest_share(self, rooms: Rooms, groups: int) -> int:
        """Return the most groups that one component can hold, by condition (1) on the roomiest minipods.

        Each further group adds fewer spare nodes than the last, so that the first failure decides.
        """
        over, step = rooms[-1], self.most - 1
        for share in range(1, groups + 1):
            over += sum(rooms[max(0, len(rooms) - 1 - share * step) : len(rooms) - 1 - (share - 1) * step])
            over -= self.size
            if over < 0:
                return share - 1
        return groups

    def _components(self, rooms: Rooms, largest: int, waste: int) -> Iterator[Chosen]:
        """Yield the components that contain the smallest minipod, those of few groups first."""
        smallest, others = rooms[0], rooms[1:]
        for share in range(1, largest + 1):
            count = share * (self.most - 1)
            least = share * self.size - smallest
            if count > min(len(others), DEEPEST):
                self.stopped = self.stopped or count <= len(others)
                return
            for chosen in self._subsets(others, count, least, least + waste):
                yield (smallest, *chosen), share

    def _subsets(self, rooms: Rooms, count: int, least: int, most: int) -> Iterator[Rooms]:
        """Yield subsets of `count` rooms with a sum from `least` to `most`, roomy ones first, each once."""
        self.nodes += 1
        self.stopped = self.stopped or self.nodes > self.node_limit
        if self.stopped or sum(rooms[-count:]) < least or sum(rooms[:count]) > most:
            return
        if count == 1:
            first = bisect_left(rooms, least)
            yield from ((room,) for room in sorted(set(rooms[first : bisect_right(rooms, most)])))
            return
        tried = None
        for last in range(len(rooms) - 1, count - 2, -1):
            if rooms[last] == tried:
                continue
            tried = rooms[last]
            for chosen in self._subsets(rooms[:last], count - 1, least - tried, most - tried):
                yield (*chosen, tried)


def _remove_taken(rooms: Rooms, taken: Rooms) -> Rooms:
    left = list(rooms)
    for room in taken:
        left.remove(room)
    return tuple(left)
