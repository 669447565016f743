"""Many episodes of the Sharing environment, each stepped by one compiled call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.placing_vector import PlacingEpisodes
from clustergym.envs.sharing.environment import SharingEnv
from clustergym.envs.sharing.episode import AT, NAMES, REJECTED, USED, SharingEpisode
from clustergym.envs.sharing.parameters import episode_stream
from clustergym.envs.sharing.state import SharingState
from clustergym.envs.sharing.step import SHOW, ShownEpisode, advance
from clustergym.envs.vector.base import Masks, ParameterVectorEnv


class SharingEpisodes(PlacingEpisodes):
    """The episodes of a `SharingVectorEnv`: each has arrays of its own, some of them rows of common ones."""

    single: SharingEnv

    def __init__(self, single: SharingEnv, size: int) -> None:
        super().__init__(single, size)
        parts = single.parts
        begins = {name: part.start for name, part in parts.items()}
        self._offsets, self._stream = (
            np.array([begins[name] for name in (*NAMES, "request")]),
            parts["stream"],
        )
        self._episodes: list[tuple[SharingEpisode, ShownEpisode] | None] = [None] * size
        # Rows of these are arrays of the episodes themselves.
        self._counts, self._fragments = np.zeros((size, 3), np.int64), np.zeros((size, single.nodes))
        self._observation = np.zeros((size, max(part.stop for part in parts.values())), np.float32)
        self._mask = np.zeros((size, single.nodes), np.int8)
        self._number, self._installed = np.ones((2, size), np.int64)
        self._filling, self._first_fragments = np.ones((2, size))

    def get_masks(self) -> Masks:
        """Return a mask, 1 where the current request fits, shape (rows, number of actions).

        Where no request is left, every action is legal.
        """
        return self._mask.copy()

    def begin_states(
        self, rows: Sequence[int], options: Mapping[str, Any], rngs: Sequence[np.random.Generator]
    ) -> int | Ints:
        """Begin episodes at the first requests that fit; return the steps after which they are truncated."""
        single = self.single
        streams = [episode_stream(single.parameters, single.source, options, rngs[row]) for row in rows]
        for row, stream in zip(rows, streams, strict=True):
            state = SharingState(stream)
            self._counts[row], self._fragments[row] = state.episode.counts, state.episode.fragments
            episode = state.episode._replace(counts=self._counts[row], fragments=self._fragments[row])
            shown = ShownEpisode(state.requests, self._offsets, self._observation[row], self._mask[row])
            self._episodes[row] = episode, shown
            self._number[row], self._installed[row] = state.number, state.installed_milli
            self._filling[row], self._first_fragments[row] = state.filling, state.fragments
            advance(episode, shown, SHOW)
        return single.parameters.max_steps or 2 * self._number[rows]

    def place(self, taken: Ints, playing: Bools, cut_off: Bools) -> None:
        """Place the request in hand of each row."""
        rows = self.every_row[playing & ~self.find_over()]
        for row, action in zip(rows.tolist(), taken[rows].tolist(), strict=True):
            advance(*self._episodes[row], action)

    def find_over(self) -> Bools:
        """Return in which rows no request is left that fits."""
        over: Bools = self._counts[:, AT] == self._number
        return over

    def compute_cost(self, name: str) -> Floats:
        """Return a cost of what is placed so far."""
        if name == "rejected":
            return np.asarray(self._counts[:, REJECTED] / self._number)
        return -self._allocated() if name == "allocated" else self._share_fragments() - self._first_fragments

    def _allocated(self) -> Floats:
        return np.asarray(self._counts[:, USED] / self._installed)

    def _share_fragments(self) -> Floats:
        return np.asarray(self._fragments.sum(axis=1) / self._installed)

    def get_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the arrival in hand, and what is allocated, fragmented and rejected."""
        return {
            "arrival": self._counts[:, AT].copy(),
            "allocated": self._allocated(),
            "fragments": self._share_fragments(),
            "rejected": self._counts[:, REJECTED].copy(),
        }

    def observe(self) -> npt.NDArray[np.float32]:
        """Return the flat observations."""
        observation, arrival = self._observation.copy(), self._counts[:, AT]
        come = arrival / (arrival + self._filling)
        observation[:, self._stream] = np.stack([come, self._allocated()], axis=1)
        return observation


class SharingVectorEnv(ParameterVectorEnv):
    """A vector environment of `SharingEnv`."""

    single_class, episodes_class = SharingEnv, SharingEpisodes
