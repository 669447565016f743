"""The problem of placing the communication groups of a pre-training job over minipods: answer and score."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError, require_known

Unit = Literal["pp", "dp"]
"""Which communication groups are placed as units: pipeline- or data-parallel ones."""

UNITS: tuple[Unit, ...] = ("pp", "dp")


class Groups(NamedTuple):
    """How many communication groups of one type (PP or DP) a job has, and on how many nodes each is."""

    number: int
    nodes: int


@dataclass(frozen=True)
class PretrainingJob:
    """An LLM pre-training job on whole nodes, with given degrees of parallelism.

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
        for name in ("gpus", "data_parallel", "tensor_parallel", "pipeline_parallel", "gpus_per_node"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{value!r} is not valid", field=name, remedy="give a whole number from 1")
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
        """Build a job from GPUs, TP and PP; its data parallelism is GPUs / TP / PP."""
        data_parallel = max(1, int(gpus) // max(1, int(tensor_parallel) * int(pipeline_parallel)))
        return PretrainingJob(gpus, data_parallel, tensor_parallel, pipeline_parallel, gpus_per_node)

    @property
    def rows(self) -> int:
        """Number of pipeline-parallel (PP) groups, each with one node from every pipeline stage."""
        # A node holds gpus_per_node / TP data-parallel ranks of one stage.
        return self.data_parallel * self.tensor_parallel // self.gpus_per_node

    @property
    def columns(self) -> int:
        """Number of data-parallel (DP) groups of nodes, equal to the number of pipeline stages."""
        return self.pipeline_parallel

    @property
    def nodes(self) -> int:
        """Number of nodes that the job runs on."""
        return self.rows * self.columns

    @property
    def silent_share(self) -> float:
        """Share of all pairs of the job's GPUs that exchange no data directly.

        Those of a tensor-parallel group all do; data-parallel groups are rings, and so are the stages
        of a pipeline.
        """
        # A ring of two has one neighbour, not two.
        rings = (min(2, size - 1) for size in (self.data_parallel, self.pipeline_parallel))
        return 1.0 - (self.tensor_parallel - 1 + sum(rings)) / max(1, self.gpus - 1)

    def groups(self, unit: Unit) -> Groups:
        """Return the number of communication groups of type `unit` (`pp` or `dp`), and the nodes of each."""
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


@dataclass(frozen=True, eq=False)
class Instance:
    """A placement problem: a job to be placed on free nodes in minipods (nodes below one spine switch).

    Parameters
    ----------
    job : PretrainingJob
    free_nodes : ndarray of int, shape (M,)
        Wholly free nodes of each minipod.
    alpha : float
        Weight of the DP spread in the score, 0 to 1; the PP spread has the rest.
    unit : {"pp", "dp"}
        The communication groups that are placed.
    """

    job: PretrainingJob
    free_nodes: Ints
    alpha: float = 0.5
    unit: Unit = "pp"

    def __post_init__(self) -> None:
        self.job.groups(self.unit)
        if isinstance(self.alpha, bool) or not 0.0 <= self.alpha <= 1.0:
            raise InputError(f"{self.alpha!r} is not valid", field="alpha", remedy="give 0 to 1")
        free = np.asarray(self.free_nodes)
        if free.ndim != 1 or not len(free) or free.dtype.kind not in "iu" or free.min() < 0:
            raise InputError(
                f"{self.free_nodes!r} are not numbers of free nodes",
                field="free_nodes",
                remedy="give a whole number from 0 per minipod",
            )
        object.__setattr__(self, "free_nodes", free.astype(np.int64))

    @cached_property
    def groups(self) -> int:
        """Number of communication groups to place."""
        return self.job.groups(self.unit).number

    @cached_property
    def group_nodes(self) -> int:
        """Number of nodes of each communication group."""
        return self.job.groups(self.unit).nodes

    @property
    def minipods(self) -> int:
        """Number of minipods (groups of nodes below one spine switch) of the cluster."""
        return len(self.free_nodes)

    @property
    def shortfall(self) -> int:
        """Number of free nodes that the job lacks; 0 if it fits."""
        return max(0, self.job.nodes - int(self.free_nodes.sum()))

    @property
    def minipod_weight(self) -> float:
        """Weight in the score of each minipod in use: alpha for PP groups, 1 - alpha for DP groups."""
        return self.alpha if self.unit == "pp" else 1.0 - self.alpha

    @property
    def group_weight(self) -> float:
        """Weight in the score of the number of minipods that the most widely spread group touches."""
        return 1.0 - self.minipod_weight


@dataclass(frozen=True)
class Solution:
    """A solver's report on a placement: proven bound, gap, search nodes and seconds.

    Attributes
    ----------
    proven : bool
        Whether the score is proven to be the optimum; False: a limit was hit, and the assignment is
        the best one known.
    bound : float
        Proven lower bound of the score.
    gap : float
        (score - bound) / score.
    nodes : int
        Branch-and-bound nodes, or choices of a search.
    solve_s : float
        Wall seconds, building the model included.
    """

    proven: bool
    bound: float
    gap: float
    nodes: int
    solve_s: float


@dataclass(frozen=True, eq=False)
class Assignment:
    """A placement: the nodes of each communication group in each minipod, or how many nodes are missing.

    Attributes
    ----------
    counts : ndarray of int, shape (groups, M)
        All 0 where the job does not fit: nothing is placed in part.
    shortfall : int
        Nodes that are lacking; 0: the job is placed.
    solution : Solution or None
        The solver's report, if the algorithm optimises.
    """

    counts: Ints
    shortfall: int = 0
    solution: Solution | None = field(default=None, compare=False)

    @property
    def feasible(self) -> bool:
        """Whether the job fits and is placed."""
        return self.shortfall == 0

    @staticmethod
    def infeasible(instance: Instance) -> Assignment:
        """Return the answer for a placement problem in which the job does not fit."""
        nothing = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
        return Assignment(nothing, instance.shortfall)

    def missing(self, free_nodes: Ints) -> int:
        """Return how many of the assigned nodes are not free (any more), summed over minipods.

        What to ask before enacting an assignment that was solved on an earlier state: with
        anything missing the job stays queued and is solved again.
        """
        return int(np.maximum(self.counts.sum(axis=0) - np.asarray(free_nodes), 0).sum())

    def check(self, instance: Instance) -> None:
        """Raise a `ValueError` unless the assignment is a valid placement, or says that none exists."""
        if self.counts.shape != (instance.groups, instance.minipods) or (self.counts < 0).any():
            raise ValueError(f"counts of shape {self.counts.shape} do not fit the instance")
        if self.shortfall != instance.shortfall:
            raise ValueError(f"shortfall {self.shortfall}, the instance lacks {instance.shortfall}")
        wanted = instance.group_nodes if self.feasible else 0
        # All or nothing: a gang that lacks a node cannot train.
        if (self.counts.sum(axis=1) != wanted).any():
            raise ValueError(f"a group has not its {wanted} nodes")
        if self.missing(instance.free_nodes):
            raise ValueError(f"{self.missing(instance.free_nodes)} nodes more than are free")


class Spread(NamedTuple):
    """Over how many minipods any data-parallel (DP) and any pipeline-parallel (PP) group extends at most."""

    dp: int
    pp: int


def spread(assignment: Assignment, job: PretrainingJob, unit: Unit) -> Spread:
    """Return the most minipods that a DP group, and that a PP group, touches, by the Arnold paper's rule.

    For the groups placed as units it is the most minipods that one group has nodes in (T). Groups
    of the other type have one node in every unit; their spread is counted as the minipods the whole
    job touches (sum of y_j), which is exact where no unit is split, and an upper bound where
    one is; `cell_spread` measures it for given ranks.
    """
    used = assignment.counts > 0
    of_units, of_job = int(used.sum(axis=1).max()), int(used.any(axis=0).sum())
    return Spread(of_job, of_units) if unit == "pp" else Spread(of_units, of_job)


def score(assignment: Assignment, instance: Instance) -> float:
    """Return alpha x DP spread + (1 - alpha) x PP spread of an assignment; 0 if nothing is placed."""
    found = spread(assignment, instance.job, instance.unit)
    return weigh_spread(found, instance.alpha)


Weight = TypeVar("Weight", float, Floats)


def weigh_spread(found: Spread, alpha: Weight) -> Weight:
    """Return alpha x DP spread + (1 - alpha) x PP spread of one placement, or of many."""
    return alpha * found.dp + (1.0 - alpha) * found.pp


def cells(assignment: Assignment, job: PretrainingJob, unit: Unit) -> Ints:
    """Return the minipod of each of the job's nodes as a matrix, PP groups in rows and DP groups in columns.

    Groups in the same minipods follow each other, and inside a group the nodes of a minipod
    do, so that consecutive ranks are inside a minipod.

    Raises
    ------
    ValueError
        If nothing is placed.
    """
    if not assignment.feasible:
        raise ValueError(f"nothing is placed, {assignment.shortfall} nodes are lacking")
    minipods = np.arange(assignment.counts.shape[1], dtype=np.int64)
    rows = [np.repeat(minipods, counts) for counts in assignment.counts]
    # Groups in the same minipods side by side, so that consecutive ranks are close.
    rows.sort(key=lambda row: row.tolist())
    matrix = np.stack(rows)
    return matrix if unit == "pp" else np.ascontiguousarray(matrix.T)


def cell_spread(matrix: Ints) -> Spread:
    """Count over how many minipods rows (PP groups) and columns (DP groups) of a matrix extend at most."""
    most = [max(len(set(line)) for line in lines.tolist()) for lines in (matrix.T, matrix)]
    return Spread(*most)


Algorithm = Callable[[Instance, np.random.Generator], Assignment]

_GREEDY = ("best_fit", "random_fit", "best_fit_by_node", "random_fit_by_node", "gpu_packing", "round_robin")
ALGORITHMS = {
    "arnold": "clustergym.policies.placement.arnold:solve",
    "topology_aware": "clustergym.policies.placement.topology_aware:solve",
    **{name: f"clustergym.policies.placement.greedy:{name}" for name in _GREEDY},
}
"""Name -> `module:function`; the module is imported when first asked for."""


def algorithm(name: str) -> Algorithm:
    """Return the placement algorithm (a function) that has a name.

    For an instance that does not fit it returns an infeasible assignment and raises nothing.
    """
    require_known(name, ALGORITHMS, "placement algorithm")
    module, _, function = ALGORITHMS[name].partition(":")
    solve: Algorithm = getattr(importlib.import_module(module), function)
    return lambda given, rng: Assignment.infeasible(given) if given.shortfall else solve(given, rng)
