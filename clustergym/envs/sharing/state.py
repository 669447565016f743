"""What an agent of the Sharing environment sees of an episode, is rewarded for, and is shown as a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from clustergym.cluster.parts import WHOLE
from clustergym.envs.placing import join_boxes
from clustergym.envs.rendering import (
    EMPTY,
    FAINT,
    HEIGHT,
    INK,
    LIGHT,
    WIDTH,
    Picture,
    Pixels,
    choose_colour,
    table,
)
from clustergym.envs.sharing.episode import AT, FITS, NAMES, REJECTED, USED, put, start_episode
from clustergym.envs.sharing.streams import Stream


class SharingState:
    """An episode's state: a sequence of requests, those before the current one placed or rejected.

    Parameters
    ----------
    stream : Stream

    Attributes
    ----------
    episode : clustergym.envs.sharing.episode.SharingEpisode
    number : int
        Requests of the stream.
    installed_milli : int
        Thousandths of GPUs.
    filling : float
        Requests of usual sizes that about fill all GPUs.
    requests : ndarray of float32, shape (K, 4)
        CPU, memory, devices and part of each of a request, from 0 to 1.
    """

    def __init__(self, stream: Stream) -> None:
        self.number, self.installed_milli = len(stream.arrivals), stream.nodes.installed_milli
        self.requests = _scale_stream(stream)
        usual = stream.usual
        asked = float((usual.share * usual.gpus * usual.gpu_milli).sum())
        self.filling = max(self.installed_milli / asked, 1.0) if asked > 0.0 else 1.0
        self.episode = start_episode(stream)
        # A stream may begin on nodes that are in part full: only what the agent adds is its cost.
        self.first_fragments = self.fragments

    def put(self, node: int, device: int) -> None:
        """Place the current request on a node, and advance to the next request that fits on any."""
        put(self.episode, node, device)

    @property
    def arrival(self) -> int:
        """Number of requests that came before the current one."""
        return int(self.episode.counts[AT])

    @property
    def come(self) -> float:
        """Progress n / (n + N) after n requests, where N requests of usual sizes about fill all GPUs."""
        return self.arrival / (self.arrival + self.filling)

    @property
    def over(self) -> bool:
        """Whether the episode is over: no request is left that fits on a node."""
        return self.arrival == self.number

    @property
    def request(self) -> int:
        """Index of the current request in the table of distinct requests."""
        return int(self.episode.arrivals[self.arrival])

    @property
    def part(self) -> bool:
        """Whether the current request asks for a part of a GPU."""
        return 0 < int(self.episode.requests.gpu_milli[self.request]) < WHOLE

    @property
    def rejected(self) -> int:
        """Number of requests so far that were rejected, because they fitted on no node."""
        return int(self.episode.counts[REJECTED])

    @property
    def allocated(self) -> float:
        """Share of the installed GPUs that is allocated to requests, from 0 to 1."""
        return int(self.episode.counts[USED]) / self.installed_milli

    @property
    def fragments(self) -> float:
        """Share of the installed GPUs that is idle, but in pieces that frequent requests cannot use."""
        return float(self.episode.fragments.sum()) / self.installed_milli


def _scale_stream(stream: Stream) -> npt.NDArray[np.float32]:
    requests, nodes = stream.requests, stream.nodes
    columns = (requests.cpu_milli, requests.memory_mib, requests.gpus, requests.gpu_milli)
    most = (nodes.cpu_milli, nodes.memory_mib, nodes.devices)
    # By the largest node, not the largest request: a number means the same in every stream of a cluster.
    largest = [max(int(column.max()), 1) for column in most] + [WHOLE]
    return np.minimum(np.stack(columns, axis=1) / largest, 1.0).astype(np.float32)


# Functions with names: an environment, which keeps them, can be pickled.


def find_unallocated(state: SharingState) -> float:
    """Return minus the share of the installed GPUs that is allocated."""
    return -state.allocated


def find_new_fragments(state: SharingState) -> float:
    """Return the share of the GPUs that has become unusable fragments since the start of the episode."""
    return state.fragments - state.first_fragments


def find_rejected(state: SharingState) -> float:
    """Return the share of the episode's requests that have been rejected so far."""
    return state.rejected / state.number


COSTS: Mapping[str, Callable[[SharingState], float]] = {
    "allocated": find_unallocated,
    "fragments": find_new_fragments,
    "rejected": find_rejected,
}
"""The costs that a reward can weigh; each is 0 before the first request."""


SIGNED = "growth"
"""The part whose numbers begin at -1."""


def layout(nodes: int) -> dict[str, int]:
    """Return the number of values in each part of an observation."""
    return dict(sorted((dict.fromkeys(NAMES, nodes) | {"request": 4, "stream": 2}).items()))


def space(sizes: dict[str, int], form: str) -> spaces.Space[Any]:
    """Return the Gymnasium space of observations with parts of these sizes, in the form `dict` or `flat`."""
    boxes = {name: spaces.Box(-1.0 if name == SIGNED else 0.0, 1.0, (size,)) for name, size in sizes.items()}
    return join_boxes(boxes, form)


def observe(state: SharingState, sizes: dict[str, int]) -> dict[str, npt.NDArray[np.float32]]:
    """Return the parts of the observation of a state, by name; those of the request are 0 after the last."""
    episode = state.episode
    shown = {"stream": np.array([state.come, state.allocated], np.float32)}
    if state.over:
        shown |= {name: np.zeros(size, np.float32) for name, size in sizes.items() if name != "stream"}
    else:
        request = state.request
        # Copies: the environment must not change an observation that it gave.
        shown |= zip(NAMES, episode.features[request].T.copy(), strict=True)
        shown["request"] = state.requests[request].copy()
    return {name: shown[name] for name in sizes}


MARGIN, TOP, GAP = 12, 64, 4
"""Pixels: at the edges, above the nodes, between nodes."""
LARGEST, SMALLEST = 22, 4
"""Pixels of the square of a device."""


def as_text(state: SharingState) -> str:
    """Return the state as text: a table of each node's free resources, and the current request."""
    episode = state.episode
    rows = []
    for node, devices in enumerate(episode.nodes.devices.tolist()):
        free = " ".join(str(milli) for milli in episode.nodes.gpu_milli[node, :devices].tolist())
        fits = "" if state.over else "yes" if episode.features[state.request, node, FITS] > 0 else "no"
        cores, gib = episode.nodes.cpu_milli[node] / 1000, episode.nodes.memory_mib[node] / 1024
        rows.append((node, f"{cores:g}", f"{gib:g}", free, fits))
    head = ("node", "free cores", "free GiB", "free thousandths of each GPU", "fits")
    return "\n".join([_in_hand(state), table(head, rows), _so_far(state)])


def _in_hand(state: SharingState) -> str:
    if state.over:
        return f"all {state.number} requests have come"
    requests, request = state.episode.requests, state.request
    gpus, milli = int(requests.gpus[request]), int(requests.gpu_milli[request])
    asked = f"{milli} thousandths of a GPU" if state.part else f"{gpus} GPU{'' if gpus == 1 else 's'}"
    cores, gib = requests.cpu_milli[request] / 1000, requests.memory_mib[request] / 1024
    return f"request {state.arrival} of {state.number}: {asked}, {cores:g} cores, {gib:g} GiB"


def _so_far(state: SharingState) -> str:
    allocated, fragments = 100 * state.allocated, 100 * state.fragments
    return f"allocated {allocated:.2f} %, fragments {fragments:.2f} %, {state.rejected} rejected"


def as_pixels(state: SharingState) -> Pixels:
    """Return a picture of the state: a square per device in a row per node, filled to its allocated share.

    Below a node's squares a bar has its CPU in use. Where the request in hand fits the squares are light. Its
    size depends on the nodes alone.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)
        At least 540 high, 960 wide.
    """
    nodes = state.episode.nodes
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
    """Return a square's side, the nodes in a line, and the picture's height, for the largest squares."""
    # The largest squares with which all nodes are in the picture.
    for side in range(LARGEST, SMALLEST - 1, -1):
        columns = max(1, (WIDTH - 2 * MARGIN) // (side * devices + 2 * GAP))
        needed = TOP + -(-nodes // columns) * (side + side // 3 + GAP) + MARGIN
        if needed <= HEIGHT:
            break
    return side, columns, max(HEIGHT, needed)


def _draw(picture: Picture, state: SharingState, node: int, place: tuple[int, int, int]) -> None:
    episode, (left, top, side) = state.episode, place
    nodes = episode.nodes
    fits = not state.over and episode.features[state.request, node, FITS] > 0
    for device in range(int(nodes.devices[node])):
        at, used = left + device * side, 1.0 - nodes.gpu_milli[node, device] / WHOLE
        filled = round(used * (side - 1))
        picture.box(at, top, side - 1, side - 1, LIGHT if fits else EMPTY)
        picture.box(at, top + side - 1 - filled, side - 1, filled, choose_colour(int(nodes.model[node])))
    cpu = 1.0 - nodes.cpu_milli[node] / episode.installed[0, node]
    width = int(nodes.devices[node]) * side - 1
    picture.bar(left, top + side, width, max(1, side // 3 - 1), [(cpu, FAINT)])
