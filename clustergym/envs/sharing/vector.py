"""Many episodes of the Sharing environment, each stepped by one compiled call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.envs.placing_vector import PlacingVectorEnv
from clustergym.envs.sharing.environment import SharingEnv
from clustergym.envs.sharing.episode import AT, NAMES, REJECTED, USED, SharingEpisode
from clustergym.envs.sharing.parameters import episode_stream
from clustergym.envs.sharing.state import SharingState
from clustergym.envs.sharing.step import SHOW, ShownEpisode, advance
from clustergym.envs.vector.base import Masks


class SharingVectorEnv(PlacingVectorEnv):
    """A Gymnasium vector environment of many episodes of `SharingEnv`.

    Parameters
    ----------
    num_envs : int
    autoreset_mode : {"NextStep", "SameStep", "Disabled"} or gymnasium.vector.AutoresetMode
    render_mode : None
        Nothing is drawn.
    **parameters
        Fields of `clustergym.envs.sharing.parameters.SharingParameters`.

    Raises
    ------
    InputError
        If a parameter, an option of `reset` or an action is not valid.
    """

    single: SharingEnv

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__(SharingEnv(**parameters), num_envs, autoreset_mode, render_mode)
        number, parts = self.num_envs, self.single.parts
        begins = {name: part.start for name, part in parts.items()}
        places = [*(begins[name] for name in NAMES), begins["request"], begins.get("device_free", -1)]
        self._offsets, self._stream = np.array(places), parts["stream"]
        self._episodes: list[tuple[SharingEpisode, ShownEpisode] | None] = [None] * number
        # Rows of these are arrays of the episodes themselves.
        self._counts, self._used_sum = np.zeros((number, 4), np.int64), np.zeros((number, 1), np.int64)
        self._fragments = np.zeros((number, self.single.nodes))
        self._observation = np.zeros((number, max(part.stop for part in parts.values())), np.float32)
        self._mask = np.zeros((number, self.single.actions), np.int8)
        self._number, self._installed = np.ones((2, number), np.int64)
        self._filling, self._first_fragments = np.ones((2, number))

    def action_masks(self) -> Masks:
        """Return a mask, 1 where the current request fits, shape (num_envs, number of actions).

        Where no request is left, every action is legal.
        """
        return self._mask.copy()

    def _begin_episodes(self, rows: Sequence[int], options: Mapping[str, Any]) -> None:
        single = self.single
        streams = [episode_stream(single.parameters, single.source, options, self._rngs[row]) for row in rows]
        for row, stream in zip(rows, streams, strict=True):
            state = SharingState(stream)
            episode, shared = state.episode, (self._counts[row], self._used_sum[row], self._fragments[row])
            for own, common in zip(
                (episode.counts, episode.used_sum, episode.fragments), shared, strict=True
            ):
                common[:] = own
            counts, used_sum, fragments = shared
            episode = episode._replace(counts=counts, used_sum=used_sum, fragments=fragments)
            shown = ShownEpisode(state.requests, self._offsets, self._observation[row], self._mask[row])
            self._episodes[row] = episode, shown
            self._number[row], self._installed[row] = state.number, state.installed_milli
            self._filling[row], self._first_fragments[row] = state.filling, state.fragments
            advance(episode, shown, SHOW)
        self._begin_rows(rows, single.parameters.max_steps or 2 * self._number[rows])

    def _place(self, taken: Ints, playing: Bools) -> None:
        rows = self._rows[playing & ~self._find_over()]
        for row, action in zip(rows.tolist(), taken[rows].tolist(), strict=True):
            advance(*self._episodes[row], action)

    def _find_over(self) -> Bools:
        over: Bools = self._counts[:, AT] == self._number
        return over

    def _compute_cost(self, name: str) -> Floats:
        costs: dict[str, Floats] = {
            "allocated": -self._allocated(),
            "mean_allocated": -self._used_sum[:, 0] / (self._installed * self._number),
            "fragments": self._share_fragments() - self._first_fragments,
            "rejected": self._counts[:, REJECTED] / self._number,
        }
        return costs[name]

    def _allocated(self) -> Floats:
        allocated: Floats = self._counts[:, USED] / self._installed
        return allocated

    def _share_fragments(self) -> Floats:
        share: Floats = self._fragments.sum(axis=1) / self._installed
        return share

    def _columns(self) -> dict[str, npt.NDArray[Any]]:
        arrival = self._counts[:, AT].copy()
        return {
            "arrival": arrival,
            "allocated": self._allocated(),
            "mean_allocated": self._used_sum[:, 0] / (self._installed * np.maximum(arrival, 1)),
            "fragments": self._share_fragments(),
            "rejected": self._counts[:, REJECTED].copy(),
        }

    def _observe(self) -> npt.NDArray[np.float32]:
        observation, arrival = self._observation.copy(), self._counts[:, AT]
        come = arrival / (arrival + self._filling)
        observation[:, self._stream] = np.stack([come, self._allocated()], axis=1)
        return observation
