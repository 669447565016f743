"""Vector environments on the compiled simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError, require_known
from clustergym.common.processes import cores
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.vector import auction_step
from clustergym.envs.vector import step as steps
from clustergym.envs.vector.auction_batch import make_episode_batch
from clustergym.envs.vector.base import (
    AddInfo,
    EpisodesVectorEnv,
    NothingToDecideError,
    check_count,
    choose_autoreset_mode,
)
from clustergym.envs.vector.episode_batch import EpisodeBatch, Summary
from clustergym.envs.vector.episode_state import Bytes, Singles
from clustergym.envs.vector.lazy_info import LazyInfo
from clustergym.envs.vector.scenarios import PreparedScenarios, UncoveredError, fall_back

ENGINES = ("auto", "simpy", "compiled")


class CompiledEpisodes:
    """The episodes of a `SchedulingVectorEnv`, in the rows of common arrays. Arrays are of all rows.

    Parameters
    ----------
    single : SchedulingEnv
        An environment of the same parameters.
    batch : EpisodeBatch
    scenarios : PreparedScenarios
    copy, summaries : bool
        As of `SchedulingVectorEnv`.
    """

    def __init__(
        self,
        single: SchedulingEnv,
        batch: EpisodeBatch,
        scenarios: PreparedScenarios,
        copy: bool,
        summaries: bool,
    ) -> None:
        self.single, self.batch, self.scenarios = single, batch, scenarios
        self.copy, self.summaries = copy, summaries
        self.names: list[str] = list(single.parameters.reward)
        self.check_actions, self.find_legal, self.draw = batch.check_actions, batch.find_legal, batch.draw

    def begin(
        self, rows: Sequence[int], options: Mapping[str, Any], rngs: Sequence[np.random.Generator]
    ) -> None:
        """Begin an episode in some rows, up to the first decision point."""
        drawn = []
        for row in rows:
            own = {name: _own(name, value, row, self.batch.size) for name, value in options.items()}
            drawn.append(self.scenarios.choose(own, rngs[row]))
        self.batch.begin(rows, drawn)
        if (self.batch.outcomes[rows] != steps.DECIDED).any():
            raise NothingToDecideError(
                "no job comes to a decision", field="env", remedy="choose another trace"
            )

    def describe_illegal(self, row: int, taken: Any) -> str:
        """Return a number and what it means."""
        return f"{taken[row]} ({self.single.actions.describe(int(taken[row]))})"

    def take(self, taken: Any, over: Bools, illegal: Bools) -> tuple[Singles, Bytes]:
        """Apply the actions; return observations and masks, copied while they are in the cache."""
        shown = self.get_observations()
        if self.copy:
            shown = np.empty_like(shown[0]), np.empty_like(shown[1])
        taken = self.batch.answer_illegal(taken, illegal)
        self.batch.take(taken, over, *(shown if self.copy else ()))
        self.batch.charge_illegal(illegal)
        return shown

    def get_outcomes(self) -> tuple[Floats, Bools, Bools]:
        """Return rewards, terminations and truncations of the last step."""
        ended = self.batch.outcomes >= steps.TERMINATED
        terminated = ended & (self.batch.outcomes != steps.TRUNCATED)
        return self.batch.rewards.copy(), terminated, ended ^ terminated

    def get_observations(self) -> tuple[Singles, Bytes]:
        """Return observations and masks, which the next step overwrites."""
        return self.batch.episode_states.observation, self.batch.episode_states.mask

    def get_masks(self) -> Bytes:
        """Return the masks, which the next step overwrites."""
        return self.batch.episode_states.mask

    def get_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the time of each row's episode."""
        return {"now_s": self.batch.now_s}

    def get_terms(self) -> Floats:
        """Return the terms of the last step's rewards."""
        return self.batch.terms

    def describe_end(self, row: int) -> dict[str, Any]:
        """Return whether an episode has stalled."""
        return {"stalled": self.batch.is_stalled(row)}

    def summarise(self, infos: dict[str, Any], ended: Bools, add_info: AddInfo) -> dict[str, Any]:
        """Return infos with `metrics` and `digest` of the episodes that are over, if there are summaries."""
        if not (self.summaries and ended.any()):
            return infos
        summaries = {row: self.batch.summary(row) for row in ended.nonzero()[0].tolist()}

        def gather(name: str, get: Callable[[Summary], Any]) -> Any:
            found: dict[str, Any] = {}
            for row, summary in summaries.items():
                add_info(found, {name: get(summary)}, row)
            return found[name]

        makers = {
            "metrics": partial(gather, "metrics", Summary.get_metrics),
            "digest": partial(gather, "digest", Summary.get_digest),
        }
        return LazyInfo(infos | {f"_{name}": ended.copy() for name in makers}, makers)


class SchedulingVectorEnv(EpisodesVectorEnv):
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
    batch : EpisodeBatch
        The episodes.
    """

    shared = (*EpisodesVectorEnv.shared, "features", "placer")
    stepped_remedy = "give engine='simpy', or vectorization_mode='sync'"

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
        self.copy, self.summaries = copy, summaries
        single = single_class(**{**parameters, "engine": "simpy"})
        most_threads = check_count("threads", threads, cores())

        def make_episodes(number: int) -> CompiledEpisodes:
            scenarios = PreparedScenarios(single)
            scenarios.check()
            batch = make_episode_batch(single, number, summaries, min(most_threads, number))
            return CompiledEpisodes(single, batch, scenarios, copy, summaries)

        super().__init__(single, make_episodes, num_envs, autoreset_mode, render_mode)
        self.batch: EpisodeBatch = self.episodes.batch
        self.threads = self.batch.threads

    def own_copy(self, observations: Singles) -> Singles:
        """Return observations that later steps do not change, unless `copy` is false."""
        return observations.copy() if self.copy else observations

    def row_jobs(self) -> Ints:
        """Return the position in the trace of each observed row's job, -1 if empty, (num_envs, R)."""
        return self.batch.row_jobs()

    def all_jobs(self) -> Ints:
        """Return the positions in the trace of each episode's jobs, padded with -1, shape (num_envs, m)."""
        return self.batch.all_jobs()

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
        return self.batch.job_costs(jobs)

    def digest(self, row: int) -> str:
        """Return the digest (a hash) of an episode's event log so far, kept only with summaries=True."""
        return self.batch.log(row).digest

    def close_extras(self, **kwargs: Any) -> None:
        """Stop the threads that step the episodes."""
        self.batch.close()


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
    require_known(engine, ENGINES, "engine", "engine")
    shared: dict[str, Any] = {"autoreset_mode": autoreset_mode, "copy": copy}
    if engine != "simpy":
        try:
            return SchedulingVectorEnv(
                single_class, num_envs, threads=threads, summaries=summaries, **shared, **parameters
            )
        except UncoveredError as refusal:
            fall_back(refusal, engine)
    number = check_count("num_envs", num_envs, None)
    singles = [partial(single_class, **(parameters | {"engine": engine}))] * number
    mode = choose_autoreset_mode(autoreset_mode)
    return SteppedVectorEnv(singles, copy=copy, autoreset_mode=mode)


def _own(name: str, value: Any, row: int, number: int) -> Any:
    """Return an environment's own value of an option of `reset`."""
    if name != "trace_seed" or not isinstance(value, Sequence | np.ndarray):
        return value
    if len(value) != number:
        message, remedy = f"has {len(value)} numbers", f"give {number}, or a single one"
        raise InputError(message, field="options.trace_seed", remedy=remedy)
    return int(value[row])
