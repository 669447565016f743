"""A cluster whose nodes state CPU and memory, and whose GPUs can be divided.

All its GPUs are one pool, one GPU type of the simulation: a job's run time is that of its record whatever
node it gets, and the placer alone chooses among the models that a job accepts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.parts import CLASSES, Nodes, empty_nodes
from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.common.arrays import Ints
from clustergym.common.columns import integers, texts
from clustergym.common.errors import InputError
from clustergym.common.text_files import read_csv

POOL = GpuType("GPU", 1.0, 1.0, None, 1.0, 1.0, "none", 1.0, 1.0)
"""The one GPU type of such a cluster; nothing is computed from its data sheet."""

MOST_GPUS_PER_NODE = CLASSES - 1
MOST_MILLI = 10**9
"""Most thousandths of cores, and MiB, of a node or a request."""


class NodeShape(NamedTuple):
    """A group of adjacent, equal nodes: GPU model, GPUs, CPU and memory of each, and their number.

    Attributes
    ----------
    model : str
        Of their GPUs.
    gpus, cpu_milli, memory_mib : int
        On each node: GPUs, thousandths of a core, MiB.
    nodes : int
    """

    model: str
    gpus: int
    cpu_milli: int
    memory_mib: int
    nodes: int = 1


@dataclass(frozen=True, eq=False)
class DivisibleCluster(ClusterSpec):
    """A cluster on which jobs can hold parts of a node: CPU, memory and fractions of a GPU.

    Attributes
    ----------
    shapes : tuple of NodeShape
        In the order of the nodes.
    """

    shapes: tuple[NodeShape, ...]

    @staticmethod
    def from_shapes(name: str, shapes: tuple[NodeShape, ...]) -> DivisibleCluster:
        """Make a cluster of groups of equal nodes."""
        nodes, most = sum(shape.nodes for shape in shapes), max(shape.gpus for shape in shapes)
        return DivisibleCluster(name, (NodeGroup(POOL, nodes, most),), Fabric(), shapes)

    def _of_nodes(self, column: str) -> Ints:
        values = [getattr(shape, column) for shape in self.shapes]
        return np.repeat(np.array(values, dtype=np.int64), [shape.nodes for shape in self.shapes])

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Sorted names of the GPU models on the cluster's nodes."""
        return tuple(sorted({shape.model for shape in self.shapes if shape.gpus}))

    @property
    def named_types(self) -> tuple[str, ...]:
        """Names of the GPU models that jobs may ask for, although all models count as one GPU type."""
        return self.models

    @cached_property
    def node_gpus(self) -> Ints:
        """Number of GPUs on each node, shape (N,)."""
        return self._of_nodes("gpus")

    @cached_property
    def capacity(self) -> Ints:
        """Number of GPUs of the whole cluster, shape (1,), as all count as one type."""
        return np.array([self.node_gpus.sum()])

    @cached_property
    def most_gpus(self) -> int:
        """Most GPUs that one job can hold: those of the largest node."""
        return int(self.node_gpus.max())

    def empty_nodes(self) -> Nodes:
        """Return the resources of all nodes while no job holds anything."""
        known = {name: row for row, name in enumerate(self.models)}
        model = [known.get(shape.model, 0) for shape in self.shapes]
        return empty_nodes(
            self._of_nodes("cpu_milli"),
            self._of_nodes("memory_mib"),
            self.node_gpus,
            np.repeat(np.array(model, dtype=np.int64), [shape.nodes for shape in self.shapes]),
        )

    def fingerprint(self) -> dict[str, Any]:
        """Return everything that determines the cluster except its name, as plain JSON values."""
        return {"fabric": asdict(self.fabric), "shapes": [list(shape) for shape in self.shapes]}


def read_divisible(path: Path) -> DivisibleCluster:
    """Read a list of nodes in openb's format: CSV with cpu_milli, memory_mib, gpu and model.

    Raises
    ------
    InputError
        At the first thing wrong with the file, and if no node has a GPU.
    """
    table = read_csv(path, ["cpu_milli", "memory_mib", "gpu", "model"])
    gpus = integers(table, "gpu", low=0, high=MOST_GPUS_PER_NODE)
    if not gpus.any():
        raise InputError("no node has a GPU", file=path, field="gpu", remedy="give a list of GPU nodes")
    cpu = integers(table, "cpu_milli", low=0, high=MOST_MILLI)
    memory = integers(table, "memory_mib", low=0, high=MOST_MILLI)
    columns = texts(table, "model"), gpus.tolist(), cpu.tolist(), memory.tolist()
    shapes = tuple(NodeShape(*row) for row in zip(*columns, strict=True))
    return DivisibleCluster.from_shapes(path.name.partition(".")[0], shapes)
