"""Decima's network and training (Mao et al., SIGCOMM 2019) in environments of job scheduling.

What is kept: a job's numbers go through a small network to an embedding of 8 numbers. A job's summary, and
one of all jobs, are g(sum of f(embedding)), with an f and a g of their own, of two hidden layers, 16 and 8
wide. A network q scores each choice from the embedding, both summaries and what describes the choice, and a
softmax over the legal ones draws an edit. Training is REINFORCE with an input-dependent baseline: several
rollouts play the same trace, and a return is compared with the mean of their returns from the same time on. A
bonus for entropy falls to 0.

What falls away or differs: jobs have one stage, so a job is one node, no messages pass along a graph, and
embedding and summary are of the same node. A stage and its number of executors, drawn one after the other
there, are one choice here: job, GPU type and count; preemption and the end of a decision are further ones.
Where an action is priorities, q gives a job two means of normal distributions in place of the softmax.
Episodes are the environment's, of a fixed number of jobs, so that neither growing lengths nor rewards less
their mean are used. Numbers are normalised by their running mean and deviation, and advantages by their
deviation; the rollouts of an update go through Adam once, in batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.distributions import Normal

from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.envs.episodes import trace_seed
from clustergym.sim.columns import TICKS_PER_S
from clustergym.training.job_credit import Choices, draw_actions, log_probs_of_edits
from clustergym.training.row_network import RowPolicy, Rows

Floats = npt.NDArray[np.float64]
EMBEDDING = 8


@dataclass(frozen=True)
class Reinforce:
    """Settings of the training.

    Parameters
    ----------
    rollouts : int
        Episodes of an update that play the same trace.
    among : int
        Traces are drawn from the first so many of the split `train`.
    learning_rate : float
        Of the first update; it falls to 0 on a line.
    batch_size : int
        Steps in a gradient.
    ent_coef : float
        Weight of the entropy in the first update; it falls to 0 on a line.
    log_std : float
        Logarithm of the standard deviation of priorities at the start.
    """

    rollouts: int = 8
    among: int = 200
    learning_rate: float = 1e-3
    batch_size: int = 1024
    ent_coef: float = 0.02
    log_std: float = -1.0


def stack(inputs: int, outputs: int) -> nn.Sequential:
    """Make one of Decima's small networks, with hidden layers of 16 and 8."""
    hidden = (nn.Linear(inputs, 16), nn.LeakyReLU(0.2), nn.Linear(16, 8), nn.LeakyReLU(0.2))
    return nn.Sequential(*hidden, nn.Linear(8, outputs))


class DecimaNetwork(RowPolicy):
    """Scores of each row's choices from embeddings and their sums; `features`, `space`: as `RowPolicy`."""

    def __init__(self, features: Any, space: Any, log_std: float = 0.0) -> None:
        super().__init__(features, space, log_std)
        _, types, counts, facts = features.layout["options"]
        first = features.layout["jobs"][1]
        self._options = slice(first, first + types * counts * facts)
        # Of an assignment its count and type; of a preemption the last number alone.
        described = torch.zeros(types * counts + 1, 1 + types + 1)
        described[:-1, 0] = torch.linspace(0.0, 1.0, counts).repeat(types)
        described[:-1, 1:-1] = torch.eye(types).repeat_interleave(counts, 0)
        described[-1, -1] = 1.0
        self.register_buffer("described", described)
        self.embed = stack(self.width, EMBEDDING)
        self.job_f, self.job_g = stack(self.width + EMBEDDING, EMBEDDING), stack(EMBEDDING, EMBEDDING)
        self.all_f, self.all_g = stack(EMBEDDING, EMBEDDING), stack(EMBEDDING, EMBEDDING)
        choice = described.shape[1] + facts if self.discrete else 0
        self.score = stack(3 * EMBEDDING + choice, 1 if self.discrete else self.outputs)
        self.stop = stack(EMBEDDING, 1)
        for network in (self.score, self.stop):
            # At first all choices are about as good.
            nn.init.orthogonal_(network[-1].weight, 0.01)
            nn.init.zeros_(network[-1].bias)

    def forward(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scores of each row's choices, values of 0, and the scores of stopping."""
        embedding = self.embed(rows.inputs)
        job = self.job_g(self.job_f(torch.cat([rows.inputs, embedding], 1)))
        every = self.all_g(rows.total(self.all_f(job)))
        known = torch.cat([embedding, job, every[rows.batch]], 1)
        head = self._score_choices(rows, known) if self.discrete else self.score(known)
        return head, known.new_zeros(len(known)), self.stop(every).squeeze(1)

    def _score_choices(self, rows: Rows, known: Tensor) -> Tensor:
        """Return q of each edit, shape (m, choices), from what is known of its job, shape (m, 24)."""
        number = len(self.described)
        options = rows.inputs[:, self._options].reshape(len(known), number - 1, -1)
        options = nn.functional.pad(options, (0, 0, 0, 1))
        choices = torch.cat([self.described.expand(len(known), -1, -1), options], 2)
        # The first layer's part for the job is computed once, not for each of its choices.
        first, size = self.score[0], known.shape[1]
        hidden = nn.functional.linear(known, first.weight[:, :size], first.bias)[:, None]
        scored: Tensor = self.score[1:](hidden + nn.functional.linear(choices, first.weight[:, size:]))
        return scored.squeeze(2)


def baselines(times: Sequence[Floats], to_come: Sequence[Floats], ends: Sequence[float]) -> list[Floats]:
    """Return the mean return from each time on, over rollouts of the same trace, for each rollout's times.

    Between the times of a rollout its returns are interpolated; from its end on they are 0.

    Parameters
    ----------
    times, to_come : sequence of ndarray of float, each of shape (steps,)
        When the actions of each rollout were taken, and the rewards from then on.
    ends : sequence of float
        When the rollouts ended.
    """
    curves = []
    for own, returns, end in zip(times, to_come, ends, strict=True):
        at, first = np.unique(own, return_index=True)
        curves.append((np.append(at, end), np.append(returns[first], 0.0)))
    return [np.mean([np.interp(own, at, returns) for at, returns in curves], axis=0) for own in times]


class Episodes(NamedTuple):
    """The steps of all rollouts of an update, in the order they were taken.

    Attributes
    ----------
    rows : Rows
        As the environments show them.
    choices : Choices
    of : ndarray of int, shape (steps,)
        The environment of each.
    times, rewards : ndarray of float, shape (steps,)
        The clock at the action, seconds, and the reward.
    ends : ndarray of float, shape (environments,)
    """

    rows: Rows
    choices: Choices
    of: npt.NDArray[np.int64]
    times: Floats
    rewards: Floats
    ends: Floats

    def advantages(self, rollouts: int) -> Floats:
        """Return each step's return less its baseline; consecutive environments share a trace."""
        places = [np.flatnonzero(self.of == at) for at in range(len(self.ends))]
        to_come = [np.cumsum(self.rewards[at][::-1])[::-1] for at in places]
        gained = np.zeros(len(self.of))
        for first in range(0, len(places), rollouts):
            group = slice(first, first + rollouts)
            times = [self.times[at] for at in places[group]]
            found = baselines(times, to_come[group], self.ends[group].tolist())
            for at, returns, expected in zip(places[group], to_come[group], found, strict=True):
                gained[at] = returns - expected
        return gained


class DecimaLearner:
    """Trains `DecimaNetwork` by REINFORCE.

    Parameters
    ----------
    envs : SchedulingVectorEnv
        A multiple of `rollouts`, with flat observations that have rows of jobs, and
        `autoreset_mode="Disabled"`.
    settings : Reinforce
    seed : int

    Attributes
    ----------
    policy : DecimaNetwork
    num_timesteps : int
        Steps of the environments so far.
    """

    def __init__(self, envs: Any, settings: Reinforce, seed: int) -> None:
        if envs.num_envs % settings.rollouts:
            remedy = f"give a multiple of rollouts={settings.rollouts}"
            raise InputError(f"{envs.num_envs} cannot be grouped", field="num_envs", remedy=remedy)
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.envs, self.settings, self.num_timesteps = envs, settings, 0
        self.policy = DecimaNetwork(envs.single.features, envs.single_action_space, settings.log_std)
        self.policy.optimizer = torch.optim.Adam(self.policy.parameters(), settings.learning_rate)
        self._generator = torch.Generator().manual_seed(seed)
        self._rng = random_streams.TRAINING_EPISODES.generator(seed)
        seen, _ = envs.reset(seed=seed)
        self.policy.see(self.policy.read_rows(seen).inputs)

    def decide(self, observations: Any, masks: Any) -> Any:
        """Return the network's most probable action for each observation."""
        return self.policy.decide(observations, masks)

    def collect(self) -> Episodes:
        """Play an episode in each environment with sampled actions."""
        envs, policy, size = self.envs, self.policy, self.settings.rollouts
        drawn = self._rng.choice(self.settings.among, envs.num_envs // size, replace=False)
        options = {"trace_seed": np.repeat([trace_seed("train", int(at)) for at in drawn], size)}
        seen, _ = envs.reset(options=options)
        over, ends = np.zeros(envs.num_envs, dtype=np.bool_), np.zeros(envs.num_envs)
        rows, choices, kept = [], [], []
        while not over.all():
            going, masks = np.flatnonzero(~over), envs.action_masks()
            # What follows an episode's end counts for nothing.
            actions: Any = masks.argmax(1) if policy.discrete else np.zeros(masks.shape, np.float32)
            rows.append(policy.read_rows(seen[going]))
            with torch.no_grad():
                chosen, actions[going], _ = draw_actions(
                    policy, policy.scale(rows[-1]), masks[going], self._generator
                )
            choices.append(chosen)
            began = envs.batch.reached[going] / TICKS_PER_S
            seen, rewards, terminated, truncated, _ = envs.step(actions)
            kept.append((going, began, rewards[going]))
            ended = terminated | truncated
            ends[ended & ~over] = envs.batch.reached[ended & ~over] / TICKS_PER_S
            over |= ended
            self.num_timesteps += envs.num_envs
            if ended.any() and not over.all():
                seen, _ = envs.reset(options={"reset_mask": ended, **options})
        joined = Choices(*(torch.cat(parts) for parts in zip(*choices, strict=True)))
        of, times, gained = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        return Episodes(Rows.join(rows), joined, of, times, gained, ends)

    def update(self, episodes: Episodes, rate: float) -> None:
        """Improve the network by gradients on all steps, with learning rate and entropy times `rate`."""
        settings, policy = self.settings, self.policy
        for group in policy.optimizer.param_groups:
            group["lr"] = rate * settings.learning_rate
        gain = torch.from_numpy(episodes.advantages(settings.rollouts)).float()
        gain = gain / (gain.std() + 1e-8)
        rows = policy.scale(episodes.rows)
        for batch in torch.split(torch.randperm(len(gain), generator=self._generator), settings.batch_size):
            places, of = rows.places(batch)
            own = Rows(rows.inputs[places], of, rows.row[places], len(batch), rows.rows)
            logs, entropy = self._log_probs(own, episodes.choices.select(batch, places))
            loss: Any = -(gain[batch] * logs).mean() - rate * settings.ent_coef * entropy.mean()
            policy.optimizer.zero_grad()
            loss.backward()
            if not torch.isfinite(nn.utils.clip_grad_norm_(policy.parameters(), 0.5)):
                message, remedy = "makes gradients too large for numbers", "give a lower one"
                raise InputError(message, field="learning_rate", remedy=remedy)
            policy.optimizer.step()
        policy.see(episodes.rows.inputs)

    def _log_probs(self, rows: Rows, choices: Choices) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each observation's action, and entropies."""
        head, _, stop = self.policy(rows)
        if self.policy.discrete:
            return log_probs_of_edits(rows, choices, head, stop)
        choice: Any = Normal(head, self.policy.log_std.exp())
        return rows.total(choice.log_prob(choices.actions).sum(1)), choice.entropy()

    def learn(self, until: int, steps: int) -> None:
        """Train until step number `until`, of `steps` in all."""
        while self.num_timesteps < until:
            episodes = self.collect()
            self.update(episodes, max(1.0 - self.num_timesteps / steps, 0.0))
