"""Offline data: episodes of an environment that a policy, or chance, played, in Minari's format.

Minari's own collector needs JAX to append a step; here an episode is kept whole and handed to its storage.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.common.paths import install_line
from clustergym.common.version import __version__
from clustergym.envs.actions import MetaActions
from clustergym.envs.driver import drive
from clustergym.envs.episodes import trace_seed
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.scenario.policy import Policy
from clustergym.training.auction_experts import choose_action

Play = Callable[["Recorder", int], None]
"""Plays an episode from `reset(seed=…)` to its end."""


@dataclass
class Episode:
    """The recorded steps of an episode, with one more observation and mask than actions.

    Attributes
    ----------
    seed : int
    observations, masks, actions, rewards : list
    terminations, truncations : list of bool
    """

    seed: int
    observations: list[Any] = field(default_factory=list)
    masks: list[Any] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminations: list[bool] = field(default_factory=list)
    truncations: list[bool] = field(default_factory=list)


class Recorder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment wrapper that records the steps of the present episode.

    Attributes
    ----------
    episode : Episode
    """

    episode: Episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, and start a new record with its first observation."""
        assert seed is not None
        observation, info = self.env.reset(seed=seed, options=options)
        self.episode = Episode(seed)
        self._see(observation, info)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Apply an action, and record it with its reward and the next observation."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        whole = isinstance(self.action_space, gymnasium.spaces.Discrete)
        self.episode.actions.append(int(action) if whole else np.array(action))
        self.episode.rewards.append(float(reward))
        self.episode.terminations.append(terminated)
        self.episode.truncations.append(truncated)
        self._see(observation, info)
        return observation, reward, terminated, truncated, info

    def _see(self, observation: Any, info: Mapping[str, Any]) -> None:
        self.episode.observations.append(np.array(observation))
        self.episode.masks.append(np.array(info["action_mask"], dtype=np.int8))


def by_policy(policy: Policy) -> Play:
    """Return a function that plays an episode in which a scheduling policy decides."""

    def play(env: Recorder, seed: int) -> None:
        drive(env, policy, seed=seed)

    return play


def by_weights(policy: Policy, option: str) -> Play:
    """Return a function that plays by a policy's auction weights; error messages name the setting `option`.

    Raises
    ------
    InputError
        If the policy, which an option names, has no such weights.
    """
    weights = getattr(policy, "auction_weights", None)
    if weights is None:
        message = f"policy {policy.name} has no weights of an auction, which this environment scores with"
        raise InputError(message, field=option, remedy="give learned, or learned checkpoint=prior")

    def play(env: Recorder, seed: int) -> None:
        core: Any = env.unwrapped
        _play_to_the_end(env, seed, lambda info: choose_action(core.actions, weights))

    return play


def at_random(env: Recorder, seed: int) -> None:
    """Play an episode with random actions: legal ones with equal probability, or numbers within bounds."""
    rng, space = random_streams.RANDOM_EPISODES.generator(seed), env.action_space

    def choose(info: Mapping[str, Any]) -> Any:
        if isinstance(space, gymnasium.spaces.Box):
            return rng.uniform(space.low, space.high).astype(np.float32)
        return np.int64(rng.choice(np.flatnonzero(info["action_mask"])))

    _play_to_the_end(env, seed, choose)


def _play_to_the_end(env: Recorder, seed: int, choose: Callable[[Mapping[str, Any]], Any]) -> None:
    """Play an episode with the actions that `choose` returns for each info."""
    _, info = env.reset(seed=seed)
    over = False
    while not over:
        _, _, terminated, truncated, info = env.step(choose(info))
        over = terminated or truncated


def episodes(env: gymnasium.Env[Any, Any], play: Play, number: int) -> Iterator[Episode]:
    """Play the first `number` traces of the train split with a function, and yield the recorded episodes.

    Raises
    ------
    InputError
        If the environment's observations are no vectors, or its actions choose policies; and as `drive`.
    """
    core = env.unwrapped
    if not isinstance(core, SchedulingEnv) or isinstance(core.actions, MetaActions):
        raise InputError(
            "has no edits to record",
            field="env.actions",
            remedy="give actions=edit, admit or drop, or an environment of an auction",
        )
    if not isinstance(env.observation_space, gymnasium.spaces.Box):
        raise InputError("is not recorded", field="env.observation", remedy="give observation=flat")
    recorder = Recorder(env)
    for index in range(number):
        play(recorder, trace_seed("train", index))
        yield recorder.episode


def needs_minari() -> None:
    """Raise an InputError if Minari, or a package that it stores data sets with, is not installed."""
    try:
        import h5py  # noqa: F401
        import minari  # noqa: F401
        import PIL  # noqa: F401
    except ImportError as error:
        remedy = install_line("offline")
        raise InputError("needs the package minari", field="offline", remedy=remedy) from error


def write(
    out: Path, name: str, env: gymnasium.Env[Any, Any], played: Iterable[Episode], algorithm: str
) -> tuple[Path, list[float]]:
    """Write episodes as a data set of Minari's; return its folder and the return of each episode.

    Parameters
    ----------
    out : Path
        Root of Minari's data sets: `MINARI_DATASETS_PATH`.
    name : str
        Minari's id of the data set, as `elastic-16/expert-v0`.
    env : gymnasium.Env
        Whose spec goes into the data set.
    played : iterable of Episode
    algorithm : str
        What played.

    Raises
    ------
    InputError
        If Minari is not there, or the data set is there already.
    """
    needs_minari()
    import minari
    from minari.data_collector.episode_buffer import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    folder = out / name
    if folder.exists():
        raise InputError("is there already", file=folder, remedy="remove it, or give another --out")
    folder.parent.mkdir(parents=True, exist_ok=True)
    returns = []
    # Minari finds a storage again only by an absolute path.
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder.parent.resolve()) as scratch:
        data = Path(scratch) / "data"
        data.mkdir()
        spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
        storage = MinariStorage.new(data, env_spec=env.spec, data_format="hdf5", **spaces)
        for number, episode in enumerate(played):
            storage.update_episodes(
                [
                    EpisodeBuffer(
                        id=number,
                        seed=episode.seed,
                        observations=episode.observations,
                        actions=episode.actions,
                        rewards=episode.rewards,
                        terminations=episode.terminations,
                        truncations=episode.truncations,
                        infos={"action_mask": episode.masks},
                    )
                ]
            )
            returns.append(sum(episode.rewards))
        versions = {"minari_version": minari.__version__, "requirements": [f"clustergym=={__version__}"]}
        about = {"dataset_id": name, "algorithm_name": algorithm, "author": {"clustergym"}}
        storage.update_metadata(about | versions)
        shutil.move(data, Path(scratch) / "done")
        folder.mkdir()
        shutil.move(Path(scratch) / "done", folder / "data")
    return folder, returns
