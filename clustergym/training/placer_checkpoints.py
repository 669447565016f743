"""Checkpoints of learned placers, which place jobs on whole nodes or on shares of GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.agents import minipods
from clustergym.agents.checkpoints import read, write
from clustergym.cluster.allocation import PartAllocations
from clustergym.cluster.parts import DivisibleCluster, Place
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.envs.sharing import episode as sharing_episode
from clustergym.scenario.policy import InformationClass
from clustergym.sim.parts.fragmentation import find_usual_requests


@dataclass(frozen=True, eq=False)
class PlacerCheckpoint:
    """The weights of a trained placer, which chooses nodes for jobs, and the digest of their file.

    Attributes
    ----------
    weights : ndarray of float, of the shape of its placer type
    sha256 : str
        Digest of the weights file.
    """

    weights: Floats
    sha256: str


@dataclass(frozen=True)
class PlacerType:
    """A type of learned placer, which chooses nodes for jobs: names and shape of its weights.

    Attributes
    ----------
    schema : str
        Schema of its checkpoints.
    names : mapping of str to list of str
        What each axis of the weights stands for.
    shape : tuple of int
    """

    schema: str
    names: Mapping[str, list[str]]
    shape: tuple[int, ...]

    def save(self, path: Path, weights: Floats, about: Mapping[str, Any]) -> None:
        """Write a placer's weights to `path`, and their description to a YAML file of the same name."""
        tensors = {"weights": np.ascontiguousarray(weights, dtype=np.float64)}
        write(path, tensors, {"schema": self.schema, **self.names}, InformationClass.NONE, about)

    def load(self, name: str) -> PlacerCheckpoint:
        """Read a placer's checkpoint by its path, or by its name in the package."""
        stored = read(name, self.schema)
        weights = stored.tensors.get("weights")
        named = all(stored.about.get(axis) == names for axis, names in self.names.items())
        if not named or weights is None or weights.dtype != np.float64 or weights.shape != self.shape:
            raise InputError(
                "are not this version's", file=stored.yaml, field="features", remedy="train it anew"
            )
        return PlacerCheckpoint(weights, stored.sha256)


NODES = PlacerType("clustergym.placer/1", {"features": list(minipods.NAMES)}, (len(minipods.NAMES),))
"""Weights of features of minipods (`clustergym.agents.minipods`)."""
SHARES = PlacerType(
    "clustergym.sharing/1",
    {"features": list(sharing_episode.NAMES), "classes": list(sharing_episode.CLASSES)},
    sharing_episode.SHAPE,
)
"""Weights of features of nodes, for each class of request (`clustergym.envs.sharing.episode`)."""


class LearnedScores:
    """Places jobs that ask for parts of GPUs on the node with the highest learned score.

    Parameters
    ----------
    weights : ndarray of float, shape `clustergym.envs.sharing.episode.SHAPE`
    """

    def __init__(self, weights: Floats) -> None:
        self._weights = weights
        self._known: tuple[PartAllocations, Any, Any] | None = None

    def place(self, allocations: PartAllocations, job: int) -> Place | None:
        """Return the node for job number `job`, and a device for a GPU part; None if no node has room."""
        parts = allocations.parts
        # Made once a run: `allocations` is the run's own.
        if self._known is None or self._known[0] is not allocations:
            assert isinstance(allocations.spec, DivisibleCluster)
            empty, usual = allocations.spec.empty_nodes(), find_usual_requests(parts.rows, parts.accepted)
            episode = sharing_episode.make_empty_episode(empty, parts.requests, parts.request, usual)
            episode = episode._replace(nodes=allocations.nodes)
            self._known = allocations, episode, np.full(len(empty.devices), -1)
        _, episode, noted = self._known
        at = int(sharing_episode.answer(episode, self._weights, job, noted))
        return Place(at, int(episode.device[parts.request[job], at])) if at >= 0 else None
