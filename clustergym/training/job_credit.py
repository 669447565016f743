"""Policy gradients with credit by job: PPO (Schulman et al., 2017) whose critic values each job by itself.

The mean JCT is a sum over jobs, and an action matters to a job only while the job is in the system. So
each job in view has a value, its own time in the system to come, and an advantage by generalised
estimation (Schulman et al., 2016) over the decision points at which it is in view; an action's advantage
is their sum. Jobs that arrive later, whose times an ordinary critic has to predict, are left out of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Fraction, PositiveFloat, PositiveInt
from clustergym.envs.observations import JobRows
from clustergym.envs.vector.environment import SchedulingVectorEnv

Singles = npt.NDArray[np.float32]
MASKED = -1e9


@dataclass(frozen=True)
class JobCredit:
    """Settings of the learner.

    Parameters
    ----------
    steps : int
        Steps of each environment between two updates.
    epochs, batch_size : int
        Passes over the steps of an update, and steps in a gradient.
    learning_rate : float
    discount_s : float
        Time in which what is to come loses all but 1/e of its weight, seconds.
    trace_decay : float
        Lambda of the advantages, for each decision.
    trace_decay_edit : float
        The same for each edit at which the clock stands still.
    clip, value_weight, entropy_weight : float
        Of PPO.
    hidden : int
        Width of the layers.
    log_std : float
        Logarithm of the standard deviation of priorities at the start.
    """

    steps: PositiveInt = 128
    epochs: PositiveInt = 4
    batch_size: PositiveInt = 512
    learning_rate: PositiveFloat = 7e-4
    discount_s: PositiveFloat = 6 * 3600.0
    trace_decay: Fraction = 0.95
    trace_decay_edit: Fraction = 0.9
    clip: PositiveFloat = 0.2
    value_weight: PositiveFloat = 0.5
    entropy_weight: float = 0.0
    hidden: PositiveInt = 64
    log_std: float = -1.6


class RowNetwork(nn.Module):
    """Values and actions of rows of jobs, by weights that all rows share.

    Each row is encoded with what the whole observation has in common, then again with the mean of all rows.

    Parameters
    ----------
    features : JobRows
        The observation's layout.
    space : gymnasium.spaces.Box or Discrete
        Two priorities for each row; or for each row its actions, and one to stop.
    settings : JobCredit
    """

    def __init__(self, features: JobRows, space: spaces.Space[Any], settings: JobCredit) -> None:
        super().__init__()
        self._features = features
        self.discrete = isinstance(space, spaces.Discrete)
        shape = features.layout["jobs"]
        width = sum(
            int(np.prod(of)) // shape[0] for name, of in features.layout.items() if name not in SHARED
        )
        width += sum(int(np.prod(features.layout[name])) for name in SHARED)
        self.mean, self.std = torch.zeros(width), torch.ones(width)
        self.row = nn.Linear(width, settings.hidden)
        self.mixed = nn.Linear(2 * settings.hidden, settings.hidden)
        outputs = (int(space.n) - 1) // shape[0] if isinstance(space, spaces.Discrete) else 2
        self.head = nn.Linear(settings.hidden, outputs)
        self.stop = nn.Linear(settings.hidden, 1)
        self.value = nn.Linear(settings.hidden, 1)
        self.log_std = nn.Parameter(torch.full((2,), settings.log_std))
        for layer, gain in (
            (self.row, math.sqrt(2)),
            (self.mixed, math.sqrt(2)),
            (self.head, 0.01),
            (self.value, 1.0),
        ):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def select_rows(self, observations: Singles) -> tuple[Tensor, Tensor]:
        """Return the inputs of rows, shape (n, R, width), and which rows have a job, shape (n, R)."""
        tables = self._features.unpack(observations)
        n, rows = tables["jobs"].shape[:2]
        parts = [part.reshape(n, rows, -1) for name, part in tables.items() if name not in SHARED]
        shared = [np.repeat(tables[name].reshape(n, 1, -1), rows, axis=1) for name in SHARED]
        found = torch.from_numpy(np.concatenate([*parts, *shared], axis=2))
        return found, torch.from_numpy(tables["jobs"][:, :, 0] > 0)

    def see(self, inputs: Tensor, filled: Tensor) -> None:
        """Scale inputs from now on by the mean and the deviation of these rows."""
        rows = inputs[filled]
        self.mean, self.std = rows.mean(0), rows.std(0).clamp_min(1e-3)

    def forward(self, inputs: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
        """Return actions' means or logits, and the value of each row, shape (n, R)."""
        own = torch.tanh(self.row(((inputs - self.mean) / self.std).clamp(-5.0, 5.0)))
        weight = filled.float().unsqueeze(-1)
        pooled = (own * weight).sum(1) / weight.sum(1).clamp_min(1.0)
        mixed = torch.tanh(self.mixed(torch.cat([own, pooled.unsqueeze(1).expand_as(own)], -1)))
        head: Tensor = self.head(mixed)
        if self.discrete:
            head = torch.cat([head.flatten(1), self.stop(pooled)], -1)
        return head, self.value(mixed).squeeze(-1)


SHARED = ("cluster", "queue")
"""Parts of an observation that are of no single job."""


class Rollout(NamedTuple):
    """What some environments have gone through, arrays with axes step, environment and row.

    Attributes
    ----------
    observations, masks, actions : ndarray, shape (S, E, …)
    log_probs : ndarray of float, shape (S, E, R) or, of edits, (S, E, 1)
    values : ndarray of float, shape (S + 1, E, R)
    jobs : ndarray of int, shape (S + 1, E, R)
        -1: no job.
    cost_s, elapsed_s : ndarray of float, shape (S, E, R) and (S, E)
        Seconds that each row's job spent in the system during a step; seconds that the clock moved.
    left : ndarray of bool, shape (S, E, R)
        The job left during the step, or its episode ended.
    over : ndarray of bool, shape (S, E)
    """

    observations: Singles
    masks: npt.NDArray[np.int8]
    actions: npt.NDArray[Any]
    log_probs: Singles
    values: Floats
    jobs: Ints
    cost_s: Floats
    elapsed_s: Floats
    left: Bools
    over: Bools


def advantages_by_job(rollout: Rollout, settings: JobCredit, scale: float) -> tuple[Floats, Floats]:
    """Return each action's advantage, shape (S, E), and what rows' values should be, shape (S, E, R).

    Parameters
    ----------
    rollout : Rollout
    settings : JobCredit
    scale : float
        Reward of a second in the system, below 0.
    """
    number, envs, rows = rollout.cost_s.shape
    own = np.zeros((number, envs, rows))
    following = np.zeros((envs, rows))
    for at in reversed(range(number)):
        # Where each job stands at the next decision point; jobs keep no row.
        same = rollout.jobs[at][:, :, None] == rollout.jobs[at + 1][:, None, :]
        goes_on = same.any(2) & ~rollout.left[at] & (rollout.jobs[at] >= 0)
        place = same.argmax(2)
        next_value = np.take_along_axis(rollout.values[at + 1], place, 1)
        next_own = np.take_along_axis(following, place, 1)
        # A job that stays but is not shown is taken to be worth what it was.
        hidden = ~goes_on & ~rollout.left[at]
        discount = np.exp(-rollout.elapsed_s[at] / settings.discount_s)[:, None]
        decay = np.where(rollout.elapsed_s[at] > 0.0, settings.trace_decay, settings.trace_decay_edit)[
            :, None
        ]
        worth = np.where(goes_on, next_value, np.where(hidden, rollout.values[at], 0.0))
        delta = scale * rollout.cost_s[at] + discount * worth - rollout.values[at]
        following = delta + discount * decay * np.where(goes_on, next_own, 0.0)
        following = np.where(rollout.jobs[at] >= 0, following, 0.0)
        own[at] = following
    return own.sum(2), own + rollout.values[:-1]


class JobCreditLearner:
    """Trains a network over rows of jobs in environments on the compiled simulation.

    Parameters
    ----------
    envs : SchedulingVectorEnv
        With flat observations that have rows of jobs, and `autoreset_mode="Disabled"`.
    settings : JobCredit
    seed : int

    Raises
    ------
    InputError
        If the environments begin episodes themselves, or their observations have no rows.
    """

    def __init__(self, envs: SchedulingVectorEnv, settings: JobCredit, seed: int) -> None:
        features = envs.single.features
        if envs.autoreset_mode is not AutoresetMode.DISABLED or not isinstance(features, JobRows):
            message, remedy = (
                "cannot be learned in",
                "give autoreset_mode='Disabled' and features=jobs or ranked",
            )
            raise InputError(message, field="env", remedy=remedy)
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.envs, self.settings, self.steps_taken = envs, settings, 0
        self.network = RowNetwork(features, envs.single_action_space, settings)
        self._optimizer = torch.optim.Adam(self.network.parameters(), settings.learning_rate, eps=1e-5)
        self._shuffle = torch.Generator().manual_seed(seed)
        self._observations: Any = envs.reset(seed=seed)[0]
        self._scaled = False
        self._scale = -1.0 / 3600.0

    def predict(self, observations: Singles, masks: npt.NDArray[np.int8]) -> npt.NDArray[Any]:
        """Return the greedy actions."""
        with torch.no_grad():
            head, _ = self.network(*self.network.select_rows(observations))
            if self.network.discrete:
                chosen: npt.NDArray[Any] = (
                    head.masked_fill(torch.from_numpy(masks == 0), MASKED).argmax(1).numpy()
                )
                return chosen
            priorities: npt.NDArray[Any] = head.clamp(-1.0, 1.0).flatten(1).numpy()
            return priorities

    def _draw(self, head: Tensor, masks: npt.NDArray[np.int8]) -> tuple[Tensor, Tensor]:
        """Draw actions; return them with the logarithms of their probabilities, by row."""
        choice: Any = self._choice(head, torch.from_numpy(masks))
        action = choice.sample()
        return action, self._by_row(choice.log_prob(action))

    def _choice(self, head: Tensor, masks: Tensor) -> Categorical | Normal:
        """Return how actions are drawn."""
        if self.network.discrete:
            return Categorical(logits=head.masked_fill(masks == 0, MASKED))
        return Normal(head, self.network.log_std.exp())

    def _by_row(self, log_prob: Tensor) -> Tensor:
        """Return logarithms of probabilities, shape (n, R), or (n, 1) where an action is an edit."""
        return log_prob.unsqueeze(1) if self.network.discrete else log_prob.sum(-1)

    def collect(self) -> Rollout:
        """Step the environments and return what they went through."""
        kept: dict[str, list[Any]] = {name: [] for name in Rollout._fields}
        envs = self.envs
        for _ in range(self.settings.steps):
            masks, jobs, now_s = envs.action_masks(), envs.row_jobs(), envs.core.now_s
            spent_s = envs.time_in_system_s(jobs)
            inputs, filled = self.network.select_rows(self._observations)
            if not self._scaled:
                self.network.see(inputs, filled)
                self._scaled = True
            with torch.no_grad():
                head, values = self.network(inputs, filled)
                action, log_prob = self._draw(head, masks)
            given = action.numpy() if self.network.discrete else action.clamp(-1.0, 1.0).flatten(1).numpy()
            seen, _, terminated, truncated, _ = envs.step(given)
            over = terminated | truncated
            then_s = envs.time_in_system_s(jobs)
            row = (self._observations, masks, action.numpy(), log_prob.numpy(), values.numpy(), jobs)
            cost_s = np.nan_to_num(then_s - spent_s)
            elapsed_s = np.where(over, cost_s.max(1), envs.core.now_s - now_s)
            left = (cost_s < elapsed_s[:, None] - 1e-6) | over[:, None]
            for name, part in zip(Rollout._fields, (*row, cost_s, elapsed_s, left, over), strict=True):
                kept[name].append(part)
            if over.any():
                seen, _ = envs.reset(options={"reset_mask": over})
            self._observations = seen
        with torch.no_grad():
            _, values = self.network(*self.network.select_rows(self._observations))
        kept["values"].append(values.numpy())
        kept["jobs"].append(envs.row_jobs())
        self.steps_taken += self.settings.steps * envs.num_envs
        return Rollout(**{name: np.stack(parts) for name, parts in kept.items()})

    def update(self, rollout: Rollout) -> None:
        """Improve the network by what some environments went through."""
        settings = self.settings
        advantage, wanted = advantages_by_job(rollout, settings, self._scale)
        flat = [torch.from_numpy(part.reshape(-1, *part.shape[2:])) for part in rollout[:4]]
        observations, masks, actions, log_probs = flat
        gain = torch.from_numpy(advantage.reshape(-1)).float()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        goal = torch.from_numpy(wanted.reshape(-1, wanted.shape[2])).float()
        inputs, filled = self.network.select_rows(observations.numpy())
        self.network.see(inputs, filled)
        for _ in range(settings.epochs):
            shuffled = torch.randperm(len(gain), generator=self._shuffle)
            for first in range(0, len(gain), settings.batch_size):
                batch = shuffled[first : first + settings.batch_size]
                head, values = self.network(inputs[batch], filled[batch])
                choice: Any = self._choice(head, masks[batch])
                new, entropy = self._by_row(choice.log_prob(actions[batch])), choice.entropy().mean()
                counts = torch.ones_like(new) if self.network.discrete else filled[batch].float()
                ratio, own = (new - log_probs[batch]).exp(), gain[batch].unsqueeze(1)
                clipped = ratio.clamp(1.0 - settings.clip, 1.0 + settings.clip)
                improved = (torch.minimum(ratio * own, clipped * own) * counts).sum() / counts.sum()
                rows = filled[batch]
                error = nn.functional.smooth_l1_loss(values[rows], goal[batch][rows])
                loss = settings.value_weight * error - improved - settings.entropy_weight * entropy
                self._optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.network.parameters(), 0.5)
                self._optimizer.step()

    def learn(self, goes_on: Callable[[JobCreditLearner], bool]) -> None:
        """Train for as long as a function says."""
        while goes_on(self):
            self.update(self.collect())
