"""CMA-ES over the weights of linear scores: of jobs, of edits, or over an action itself.

`LinearSearch` plays the candidates of a generation on the same traces, and minimises the mean logarithm of
their mean JCT. Rows of jobs are treated alike: two that are exchanged exchange their scores. Numbers of an
observation are normalised by their mean and deviation in random play, and those that did not vary there have
no weight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from clustergym.common import random_streams
from clustergym.envs.episodes import trace_seed
from clustergym.training.evolution import start_search

Floats = npt.NDArray[np.float64]
LEAST_DEVIATION = 1e-3
"""Numbers that vary less in random play have no weight."""
ROUNDS = 40
"""Steps of random play by whose observations numbers are normalised."""


@dataclass(frozen=True)
class Evolution:
    """Settings of a search.

    Parameters
    ----------
    population : int
        Candidates of a generation.
    traces, among : int
        Traces that each candidate of a generation plays, drawn from the first so many of the split `train`.
    sigma : float
        Deviation of the first generation.
    """

    population: int = 16
    traces: int = 8
    among: int = 200
    sigma: float = 0.5


class Scaled(NamedTuple):
    """Which columns of a table of numbers vary, and their mean and deviation."""

    columns: npt.NDArray[np.int64]
    mean: Floats
    deviation: Floats

    @classmethod
    def fit(cls, table: npt.ArrayLike) -> Scaled:
        """Measure the columns of a table, shape (rows, columns)."""
        numbers = np.asarray(table, dtype=np.float64)
        deviation = numbers.std(0)
        columns = np.flatnonzero(deviation > LEAST_DEVIATION)
        return cls(columns, numbers.mean(0)[columns], deviation[columns])

    def __call__(self, table: Any) -> Floats:
        """Return the columns that vary, normalised, shape (..., columns that vary)."""
        scaled: Floats = (table[..., self.columns] - self.mean) / self.deviation
        return scaled


def read_jobs(tables: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return the numbers of each row with a job, shape (m, columns), its environment and its place there."""
    of, row = np.nonzero(tables["jobs"][:, :, 0] > 0)
    parts = [tables[name][of, row] for name in ("jobs", "ranked") if name in tables]
    return np.concatenate(parts, axis=1), of, row


class FixedAction:
    """The weights are the action, whatever is observed."""

    def __init__(self, envs: Any, _: list[Any]) -> None:
        space = envs.single_action_space
        self.number, self._low, self._high = space.shape[0], space.low, space.high

    def decide(self, observations: Any, masks: Any, weights: Floats) -> Any:
        """Return each environment's action; weights, shape (environments, number)."""
        return np.clip(weights, self._low, self._high).astype(np.float32)


class PriorityScores:
    """Two priorities of each job, each tanh of a linear score of what the observation has of the job."""

    def __init__(self, envs: Any, seen: list[Any]) -> None:
        self._features = envs.single.features
        tables = [read_jobs(self._features.unpack(one))[0] for one in seen]
        self._scaled = Scaled.fit(np.concatenate(tables))
        self.number = 2 * (1 + len(self._scaled.columns))

    def decide(self, observations: Any, masks: Any, weights: Floats) -> Any:
        """Return each environment's action; weights, shape (environments, number)."""
        tables = self._features.unpack(observations)
        jobs, of, row = read_jobs(tables)
        own = weights.reshape(len(weights), 2, -1)[of]
        scores = own[:, :, 0] + np.einsum("mf,mpf->mp", self._scaled(jobs), own[:, :, 1:])
        priorities = np.zeros((*tables["jobs"].shape[:2], 2), dtype=np.float32)
        priorities[of, row] = np.tanh(scores)
        return priorities.reshape(len(priorities), -1)


class EditScores:
    """The legal edit with the highest linear score; of equal ones the action `stop`, then the first.

    An assignment's score is of its job, of its type and count, and of the free GPUs of the type. That of a
    preemption is of its job alone, with weights of its own, and that of `stop` of the queue.
    """

    def __init__(self, envs: Any, seen: list[Any]) -> None:
        self._features = envs.single.features
        tables = [self._features.unpack(one) for one in seen]
        read = [read_jobs(one) for one in tables]
        self._jobs = Scaled.fit(np.concatenate([jobs for jobs, _, _ in read]))
        options = [one["options"][of, row] for one, (_, of, row) in zip(tables, read, strict=True)]
        self._options = Scaled.fit(np.concatenate(options).reshape(-1, options[0].shape[-1]))
        self._queue = Scaled.fit(np.concatenate([one["queue"] for one in tables]))
        job, option, queue = (len(part.columns) for part in (self._jobs, self._options, self._queue))
        self._ends = np.cumsum([job, option, 1, job, 1, queue])
        self.number = int(self._ends[-1]) + 1

    def decide(self, observations: Any, masks: Any, weights: Floats) -> Any:
        """Return each environment's action; weights, shape (environments, number)."""
        scores = self.score(observations, weights)
        scores[masks == 0] = -np.inf
        chosen: npt.NDArray[np.int64] = scores.argmax(1)
        stops = scores[:, -1] >= scores[np.arange(len(scores)), chosen]
        return np.where(stops, scores.shape[1] - 1, chosen)

    def score(self, observations: Any, weights: Floats) -> Floats:
        """Return the score of every action, shape (environments, actions); -inf in rows without a job."""
        tables = self._features.unpack(observations)
        jobs, of, row = read_jobs(tables)
        job, option, free, leave, leave_bias, queue, bias = np.split(weights, self._ends, axis=1)
        scaled = self._jobs(jobs)
        assign = np.einsum("mtkf,mf->mtk", self._options(tables["options"][of, row]), option[of])
        assign += (np.einsum("mf,mf->m", scaled, job[of])[:, None] + free[of] * tables["cluster"][of, 0])[
            ..., None
        ]
        preempt = leave_bias[of, 0] + np.einsum("mf,mf->m", scaled, leave[of])
        stop = bias[:, 0] + np.einsum("nf,nf->n", self._queue(tables["queue"]), queue)
        found = np.full((*tables["jobs"].shape[:2], assign[0].size + 1), -np.inf)
        found[of, row, :-1], found[of, row, -1] = assign.reshape(len(assign), -1), preempt
        return np.concatenate([found.reshape(len(found), -1), stop[:, None]], axis=1)


def make_scores(envs: Any, seed: int) -> Any:
    """Return the scores that are searched in environments, normalised by what random play observes there."""
    seen = [envs.reset(seed=seed)[0]]
    if isinstance(envs.single_action_space, spaces.Discrete):
        kind: Any = EditScores
    else:
        kind = FixedAction if envs.single.parameters.actions == "knobs" else PriorityScores
    for _ in range(0 if kind is FixedAction else ROUNDS):
        observations, _, terminated, truncated, _ = envs.step(envs.sample_actions())
        seen.append(observations)
        if (over := terminated | truncated).any():
            envs.reset(options={"reset_mask": over})
    return kind(envs, seen)


class LinearSearch:
    """CMA-ES that begins with weights of 0.

    Parameters
    ----------
    envs : SchedulingVectorEnv
        With flat observations and `autoreset_mode="Disabled"`.
    settings : Evolution
    seed : int

    Attributes
    ----------
    num_timesteps : int
        Steps of the environments so far.
    """

    def __init__(self, envs: Any, settings: Evolution, seed: int) -> None:
        self.envs, self.settings, self.num_timesteps = envs, settings, 0
        self.scores = make_scores(envs, seed)
        self._search = start_search(
            np.zeros(self.scores.number), settings.sigma, settings.population, seed, diagonal=False
        )
        self._rng = random_streams.TRAINING_EPISODES.generator(seed)

    def decide(self, observations: Any, masks: Any) -> Any:
        """Return the actions by the mean of the search's distribution."""
        weights = np.tile(self._search.mean, (len(observations), 1))
        return self.scores.decide(observations, masks, weights)

    def learn(self, until: int, steps: int) -> None:
        """Search until step number `until`, whatever `steps` there are in all."""
        settings = self.settings
        while self.num_timesteps < until:
            drawn = self._rng.choice(settings.among, settings.traces, replace=False)
            candidates = self._search.ask()
            costs = self.play(np.array(candidates), [trace_seed("train", int(at)) for at in drawn])
            self._search.tell(candidates, costs.mean(1).tolist())

    def play(self, candidates: Floats, seeds: list[int]) -> Floats:
        """Play each candidate on each trace; return the costs, shape (candidates, traces).

        A cost is the logarithm of the mean JCT in hours, or minus the return where that is a logarithm.
        """
        envs = self.envs
        episodes, number = len(candidates) * len(seeds), envs.num_envs
        # An environment whose episode is over takes the next one; where none is left it plays for nothing.
        playing, following = np.arange(number), number
        returns = np.zeros(episodes + number)
        traces = np.resize(np.array(seeds), episodes + number)
        done = np.zeros(episodes + number, dtype=np.bool_)
        observations, _ = envs.reset(options={"trace_seed": traces[playing]})
        while not done[:episodes].all():
            weights = candidates[np.minimum(playing, episodes - 1) // len(seeds)]
            actions = self.scores.decide(observations, envs.action_masks(), weights)
            observations, rewards, terminated, truncated, _ = envs.step(actions)
            self.num_timesteps += number
            returns[playing] += rewards
            over = terminated | truncated
            if over.any():
                done[playing[over]] = True
                fresh = np.arange(following, following + over.sum())
                following += len(fresh)
                playing[over] = np.where(fresh < episodes, fresh, episodes + np.flatnonzero(over))
                observations, _ = envs.reset(options={"reset_mask": over, "trace_seed": traces[playing]})
        returns = returns[:episodes].reshape(len(candidates), -1)
        return -returns if "log_jct" in envs.single.parameters.reward else np.log(np.maximum(-returns, 1e-9))
