"""Learned: a placer whose trained weights choose minipods for a job, or a node for a part of a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from clustergym.agents import minipods
from clustergym.agents.checkpoints import read_schema
from clustergym.cluster.allocation import Allocations, PartAllocations
from clustergym.cluster.parts import DivisibleCluster, Place
from clustergym.cluster.spec import ClusterSpec, Locality, Nodes
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Infeasible, Placer
from clustergym.training.placer_checkpoints import NODES, SHARES, LearnedScores

from ..shared.part_placing import NO_ROOM
from .buddy import Buddy


@dataclass
class LearnedPlacer(Placer):
    """A trained placer, of jobs on whole nodes or of parts of GPUs, as its checkpoint says.

    Where GPUs can be divided, each job gets the node of greatest score, linear in features of nodes with
    weights by class of request (`clustergym.envs.sharing.episode`), and none moves.

    Elsewhere, jobs of less than a node are placed as by `Buddy`. A larger job that fits into a minipod gets
    the one of greatest score. Any other is spread over the roomiest minipods, over the fragments left in
    others, or waits for a minipod, whichever scores most; it waits only while other jobs hold GPUs, and only
    for a minipod that is large enough. A running job that a policy rescales is preempted where it must wait.
    Jobs across minipods are moved into one when one has room. `clustergym.agents.minipods` defines what
    scores are made of.

    Parameters
    ----------
    defragment_s : float or None
        Seconds between calls of `defragment`; None: never.
    checkpoint : str
        A `.safetensors` file with its YAML beside it, or the name of a checkpoint of the package: `placer` of
        whole nodes, `sharing` of parts.
    """

    name: ClassVar[str] = "learned"
    defragment_s: Period | None = 3600.0
    checkpoint: str = "placer"
    _weights: Floats = field(default_factory=lambda: np.empty(0), init=False, repr=False, compare=False)
    _scores: LearnedScores | None = field(default=None, init=False, repr=False, compare=False)
    _buddy: Buddy = field(default_factory=Buddy, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._of_parts = read_schema(self.checkpoint) == SHARES.schema
        self._loaded = (SHARES if self._of_parts else NODES).load(self.checkpoint)
        self._weights = self._loaded.weights

    def reset(self, cluster: ClusterSpec, rng: np.random.Generator) -> None:
        """Prepare for a run; raise an `InputError` if only checkpoint or cluster has parts of GPUs."""
        divisible = isinstance(cluster, DivisibleCluster)
        if divisible != self._of_parts:
            places = "parts of GPUs" if self._of_parts else "whole GPUs"
            can = "can" if divisible else "cannot"
            remedy = f"give placer.checkpoint={'sharing' if divisible else 'placer'}, or one trained like it"
            message = (
                f"{self.checkpoint} places {places}, and those of cluster {cluster.name} {can} be divided"
            )
            raise InputError(message, field="placer.checkpoint", remedy=remedy)
        self._scores = LearnedScores(self._weights)
        self._buddy.reset(cluster, rng)

    @property
    def places_parts(self) -> bool:
        """Whether the checkpoint is for parts of GPUs; `reset` refuses a cluster of the other type."""
        return True

    def place_part(self, allocations: PartAllocations, job: int) -> Place | Infeasible:
        """Choose the node with the highest learned score for a job, and a GPU there."""
        assert self._scores is not None
        return self._scores.place(allocations, job) or NO_ROOM

    def fingerprint(self) -> str:
        """Return the digest of the checkpoint's weights."""
        return str(self._loaded.sha256)

    def place(self, allocations: Allocations, gpu_type: int, gpus: int) -> Nodes | Infeasible:
        """Choose nodes for `gpus` GPUs of a type, without allocating them, or let the job wait.

        Raises as `Buddy` does.
        """
        spec, gpus = allocations.spec, int(gpus)
        per_node = int(spec.gpus_per_node[gpu_type])
        wanted, mine = -(-gpus // per_node), spec.node_type == gpu_type
        empty = mine & (allocations.free_on_node == per_node)
        if gpus < per_node or wanted > int(empty.sum()):
            return self._buddy.place(allocations, gpu_type, gpus)
        free, sizes = _by_minipod(spec, empty), _by_minipod(spec, mine)
        counts = minipods.choose(free, sizes, wanted, len(allocations.holders) > 0, self._weights)
        if not counts.any():
            short = wanted - int(free.max())
            return Infeasible("no minipod has room, and the placer waits for one", nodes_short=short)
        chosen = [_lowest(spec, empty, m, int(counts[m])) for m in np.flatnonzero(counts).tolist()]
        return _shares(np.concatenate(chosen), gpus, per_node)

    def defragment(self, allocations: Allocations) -> list[tuple[int, Nodes]]:
        """Propose to move jobs that span several minipods (groups of nodes) into one, as (job, nodes)."""
        return [] if self._of_parts else list(self._moves(allocations))

    def _moves(self, allocations: Allocations) -> Iterator[tuple[int, Nodes]]:
        spec, free = allocations.spec, allocations.free_on_node.copy()
        holders = sorted(holder for holder in allocations.holders if holder >= 0)
        across = [h for h in holders if spec.locality(allocations.holding(h)) == Locality.CROSS]
        widths = np.array([len(allocations.holding(holder)) for holder in across], dtype=np.int64)
        for at in minipods.move_order(widths, self._weights).tolist():
            held = np.array(allocations.holding(across[at]))
            gpu_type, gpus = int(spec.node_type[held[0, 0]]), int(held[:, 1].sum())
            per_node, mine = int(spec.gpus_per_node[gpu_type]), spec.node_type == gpu_type
            own = np.zeros_like(free)
            own[held[:, 0]] = held[:, 1]
            empty, wanted = mine & (free + own == per_node), -(-gpus // per_node)
            to = minipods.choose_inside(
                _by_minipod(spec, empty), _by_minipod(spec, mine), wanted, self._weights
            )
            if to >= 0:
                kept = _lowest(spec, empty & (own > 0), to, wanted)
                taken = _lowest(spec, empty & (own == 0), to, wanted - len(kept))
                free[taken] = 0
                yield across[at], _shares(np.concatenate([kept, taken]), gpus, per_node)


def _by_minipod(spec: ClusterSpec, nodes: Bools) -> Ints:
    """Return how many of the marked nodes each minipod has, shape (M,)."""
    return np.bincount(spec.node_minipod[nodes], minlength=int(spec.node_minipod[-1]) + 1).astype(np.int64)


def _lowest(spec: ClusterSpec, among: Bools, minipod: int, wanted: int) -> Ints:
    """Return up to `wanted` marked nodes of a minipod, the lowest first."""
    return np.flatnonzero(among & (spec.node_minipod == minipod))[:wanted]


def _shares(nodes: Ints, gpus: int, per_node: int) -> Nodes:
    """Return the GPUs to use of each node: all, except the rest on the last node."""
    shares = [per_node] * (len(nodes) - 1) + [gpus - per_node * (len(nodes) - 1)]
    return tuple(zip(sorted(nodes.tolist()), shares, strict=True))
