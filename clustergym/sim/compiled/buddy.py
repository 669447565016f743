"""Buddy placement, compiled; `clustergym.policies.placers.buddy` describes it.

Nodes of one GPU type are counted from 0 here. A placement is written to the first columns of `nodes`, in
ascending order, and the GPUs on each to `gpus_on`.
"""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.columns import NONE
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place, compile_part

_MANY = 2**62


@compile_in_place
def sort(values: Ints | Floats) -> None:
    """Sort a few values in place, since Numba takes seconds to compile NumPy's sort."""
    for at in range(1, len(values)):
        value, place = values[at], at
        while place > 0 and values[place - 1] > value:
            values[place] = values[place - 1]
            place -= 1
        values[place] = value


@compile_in_place
def sort_many(values: Ints) -> None:
    """Sort many values in place, faster than `sort` does, which takes quadratic time."""
    # Shell's sort, with gaps that shrink by 5/11 (Gonnet and Baeza-Yates, 1991).
    gap = len(values)
    while gap > 1:
        gap = max(gap * 5 // 11, 1)
        for at in range(gap, len(values)):
            value, place = values[at], at
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value


@compile_in_place
def best_fit(free: Ints, low: int, high: int, gpus: int, limit: int) -> int:
    """Return the node in [low, high) with the fewest free GPUs that are in [gpus, limit), or NONE."""
    best, found = _MANY, NONE
    for node in range(low, high):
        if gpus <= free[node] < limit and free[node] < best:
            best, found = free[node], node
    return found


@compile_part
def _block_sizes(free: Ints, per_node: int, low: int, high: int) -> Ints:
    """Return the size of the largest aligned free block around each node low..high; 0: it is not free."""
    width, step = 1, 1
    while width < high - low:
        width *= 2
    size = np.zeros(width, np.int64)
    for node in range(low, high):
        size[node - low] = free[node] == per_node
    while step < width:
        for first in range(0, width, 2 * step):
            # Two free neighbours of one size, aligned to twice that size, are buddies and merge.
            if size[first] >= step and size[first + step] >= step:
                size[first : first + 2 * step] = 2 * step
        step *= 2
    return size[: high - low]


@compile_part
def _block(free: Ints, per_node: int, low: int, high: int, wanted: int, picked: Ints) -> int:
    """Pick wholly free nodes of a leaf, in the smallest aligned block that is large enough."""
    size, whole = _block_sizes(free, per_node, low, high), 1
    while whole < wanted:
        whole *= 2
    start = best_fit(size, 0, len(size), whole, _MANY)
    if start != NONE:
        for place in range(wanted):
            picked[place] = low + start + place
        return wanted
    # No block is large enough: take the smallest blocks first, so that large ones stay whole.
    end, block = 0, 1
    while end < wanted:
        for place in range(len(size)):
            if size[place] == block and end < wanted:
                picked[end] = low + place
                end += 1
        block *= 2
    sort(picked[:end])
    return end


@compile_in_place
def _next_switch(counts: Ints, wanted: int) -> int:
    """Return the switch with the fewest free nodes that suffice, or else the one with the most."""
    fullest, fitting = NONE, NONE
    for switch in range(len(counts)):
        if counts[switch] > 0 and (fullest == NONE or counts[switch] > counts[fullest]):
            fullest = switch
        if counts[switch] >= wanted and (fitting == NONE or counts[switch] < counts[fitting]):
            fitting = switch
    return fullest if fitting == NONE else fitting


@compile_part
def _free_below(free: Ints, per_node: int, starts: Ints, ends: Ints, low: int, high: int) -> Ints:
    """Return the wholly free nodes of each switch that starts in low..high; 0 for the others."""
    counts = np.zeros(len(starts), np.int64)
    for switch in range(len(starts)):
        if low <= starts[switch] < high:
            for node in range(starts[switch], ends[switch]):
                counts[switch] += free[node] == per_node
    return counts


@compile_in_place
def _all_free(free: Ints, per_node: int, low: int, high: int, picked: Ints) -> int:
    count = 0
    for node in range(low, high):
        if free[node] == per_node:
            picked[count] = node
            count += 1
    return count


@compile_part
def _over_leaves(
    free: Ints,
    per_node: int,
    starts: Ints,
    ends: Ints,
    low: int,
    high: int,
    wanted: int,
    picked: Ints,
) -> int:
    """Pick wholly free nodes in the fewest leaves of low..high, the last leaf a best fit."""
    counts, at = _free_below(free, per_node, starts, ends, low, high), 0
    while wanted > 0:
        # Best fit where one leaf is enough; until then the emptiest leaf whole, which needs the fewest
        # leaves.
        leaf = _next_switch(counts, wanted)
        if counts[leaf] <= wanted:
            at += _all_free(free, per_node, starts[leaf], ends[leaf], picked[at:])
        else:
            at += _block(free, per_node, starts[leaf], ends[leaf], wanted, picked[at:])
        wanted -= min(counts[leaf], wanted)
        counts[leaf] = 0
    return at


@compile_part
def _pick(
    free: Ints, per_node: int, starts: Ints, ends: Ints, switches: Ints,
    tier: int, low: int, high: int, wanted: int, picked: Ints,
) -> int:  # fmt: skip
    """Pick wholly free nodes under one switch of a tier; return their number."""
    if wanted == 0:
        return 0
    if tier == 0:
        return _block(free, per_node, low, high, wanted, picked)
    leaves, pods = switches[0], switches[1]
    if tier == 1:
        return _over_leaves(free, per_node, starts[0, :leaves], ends[0, :leaves], low, high, wanted, picked)
    counts, at = _free_below(free, per_node, starts[1, :pods], ends[1, :pods], low, high), 0
    while wanted > 0:
        pod = _next_switch(counts, wanted)
        first, last = starts[1, pod], ends[1, pod]
        if counts[pod] <= wanted:
            at += _all_free(free, per_node, first, last, picked[at:])
        else:
            at += _over_leaves(
                free, per_node, starts[0, :leaves], ends[0, :leaves], first, last, wanted, picked[at:]
            )
        wanted -= min(counts[pod], wanted)
        counts[pod] = 0
    return at


@compile_part
def _switch_for_blocks(
    free: Ints, per_node: int, starts: Ints, ends: Ints, switches: int, nodes: int, whole: int, rest: int
) -> int:
    """Return the switch of a tier that has the fewest wholly free nodes that suffice; NONE.

    One of `switches` where a partly used node has room for the rest is preferred.
    """
    best, found, least, known = _MANY, NONE, _MANY, np.empty((switches, 2), np.int64)
    for switch in range(switches):
        count, room = 0, False
        for node in range(starts[switch], ends[switch]):
            if free[node] == per_node:
                count += 1
            elif whole > 0 and rest > 0 and free[node] >= rest:
                room = True
        known[switch, 0], known[switch, 1] = count, whole + (rest > 0) - room
        least = min(least, known[switch, 1])
    for switch in range(switches):
        count, needed = known[switch]
        # Fewer nodes come before a better fit: `nodes` is more than any difference of counts.
        rank = count + (needed - least) * nodes
        if count >= needed and rank < best:
            best, found = rank, switch
    return found


@compile_in_place
def _write_sorted_shares(picked: Ints, sizes: Ints, count: int, nodes: Ints, gpus_on: Ints) -> int:
    """Write the shares in ascending order of nodes; return their number."""
    for at in range(count):
        place = at
        while place > 0 and nodes[place - 1] > picked[at]:
            nodes[place], gpus_on[place] = nodes[place - 1], gpus_on[place - 1]
            place -= 1
        nodes[place], gpus_on[place] = picked[at], sizes[at]
    return count


@compile_part
def _in_blocks(
    free: Ints, per_node: int, starts: Ints, ends: Ints, switches: Ints, whole: int, rest: int,
    nodes: Ints, gpus_on: Ints,
) -> int:  # fmt: skip
    """Place `whole` wholly free nodes and `rest` GPUs on one more node; return 0 if too few are free."""
    for tier in range(3):
        switch = _switch_for_blocks(
            free, per_node, starts[tier], ends[tier], switches[tier], len(free), whole, rest
        )
        if switch == NONE:
            continue
        low, high = starts[tier, switch], ends[tier, switch]
        last = best_fit(free, low, high, rest, per_node) if whole > 0 and rest > 0 else NONE
        picked = np.empty(whole + 1, np.int64)
        count = _pick(
            free,
            per_node,
            starts,
            ends,
            switches,
            tier,
            low,
            high,
            whole + (rest > 0 and last == NONE),
            picked,
        )
        sizes = np.full(whole + 1, per_node)
        if rest > 0:
            if last == NONE:
                count -= 1
            else:
                picked[count] = last
            sizes[count] = rest
            count += 1
        return _write_sorted_shares(picked, sizes, count, nodes, gpus_on)
    return 0


@compile_part
def _fullest_first(free: Ints, low: int, high: int) -> Ints:
    """Return the nodes low..high by free GPUs, most first, then by index."""
    order = np.empty(high - low, np.int64)
    for node in range(low, high):
        place = node - low
        while place > 0 and free[order[place - 1]] < free[node]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = node
    return order


@compile_part
def _gather(
    free: Ints, starts: Ints, ends: Ints, switches: Ints, gpus: int, nodes: Ints, gpus_on: Ints
) -> int:
    """Place free GPUs on the fewest nodes, under one switch of the lowest tier that has enough."""
    for tier in range(3):
        best_short, best_total, found = _MANY, _MANY, NONE
        for switch in range(switches[tier]):
            low, high = starts[tier, switch], ends[tier, switch]
            # Python's sum: for NumPy's, Numba imports all of SciPy's linear algebra, even from its cache.
            total = sum(free[low:high])
            if total < gpus:
                continue
            order, running, short = _fullest_first(free, low, high), 0, 0
            for node in order:
                running += free[node]
                short += running < gpus
            # `short` nodes, emptiest first, do not hold the job, so that it needs `short` + 1.
            if short < best_short or (short == best_short and total < best_total):
                best_short, best_total, found = short, int(total), switch
        if found == NONE:
            continue
        order = _fullest_first(free, starts[tier, found], ends[tier, found])
        picked, sizes, rest = np.empty(best_short + 1, np.int64), np.empty(best_short + 1, np.int64), gpus
        for at in range(best_short):
            picked[at], sizes[at] = order[at], free[order[at]]
            rest -= sizes[at]
        # The first `short` nodes are used up; what is left goes to the node that it fills best.
        least, last = _MANY, NONE
        for node in order[best_short:]:
            if rest <= free[node] < least:
                least, last = free[node], node
        picked[best_short], sizes[best_short] = last, rest
        return _write_sorted_shares(picked, sizes, best_short + 1, nodes, gpus_on)
    return 0


@compile_entry
def place(
    free: Ints, per_node: int, starts: Ints, ends: Ints, switches: Ints, gpus: int, nodes: Ints, gpus_on: Ints
) -> int:
    """Choose nodes for `gpus` GPUs of one type; write them to `nodes` and `gpus_on`, and return how many.

    Parameters
    ----------
    free : ndarray of int, shape (N,)
        Free GPUs on each node of the type.
    per_node : int
        GPUs of a node.
    starts, ends : ndarray of int, shape (3, S)
        First node of each leaf, of each minipod and of all, and the node after the last.
    switches : ndarray of int, shape (3,)
        How many columns of `starts` and `ends` each of the three tiers has.
    gpus : int
    nodes, gpus_on : ndarray of int
        Receive the placement.
    """
    if gpus < per_node:
        node = best_fit(free, 0, len(free), gpus, per_node)
        if node != NONE:
            nodes[0], gpus_on[0] = node, gpus
            return 1
    count = _in_blocks(
        free, per_node, starts, ends, switches, gpus // per_node, gpus % per_node, nodes, gpus_on
    )
    if count == 0:
        count = _gather(free, starts, ends, switches, gpus, nodes, gpus_on)
    return count
