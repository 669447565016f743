"""A network of small weights over rows of jobs, for credit by job. Importing this imports PyTorch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces
from torch import Tensor, nn

from clustergym.envs.observations import JobRows

Singles = npt.NDArray[np.float32]
MASKED = -1e9
SHARED = ("cluster", "queue")
"""Parts of an observation that are of no single job."""
LEAST_DEVIATION = 0.05
"""Inputs are divided by at least this, so that what was constant so far does not jump when it changes."""


class Rows(NamedTuple):
    """The m rows that hold a job in a batch of n observations, one observation after the other.

    Attributes
    ----------
    inputs : Tensor of float, shape (m, width)
    batch, row : Tensor of int, shape (m,)
        The observation that each is of, in order, and its place there.
    observations, rows : int
        How many observations there are, and rows in each, with and without a job.
    """

    inputs: Tensor
    batch: Tensor
    row: Tensor
    observations: int
    rows: int

    def spread(self, values: Tensor, other: float = 0.0) -> Tensor:
        """Arrange values of rows, shape (m, …), in a table, shape (n, R, …), with `other` in empty rows."""
        shape = (self.observations, self.rows, *values.shape[1:])
        return torch.full(shape, other, device=values.device).index_put((self.batch, self.row), values)

    def total(self, values: Tensor) -> Tensor:
        """Return the sum of the rows' values in each observation, shape (n, …)."""
        sums = torch.zeros(self.observations, *values.shape[1:], device=values.device)
        return sums.index_add(0, self.batch, values)

    def counts(self) -> Tensor:
        """Return the number of rows with a job in each observation, shape (n,)."""
        return torch.bincount(self.batch, minlength=self.observations)

    @classmethod
    def join(cls, parts: Sequence[Rows]) -> Rows:
        """Return the rows of several batches as one batch."""
        firsts = np.cumsum([0, *(part.observations for part in parts)]).tolist()
        batch = torch.cat([part.batch + first for part, first in zip(parts, firsts, strict=False)])
        inputs, row = torch.cat([part.inputs for part in parts]), torch.cat([part.row for part in parts])
        return cls(inputs, batch, row, firsts[-1], parts[0].rows)

    def places(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Return the indices of the chosen observations' rows, and which of `chosen` each row belongs to."""
        every = self.counts()
        counts = every[chosen]
        numbers = torch.arange(len(chosen), device=chosen.device)
        batch = torch.repeat_interleave(numbers, counts)
        before = (every.cumsum(0) - every)[chosen] - (counts.cumsum(0) - counts)
        return before[batch] + torch.arange(len(batch), device=batch.device), batch


class RowPolicy(nn.Module, ABC):
    """A network that computes actions from rows of jobs: how it reads and normalises rows, and chooses.

    Parameters
    ----------
    features : JobRows
        The observation's layout.
    space : gymnasium.spaces.Box or Discrete
        Two priorities for each row; or for each row its actions, and one to stop.
    log_std : float
        Logarithm of the standard deviation of priorities at the start.

    Attributes
    ----------
    discrete : bool
        Whether an action is an edit.
    width, outputs : int
        Numbers that describe a row, and that it is given.
    """

    optimizer: torch.optim.Optimizer
    mean: Tensor
    squares: Tensor
    seen: Tensor

    def __init__(self, features: JobRows, space: spaces.Space[Any], log_std: float = 0.0) -> None:
        super().__init__()
        self._features = features
        self.discrete = isinstance(space, spaces.Discrete)
        shape = features.layout["jobs"]
        sizes = {name: int(np.prod(of)) for name, of in features.layout.items()}
        self.width = sum(size if name in SHARED else size // shape[0] for name, size in sizes.items())
        self.outputs = (int(space.n) - 1) // shape[0] if isinstance(space, spaces.Discrete) else 2
        self.register_buffer("mean", torch.zeros(self.width))
        self.register_buffer("squares", torch.zeros(self.width))
        self.register_buffer("seen", torch.zeros(1))
        self.log_std = nn.Parameter(torch.full((2,), log_std))

    @abstractmethod
    def forward(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the actor's outputs and values for each row, and each observation's logit of action `stop`.

        Shapes (m, outputs), (m,) and (n,) for m rows and n observations.
        """

    def read_rows(self, observations: Any) -> Rows:
        """Extract the rows that hold a job from flat observations, shape (n, size)."""
        tables = self._features.unpack(observations)
        n, rows = tables["jobs"].shape[:2]
        batch, row = np.nonzero(tables["jobs"][:, :, 0] > 0)
        own = [part.reshape(n, rows, -1)[batch, row] for name, part in tables.items() if name not in SHARED]
        shared = [tables[name].reshape(n, -1)[batch] for name in SHARED]
        joined = np.concatenate([*own, *shared], axis=1)
        inputs, of, at = (torch.from_numpy(array).to(self.mean.device) for array in (joined, batch, row))
        return Rows(inputs, of, at, n, rows)

    def see(self, inputs: Tensor) -> None:
        """Update the running mean and deviation of inputs, by which they are normalised, with new rows."""
        # m_n+k = m_n + k / (n + k) (mean of the k new ones - m_n): all that were ever seen count alike.
        share = len(inputs) / (len(inputs) + self.seen)
        self.mean += share * (inputs.mean(0) - self.mean)
        self.squares += share * ((inputs**2).mean(0) - self.squares)
        self.seen += len(inputs)

    def scale(self, rows: Rows) -> Rows:
        """Return rows with their inputs normalised by the running mean and deviation."""
        std = (self.squares - self.mean**2).clamp_min(LEAST_DEVIATION**2).sqrt()
        return rows._replace(inputs=((rows.inputs - self.mean) / std).clamp(-5.0, 5.0))

    def log_chances(self, rows: Rows, masks: npt.NDArray[np.int8]) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each action, shape (n, actions), and the value of each row, (m,)."""
        head, values, stop = self(rows)
        logits = torch.cat([rows.spread(head, MASKED).flatten(1), stop[:, None]], 1)
        illegal = torch.from_numpy(masks == 0).to(logits.device)
        return torch.log_softmax(logits.masked_fill(illegal, MASKED), 1), values

    def decide(self, observations: Singles, masks: npt.NDArray[np.int8]) -> npt.NDArray[Any]:
        """Return each observation's best action: its most probable legal one or its jobs' mean priorities."""
        with torch.no_grad():
            rows = self.scale(self.read_rows(observations))
            if self.discrete:
                chosen: npt.NDArray[Any] = self.log_chances(rows, masks)[0].argmax(1).cpu().numpy()
                return chosen
            return self.fill_priorities(rows, self(rows)[0])

    @staticmethod
    def fill_priorities(rows: Rows, priorities: Tensor) -> Singles:
        """Return rows' priorities to start and to double, (m, 2), as actions for R rows each, (n, 2 R)."""
        filled: Singles = rows.spread(priorities.clamp(-1.0, 1.0)).flatten(1).cpu().numpy()
        return filled

    def predict(self, observation: Singles, deterministic: bool = True) -> tuple[npt.NDArray[Any], None]:
        """Return the best action for one observation, whatever `deterministic`, with None for a state."""
        return self.decide(np.asarray(observation, np.float32)[None], np.ones((1, 1), np.int8))[0], None

    def greedy_masked(self, observation: Singles, mask: npt.NDArray[np.int8]) -> npt.NDArray[Any] | int:
        """Return the best action for one observation: most probable legal one, or jobs' mean priorities."""
        chosen = self.decide(np.asarray(observation, np.float32)[None], np.asarray(mask)[None])[0]
        return int(chosen) if self.discrete else chosen


class RowNetwork(RowPolicy):
    """A network that computes actions and values from rows of jobs, with the same weights for all rows.

    Each row is encoded with what the observation has of no single job, then again with the mean of all
    encoded rows, so that two rows that are exchanged exchange their outputs and nothing else.

    Parameters
    ----------
    features : JobRows
        The observation's layout.
    space : gymnasium.spaces.Box or Discrete
        Two priorities for each row; or for each row its actions, and one to stop.
    hidden : sequence of int
        Widths of the two layers.
    log_std : float
        Logarithm of the standard deviation of priorities at the start.
    """

    def __init__(
        self, features: JobRows, space: spaces.Space[Any], hidden: Sequence[int], log_std: float = 0.0
    ) -> None:
        super().__init__(features, space, log_std)
        first, second = hidden
        self.row, self.mixed = nn.Linear(self.width, first), nn.Linear(2 * first, second)
        self.head, self.value = nn.Linear(second, self.outputs), nn.Linear(second, 1)
        self.stop = nn.Linear(first, 1)
        # Gains as usual for PPO: an actor that begins nearly uniform, a critic that does not begin at 0.
        layers = (
            (self.row, 2**0.5),
            (self.mixed, 2**0.5),
            (self.head, 0.01),
            (self.stop, 0.01),
            (self.value, 1.0),
        )
        for layer, gain in layers:
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the actor's outputs and values for each row, and each observation's logit of action `stop`.

        Shapes (m, outputs), (m,) and (n,) for m rows and n observations.
        """
        own = torch.tanh(self.row(rows.inputs))
        # A mean, not a sum: its size does not grow with the number of jobs.
        pooled = rows.total(own) / rows.counts().clamp_min(1)[:, None]
        # What all rows of an observation share goes through its half of the layer once.
        of_row, of_all = self.mixed.weight[:, : own.shape[1]], self.mixed.weight[:, own.shape[1] :]
        shared = nn.functional.linear(pooled, of_all, self.mixed.bias)
        mixed = torch.tanh(nn.functional.linear(own, of_row) + shared[rows.batch])
        return self.head(mixed), self.value(mixed).squeeze(1), self.stop(pooled).squeeze(1)
