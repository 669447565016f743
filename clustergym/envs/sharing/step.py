"""A step of a Sharing episode in one compiled call: the placement, the observation after it, and the mask."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Ints
from clustergym.envs.sharing.episode import AT, FITS, NAMES, SharingEpisode, accept, seek
from clustergym.sim.compiled.numba_cache import Direct, compile_in_place, entry_in_place

REQUEST = len(NAMES)
"""In `ShownEpisode.offsets`, after the features of nodes."""
SHOW = -1
"""In place of an action: nothing is placed."""


class ShownEpisode(NamedTuple):
    """Where a step writes what an agent sees of an episode.

    Attributes
    ----------
    requests : ndarray of float32, shape (K, 4)
        As of `SharingState`.
    offsets : ndarray of int, shape (F + 1,)
        Where in a flat observation each of the F features begins, and the request.
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
    if action != SHOW:
        accept(episode, action, episode.device[episode.arrivals[episode.counts[AT]], action])
        seek(episode)
    if episode.counts[AT] < len(episode.arrivals):
        _show_request(episode, shown)
    else:
        _show_end(episode, shown)


advance = Direct(_advance)
"""Place the current request as a legal action says, or with `SHOW` nothing; write what the agent sees."""


@compile_in_place
def _show_request(episode: SharingEpisode, shown: ShownEpisode) -> None:
    request, nodes = episode.arrivals[episode.counts[AT]], len(episode.fragments)
    for feature in range(len(NAMES)):
        first = shown.offsets[feature]
        for node in range(nodes):
            shown.observation[first + node] = episode.features[request, node, feature]
    for at in range(shown.requests.shape[1]):
        shown.observation[shown.offsets[REQUEST] + at] = shown.requests[request, at]
    for node in range(nodes):
        shown.mask[node] = episode.features[request, node, FITS] > 0


@compile_in_place
def _show_end(episode: SharingEpisode, shown: ShownEpisode) -> None:
    for feature in range(len(NAMES)):
        for node in range(len(episode.fragments)):
            shown.observation[shown.offsets[feature] + node] = 0.0
    for at in range(shown.requests.shape[1]):
        shown.observation[shown.offsets[REQUEST] + at] = 0.0
    for action in range(len(shown.mask)):
        shown.mask[action] = 1
