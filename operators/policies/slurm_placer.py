"""Slurm's choice of nodes."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.cluster.allocation import AllocationError, Allocations
from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Ints
from clustergym.scenario.policy import Infeasible, Placer

from .node_reservations import consecutive_best_fit


@dataclass
class SlurmPlacer(Placer):
    """A placer that chooses the tightest set of consecutive nodes, as Slurm's `select/cons_tres` does.

    The set of neighbouring nodes with the fewest free GPUs that suffice; in it the node with the fewest that
    suffice or, if none does, one node after another.
    """

    name: ClassVar[str] = "slurm"

    def place(self, allocations: Allocations, gpu_type: int, gpus: int) -> Nodes:
        """Choose the tightest neighbouring nodes for `gpus` GPUs, not allocating; return (node, GPUs) pairs.

        Raises
        ------
        AllocationError
            If fewer GPUs are free, or none is asked for.
        """
        spec, gpus = allocations.spec, int(gpus)
        free = _free(allocations, gpu_type)
        nodes = consecutive_best_fit(free, gpus) if gpus > 0 else None
        if nodes is None:
            name = spec.gpu_types[gpu_type]
            raise AllocationError(f"cannot place {gpus} GPUs of {name}, {int(free.sum())} are free")
        return nodes

    @property
    def places_evenly(self) -> bool:
        """True: this placer can give a job equally many GPUs on each node, as `sbatch --nodes` asks."""
        return True

    def place_evenly(
        self, allocations: Allocations, gpu_type: int, gpus: int, nodes: int
    ) -> Nodes | Infeasible:
        """Choose `nodes` nodes with `gpus` / `nodes` GPUs on each, among those with as many free GPUs."""
        free = _free(allocations, gpu_type)
        found = consecutive_best_fit(free, int(gpus), int(nodes))
        if found is None:
            short = int(nodes) - int((free >= gpus // nodes).sum())
            return Infeasible(f"{gpus // nodes} GPUs are not free on {nodes} nodes", nodes_short=short)
        return found


def _free(allocations: Allocations, gpu_type: int) -> Ints:
    free: Ints = np.where(allocations.spec.node_type == gpu_type, allocations.free_on_node, 0)
    return free
