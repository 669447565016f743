"""A partly placed job, nodes of its groups by minipod, and how it is shown as text and as pixels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

import numpy as np

from clustergym.envs.rendering import (
    EMPTY,
    FAINT,
    HEIGHT,
    INK,
    WIDTH,
    Picture,
    Pixels,
    Size,
    choose_colour,
    choose_ink,
    table,
)
from clustergym.scenario.placement_problem import Assignment, Instance, Spread, weigh_spread


class PlacementState:
    """A partly placed job: its communication groups are placed in order, node by node.

    Parameters
    ----------
    instance : Instance

    Attributes
    ----------
    shortfall : int
        Nodes that the instance lacks.
    free : list of int, length M
        Free nodes left in each minipod.
    counts : list of list of int, groups x M
        Nodes of each group in each minipod so far.
    group : int
        The group to place next; the number of groups where all are placed.
    left : int
        Nodes of it that are still to be placed.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance, self.shortfall = instance, instance.shortfall
        self.free: list[int] = instance.free_nodes.tolist()
        self.counts = [[0] * instance.minipods for _ in range(instance.groups)]
        self.of_job = [0] * instance.minipods
        self.group, self.left = 0, instance.group_nodes
        self._most, self._of_group, self._touched = 0, 0, 0

    @property
    def placed(self) -> bool:
        """Whether all nodes of the job are placed."""
        return self.group == self.instance.groups

    @property
    def of_group(self) -> list[int]:
        """Number of nodes of the current communication group in each minipod; all 0 after the last group."""
        return [0] * self.instance.minipods if self.placed else self.counts[self.group]

    def place(self, minipod: int) -> None:
        """Put the next node of the current communication group into a minipod."""
        if not self.free[minipod]:
            raise ValueError(f"minipod {minipod} is full")
        # Before the counts change: a minipod counts when its first node is taken, once for the job and once
        # for the group in hand.
        self._touched += self.of_job[minipod] == 0
        self._of_group += self.counts[self.group][minipod] == 0
        self._most = max(self._most, self._of_group)
        self.free[minipod] -= 1
        self.counts[self.group][minipod] += 1
        self.of_job[minipod] += 1
        self.left -= 1
        if not self.left:
            self.group, self.left, self._of_group = self.group + 1, self.instance.group_nodes, 0

    @property
    def spread(self) -> Spread:
        """Spread (dp, pp) so far: most minipods of one placed group; for the other type, all of the job."""
        # A group of the other kind has nodes of every placed group: it may touch all minipods of the job.
        if self.instance.unit == "pp":
            return Spread(self._touched, self._most)
        return Spread(self._most, self._touched)

    @property
    def score(self) -> float:
        """The weighted sum of data-parallel and pipeline-parallel groups' spread so far; 0 at the start."""
        return weigh_spread(self.spread, self.instance.alpha)

    def assignment(self) -> Assignment:
        """Return the placement that was made, or an infeasible one while the job is not wholly placed."""
        if not self.placed:
            return Assignment.infeasible(self.instance)
        return Assignment(np.array(self.counts, dtype=np.int64))


COSTS: Mapping[str, Callable[[PlacementState], float]] = {
    "spread": attrgetter("score"),
    "dp_spread": attrgetter("spread.dp"),
    "pp_spread": attrgetter("spread.pp"),
}
"""The costs that a reward can weigh; each is 0 at the start of an episode and never falls."""


MARGIN, TOP, BARS = 12, 64, 300
"""Pixels: at the edges, above the squares, of the longest bar."""


def as_text(state: PlacementState, minipod_nodes: Sequence[int]) -> str:
    """Return the state as text: a table of the minipods, the current group, and the spread so far.

    Parameters
    ----------
    state : PlacementState
    minipod_nodes : sequence of int, length M
        Nodes of each minipod, free or not.
    """
    instance, job, spread = state.instance, state.instance.job, state.spread
    rows = [
        (m, total, total - int(instance.free_nodes[m]), state.free[m], state.of_job[m], state.of_group[m])
        for m, total in enumerate(minipod_nodes)
    ]
    shape = f"DP {job.data_parallel} x TP {job.tensor_parallel} x PP {job.pipeline_parallel}"
    groups = f"{instance.groups} {instance.unit.upper()} groups of {instance.group_nodes} nodes"
    lines = [
        f"{job.gpus} GPUs ({shape}): {groups}",
        table(("minipod", "nodes", "others'", "free", "job", "group"), rows),
        _in_hand(state),
        f"DP spread {spread.dp}, PP spread {spread.pp}, score {state.score:.2f} (alpha {instance.alpha:.2f})",
    ]
    return "\n".join(lines)


def _in_hand(state: PlacementState) -> str:
    if state.shortfall:
        return f"does not fit: {state.shortfall} nodes are lacking"
    if state.placed:
        return "placed"
    done = state.instance.group_nodes - state.left
    return f"group {state.group}: {done} of {state.instance.group_nodes} nodes placed"


def as_pixels(state: PlacementState, minipod_nodes: Sequence[int]) -> Pixels:
    """Return a picture of the state: the job's nodes in the colour of their minipods, beside the minipods.

    A minipod's bar is as long as it has nodes: those of others dark, the job's coloured, free ones
    light. Its size depends on the number of minipods alone.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        At least 540 high, 960 wide.
    """
    instance, spread = state.instance, state.spread
    height = max(HEIGHT, TOP + 8 * len(minipod_nodes) + MARGIN)
    picture = Picture((height, WIDTH))
    picture.text(MARGIN, 8, _in_hand(state).capitalize(), 18)
    score = f"score {state.score:.2f} (alpha {instance.alpha:.2f})"
    said = f"DP spread {spread.dp},  PP spread {spread.pp},  {score}"
    picture.text(WIDTH - MARGIN, 8, said, 18, INK, "ra")
    _squares(picture, state, Size(WIDTH - BARS - 3 * MARGIN, height - TOP - MARGIN))
    _minipods(picture, state, minipod_nodes, height)
    return picture.pixels()


def _squares(picture: Picture, state: PlacementState, most: Size) -> None:
    """Draw the nodes of the job, a line or a column for each group, whichever makes it wider than high."""
    instance = state.instance
    lines = instance.groups <= instance.group_nodes
    named = f"{instance.groups} {instance.unit.upper()} groups of {instance.group_nodes} nodes, "
    picture.text(MARGIN, 40, named + ("a line each" if lines else "a column each"), 13, FAINT)
    wide, high = sorted((instance.groups, instance.group_nodes), reverse=True)
    side = max(3, min(48, most.width // wide, most.height // high))
    groups = [np.repeat(np.arange(instance.minipods), counts).tolist() for counts in state.counts]
    for group, nodes in enumerate(groups):
        for place in range(instance.group_nodes):
            column, line = (place, group) if lines else (group, place)
            left, top, placed = MARGIN + column * side, TOP + line * side, place < len(nodes)
            picture.box(left, top, side - 1, side - 1, choose_colour(nodes[place]) if placed else EMPTY)
            if placed and side >= 20:
                ink = choose_ink(choose_colour(nodes[place]))
                picture.text(left + side // 2, top + side // 2, str(nodes[place]), 12, ink, "mm")


def _minipods(picture: Picture, state: PlacementState, minipod_nodes: Sequence[int], height: int) -> None:
    """Draw a bar for each minipod: nodes of other jobs, of this job, and free nodes."""
    left, longest = WIDTH - MARGIN - BARS, max(minipod_nodes)
    picture.text(left, 40, "Minipods: nodes of others, of the job, free", 13, FAINT)
    row = min(40, (height - TOP - MARGIN) // len(minipod_nodes))
    for minipod, total in enumerate(minipod_nodes):
        top, free, job = TOP + minipod * row, state.free[minipod], state.of_job[minipod]
        others = total - int(state.instance.free_nodes[minipod])
        width = round(BARS * total / longest)
        parts = [(others / total, INK), (job / total, choose_colour(minipod))]
        picture.bar(left, top, width, row // 2 if row >= 26 else row - 1, parts)
        if row >= 26:
            said = f"{minipod}:  {others} of others, {job} of the job, {free} free"
            picture.text(left, top + row // 2 + 1, said, 12)
