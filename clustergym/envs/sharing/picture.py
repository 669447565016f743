"""Shows nodes whose GPUs are shared as text and as pixels."""

from __future__ import annotations

from clustergym.cluster.parts import WHOLE
from clustergym.envs.rendering import (
    EMPTY,
    FAINT,
    HEIGHT,
    INK,
    LIGHT,
    WIDTH,
    Picture,
    Pixels,
    colour_of,
    table,
)
from clustergym.envs.sharing.desk import FITS
from clustergym.envs.sharing.state import SharingState

MARGIN, TOP, GAP = 12, 64, 4
"""Pixels: at the edges, above the nodes, between nodes."""
LARGEST, SMALLEST = 22, 4
"""Pixels of the square of a device."""


def as_text(state: SharingState) -> str:
    """Return a table of the nodes with what is free, and the request in hand."""
    desk = state.desk
    rows = []
    for node, devices in enumerate(desk.nodes.devices.tolist()):
        free = " ".join(str(milli) for milli in desk.nodes.gpu_milli[node, :devices].tolist())
        fits = "" if state.over else "yes" if desk.features[state.kind, FITS, node] > 0 else "no"
        cores, gib = desk.nodes.cpu_milli[node] / 1000, desk.nodes.memory_mib[node] / 1024
        rows.append((node, f"{cores:g}", f"{gib:g}", free, fits))
    head = ("node", "free cores", "free GiB", "free thousandths of each GPU", "fits")
    return "\n".join([_in_hand(state), table(head, rows), _so_far(state)])


def _in_hand(state: SharingState) -> str:
    if state.over:
        return f"all {state.number} requests have come"
    kinds, kind = state.desk.kinds, state.kind
    gpus, milli = int(kinds.gpus[kind]), int(kinds.gpu_milli[kind])
    asked = f"{milli} thousandths of a GPU" if state.part else f"{gpus} GPU{'' if gpus == 1 else 's'}"
    cores, gib = kinds.cpu_milli[kind] / 1000, kinds.memory_mib[kind] / 1024
    return f"request {state.arrival} of {state.number}: {asked}, {cores:g} cores, {gib:g} GiB"


def _so_far(state: SharingState) -> str:
    allocated, fragments = 100 * state.allocated, 100 * state.fragments
    return f"allocated {allocated:.2f} %, fragments {fragments:.2f} %, {state.rejected} rejected"


def as_pixels(state: SharingState) -> Pixels:
    """Return a picture: a row of squares for each node, one a device, filled as far as it is allocated.

    Below a node's squares a bar has its CPU in use. Where the request in hand fits the squares are light. Its
    size depends on the nodes alone.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        At least 540 high, 960 wide.
    """
    nodes = state.desk.nodes
    side, columns, height = _grid(*nodes.gpu_milli.shape)
    picture = Picture((height, WIDTH))
    picture.text(MARGIN, 8, _in_hand(state).capitalize(), 18)
    picture.text(WIDTH - MARGIN, 8, _so_far(state), 18, INK, "ra")
    said = (
        "Nodes: a square for each GPU, filled as allocated, light where the request fits; below, CPU in use"
    )
    picture.text(MARGIN, 40, said, 13, FAINT)
    for node in range(len(nodes.devices)):
        column, row = node % columns, node // columns
        left = MARGIN + column * (side * nodes.gpu_milli.shape[1] + 2 * GAP)
        _draw(picture, state, node, (left, TOP + row * (side + side // 3 + GAP), side))
    return picture.pixels()


def _grid(nodes: int, devices: int) -> tuple[int, int, int]:
    """Return the side of a square, nodes in a line, and the height of the picture: the largest that fits."""
    for side in range(LARGEST, SMALLEST - 1, -1):
        columns = max(1, (WIDTH - 2 * MARGIN) // (side * devices + 2 * GAP))
        needed = TOP + -(-nodes // columns) * (side + side // 3 + GAP) + MARGIN
        if needed <= HEIGHT:
            break
    return side, columns, max(HEIGHT, needed)


def _draw(picture: Picture, state: SharingState, node: int, place: tuple[int, int, int]) -> None:
    desk, (left, top, side) = state.desk, place
    nodes = desk.nodes
    fits = not state.over and desk.features[state.kind, FITS, node] > 0
    for device in range(int(nodes.devices[node])):
        at, used = left + device * side, 1.0 - nodes.gpu_milli[node, device] / WHOLE
        filled = round(used * (side - 1))
        picture.box(at, top, side - 1, side - 1, LIGHT if fits else EMPTY)
        picture.box(at, top + side - 1 - filled, side - 1, filled, colour_of(int(nodes.model[node])))
    cpu = 1.0 - nodes.cpu_milli[node] / desk.installed[0, node]
    width = int(nodes.devices[node]) * side - 1
    picture.bar(left, top + side, width, max(1, side // 3 - 1), [(cpu, FAINT)])
