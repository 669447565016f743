"""The view of a policy at a decision point, by its information class."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints

if TYPE_CHECKING:
    from clustergym.cluster.spec import Nodes
    from clustergym.oracle.models.model_spec import ModelClass
    from clustergym.scenario.part_view import PartView
    from clustergym.scenario.tenants.queue_tree import QueueTree


class InformationClass(enum.StrEnum):
    """What a policy knows of iteration times; leaderboards rank policies only within a class."""

    CLAIRVOYANT = "clairvoyant"
    """The iteration times that jobs really have, and where their log ends them (`workload.outcomes`)."""
    PROFILED = "profiled"
    """Estimates of adaptive parallelism, after profiling the job on the cluster."""
    DATA_PARALLEL = "data_parallel"
    """Profiles of pure data parallelism."""
    BOOTSTRAP = "bootstrap"
    """The time at the least GPU count that runs, per GPU type, scaled linearly (Sia, section 3.2)."""
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
    """Raised if a policy asks for iteration times that its information class does not include."""


QUEUED, RUNNING = 0, 1
"""Values of `View.state`: the job waits, or it holds GPUs."""


def _lock(shown: object) -> None:
    """Make all arrays in an object's fields read-only, so that a policy cannot change them."""
    for value in vars(shown).values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


@dataclass(frozen=True)
class Setting:
    """The constants of a run that a policy may use, such as GPU types; the arrays are read-only.

    Attributes
    ----------
    gpu_types : tuple of str
        GPU types of the cluster; axis T of every array below and of the View.
    capacity : ndarray of int, shape (T,)
        GPUs per type.
    gpus_per_node : ndarray of int, shape (T,)
        GPUs of one node of each type.
    counts : ndarray of int, shape (K,)
        GPU counts an allotment may have, ascending.
    round_s : float or None
        Seconds between decision points; None: a decision point at every event.
    batch_models : frozenset of ModelClass
        Model classes whose jobs may train at other global batches than the requested one.
    queues : QueueTree or None
        Queues of tenants, if the scenario has any.
    """

    gpu_types: tuple[str, ...]
    capacity: Ints
    gpus_per_node: Ints
    counts: Ints
    round_s: float | None
    batch_models: frozenset[ModelClass] = frozenset()
    queues: QueueTree | None = None

    def __post_init__(self) -> None:
        _lock(self)


@dataclass(frozen=True)
class BatchOptions:
    """The batches at which each job of a View may train, with progress per sample and iteration times.

    Attributes
    ----------
    sizes : ndarray of int, shape (n, B)
        Samples, ascending, then padded with 0. A job without a choice has only its requested batch.
    efficiency : ndarray of float, shape (n, B)
        Statistical efficiency: progress per sample now, relative to the requested batch; 0 where padded.
    iteration_time_s : ndarray of float, shape (n, T, K, B)
        Seconds per iteration as the policy's information class knows them; inf where infeasible.
    """

    sizes: Ints
    efficiency: Floats
    iteration_time_s: Floats

    def select(self, rows: Ints | slice) -> BatchOptions:
        """Return the batches of some jobs, given their positions in the View."""
        return BatchOptions(self.sizes[rows], self.efficiency[rows], self.iteration_time_s[rows])


@dataclass(frozen=True)
class PairOptions:
    """Which jobs of a View may share GPUs in pairs, and the speeds that they keep.

    Both jobs of a pair hold the same GPUs of (type, count). The axes C are classes of equal jobs.

    Attributes
    ----------
    job_class : ndarray of int, shape (n,)
        Class of each job of the View.
    allowed : ndarray of bool, shape (C, C, T, K)
        Whether two classes may share; symmetric.
    kept : ndarray of float, shape (C, C, T, K), or None
        Share of its speed alone that a job of the first class keeps beside one of the second; 0 where they
        may not share. None for the information class `none`, which must measure it.
    """

    job_class: Ints
    allowed: Bools
    kept: Floats | None

    def __post_init__(self) -> None:
        _lock(self)


@dataclass(frozen=True)
class Places:
    """Free GPUs of each node, and the nodes that each running job holds.

    Attributes
    ----------
    node_type : ndarray of int, shape (N,)
        Index of each node's GPU type.
    free_on_node : ndarray of int, shape (N,)
        GPUs of each node that a decision may give.
    nodes : mapping of int to Nodes
        What each running job holds, by row of the trace.
    domain : ndarray of int, shape (N,)
        Number of each node's NVLink domain, ascending: of the node alone where none joins several.
    domain_gpus : ndarray of int, shape (T,)
        GPUs of each type that a gang may count on in one domain.
    segment : ndarray of int, shape (n, T)
        GPUs of each block of a job's request that must lie in one NVLink domain; 1: they lie anywhere.
    """

    node_type: Ints
    free_on_node: Ints
    nodes: Mapping[int, Nodes]
    domain: Ints
    domain_gpus: Ints
    segment: Ints

    def __post_init__(self) -> None:
        _lock(self)


@dataclass(frozen=True)
class CapacityView:
    """The products that can be rented: arrays of length P, in the order of `Decision.capacity`.

    Attributes
    ----------
    products : tuple of str
    held, ordered : ndarray of int
        Nodes that are there, without those about to go; nodes that come later.
    offered : ndarray of int
        Further nodes that could be ordered now.
    price : ndarray of float
        USD per GPU-hour now.
    at_once, returnable : ndarray of bool
        Whether what is ordered comes at once, and whether it may be given back.
    """

    products: tuple[str, ...]
    held: Ints
    ordered: Ints
    offered: Ints
    price: Floats
    at_once: Bools
    returnable: Bools

    def __post_init__(self) -> None:
        _lock(self)


@dataclass(frozen=True)
class StopCosts:
    """The costs of stopping each job of a View now, such as lost work, as arrays of length n.

    Attributes
    ----------
    checkpoint_age_s : ndarray of float, shape (n,)
        Seconds of work since the last checkpoint, or since the launch if there was none.
    save_s : ndarray of float, shape (n,)
        Seconds that saving takes.
    lost_iterations, lost_gpu_s : ndarray of float, shape (n,)
        Iterations and GPU-seconds of work that a stop without notice undoes.
    save_gpu_s : ndarray of float, shape (n,)
        GPU-seconds that a stop with notice takes to save; 0 where jobs save whenever they are stopped.
    restart_gpu_s : ndarray of float, shape (n,)
        GPU-seconds that the job stands still when it is launched again on as many GPUs of the type.
    loses : bool
        Whether stops without notice lose work; if not, a decision gives no notice.
    """

    checkpoint_age_s: Floats
    save_s: Floats
    lost_iterations: Floats
    lost_gpu_s: Floats
    save_gpu_s: Floats
    restart_gpu_s: Floats
    loses: bool

    def __post_init__(self) -> None:
        _lock(self)

    def select(self, rows: Ints | slice) -> StopCosts:
        """Return the costs of some jobs, given their positions in the View."""
        columns = {name: value[rows] for name, value in vars(self).items() if name != "loses"}
        return replace(self, **columns)


@dataclass(frozen=True)
class View:
    """What a policy sees at a decision point: the n jobs in the system, and the GPUs.

    A job that must be profiled (`clustergym.scenario.costs.ProfilePrice`) is shown once it is profiled on
    some GPU type. The arrays are read-only; copy one to modify it.

    Attributes
    ----------
    now_s : float
        Time of the decision point, seconds from the start of the run.
    setting : Setting
        What stays the same in a run: GPU types, their sizes, the counts that are allowed.
    available : ndarray of int, shape (T,)
        GPUs a decision may use: all but those held for profiling or planned jobs or on failed nodes.
    free : ndarray of int, shape (T,)
        Available GPUs that no job holds now.
    job : ndarray of int, shape (n,)
        Row of the trace: the job's identity in a Decision.
    state : ndarray of int, shape (n,)
        `QUEUED` or `RUNNING`, of this module.
    gpu_type : ndarray of int, shape (n,)
        Index of the type held; -1: none.
    gpus : ndarray of int, shape (n,)
        GPUs held; 0: none.
    requested_type, requested_gpus : ndarray of int, shape (n,)
        The job's request; type -1: any.
    submit_s, deadline_s : ndarray of float, shape (n,)
        Seconds; deadline NaN: none.
    queued_s : ndarray of float, shape (n,)
        When a queued job last began to wait (NaN for a running one).
    standstill_s : ndarray of float, shape (n,)
        Seconds until a launched job starts to work (the rest of its restart); 0 for other jobs.
    iterations, remaining_iterations : ndarray of float, shape (n,)
        Iterations at the requested batch, of the work that the job asked for. Where its log ends it before,
        only a clairvoyant policy is shown no more than it will do. At another batch M an iteration does the
        work of M / requested x efficiency of them, so that a job's whole work is the same whatever its batch.
    global_batch, priority, restarts : ndarray of int, shape (n,)
        The requested batch, samples; priority; restarts so far.
    batch : ndarray of int, shape (n,)
        The global batch a job trains at now, samples; the requested one where it holds no GPUs.
    attained_gpu_s : ndarray of float, shape (n,)
        GPU-seconds held so far; shared GPUs count half.
    feasible : ndarray of bool, shape (n, T, K)
        Whether the job fits in the memory of (type, count).
    parts : PartView or None
        Where GPUs can be divided, what each job asks for and has. A job with a part of a GPU holds 1 then, as
        does one without GPUs, and `free` counts untouched GPUs.
    queue : ndarray of int, shape (n,)
        Index into `setting.queues.leaves` of the job's queue; 0 if there are no queues.
    partner : ndarray of int, shape (n,), or None
        Row of the trace of the job that shares all its GPUs; -1: none. None where the scenario has no pairs.
    time_limit_s : ndarray of float, shape (n,), or None
        Seconds that a job asks to run for at most, once started; NaN: it does not say. None where the trace
        keeps no time limits.
    requested_nodes : ndarray of int, shape (n,), or None
        Nodes that a job asks for, with equally many of its requested GPUs on each; 0: any. None: no job asks
        for any.
    coming : ndarray of int, shape (T,), or None
        GPUs held by jobs that were given notice, which are available once these have saved: until then no
        View shows the jobs. None: there are none.
    capacity : CapacityView or None
        What can be rented; None: all nodes are there anyway.
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
    queue: Ints
    times: Callable[[], Floats] = field(repr=False)
    costs: Callable[[], Floats] = field(repr=False)
    batches: Callable[[], BatchOptions | None] = field(repr=False)
    parts: PartView | None = None
    partner: Ints | None = None
    time_limit_s: Floats | None = None
    requested_nodes: Ints | None = None
    coming: Ints | None = None
    capacity: CapacityView | None = None
    pairs: Callable[[], PairOptions | None] = field(repr=False, default=lambda: None)
    where: Callable[[], Places | None] = field(repr=False, default=lambda: None)
    stops: Callable[[], StopCosts | None] = field(repr=False, default=lambda: None)

    def __post_init__(self) -> None:
        _lock(self)

    def with_columns(self, columns: Mapping[str, object]) -> View:
        """Return a copy of the View with some fields replaced; their arrays must be read-only.

        In a quarter of the time of `dataclasses.replace`, for those who make thousands.
        """
        # Not by `__init__`: it would lock arrays that are locked already.
        view = object.__new__(View)
        view.__dict__.update(self.__dict__)
        view.__dict__.update(columns)
        return view

    def __len__(self) -> int:
        return len(self.job)

    def iteration_time_s(self) -> Floats:
        """Return the seconds per iteration that the policy may know, by job, GPU type and count, (n, T, K).

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

    def find_fitting_types(self, at: Ints | slice, level: Ints) -> Bools:
        """Return whether each of m jobs fits on each GPU type at its GPU count (index `level`), shape (m, T).

        Parameters
        ----------
        at : ndarray of int or slice
            Positions of m jobs in the View.
        level : ndarray of int, shape (m,)
            Index into `setting.counts` for each.

        Returns
        -------
        ndarray of bool, shape (m, T)
        """
        found: Bools = self.feasible[at][np.arange(len(level)), :, level]
        return found

    def restart_cost_s(self) -> Floats:
        """Return the seconds each job would stand still if moved to a GPU type and count, (n, T, K).

        Returns
        -------
        ndarray of float, shape (n, T, K)
            For a queued job the cost of its start or resumption; 0 for the allotment it holds.
        """
        return self.costs()

    def batch_options(self) -> BatchOptions | None:
        """Return the global batches at which jobs may train; None if no job has a choice.

        Raises
        ------
        InformationError
            If the policy's information class is `none`.
        """
        return self.batches()

    def pair_options(self) -> PairOptions | None:
        """Return which jobs may share GPUs in pairs; None if the scenario allows no sharing."""
        return self.pairs()

    def describe(self) -> str:
        """Return this View as readable text with units."""
        from clustergym.scenario.view_text import describe

        try:
            times = self.times()
        except InformationError:
            times = None
        return describe(self, times)

    def places(self) -> Places | None:
        """Return free GPUs by node and the nodes of running jobs; None on clusters with divisible GPUs."""
        return self.where()

    def stop_costs(self) -> StopCosts:
        """Return the costs of stopping each job now, with and without time to save.

        Raises
        ------
        InformationError
            If the View is of no run.
        """
        found = self.stops()
        if found is None:
            raise InformationError("this View is of no run, and does not know what a stop costs")
        return found
