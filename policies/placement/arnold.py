"""Arnold: communication groups over minipods at the least weighted spread, proven optimal.

Source: Arnold's mixed-integer programme. With s_ij for group i having nodes in minipod j, y_j for minipod
j being used and p_ij the share of group i in j, minimise

    alpha * sum_j y_j + beta * T      alpha + beta = 1
    sum_j s_ij <= T                   for every group i
    sum_i p_ij <= c_j y_j             for every minipod j; c_j = free nodes / nodes of a group
    sum_j p_ij  = 1                   for every group i
    p_ij <= s_ij,  y and s binary, p in [0, 1].

alpha weighs the DP spread. With PP groups as units sum_j y_j counts for it; with DP groups T does, and
the weights change places.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError
from clustergym.scenario.placement_problem import Assignment, Instance, Solution

from .arnold_components import BestSplit, find_components, split

NODE_LIMIT = 5_000
EPSILON = 1e-9
CHOICES = 20
"""Choices of the search for one node of a limit: about as long as SCIP takes for a node, at most."""


def solve(
    instance: Instance, rng: np.random.Generator | None = None, *, node_limit: int = NODE_LIMIT
) -> Assignment:
    """Place a job such that it and its communication groups span few minipods (groups of nodes).

    Least weighted sum of the minipods used and of those of the most widely spread group: it tries each limit
    T on the minipods of a group; a minipod is a group of nodes.

    Parameters
    ----------
    instance : Instance
    rng : Generator, optional
        What every algorithm is given; this one draws nothing.
    node_limit : int
        A twentieth of the choices that each search may make; a limit in seconds would make results depend
        on the machine. Where it is hit, `solution.proven` is False and the best known assignment is returned.

    Proof
    -----
    Write n for the groups, g for their nodes, c_1 >= c_2 >= … for the free nodes, and k(T) for the
    fewest minipods in which n groups fit with at most T minipods each. The score depends on the
    assignment through minipods used and T alone, and grows with both, so that the optimum is the least
    weighted sum of k(T) and T over all T.

    1. Some optimum uses the roomiest minipods: exchanging a used minipod for an unused one with as
       many free nodes or more changes neither number. So k(T) is the shortest prefix that will do,
       and a longer prefix will do as well.
    2. No k(T) is below k0, the shortest prefix with sum c_j >= n g; so once k0 is reached, or k0
       and the next T would not beat the best score, no further T can.
    3. k(1) is the shortest prefix with sum floor(c_j / g) >= n.
    4. Whether a prefix of k will do for a T from 2 is known from its sum where k <= n (T - 1) + 1,
       as in all but the smallest jobs, and by a search otherwise (`arnold_components`). Where that
       comes to its limit, the least k that is still open gives the lower bound.

    Of the assignments that 1 makes equal, the one in the tightest minipods is returned, which leaves the
    roomy ones to later jobs.
    """
    if node_limit < 1:
        raise InputError(f"{node_limit} is not valid", field="node_limit", remedy="give a number from 1")
    started = perf_counter()
    # Roomiest first, so that "the roomiest k minipods" (step 1 of the proof) is a prefix.
    order = np.argsort(-instance.free_nodes, kind="stable")
    search = _CountSearch(instance, instance.free_nodes[order], node_limit)
    search.run()
    found = search.assignment()
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    # Columns change minipods; neither sum_j y_j nor T of Eq. 2 does.
    counts[:, tightest(found.sum(axis=0), instance.free_nodes)] = found
    # What a limit left open might have been better, but by no more than its own lower bound.
    bound = min([search.score, *search.open])
    gap = (search.score - bound) / search.score
    proven = gap < EPSILON
    solve_s = perf_counter() - started
    told = Solution(proven, bound, 0.0 if proven else gap, search.nodes, solve_s)
    made = Assignment(counts, solution=told)
    made.check(instance)
    return made


def tightest(needs: Ints, free: Ints) -> Ints:
    """Return a different minipod (group of nodes) for each need: one with the fewest free nodes that suffice.

    The largest need chooses first. Where needs can be met by different minipods at all, they are: the
    tightest one for the largest need may change places with any other in such a choice.

    Parameters
    ----------
    needs : ndarray of int, shape (k,)
    free : ndarray of int, shape (M,)

    Returns
    -------
    ndarray of int, shape (k,)
    """
    left, chosen = free.copy(), np.zeros(len(needs), dtype=np.int64)
    for position in np.argsort(-needs, kind="stable").tolist():
        minipod = int(np.where(left >= needs[position], left, np.iinfo(np.int64).max).argmin())
        chosen[position], left[minipod] = minipod, -1
    return chosen


class _CountSearch:
    """A search over T that keeps the best components so far, and a lower bound where a limit was hit."""

    def __init__(self, instance: Instance, free: Ints, node_limit: int) -> None:
        self.instance, self.free, self.choices = instance, free, CHOICES * node_limit
        self.groups, self.size = instance.groups, instance.group_nodes
        # k0 of step 2: the capacity constraint (Eq. 4) summed over the minipods used.
        self.fewest = int(np.searchsorted(np.cumsum(free), instance.job.nodes)) + 1
        # More than all minipods with room: nothing is found yet.
        self.least, self.score = int((free > 0).sum()) + 1, np.inf
        self.used, self.most = 0, 0
        self.best: BestSplit
        self.open: list[float] = []
        self.nodes = 0

    def run(self) -> None:
        """Search placements with spreads T = 1, 2, ... while a larger T can still beat the best score."""
        # A group of g nodes spreads over at most g minipods, so that T beyond g changes nothing.
        for most in range(1, min(self.size, len(self.free)) + 1):
            if self.least == self.fewest or self._weigh_components(self.fewest, most) >= self.score - EPSILON:
                return
            self._bisect(most)

    def assignment(self) -> Ints:
        """Return the number of nodes of each group in each minipod, shape (groups, M)."""
        counts = np.zeros((self.groups, self.used), dtype=np.int64)
        row = 0
        assert self.best.components is not None
        for minipods, groups in self.best.components:
            columns = list(minipods)
            counts[row : row + groups, columns] = split(self.free[columns], groups, self.size, self.most)
            row += groups
        return counts

    def _weigh_components(self, used: int, most: int) -> float:
        return self.instance.minipod_weight * used + self.instance.group_weight * most

    def _bisect(self, most: int) -> None:
        """Find the shortest prefix of minipods that fits at T = `most` and beats the best score.

        The bound of what a limit left undecided goes to `open`.
        """
        low = refuted = self.fewest - 1
        # Neither more minipods than the best so far, nor more than n groups can touch with at most T each.
        high = min(self.least, self.groups * most + 1)
        while high > low + 1 and self._weigh_components(high - 1, most) >= self.score - EPSILON:
            high -= 1
        shortest = high
        while high - low > 1:
            used = (low + high) // 2
            found = find_components(self.free[:used], self.groups, self.size, most, self.choices)
            self.nodes += found.nodes
            if found.components is not None:
                high, self.best, self.used, self.most = used, found, used, most
            else:
                low, refuted = used, used if found.complete else refuted
        if high < shortest:
            self.least, self.score = high, self._weigh_components(high, most)
        if refuted + 1 < high:
            self.open.append(self._weigh_components(refuted + 1, most))
