"""A placement as text and as pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustergym.envs.placement_state import PlacementState
from clustergym.envs.rendering import EMPTY, INK, PALETTE, Pixels, bars, canvas, cells, table, write

_WIDTH, _MARGIN, _BAR, _CAPTION = 320, 8, 14, 26


def as_text(state: PlacementState, minipod_nodes: Sequence[int]) -> str:
    """Return a table of minipods, the group in hand and the spreads so far.

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
    """Return a picture: a square per node of the job in the colour of its minipod, above the minipods.

    A minipod's bar is as long as it has nodes: those of others dark, the job's coloured, free ones
    light. Its size depends on the shape of the instance alone.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
    """
    upper = _squares(state)
    width = max(_WIDTH, upper.shape[1])
    lower = _minipods(state, minipod_nodes, width)
    top, bottom = _MARGIN + len(upper), 2 * _MARGIN + len(upper) + len(lower)
    picture = canvas(bottom + _CAPTION + _MARGIN, width + 2 * _MARGIN)
    picture[_MARGIN:top, _MARGIN : _MARGIN + upper.shape[1]] = upper
    picture[top + _MARGIN : bottom, _MARGIN : _MARGIN + width] = lower
    caption = f"DP {state.spread.dp}  PP {state.spread.pp}  SCORE {state.score:.2f}"
    write(picture, bottom + 6, _MARGIN, caption, scale=3)
    return picture


def _squares(state: PlacementState) -> Pixels:
    """Return the nodes of the job, a line for each group, laid out wider than high."""
    instance = state.instance
    groups = np.full((instance.groups, instance.group_nodes), -1, dtype=np.int64)
    for row, counts in enumerate(state.counts):
        nodes = np.repeat(np.arange(instance.minipods), counts)
        groups[row, : len(nodes)] = nodes
    wide = groups if instance.groups <= instance.group_nodes else groups.T
    return cells(wide, max(4, min(24, _WIDTH // wide.shape[1])))


def _minipods(state: PlacementState, minipod_nodes: Sequence[int], width: int) -> Pixels:
    free_at_first = state.instance.free_nodes.tolist()
    others = [total - free for total, free in zip(minipod_nodes, free_at_first, strict=True)]
    parts = list(zip(others, state.of_job, state.free, strict=True))
    colours = [(INK, PALETTE[m % len(PALETTE)], EMPTY) for m in range(len(parts))]
    return bars(parts, colours, _BAR, width)
