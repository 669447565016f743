"""Parallel plans and what is known about them, as records for the explanation."""

from __future__ import annotations

from dataclasses import dataclass, field

from clustergym.cluster.spec import Locality
from clustergym.oracle.models.model_spec import ModelClass


@dataclass(frozen=True, order=True)
class Grid:
    """What one plan search of the Arena paper is for: a GPU type, GPU count and number of pipeline stages.

    Attributes
    ----------
    gpu_type : str
    gpus, stages : int
        GPUs in all, and pipeline stages.
    """

    gpu_type: str
    gpus: int
    stages: int


@dataclass(frozen=True)
class Stage:
    """A pipeline stage: consecutive operators on the stage's own GPUs, with times of one micro-batch.

    Attributes
    ----------
    first, last : int
        The stage's operators, both included, counted from 0.
    gpus, data, tensor : int
        GPUs = data-parallel ranks x GPUs that an operator is split over.
    memory_bytes : float
        On each GPU.
    compute_s, intra_stage_s, inter_stage_s : float
        Kernels (with the passes over the weights), collectives inside the stage, and sending
        activations to the next stage and gradients back; forward and backward together.
    synchronise_s : float
        Gradient all-reduce and optimizer step, once an iteration.
    """

    first: int
    last: int
    gpus: int
    data: int
    tensor: int
    memory_bytes: float
    compute_s: float
    intra_stage_s: float
    inter_stage_s: float
    synchronise_s: float = 0.0


@dataclass(frozen=True)
class Plan:
    """A complete parallel plan of a model with its iteration time in seconds.

    `iteration_s` is the sum of `compute_s`, `intra_stage_s`, `inter_stage_s` and `bubble_s`.

    Attributes
    ----------
    grid : Grid
    stages : tuple of Stage
        In order of the operators.
    micro_batches : int
        Per iteration.
    micro_batch : int
        Samples of a micro-batch, all data-parallel ranks together.
    iteration_s : float
    compute_s, intra_stage_s, inter_stage_s : float
        Of the slowest stage, summed over micro-batches; intra-stage includes gradient all-reduce and
        optimizer step.
    bubble_s : float
        While the slowest stage waits for the pipeline to fill and to drain.
    """

    grid: Grid
    stages: tuple[Stage, ...]
    micro_batches: int
    micro_batch: int
    iteration_s: float
    compute_s: float
    intra_stage_s: float
    inter_stage_s: float
    bubble_s: float

    @property
    def memory_bytes(self) -> float:
        """Bytes of memory on the GPU that needs the most."""
        return max(stage.memory_bytes for stage in self.stages)


@dataclass(frozen=True)
class ProxyPlan:
    """A candidate for the plan profiled to represent all with its number of stages (Arena, section 3.3).

    Attributes
    ----------
    plan : Plan
        With times as the profiler estimates them.
    bias : float
        Euclidean distance of the GPUs per stage from their shares of the load, in GPUs.
    communication_load : float
        Seconds of communication in an iteration, as the planner counts them.
    """

    plan: Plan
    bias: float
    communication_load: float


@dataclass(frozen=True)
class Frontier:
    """The Pareto-optimal divisions of a model into a number of stages, in imbalance and communication.

    Attributes
    ----------
    grid : Grid
    points : tuple of ProxyPlan
        The Pareto frontier, bias ascending, communication load descending; never empty.
    considered : int
        Feasible partitions it was taken from.
    proxy : ProxyPlan
        The plan that stands for the grid.
    """

    grid: Grid
    points: tuple[ProxyPlan, ...]
    considered: int
    proxy: ProxyPlan


@dataclass(frozen=True)
class OutOfMemory:
    """Why no plan fits: the stage that needs too much memory in the best attempt, and by how much.

    Attributes
    ----------
    first, last : int
        Its operators, both included.
    gpus : int
        GPUs of that stage.
    excess_bytes : float
        By how much a GPU's memory is exceeded.
    """

    first: int
    last: int
    gpus: int
    excess_bytes: float

    def __str__(self) -> str:
        count = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        over = f"{self.excess_bytes / 1e9:.1f} GB over the memory of a GPU"
        return f"stage of operators {self.first} to {self.last} on {count} is {over}"


@dataclass(frozen=True)
class Cost:
    """The wall-clock time, GPU time and trials that profiling or a plan search costs.

    Attributes
    ----------
    seconds : float
        Wall-clock time.
    gpu_seconds : float
        GPUs held times the seconds they are held.
    trials : int
        Stages or plans that are compiled and run.
    """

    seconds: float
    gpu_seconds: float
    trials: int


@dataclass(frozen=True)
class Explanation:
    """An oracle's prediction for a model on an allocation, with the plans that it compared.

    Attributes
    ----------
    model : ModelClass
    gpu_type : str
    gpus, nodes : int
    locality : Locality
    memory_limit_bytes : float
        What a plan may use of a GPU.
    operators : tuple of str
        Names of the operators that stages count.
    frontiers : tuple of Frontier
        One per grid that fits, stages ascending.
    infeasible : dict of int to OutOfMemory
        By number of stages, for the grids that do not fit.
    proxy : ProxyPlan or None
        The best grid's, with estimated times; None where nothing fits.
    chosen : Plan or None
        What the full search finds and the simulator executes.
    pruned : Plan or None
        What the pruned search finds.
    data_parallel : Plan or None
        Pure data parallelism, as executed; None where it does not fit.
    profiling, search, pruned_search : Cost
        Of estimating every grid, of the full and of the pruned search.
    reason : OutOfMemory or None
        Why nothing fits.
    """

    model: ModelClass
    gpu_type: str
    gpus: int
    nodes: int
    locality: Locality
    memory_limit_bytes: float
    operators: tuple[str, ...]
    frontiers: tuple[Frontier, ...]
    infeasible: dict[int, OutOfMemory] = field(default_factory=dict)
    proxy: ProxyPlan | None = None
    chosen: Plan | None = None
    pruned: Plan | None = None
    data_parallel: Plan | None = None
    profiling: Cost = Cost(0.0, 0.0, 0)
    search: Cost = Cost(0.0, 0.0, 0)
    pruned_search: Cost = Cost(0.0, 0.0, 0)
    reason: OutOfMemory | None = None
