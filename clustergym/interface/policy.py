"""What a scheduling policy is, what it may see, and what it answers."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustergym.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    from clustergym.cluster.allocation import Allocations
    from clustergym.cluster.spec import ClusterSpec, Nodes
    from clustergym.models.model_class import ModelClass
    from clustergym.workload.trace import Trace


class InformationClass(enum.StrEnum):
    """What a policy's oracle knows of iteration times; never ranked across on a leaderboard."""

    CLAIRVOYANT = "clairvoyant"
    """The times jobs really run at."""
    PROFILED = "profiled"
    """Estimates of adaptive parallelism, after profiling the job on the cluster."""
    DATA_PARALLEL = "data_parallel"
    """Profiles of pure data parallelism."""
    BOOTSTRAP = "bootstrap"
    """The least count that runs, per GPU type, scaled linearly (Sia, section 3.2)."""
    NONE = "none"
    """No iteration times at all."""


KNOWS: Mapping[str, str] = {
    InformationClass.CLAIRVOYANT: "an oracle: knows the times jobs will really run at",
    InformationClass.PROFILED: "knows profiles of adaptive parallelism",
    InformationClass.DATA_PARALLEL: "knows data-parallel profiles",
    InformationClass.BOOTSTRAP: "knows the least count that runs on each GPU type",
    InformationClass.NONE: "knows no speeds",
}
"""Information classes in words, as tables and pages show them."""


class InformationError(RuntimeError):
    """A policy asked for what its information class does not grant."""


QUEUED, RUNNING = 0, 1
"""Values of `View.state`."""


def _lock(shown: object) -> None:
    """Make all arrays among an object's fields read-only: what a policy is shown is not its own."""
    for value in vars(shown).values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


@dataclass(frozen=True)
class Setting:
    """What stays the same during a run; its arrays are read-only.

    Attributes
    ----------
    gpu_types : tuple of str
        GPU types of the cluster; axis T of every array below and of the View.
    capacity : ndarray of int, shape (T,)
        GPUs per type.
    gpus_per_node : ndarray of int, shape (T,)
    counts : ndarray of int, shape (K,)
        GPU counts an allotment may have, ascending.
    round_s : float or None
        Seconds between decision points; None: a decision point at every event.
    batch_models : frozenset of ModelClass
        Whose jobs may train at other global batches than the requested one.
    """

    gpu_types: tuple[str, ...]
    capacity: Ints
    gpus_per_node: Ints
    counts: Ints
    round_s: float | None
    batch_models: frozenset[ModelClass] = frozenset()

    def __post_init__(self) -> None:
        _lock(self)


@dataclass(frozen=True)
class BatchOptions:
    """The global batches that jobs of a View may train at, each job's own B at most.

    Attributes
    ----------
    sizes : ndarray of int, shape (n, B)
        Samples, ascending; 0 after the last one of a job. A job without a choice has the requested one.
    efficiency : ndarray of float, shape (n, B)
        Progress of a sample now over that of one at the requested batch; 0 where there is no size.
    iteration_time_s : ndarray of float, shape (n, T, K, B)
        Seconds per iteration as the policy's information class knows them; inf where infeasible.
    """

    sizes: Ints
    efficiency: Floats
    iteration_time_s: Floats


@dataclass(frozen=True)
class View:
    """What a policy sees at a decision point: the n jobs in the system, in order of submission.

    A job that must be profiled (`clustergym.scenarios.costs.ProfilePrice`) is not shown before it is on
    some type. The arrays are read-only; copy one to work on it.

    Attributes
    ----------
    now_s : float
    setting : Setting
    available : ndarray of int, shape (T,)
        GPUs a decision may use: capacity less what profiling holds and what is on failed nodes.
    free : ndarray of int, shape (T,)
        Available GPUs that no job holds now.
    job : ndarray of int, shape (n,)
        Row of the trace: the job's identity in a Decision.
    state : ndarray of int, shape (n,)
        QUEUED or RUNNING.
    gpu_type : ndarray of int, shape (n,)
        Index of the type held; -1: none.
    gpus : ndarray of int, shape (n,)
        GPUs held; 0: none.
    requested_type, requested_gpus : ndarray of int, shape (n,)
        The request; type -1: any.
    submit_s, deadline_s : ndarray of float, shape (n,)
        Seconds; deadline NaN: none.
    queued_s : ndarray of float, shape (n,)
        When a queued job last began to wait (NaN for a running one).
    standstill_s : ndarray of float, shape (n,)
        Seconds until a launched job works: the rest of its restart; 0 for the others.
    iterations, remaining_iterations : ndarray of float, shape (n,)
        Iterations at the requested batch. At another batch M an iteration does the work of
        M / requested x efficiency of them, so that a job's whole work is the same whatever its batch.
    global_batch, priority, restarts : ndarray of int, shape (n,)
        The requested batch, samples; priority; restarts so far.
    batch : ndarray of int, shape (n,)
        The global batch a job trains at now, samples; the requested one where it holds no GPUs.
    attained_gpu_s : ndarray of float, shape (n,)
        GPU-seconds held so far.
    feasible : ndarray of bool, shape (n, T, K)
        Whether the job fits in the memory of (type, count).
    """

    now_s: float
    setting: Setting
    available: Ints
    free: Ints
    job: Ints
    state: Ints
    gpu_type: Ints
    gpus: Ints
    requested_type: Ints
    requested_gpus: Ints
    submit_s: Floats
    deadline_s: Floats
    queued_s: Floats
    standstill_s: Floats
    iterations: Floats
    remaining_iterations: Floats
    global_batch: Ints
    priority: Ints
    restarts: Ints
    attained_gpu_s: Floats
    feasible: Bools
    batch: Ints
    times: Callable[[], Floats] = field(repr=False)
    costs: Callable[[], Floats] = field(repr=False)
    batches: Callable[[], BatchOptions | None] = field(repr=False)

    def __post_init__(self) -> None:
        _lock(self)

    def __len__(self) -> int:
        return len(self.job)

    def iteration_time_s(self) -> Floats:
        """Return seconds per iteration as the policy's information class knows them.

        Returns
        -------
        ndarray of float, shape (n, T, K)
            At the requested batch; inf where infeasible. At the locality of a compact placement.

        Raises
        ------
        InformationError
            If the policy's information class is `none`.
        """
        return self.times()

    def restart_cost_s(self) -> Floats:
        """Return the seconds of standstill that moving a job to (type, count) costs now.

        Returns
        -------
        ndarray of float, shape (n, T, K)
            For a queued job the cost of its start or resumption; 0 for the allotment it holds.
        """
        return self.costs()

    def batch_options(self) -> BatchOptions | None:
        """Return the batches that jobs may train at; None: nobody has a choice.

        Raises
        ------
        InformationError
            If the policy's information class is `none`.
        """
        return self.batches()


@dataclass(frozen=True)
class Decision:
    """The whole target: the allotment of every job that shall run from now on.

    A running job left out is preempted, one whose allotment is unchanged is not touched. Where only its
    batch changes it goes on without a restart, as a job of Pollux chooses its batch anew while it trains
    (OSDI '21, section 4.1).

    Attributes
    ----------
    job, gpu_type, gpus : ndarray of int, shape (m,)
        Trace row, index of the GPU type, GPU count.
    drop : ndarray of int
        Trace rows of jobs to drop for good.
    batch : ndarray of int, shape (m,), or None
        Global batch, samples; 0: the requested one. None: all train at the requested one.
    """

    job: Ints
    gpu_type: Ints
    gpus: Ints
    drop: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    batch: Ints | None = None

    @staticmethod
    def of(allotments: Iterable[tuple[int, int, int]], drop: Iterable[int] = ()) -> Decision:
        """Build a decision from (job, type index, count) triples."""
        table = np.array(list(allotments), dtype=np.int64).reshape(-1, 3)
        return Decision(table[:, 0], table[:, 1], table[:, 2], np.array(list(drop), dtype=np.int64))

    def also(self, allotments: Iterable[tuple[int, int, int]]) -> Decision:
        """Return this decision with further (job, type index, count) triples."""
        more = Decision.of(allotments)
        return Decision(
            np.concatenate([self.job, more.job]),
            np.concatenate([self.gpu_type, more.gpu_type]),
            np.concatenate([self.gpus, more.gpus]),
            self.drop,
            None if self.batch is None else np.concatenate([self.batch, np.zeros_like(more.gpus)]),
        )

    @staticmethod
    def keep(view: View) -> Decision:
        """Leave everything as it is."""
        held = view.gpus > 0
        return Decision(view.job[held], view.gpu_type[held], view.gpus[held], batch=view.batch[held])


class Policy(ABC):
    """A scheduler. Parameters are dataclass fields, so that a variant is a parameter.

    Attributes
    ----------
    information_class : InformationClass
        What the policy's View knows of iteration times.
    round_s : float or None
        Seconds between its decision points when the scenario leaves that to the policy;
        None: at every event.
    """

    name: ClassVar[str]
    round_s: float | None = None

    @property
    @abstractmethod
    def information_class(self) -> InformationClass:
        """A plain class attribute in most policies; a property where it depends on a parameter."""

    def check(self, trace: Trace, setting: Setting) -> None:  # noqa: B027
        """Raise an `InputError` if the trace or the cluster lacks what the policy needs."""

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:  # noqa: B027
        """Prepare for a new run; `rng` is the policy's own stream of the run's seed."""

    def fingerprint(self) -> str:
        """Return a digest of what the policy read besides its parameters, as weights; empty: nothing."""
        return ""

    def counters(self) -> Mapping[str, int]:
        """Return what the policy counted in the run, as solver fallbacks; stands in result.json."""
        return {}

    @abstractmethod
    def schedule(self, view: View) -> Decision:
        """Decide at one decision point."""


@dataclass(frozen=True)
class Infeasible:
    """A placer's answer where an allotment cannot be placed.

    Attributes
    ----------
    reason : str
        On one line.
    gpus_short, nodes_short : int
        GPUs, and nodes, that would have to be free besides; 0 where that is not known.
    """

    reason: str
    gpus_short: int = 0
    nodes_short: int = 0

    def __str__(self) -> str:
        """Return the reason with the shortfall."""
        short = [
            f"{count} {unit}{'s' if count > 1 else ''} short"
            for count, unit in ((self.gpus_short, "GPU"), (self.nodes_short, "node"))
            if count
        ]
        return ", ".join([self.reason, *short])


class Placer(ABC):
    """Finds nodes for an allotment. Parameters are dataclass fields.

    Attributes
    ----------
    defragment_s : float or None
        Seconds between calls of `defragment`; None: never.
    """

    name: ClassVar[str]
    defragment_s: float | None = None

    def reset(self, cluster: ClusterSpec, rng: np.random.Generator) -> None:  # noqa: B027
        """Prepare for a new run; `rng` is the placer's own stream of the run's seed."""

    @abstractmethod
    def place(self, allocations: Allocations, gpu_type: int, gpus: int) -> Nodes | Infeasible:
        """Return nodes for `gpus` GPUs of a type, without allocating them.

        The engine asks only where `allocations.free[gpu_type] >= gpus`. A placer that needs more than
        free GPUs, such as whole nodes, answers `Infeasible` where it finds too little: the job then
        waits, or waits again, and nothing of it is placed.
        """

    def defragment(self, allocations: Allocations) -> list[tuple[int, Nodes]]:
        """Propose better nodes for jobs that hold GPUs, each of its present type and count.

        Proposals are independent: each must be possible alone, given what is free now and
        what the job itself holds. The engine moves a job only where that repays its restart.
        """
        return []
