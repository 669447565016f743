"""A placer that applies the placement algorithms of pre-training jobs to any job, as one group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from clustergym.cluster.allocation import Allocations, PartAllocations
from clustergym.cluster.parts import Place
from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.common.parameter_types import Period
from clustergym.scenario.placement_problem import Instance, PretrainingJob, algorithm
from clustergym.scenario.policy import Infeasible

from ..shared.part_placing import PartScores
from .buddy import Buddy


@dataclass
class MinipodPlacer(Buddy):
    """A placer that chooses minipods (groups of nodes) by `algorithm`, and the first free nodes there.

    Jobs of less than a node, and those for which too few nodes are wholly free, are placed as by `Buddy`.
    On a cluster whose GPUs can be divided, `best_fit`, `random_fit` and `gpu_packing` choose the node of each
    job by the scores of these names (`clustergym.sim.parts.placers`); the other algorithms do not serve
    there.

    Parameters
    ----------
    defragment_s : float or None
        Seconds between calls of `defragment`, which is `Buddy`'s and ignores the algorithm; None: never.
    algorithm : str
        `best_fit`, `random_fit`, `round_robin`, `gpu_packing`, `topology_aware` or `arnold`.
    """

    name: ClassVar[str] = "minipod"
    defragment_s: Period | None = None
    algorithm: str = "best_fit"
    _rng: np.random.Generator = field(
        default_factory=lambda: random_streams.PLACER.generator(0), init=False, repr=False, compare=False
    )
    _scores: PartScores | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def places_parts(self) -> bool:
        """Whether the algorithm can also place parts of GPUs, by choosing single nodes."""
        return self.algorithm in ("best_fit", "random_fit", "gpu_packing")

    def reset(self, cluster: ClusterSpec, rng: np.random.Generator) -> None:
        """Prepare for a run on a cluster; raise an `InputError` if the algorithm is unknown."""
        algorithm(self.algorithm)
        super().reset(cluster, rng)
        self._rng = rng
        self._scores = PartScores(self.algorithm.replace("_", "-"), rng)

    def place_part(self, allocations: PartAllocations, job: int) -> Place | Infeasible:
        """Choose the node with the highest score for a job, and a GPU there."""
        assert self._scores is not None
        return self._scores.place(allocations, job)

    def place(self, allocations: Allocations, gpu_type: int, gpus: int) -> Nodes:
        """Choose nodes for `gpus` GPUs by `algorithm`, without allocating them; return (node, GPUs) pairs.

        It raises the errors of `Buddy.place`.
        """
        spec, gpus = allocations.spec, int(gpus)
        per_node = int(spec.gpus_per_node[gpu_type])
        wanted = -(-gpus // per_node)
        empty = (spec.node_type == gpu_type) & (allocations.free_on_node == per_node)
        if gpus < per_node or wanted > int(empty.sum()):
            return super().place(allocations, gpu_type, gpus)
        # Only wholly free nodes are offered: the algorithms count whole nodes, as pre-training jobs have
        # them.
        chosen = self._choose(spec, np.flatnonzero(empty)[:, None], wanted)
        shares = [per_node] * (wanted - 1) + [gpus - per_node * (wanted - 1)]
        return tuple(zip(chosen, shares, strict=True))

    def place_segments(
        self, allocations: Allocations, gpu_type: int, gpus: int, segment: int
    ) -> Nodes | Infeasible:
        """Choose nodes by `algorithm` such that every `segment` GPUs of a job are in one NVLink domain."""
        spec, gpus = allocations.spec, int(gpus)
        group = spec.groups[gpu_type]
        if segment <= group.gpus_per_node:
            placed = self.place(allocations, gpu_type, gpus)
            whole = all(count % segment == 0 for _, count in placed)
            return placed if whole else super().place_segments(allocations, gpu_type, gpus, segment)
        each, wanted = segment // group.gpus_per_node, gpus // segment
        free = np.flatnonzero(
            (spec.node_type == gpu_type) & (allocations.free_on_node == group.gpus_per_node)
        )
        blocks = [
            inside[: min(len(inside), group.domain_gpus // group.gpus_per_node) // each * each].reshape(
                -1, each
            )
            for inside in np.split(free, np.flatnonzero(np.diff(spec.node_domain[free])) + 1)
        ]
        rows = np.concatenate(blocks) if len(free) else np.empty((0, each), dtype=np.int64)
        if wanted > len(rows):
            return super().place_segments(allocations, gpu_type, gpus, segment)
        return tuple((node, group.gpus_per_node) for node in self._choose(spec, rows, wanted))

    def _choose(self, spec: ClusterSpec, blocks: Ints, wanted: int) -> list[int]:
        """Return the nodes of the lowest `wanted` blocks, shape (blocks, nodes), of the minipods chosen."""
        minipod_of, each = spec.node_minipod[blocks[:, 0]], blocks.shape[1]
        free = np.bincount(minipod_of, minlength=int(spec.node_minipod[-1]) + 1)
        per_node = int(spec.node_gpus[blocks[0, 0]]) * each
        # The job as one communication group over all its nodes: nothing is known of its parallelism here.
        job = PretrainingJob(wanted * per_node, wanted, per_node, 1, per_node)
        counts = algorithm(self.algorithm)(Instance(job, free, 0.5, "dp"), self._rng).counts[0]
        chosen: list[int] = []
        for minipod in np.flatnonzero(counts).tolist():
            chosen += blocks[minipod_of == minipod][: counts[minipod]].ravel().tolist()
        return sorted(chosen)
