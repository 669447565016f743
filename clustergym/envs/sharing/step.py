"""A step of a Sharing episode in one compiled call: the placement, the observation after it, and the mask."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.cluster.parts import WHOLE
from clustergym.common.arrays import Ints
from clustergym.envs.sharing.episode import AT, FITS, NAMES, SharingEpisode, accept, seek
from clustergym.sim.compiled.numba_cache import Direct, compile_in_place, entry_in_place
from clustergym.sim.parts.placers import UNFIT

REQUEST, DEVICE_FREE = len(NAMES), len(NAMES) + 1
"""In `ShownEpisode.offsets`, after the features of nodes."""
SHOW = -1
"""In place of an action: nothing is placed."""


class ShownEpisode(NamedTuple):
    """Where a step writes what an agent sees of an episode.

    Attributes
    ----------
    requests : ndarray of float32, shape (K, 4)
        As of `SharingState`.
    offsets : ndarray of int, shape (F + 2,)
        Where in a flat observation each of the F features begins, the request, and the free share of each
        device; -1 for the last where actions are nodes and not devices.
    observation : ndarray of float32
        Flat. The part `stream` is not written.
    mask : ndarray of int8, shape (actions,)
        1 for each legal action; all 1 where no request is left.
    """

    requests: npt.NDArray[np.float32]
    offsets: Ints
    observation: npt.NDArray[np.float32]
    mask: npt.NDArray[np.int8]


@entry_in_place
def _advance(episode: SharingEpisode, shown: ShownEpisode, action: int) -> None:
    by_device = shown.offsets[DEVICE_FREE] >= 0
    devices = episode.nodes.gpu_milli.shape[1]
    if action != SHOW:
        request = episode.arrivals[episode.counts[AT]]
        node = action // devices if by_device else action
        device = episode.device[request, node]
        if by_device:
            device = action % devices if _asks_part(episode, request) else UNFIT
        accept(episode, node, device)
        seek(episode)
    if by_device:
        for node in range(len(episode.fragments)):
            for device in range(devices):
                free = episode.nodes.gpu_milli[node, device] / WHOLE
                shown.observation[shown.offsets[DEVICE_FREE] + node * devices + device] = free
    if episode.counts[AT] < len(episode.arrivals):
        _show_request(episode, shown, by_device)
    else:
        _show_end(episode, shown)


advance = Direct(_advance)
"""Place the current request as a legal action says, or with `SHOW` nothing; write what the agent sees."""


@compile_in_place
def _asks_part(episode: SharingEpisode, request: int) -> bool:
    return bool(0 < episode.requests.gpu_milli[request] < WHOLE)


@compile_in_place
def _show_request(episode: SharingEpisode, shown: ShownEpisode, by_device: bool) -> None:
    request, (nodes, devices) = episode.arrivals[episode.counts[AT]], episode.nodes.gpu_milli.shape
    for feature in range(len(NAMES)):
        first = shown.offsets[feature]
        for node in range(nodes):
            shown.observation[first + node] = episode.features[request, node, feature]
    for at in range(shown.requests.shape[1]):
        shown.observation[shown.offsets[REQUEST] + at] = shown.requests[request, at]
    part, asked = _asks_part(episode, request), episode.requests.gpu_milli[request]
    for node in range(nodes):
        fits = episode.features[request, node, FITS] > 0
        if not by_device:
            shown.mask[node] = fits
            continue
        for device in range(devices):
            chosen = episode.nodes.gpu_milli[node, device] >= asked if part else device == 0
            shown.mask[node * devices + device] = fits and chosen


@compile_in_place
def _show_end(episode: SharingEpisode, shown: ShownEpisode) -> None:
    for feature in range(len(NAMES)):
        for node in range(len(episode.fragments)):
            shown.observation[shown.offsets[feature] + node] = 0.0
    for at in range(shown.requests.shape[1]):
        shown.observation[shown.offsets[REQUEST] + at] = 0.0
    for action in range(len(shown.mask)):
        shown.mask[action] = 1
