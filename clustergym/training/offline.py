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
import numpy.typing as npt

from clustergym.agents import auction
from clustergym.agents import auction_features as features
from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.paths import require_extra
from clustergym.common.version import __version__
from clustergym.envs.auction_actions import BASE_OF_DOUBLING, PER_PRIORITY, PRIORITIES, SCORES, AuctionActions
from clustergym.envs.driver import drive
from clustergym.envs.episodes import trace_seed
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.scenario.policy import Policy

_START, _DOUBLE = features.NAMES.index("start"), features.NAMES.index("double")


def choose_action(actions: AuctionActions, weights: Floats) -> npt.NDArray[np.float32]:
    """Return the environment action that comes closest to an auction's decision with the given weights.

    Parameters
    ----------
    actions : AuctionActions
        At a decision point.
    weights : ndarray of float, shape (features.COUNT,)
    """
    if actions.knobs:
        prior = auction.make_weights(features.PRIOR)
        knob = [features.NAMES.index(name) for name in features.KNOBS]
        chosen = (weights - prior)[knob]
    elif actions.decides_by == SCORES:
        scores = (actions.described @ weights).ravel()
        # Order and sign of scores are all that counts.
        chosen = scores / max(float(np.abs(scores).max()), 1.0)
    elif actions.decides_by == PRIORITIES:
        chosen = rank_as_priorities(actions.described.astype(np.float64), weights)
    else:
        chosen = weights
    clipped: npt.NDArray[np.float32] = np.clip(chosen, -actions.bound, actions.bound).astype(np.float32)
    return clipped


def rank_as_priorities(moves: Floats, weights: Floats) -> Floats:
    """Return jobs' priorities to start and to double their GPUs, from `weights` of features of such `moves`.

    Parameters
    ----------
    moves : ndarray of float, shape (R, T, K, features.COUNT)
        Of each row's job, as `AuctionActions.described`.
    weights : ndarray of float, shape (features.COUNT,)

    Returns
    -------
    ndarray of float, shape (2 R,)
        A job whose best doubling scores 0 or less has -1 as its second priority, and is not doubled.
    """
    flat = moves.reshape(len(moves), -1, features.COUNT)
    scores, added = flat @ weights, flat @ auction.make_weights(features.OF_PRIORITIES)
    chosen = np.empty((len(flat), 2))
    for place, (feature, base) in enumerate(((_START, 0.0), (_DOUBLE, BASE_OF_DOUBLING))):
        there = flat[..., feature] > 0
        best = np.where(there, scores, -np.inf).argmax(axis=1)[:, None]
        some = np.take_along_axis(there, best, 1)[:, 0]
        score: Floats = np.take_along_axis(scores, best, 1)[:, 0]
        rest: Floats = np.take_along_axis(added, best, 1)[:, 0]
        # The environment scores a move 3 p + rest + base: p is what makes that equal to the policy's score.
        priority = (score - rest - base) / PER_PRIORITY
        if feature == _DOUBLE:
            # Below 0 a doubling is barred; above, its size still orders the doublings.
            priority = np.where(some & (score > 0), np.maximum(priority, 0.0), -1.0)
        chosen[:, place] = np.where(some, priority, -1.0)
    return chosen.ravel()


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
    """Return a function that plays by a policy's auction weights; errors name the setting `option`."""
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
    """Play the first `number` traces of the train split with a function, and yield the recorded episodes."""
    if not isinstance(env.unwrapped, SchedulingEnv):
        raise InputError("schedules no jobs", field="env.id", remedy="give elastic-16, or another that does")
    if not isinstance(env.observation_space, gymnasium.spaces.Box):
        raise InputError("is not recorded", field="env.observation", remedy="give observation=flat")
    recorder = Recorder(env)
    for index in range(number):
        play(recorder, trace_seed("train", index))
        yield recorder.episode


def needs_minari() -> None:
    """Raise an InputError if Minari, or a package that it stores data sets with, is not installed."""
    with require_extra("needs the package minari", "offline", "offline"):
        import h5py  # noqa: F401
        import minari  # noqa: F401
        import PIL  # noqa: F401


def add_references(folders: Iterable[Path], random: float, expert: float) -> None:
    """Write the mean returns of random and of expert play, as Minari's `get_normalized_score` needs them."""
    from minari.dataset.minari_storage import MinariStorage

    for folder in folders:
        storage = MinariStorage.read(folder / "data")
        storage.update_metadata({"ref_min_score": random, "ref_max_score": expert})


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
