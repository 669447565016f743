"""Vector environments on the compiled simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameter_types import PositiveInt
from clustergym.common.parameters import check_value
from clustergym.common.processes import cores
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.vector import auction_step
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.auction_core import make_core
from clustergym.envs.vector.core import Summary
from clustergym.envs.vector.episode_state import Bytes, Singles
from clustergym.envs.vector.lazy_info import LazyInfo
from clustergym.envs.vector.scenarios import PreparedScenarios, UncoveredError, fall_back

OF_ALL = ("action_space", "features", "metadata", "observation_space", "parameters", "placer", "render_mode")
"""Attributes that are the same for all environments of a vector environment, whatever their episodes."""
ENGINES = ("auto", "simpy", "compiled")
Observations = dict[str, Singles] | Singles


class SchedulingVectorEnv(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """A Gymnasium vector environment of many episodes of job scheduling, on the compiled simulation engine.

    Observations, masks, rewards, infos and digests are those of the single environments, stepped one by one;
    results do not depend on the number of threads.

    Parameters
    ----------
    single_class : type
        Class of the single environments.
    num_envs : int
    threads : int
        Threads that step the environments.
    autoreset_mode : {"NextStep", "SameStep", "Disabled"} or gymnasium.vector.AutoresetMode
    copy : bool
        Whether `reset` and `step` return copies of observations and masks. If not, the arrays they return
        change with the next call.
    summaries : bool
        Whether the info of an episode's end has `metrics` and `digest`, which are worked out when they are
        read. Both need a log of events.
    **parameters
        Fields of `clustergym.envs.scheduling_parameters.SchedulingParameters`.

    Attributes
    ----------
    single : SchedulingEnv
        A single environment of the same parameters, which is never reset.
    core : Core
        The episodes.

    Raises
    ------
    InputError
        If a parameter, an option of `reset` or an action is not valid, or if compiled episodes do not cover
        what the parameters ask for.
    """

    def __init__(
        self,
        single_class: type[SchedulingEnv],
        num_envs: int = 1,
        *,
        threads: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        copy: bool = True,
        summaries: bool = True,
        render_mode: str | None = None,
        **parameters: Any,
    ) -> None:
        if render_mode is not None:
            message, remedy = "vector environments draw nothing", "give vectorization_mode='sync' as well"
            raise InputError(message, field="render_mode", remedy=remedy)
        self.num_envs = _whole("num_envs", num_envs, None)
        self.threads = min(_whole("threads", threads, cores()), self.num_envs)
        self.copy, self.summaries = copy, summaries
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.single = single_class(**{**parameters, "engine": "simpy"})
        self.single_observation_space = self.single.observation_space
        self.single_action_space = self.single.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._scenarios = PreparedScenarios(self.single)
        self._scenarios.check()
        self.core = make_core(self.single, self.num_envs, summaries, self.threads)
        self._rngs: list[np.random.Generator] = []
        self._seeds: list[int] = []
        self._draws = np.zeros(self.num_envs, dtype=np.uint64)
        self._illegal = np.zeros(self.num_envs, dtype=np.bool_)
        self._over = np.ones(self.num_envs, dtype=np.bool_)

    # The random streams are those that the single environments would have.

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random generator of each environment."""
        self._seed(range(self.num_envs), [None] * self.num_envs)
        return tuple(self._rngs)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of each environment."""
        self._seed(range(self.num_envs), [None] * self.num_envs)
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
    ) -> tuple[Observations, dict[str, Any]]:
        """Begin an episode in each environment; return observations and infos at their first decision points.

        Parameters
        ----------
        seed : int or sequence of int, optional
            Environment i has seed + i, or the i-th of a sequence.
        options : dict, optional
            Those of the single environment; `trace_seed` may also be a sequence, a number for each
            environment. `reset_mask`, an array of bool, says which environments begin an episode.
        """
        given = dict(options or {})
        chosen = _reset_mask(given.pop("reset_mask", None), self.num_envs)
        rows = np.flatnonzero(chosen).tolist()
        self._seed(rows, _seeds(seed, self.num_envs))
        self._begin(rows, given)
        observations, masks = self._get_observations()
        infos = self._infos(chosen, np.zeros_like(chosen), masks.copy())
        return self.single.as_observation(observations.copy() if self.copy else observations), infos

    def _begin(self, rows: Sequence[int], options: Mapping[str, Any]) -> None:
        """Begin an episode in some environments."""
        drawn = []
        for row in rows:
            own = {name: _own(name, value, row, self.num_envs) for name, value in options.items()}
            drawn.append(self._scenarios.choose(own, self._rngs[row]))
        self.core.begin(rows, drawn)
        self._over[rows], self._illegal[rows] = False, False
        if (self.core.outcomes[rows] != steps.DECIDED).any():
            self._over[rows] = True
            raise InputError("no job comes to a decision", field="env", remedy="choose another trace")

    def step(self, actions: npt.ArrayLike) -> tuple[Observations, Floats, Bools, Bools, dict[str, Any]]:
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
        if begins and (self.autoreset_mode is not AutoresetMode.NEXT_STEP or None in self.core.scenarios):
            which = f"environment {begins[0]} has no episode"
            raise ResetNeeded(f"{which}: call reset(), with options={{'reset_mask': …}} for single ones")
        taken = self.core.check_actions(actions)
        if begins:
            self._begin(begins, {})
        self._illegal = ~(self.core.legal(taken) | over)
        if self._illegal.any() and self.single.parameters.on_illegal == "raise":
            row = int(np.argmax(self._illegal))
            action = self.single.actions.describe(int(taken[row]))
            message = f"{taken[row]} ({action}) is illegal now in environment {row}"
            raise InputError(message, field="action", remedy="choose where action_masks() is 1")
        shown = self._get_observations()
        if self.copy:
            shown = np.empty_like(shown[0]), np.empty_like(shown[1])
        self.core.take(taken, over, *(shown if self.copy else ()))
        ended = self.core.outcomes >= steps.TERMINATED
        terminated = ended & (self.core.outcomes != steps.TRUNCATED)
        rewards, truncated = self.core.rewards.copy(), ended ^ terminated
        self._over[:] = ended
        begun, final = ended.any() and self.autoreset_mode is AutoresetMode.SAME_STEP, {}
        if begun:
            final = self._final(ended)
            self._begin(np.flatnonzero(ended).tolist(), {})
            own = self._get_observations()
            shown[0][ended], shown[1][ended] = own[0][ended], own[1][ended]
        every = np.ones(self.num_envs, dtype=np.bool_)
        infos = self._infos(every, np.zeros_like(ended) if begun else ended, shown[1])
        infos.update(final)
        return self.single.as_observation(shown[0]), rewards, terminated, truncated, infos

    def action_masks(self) -> Bytes:
        """Return a mask that is 1 for each legal action, else 0, shape (num_envs, number of actions)."""
        return self.core.episode_states.mask.copy()

    def row_jobs(self) -> Ints:
        """Return the position in the trace of each observed row's job, -1 if empty, (num_envs, R)."""
        return self.core.row_jobs()

    def time_in_system_s(self, jobs: Ints) -> Floats:
        """Return jobs' seconds from submission to end, or until now, shape (num_envs, m); NaN for job -1.

        Parameters
        ----------
        jobs : ndarray of int, shape (num_envs, m)
            As `row_jobs` gives them; -1: none.

        Returns
        -------
        ndarray of float, shape (num_envs, m)
            NaN where there is no job. Where an episode is over: up to its end, until the next one begins.
        """
        return self.core.time_in_system_s(jobs)

    def all_jobs(self) -> Ints:
        """Return the positions in the trace of each episode's jobs, padded with -1, shape (num_envs, m)."""
        return self.core.all_jobs()

    def job_costs(self, jobs: Ints) -> tuple[Floats, Bools]:
        """Return each job's cost so far, a weighted sum of the reward's terms, and whether it has left.

        Minus its mean over all jobs of the episode is the sum of the rewards so far, where no baseline is
        subtracted. A term may measure against what nobody knows before the end, as rewards do.

        Parameters
        ----------
        jobs : ndarray of int, shape (num_envs, m)
            As `row_jobs` or `all_jobs` gives them; -1: none.

        Returns
        -------
        costs : ndarray of float, shape (num_envs, m)
            Where an episode is over: up to its end, until the next one begins.
        left : ndarray of bool, shape (num_envs, m)
            Which jobs have left the system.

        Raises
        ------
        InputError
            If a term of the reward is no mean over jobs.
        """
        return self.core.job_costs(jobs)

    def sample_actions(self) -> Ints | Floats:
        """Return a random legal action for each environment, in the form that `step` takes."""
        return self.core.draw(self._draws)

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return a tuple of action masks, or of an attribute all environments share; raise for the rest.

        Raises
        ------
        InputError
            For what depends on the episode, but for `action_masks`.
        """
        if name == "action_masks":
            return tuple(self.action_masks())
        if name not in OF_ALL:
            raise InputError(
                f"compiled vector environments have no {name} of each environment",
                field=name,
                remedy="give engine='simpy', or vectorization_mode='sync'",
            )
        return (getattr(self.single, name),) * self.num_envs

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute that all environments share, as a tuple with one item for each of them."""
        return self.call(name)

    def digest(self, row: int) -> str:
        """Return the digest (a hash) of an episode's event log so far, kept only with summaries=True."""
        return self.core.log(row).digest

    def _get_observations(self) -> tuple[Singles, Bytes]:
        """Return observations and masks, which the next step overwrites."""
        return self.core.episode_states.observation, self.core.episode_states.mask

    def _infos(self, chosen: Bools, ended: Bools, masks: Bytes) -> dict[str, Any]:
        """Return the infos of the chosen environments in the form of `gymnasium.vector.VectorEnv`."""
        everywhere: dict[str, Any] = {
            "action_mask": masks,
            "now_s": self.core.now_s,
            "illegal": self._illegal.copy(),
        }
        shown, all_shown = chosen.copy(), bool(chosen.all())
        if not all_shown:
            for values in everywhere.values():
                values[~chosen] = 0
        infos: dict[str, Any] = {}
        for name, values in everywhere.items():
            infos[name], infos[f"_{name}"] = values, shown
        terms: dict[str, Any] = {}
        for at, name in enumerate(self.single.parameters.reward):
            own = self.core.terms[:, at]
            terms[name], terms[f"_{name}"] = own.copy() if all_shown else np.where(chosen, own, 0.0), shown
        infos["rewards"], infos["_rewards"] = terms, shown
        for row in ended.nonzero()[0].tolist():
            self._add_info(infos, {"stalled": self.core.is_stalled(row)}, row)
        return self._summarise(infos, ended)

    def _final(self, ended: Bools) -> dict[str, Any]:
        """Return `final_obs` and `final_info` of the episodes that are over."""
        final: dict[str, Any] = {}
        for row in np.flatnonzero(ended).tolist():
            seen = self.single.as_observation(self.core.episode_states.observation[row].copy())
            info = self.core.info(row, bool(self._illegal[row])) | {"stalled": self.core.is_stalled(row)}
            final = self._add_info(final, {"final_obs": seen, "final_info": info}, row)
        return final | {"final_info": self._summarise(final["final_info"], ended)}

    def _summarise(self, infos: dict[str, Any], ended: Bools) -> dict[str, Any]:
        """Return infos with `metrics` and `digest` of the episodes that are over, if there are summaries."""
        if not (self.summaries and ended.any()):
            return infos
        summaries = {row: self.core.summary(row) for row in ended.nonzero()[0].tolist()}

        def gather(name: str, get: Callable[[Summary], Any]) -> Any:
            found: dict[str, Any] = {}
            for row, summary in summaries.items():
                self._add_info(found, {name: get(summary)}, row)
            return found[name]

        makers = {
            "metrics": partial(gather, "metrics", Summary.get_metrics),
            "digest": partial(gather, "digest", Summary.get_digest),
        }
        return LazyInfo(infos | {f"_{name}": ended.copy() for name in makers}, makers)

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads that step the episodes."""
        self.core.close()


class SteppedVectorEnv(gymnasium.vector.SyncVectorEnv):
    """A vector environment that steps single environments in turn, for what cannot run compiled."""

    _draws_of: tuple[int, ...] = ()

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in each environment, like `SyncVectorEnv.reset`."""
        if seed is not None:
            self._draws_of = ()
        return super().reset(seed=seed, options=options)

    def action_masks(self) -> Bytes:
        """Return a mask that is 1 for each legal action, else 0, shape (num_envs, number of actions)."""
        return np.stack([env.unwrapped.action_masks() for env in self.envs])  # type: ignore[attr-defined]

    def sample_actions(self) -> Ints | Floats:
        """Return a random legal action for each environment, in the form that `step` takes.

        The numbers are those that `SchedulingVectorEnv` draws after `reset` with the same seed.
        """
        if self._draws_of != self.np_random_seed:
            self._draws_of = self.np_random_seed
            self._draws = np.array([seed % 2**64 for seed in self._draws_of], dtype=np.uint64)
        masks, actions = self.action_masks(), np.zeros(self.num_envs, dtype=np.int64)
        # As plain Python, without Numba, it would warn of the overflow that the generator is made of.
        with np.errstate(over="ignore"):
            if isinstance(self.single_action_space, gymnasium.spaces.Box):
                numbers = np.zeros(masks.shape)
                auction_step.draw_numbers(self._draws, numbers)
                return numbers
            steps.draw_legal(masks, self._draws, actions, 0, self.num_envs)
        return actions


def make_vector(
    single_class: type[SchedulingEnv],
    num_envs: int = 1,
    *,
    engine: str = "auto",
    threads: int = 1,
    summaries: bool = True,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    copy: bool = True,
    **parameters: Any,
) -> gymnasium.vector.VectorEnv[Any, Any, Any]:
    """Make a vector environment, on the compiled engine if that can run it; for `gymnasium.make_vec`.

    Where compiled episodes do not cover the parameters, or `engine="simpy"`, it steps single environments one
    by one, and `threads` and `summaries` count for nothing.

    Parameters
    ----------
    single_class : type
        Class of the single environments.
    num_envs, threads, summaries, autoreset_mode, copy, **parameters
        As of `SchedulingVectorEnv`.
    engine : {"auto", "simpy", "compiled"}
    """
    if engine not in ENGINES:
        raise InputError(f"unknown engine {engine!r}", field="engine", remedy=nearest(str(engine), ENGINES))
    shared: dict[str, Any] = {"autoreset_mode": autoreset_mode, "copy": copy}
    if engine != "simpy":
        try:
            return SchedulingVectorEnv(
                single_class, num_envs, threads=threads, summaries=summaries, **shared, **parameters
            )
        except UncoveredError as refusal:
            fall_back(refusal, engine)
    number = _whole("num_envs", num_envs, None)
    singles = [partial(single_class, **(parameters | {"engine": engine}))] * number
    mode = _autoreset_mode(autoreset_mode)
    return SteppedVectorEnv(singles, copy=copy, autoreset_mode=mode)


def _whole(field: str, value: Any, most: int | None) -> int:
    number = int(check_value(value, PositiveInt, field))
    if most is not None and number > most:
        remedy = f"give a whole number from 1 to {most}, the number of cores"
        raise InputError(f"{number} is out of range", field=field, remedy=remedy)
    return number


def _autoreset_mode(value: AutoresetMode | str) -> AutoresetMode:
    known = [mode.value for mode in AutoresetMode]
    if isinstance(value, AutoresetMode):
        return value
    if value not in known:
        message = f"unknown mode {value!r}"
        raise InputError(message, field="autoreset_mode", remedy=nearest(str(value), known))
    return AutoresetMode(value)


def _seeds(seed: int | Sequence[int | None] | None, number: int) -> list[int | None]:
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


def _own(name: str, value: Any, row: int, number: int) -> Any:
    """Return an environment's own value of an option of `reset`."""
    if name != "trace_seed" or not isinstance(value, Sequence | np.ndarray):
        return value
    if len(value) != number:
        message, remedy = f"has {len(value)} numbers", f"give {number}, or a single one"
        raise InputError(message, field="options.trace_seed", remedy=remedy)
    return int(value[row])
