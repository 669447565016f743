"""The communication matrix of an LLM pre-training job: which nodes exchange data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from clustergym.common.errors import InputError

Unit = Literal["pp", "dp"]
"""Which communication groups are placed as units: pipeline- or data-parallel ones."""

UNITS: tuple[Unit, ...] = ("pp", "dp")


class Groups(NamedTuple):
    """The communication groups of one kind: their number, and the nodes of each."""

    number: int
    nodes: int


@dataclass(frozen=True)
class PretrainingJob:
    """An LLM pre-training job of fixed parallelism on whole nodes.

    A node carries `gpus_per_node / tensor_parallel` tensor-parallel groups: as many consecutive
    data-parallel ranks of one pipeline stage. The communication matrix (Arnold, section 2, Eq. 1) has
    one node per cell, `rows` = DP / (8 / TP) and `columns` = PP: a row is a PP group (the nodes that
    pass activations to each other), a column a DP group (the nodes that synchronise the gradients
    of one stage). Tensor-parallel groups never leave their node.

    Parameters
    ----------
    gpus : int
    data_parallel, tensor_parallel, pipeline_parallel : int
        Their product is `gpus`.
    gpus_per_node : int

    Raises
    ------
    InputError
        If a degree is below 1, tensor parallelism does not divide a node, pipeline parallelism
        does not divide the rest, or the ranks of a stage do not fill whole nodes.
    """

    gpus: int
    data_parallel: int
    tensor_parallel: int
    pipeline_parallel: int
    gpus_per_node: int = 8

    def __post_init__(self) -> None:
        for field in ("gpus", "data_parallel", "tensor_parallel", "pipeline_parallel", "gpus_per_node"):
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{value!r} is not valid", field=field, remedy="give a whole number from 1")
        _check(self.gpus, self.tensor_parallel, self.pipeline_parallel, self.gpus_per_node)
        fitting = self.gpus // (self.tensor_parallel * self.pipeline_parallel)
        if self.data_parallel != fitting:
            raise InputError(
                f"{self.data_parallel} x {self.tensor_parallel} x {self.pipeline_parallel} (DP x TP x PP) "
                f"is not {self.gpus} GPUs",
                field="data_parallel",
                remedy=f"give DP {fitting}",
            )

    @staticmethod
    def from_gpus(
        gpus: int, tensor_parallel: int, pipeline_parallel: int, gpus_per_node: int = 8
    ) -> PretrainingJob:
        """Return the job with data parallelism GPUs / TP / PP; raises as the class does."""
        data_parallel = max(1, int(gpus) // max(1, int(tensor_parallel) * int(pipeline_parallel)))
        return PretrainingJob(gpus, data_parallel, tensor_parallel, pipeline_parallel, gpus_per_node)

    @property
    def rows(self) -> int:
        """Number of PP groups, which is the number of nodes of each stage."""
        return self.data_parallel * self.tensor_parallel // self.gpus_per_node

    @property
    def columns(self) -> int:
        """Number of DP groups, which is the number of pipeline stages."""
        return self.pipeline_parallel

    @property
    def nodes(self) -> int:
        """Number of the job's nodes."""
        return self.rows * self.columns

    @property
    def silent_share(self) -> float:
        """Share of all pairs of GPUs that exchange no data directly.

        Those of a tensor-parallel group all do; data-parallel groups are rings, and so are the stages
        of a pipeline.
        """
        rings = (min(2, size - 1) for size in (self.data_parallel, self.pipeline_parallel))
        return 1.0 - (self.tensor_parallel - 1 + sum(rings)) / max(1, self.gpus - 1)

    def groups(self, unit: Unit) -> Groups:
        """Return the number and the size in nodes of the groups of a kind.

        Raises
        ------
        InputError
            If `unit` is neither `pp` nor `dp`.
        """
        if unit not in UNITS:
            raise InputError(f"{unit!r} is not a unit of placement", field="unit", remedy="give pp or dp")
        by_unit = {"pp": Groups(self.rows, self.columns), "dp": Groups(self.columns, self.rows)}
        return by_unit[unit]


def _check(gpus: int, tensor: int, pipeline: int, per_node: int) -> None:
    if per_node % tensor:
        raise InputError(
            f"TP {tensor} does not divide the {per_node} GPUs of a node, so its groups would leave it",
            field="tensor_parallel",
            remedy=f"give a divisor of {per_node}",
        )
    if gpus % tensor or (gpus // tensor) % pipeline:
        raise InputError(
            f"TP {tensor} x PP {pipeline} does not divide {gpus} GPUs, so stages would be of unequal size",
            field="pipeline_parallel",
            remedy=f"give a multiple of {tensor * pipeline} GPUs",
        )
    if (gpus // pipeline) % per_node:
        raise InputError(
            f"a stage of {gpus // pipeline} GPUs does not fill whole nodes of {per_node}",
            field="data_parallel",
            remedy=f"give a DP that is a multiple of {per_node // tensor}",
        )
