"""The part that all vector environments of this package share: seeds, resets, and the order of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError, require_known
from clustergym.common.parameter_types import PositiveInt
from clustergym.common.parameters import check_value

Masks = npt.NDArray[np.int8]


class NothingToDecideError(InputError):
    """An episode has begun that comes to no decision."""


AddInfo = Callable[[dict[str, Any], dict[str, Any], int], dict[str, Any]]
"""`gymnasium.vector.VectorEnv._add_info`."""


class EpisodesVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Base of the vector environments whose episodes are rows of common arrays.

    Observations, rewards and infos are those of single environments that are stepped one by one, as
    `gymnasium.vector.SyncVectorEnv` does.

    Parameters
    ----------
    single : gymnasium.Env
        An environment of the same parameters, which is never reset.
    episodes : callable
        From the number of environments to their episodes, the rows of common arrays; their interface is that
        of `clustergym.envs.vector.environment.CompiledEpisodes`.
    num_envs : int
    autoreset_mode : {"NextStep", "SameStep", "Disabled"} or gymnasium.vector.AutoresetMode
    render_mode : None
        Nothing is drawn.
    """

    shared: tuple[str, ...] = ("action_space", "metadata", "observation_space", "parameters", "render_mode")
    """Attributes that are the same for all environments, whatever their episodes."""
    stepped_remedy = "give vectorization_mode='sync'"
    """How to get environments that are stepped one by one."""

    def __init__(
        self,
        single: Any,
        episodes: Callable[[int], Any],
        num_envs: int,
        autoreset_mode: AutoresetMode | str,
        render_mode: str | None,
    ) -> None:
        if render_mode is not None:
            message, remedy = "vector environments draw nothing", "give vectorization_mode='sync' as well"
            raise InputError(message, field="render_mode", remedy=remedy)
        self.num_envs = check_count("num_envs", num_envs, None)
        self.autoreset_mode = choose_autoreset_mode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single: Any = single
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.episodes: Any = episodes(self.num_envs)
        self._draws = np.zeros(self.num_envs, dtype=np.uint64)
        self._rngs: list[np.random.Generator] = []
        self._seeds: list[int] = []
        self._illegal = np.zeros(self.num_envs, dtype=np.bool_)
        self._over = np.ones(self.num_envs, dtype=np.bool_)
        self._begun = np.zeros(self.num_envs, dtype=np.bool_)

    def action_masks(self) -> Masks:
        """Return a mask that is 1 for each legal action, else 0, shape (num_envs, number of actions)."""
        return self.episodes.get_masks().copy()

    def sample_actions(self) -> Any:
        """Return a random legal action for each environment, in the form that `step` takes."""
        self._seed((), ())
        return self.episodes.draw(self._draws)

    # The random streams are those that the single environments would have.

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random generator of each environment."""
        self._seed((), ())
        return tuple(self._rngs)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each environment."""
        self._seed((), ())
        return tuple(self._seeds)

    def _seed(self, rows: Sequence[int], seeds: Sequence[int | None]) -> None:
        if not self._rngs:
            made = [seeding.np_random(None) for _ in range(self.num_envs)]
            self._rngs, self._seeds = [rng for rng, _ in made], [seed for _, seed in made]
            self._draws[:] = [seed % 2**64 for seed in self._seeds]
        for row in rows:
            if seeds[row] is not None:
                self._rngs[row], self._seeds[row] = seeding.np_random(seeds[row])
                self._draws[row] = self._seeds[row] % 2**64

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each environment; return observations and infos at their first decision points.

        Parameters
        ----------
        seed : int or sequence of int, optional
            Environment i has seed + i, or the i-th of a sequence.
        options : dict, optional
            Those of the single environment; `trace_seed`, where it takes one, may also be a sequence, a
            number for each environment. `reset_mask`, an array of bool, says which environments begin an
            episode.
        """
        given = dict(options or {})
        chosen = _reset_mask(given.pop("reset_mask", None), self.num_envs)
        rows = np.flatnonzero(chosen).tolist()
        self._seed(rows, _list_seeds(seed, self.num_envs))
        self._begin(rows, given)
        observations, masks = self.episodes.get_observations()
        infos = self._make_infos(chosen, np.zeros_like(chosen), masks.copy())
        return self.single.as_observation(self.own_copy(observations)), infos

    def own_copy(self, observations: Any) -> Any:
        """Return observations that later steps do not change."""
        return observations.copy()

    def _begin(self, rows: Sequence[int], options: Mapping[str, Any]) -> None:
        try:
            self.episodes.begin(rows, options, self._rngs)
        except NothingToDecideError:
            self._over[rows] = True
            raise
        self._over[rows], self._illegal[rows], self._begun[rows] = False, False, True

    def step(self, actions: npt.ArrayLike) -> tuple[Any, Floats, Bools, Bools, dict[str, Any]]:
        """Apply an action in each environment; return observations, rewards, end flags and infos.

        Parameters
        ----------
        actions : array_like, shape (num_envs,) or, where an action is a vector, (num_envs, length)
            In `AutoresetMode.NEXT_STEP` the action of an environment whose episode was over counts for
            nothing: that environment begins its next episode.

        Returns
        -------
        tuple
            Observations, rewards, terminations, truncations and infos, as of `gymnasium.vector.VectorEnv`.
        """
        over = self._over.copy()
        begins = over.nonzero()[0].tolist()
        if begins and not (self.autoreset_mode is AutoresetMode.NEXT_STEP and self._begun.all()):
            which = f"environment {begins[0]} has no episode"
            raise ResetNeeded(f"{which}: call reset(), with options={{'reset_mask': …}} for single ones")
        taken = self.episodes.check_actions(actions)
        if begins:
            self._begin(begins, {})
        self._illegal = ~(self.episodes.find_legal(taken) | over)
        if self._illegal.any() and self.single.parameters.on_illegal == "raise":
            row = int(np.argmax(self._illegal))
            message = f"{self.episodes.describe_illegal(row, taken)} is illegal now in environment {row}"
            raise InputError(message, field="action", remedy="choose where action_masks() is 1")
        observations, masks = self.episodes.take(taken, over, self._illegal)
        rewards, terminated, truncated = self.episodes.get_outcomes()
        ended = terminated | truncated
        self._over[:] = ended
        begun, final = ended.any() and self.autoreset_mode is AutoresetMode.SAME_STEP, {}
        if begun:
            final = self._make_final(ended, observations, masks)
            self._begin(np.flatnonzero(ended).tolist(), {})
            own = self.episodes.get_observations()
            observations[ended], masks[ended] = own[0][ended], own[1][ended]
        every = np.ones(self.num_envs, dtype=np.bool_)
        infos = self._make_infos(every, np.zeros_like(ended) if begun else ended, masks)
        infos.update(final)
        return self.single.as_observation(observations), rewards, terminated, truncated, infos

    def _make_infos(self, chosen: Bools, ended: Bools, masks: Masks) -> dict[str, Any]:
        """Return the infos of the chosen environments in the form of `gymnasium.vector.VectorEnv`."""
        columns = {"action_mask": masks, **self.episodes.get_columns(), "illegal": self._illegal.copy()}
        terms = dict(zip(self.episodes.names, self.episodes.get_terms().T.copy(), strict=True))
        if not chosen.all():
            for values in (*columns.values(), *terms.values()):
                values[~chosen] = 0
        shown = chosen.copy()
        infos = _pair(columns, shown) | {"rewards": _pair(terms, shown), "_rewards": shown}
        for row in ended.nonzero()[0].tolist():
            self._add_info(infos, self.episodes.describe_end(row), row)
        return self.episodes.summarise(infos, ended, self._add_info)

    def _make_final(self, ended: Bools, observations: Any, masks: Masks) -> dict[str, Any]:
        """Return `final_obs` and `final_info` of the episodes that are over."""
        columns = {"action_mask": masks, **self.episodes.get_columns(), "illegal": self._illegal}
        terms, final = self.episodes.get_terms(), dict[str, Any]()
        for row in np.flatnonzero(ended).tolist():
            info = {name: _get_row(values, row) for name, values in columns.items()}
            info["rewards"] = dict(zip(self.episodes.names, terms[row].tolist(), strict=True))
            seen = self.single.as_observation(observations[row].copy())
            info |= self.episodes.describe_end(row)
            final = self._add_info(final, {"final_obs": seen, "final_info": info}, row)
        return final | {"final_info": self.episodes.summarise(final["final_info"], ended, self._add_info)}

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return a tuple of action masks, or of an attribute all environments share; raise for the rest.

        Raises
        ------
        InputError
            For what depends on the episode, but for `action_masks`.
        """
        if name == "action_masks":
            return tuple(self.action_masks())
        if name not in self.shared:
            raise InputError(
                f"this vector environment has no {name} of each environment",
                field=name,
                remedy=self.stepped_remedy,
            )
        return (getattr(self.single, name),) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute that all environments share, as a tuple with one item for each of them."""
        return self.call(name)


def _pair(values: Mapping[str, Any], shown: Bools) -> dict[str, Any]:
    """Return values by name, each with its mask of environments beside it."""
    return {key: value for name in values for key, value in ((name, values[name]), (f"_{name}", shown))}


def _get_row(values: npt.NDArray[Any], row: int) -> Any:
    """Return a row of a column: a number as Python's, an array as it is."""
    return values[row].item() if values.ndim == 1 else values[row].copy()


def check_count(field: str, value: Any, most: int | None) -> int:
    """Return a whole number from 1, to `most` if that is given; raise an InputError otherwise."""
    number = int(check_value(value, PositiveInt, field))
    if most is not None and number > most:
        remedy = f"give a whole number from 1 to {most}, the number of cores"
        raise InputError(f"{number} is out of range", field=field, remedy=remedy)
    return number


def check_discrete(actions: npt.ArrayLike, size: int, number: int) -> Ints:
    """Check `size` actions, each from 0 to `number` - 1; return them as an array."""
    taken = np.asarray(actions)
    if taken.shape != (size,) or taken.dtype.kind not in "iu":
        message = f"have shape {taken.shape} and type {taken.dtype}"
        raise InputError(message, field="actions", remedy=f"give {size} whole numbers")
    # As numbers without a sign, negative ones are too large.
    wrong = taken.astype(np.int64).view(np.uint64) >= number
    if wrong.any():
        row = int(np.argmax(wrong))
        message = f"{taken[row]} is not an action of environment {row}"
        raise InputError(message, field="actions", remedy=f"give numbers from 0 to {number - 1}")
    return taken.astype(np.int64)


def choose_autoreset_mode(value: AutoresetMode | str) -> AutoresetMode:
    """Return the mode of a name; raise an InputError for an unknown one."""
    known = [mode.value for mode in AutoresetMode]
    if isinstance(value, AutoresetMode):
        return value
    require_known(value, known, "mode", "autoreset_mode")
    return AutoresetMode(value)


def _list_seeds(seed: int | Sequence[int | None] | None, number: int) -> list[int | None]:
    if seed is None:
        return [None] * number
    if isinstance(seed, int | np.integer):
        return [int(seed) + at for at in range(number)]
    if len(seed) != number:
        raise InputError(f"has {len(seed)} numbers", field="seed", remedy=f"give {number}, or a single one")
    return list(seed)


def _reset_mask(mask: Any, number: int) -> Bools:
    if mask is None:
        return np.ones(number, dtype=np.bool_)
    found: Bools = np.asarray(mask)
    if found.shape != (number,) or found.dtype != np.bool_ or not found.any():
        remedy = f"give an array of {number} bool, at least one of them true"
        raise InputError("is not valid", field="options.reset_mask", remedy=remedy)
    return found


class ParameterVectorEnv(EpisodesVectorEnv):
    """A vector environment that is made of the parameters of its single environment alone.

    Parameters
    ----------
    num_envs : int
    autoreset_mode : {"NextStep", "SameStep", "Disabled"} or gymnasium.vector.AutoresetMode
    render_mode : None
        Nothing is drawn.
    **parameters
        Of the single environment.
    """

    single_class: type[Any]
    episodes_class: type[Any]
    """Made of the single environment and the number of environments."""

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **parameters: Any,
    ) -> None:
        single = self.single_class(**parameters)
        super().__init__(
            single, lambda size: self.episodes_class(single, size), num_envs, autoreset_mode, render_mode
        )
