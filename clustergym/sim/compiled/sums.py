"""Sums in NumPy's order of additions, compiled."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place


@compile_in_place
def _sum_of_block(values: Floats, first: int, count: int) -> float:
    """Return the sum of up to 128 values: of eight lanes, and of what is left over."""
    # The lanes and the order of their sum are those of numpy's pairwise_sum (loops_utils.h.src).
    # Floating-point addition is not associative: another order changes the last bits, and with them the
    # digests of runs.
    total, whole = 0.0, 0
    if count >= 8:
        whole = count - count % 8
        a, b, c, d, e, f, g, h = values[first : first + 8]
        for at in range(first + 8, first + whole, 8):
            a += values[at]
            b += values[at + 1]
            c += values[at + 2]
            d += values[at + 3]
            e += values[at + 4]
            f += values[at + 5]
            g += values[at + 6]
            h += values[at + 7]
        total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for at in range(first + whole, first + count):
        total += values[at]
    return total


@compile_entry
def pairwise_sum(values: Floats) -> float:
    """Return the sum of values, added in the order in which NumPy adds them.

    It is a loop because Numba's cache does not keep functions that call themselves.
    """
    if len(values) <= 128:
        return _sum_of_block(values, 0, len(values))
    # Each level halves the count, so 64 levels suffice for any array.
    first, count = np.zeros(64, np.int64), np.zeros(64, np.int64)
    halves, sums = np.zeros(64, np.int64), np.zeros((64, 2))
    depth, total, count[0] = 0, 0.0, len(values)
    while True:
        if count[depth] > 128 and halves[depth] < 2:
            left = count[depth] // 2
            # As in NumPy, the left half is a multiple of the eight lanes.
            left -= left % 8
            right = halves[depth] == 1
            first[depth + 1] = first[depth] + (left if right else 0)
            count[depth + 1] = count[depth] - left if right else left
            depth += 1
            halves[depth] = 0
            continue
        if count[depth] > 128:
            total = sums[depth, 0] + sums[depth, 1]
        else:
            total = _sum_of_block(values, first[depth], count[depth])
        if depth == 0:
            return total
        depth -= 1
        sums[depth, halves[depth]] = total
        halves[depth] += 1
