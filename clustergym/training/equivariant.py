"""The network of the checkpoint `elastic-16`, which treats all rows of jobs alike. This imports PyTorch."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from clustergym.envs.observations import JOB_FEATURES

PRESENT = JOB_FEATURES.index("present")
UNSEEN = {"jobs": JOB_FEATURES.index("fair_lag")}
"""Column that the networks leave out; those that come with the package were trained without it."""
POOLED = 16.0
"""Rows that a sum over rows is divided by, so that it is of the order of 1."""


class Shapes(NamedTuple):
    """Where the parts of a flat observation begin and end, and its numbers of rows and actions per row.

    Attributes
    ----------
    parts : dict of str to slice
    rows : int
    width : int
        Actions of a row.
    """

    parts: dict[str, tuple[int, int]]
    rows: int
    width: int


def find_shapes(env: Any) -> Shapes:
    """Return where the parts of an environment's flat observations begin and end."""
    core = env.unwrapped
    parts = {name: (part.start, part.stop) for name, part in core.features.parts.items()}
    return Shapes(parts, core.actions.rows, core.actions.width)


def _mlp(sizes: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), nn.SiLU()]
    return nn.Sequential(*layers)


class Encoder(nn.Module):
    """A network that turns each job, with the cluster and the queue, into a vector, and sums the vectors.

    Parameters
    ----------
    shapes : Shapes
    size : int
        Numbers of a flat observation.
    hidden : tuple of int
    """

    def __init__(self, shapes: Shapes, size: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.shapes = shapes
        jobs, options = (shapes.parts[name] for name in ("jobs", "options"))
        self.columns = (jobs[1] - jobs[0]) // shapes.rows
        shared = size - (jobs[1] - jobs[0]) - (options[1] - options[0])
        per_row = self.columns + (options[1] - options[0]) // shapes.rows
        self.rows = _mlp([per_row + shared, *hidden])
        self.all = _mlp([hidden[-1] + shared, *hidden])

    def forward(self, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return each job's vector, the indices of its observation and row, and each observation's vector.

        Shapes (m, hidden), (m,), (m,) and (batch, hidden): `hidden` is the size of the last layer.
        Rows without a job cost nothing: the m jobs of the batch are encoded as one list.
        """
        rows, part = self.shapes.rows, {k: flat[:, a:b] for k, (a, b) in self.shapes.parts.items()}
        jobs = part["jobs"].reshape(-1, rows, self.columns).clone()
        jobs[..., UNSEEN["jobs"]] = 0.0
        at, row = torch.nonzero(jobs[..., PRESENT] > 0, as_tuple=True)
        shared = torch.cat([part["cluster"], part["queue"]], dim=1)
        options = part["options"].reshape(len(flat), rows, -1)
        encoded = self.rows(torch.cat([jobs[at, row], options[at, row], shared[at]], dim=1))
        # A sum, unlike the mean in row_network.py: the package's checkpoint `elastic-16` was trained so.
        pooled = torch.zeros(len(flat), encoded.shape[1]).index_add(0, at, encoded)
        return encoded, at, row, self.all(torch.cat([pooled / POOLED, shared], dim=1))


class Heads(nn.Module):
    """An actor for the logits of actions, and the encoder of its critic, which plays no part.

    The names are those of the checkpoint's tensors.
    """

    def __init__(self, shapes: Shapes, size: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.shapes = shapes
        self.actor, self.critic = Encoder(shapes, size, hidden), Encoder(shapes, size, hidden)
        self.options = nn.Sequential(_mlp([2 * hidden[-1], hidden[-1]]), nn.Linear(hidden[-1], shapes.width))
        self.stop = nn.Sequential(_mlp([hidden[-1], hidden[-1]]), nn.Linear(hidden[-1], 1))

    def forward(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the logits of all actions, shape (batch, actions)."""
        encoded, at, row, whole = self.actor(flat)
        options = torch.zeros(len(flat), self.shapes.rows, self.shapes.width)
        options[at, row] = self.options(torch.cat([encoded, whole[at]], dim=1))
        return torch.cat([options.flatten(1), self.stop(whole)], dim=1)


class EquivariantPolicy(nn.Module):
    """A policy that chooses the most probable legal action of a network that treats all rows of jobs alike.

    Parameters
    ----------
    size : int
        Numbers of a flat observation.
    shapes : Shapes
    hidden : tuple of int
        Widths of the encoders' layers.
    """

    def __init__(self, size: int, shapes: Shapes, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.mlp_extractor, self.value_net = Heads(shapes, size, hidden), nn.Linear(hidden[-1], 1)

    def greedy_masked(self, observation: Any, mask: Any) -> int:
        """Return the most probable legal action for an observation."""
        with torch.no_grad():
            flat = torch.from_numpy(np.asarray(observation, dtype=np.float32))[None]
            legal = torch.as_tensor(mask, dtype=torch.bool)[None]
            return int(self.mlp_extractor(flat).masked_fill(~legal, -torch.inf).argmax())
