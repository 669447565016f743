"""The interface of policies and placers: what they see and what they return."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.parameters import Parameters

if TYPE_CHECKING:
    from clustergym.cluster.allocation import Allocations
    from clustergym.cluster.part_allocations import PartAllocations
    from clustergym.cluster.parts import Place
    from clustergym.cluster.spec import ClusterSpec, Nodes
    from clustergym.oracle.models.model_spec import ModelClass
    from clustergym.scenario.part_view import PartView
    from clustergym.scenario.tenants.queue_tree import QueueTree
    from clustergym.trace.trace import Trace


class InformationClass(enum.StrEnum):
    """What a policy knows of iteration times. A leaderboard ranks policies only within a class."""

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
    """A policy asked for iteration times that its information class does not include."""


QUEUED, RUNNING = 0, 1
"""Values of `View.state`."""


def _lock(shown: object) -> None:
    """Make all arrays in an object's fields read-only, so that a policy cannot change them."""
    for value in vars(shown).values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)


@dataclass(frozen=True)
class Setting:
    """The constants of a run that a policy may use; the arrays are read-only.

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
    """The global batches that each job of a View may train at, at most B per job.

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


@dataclass(frozen=True)
class PairOptions:
    """Which jobs of a View may share GPUs in pairs, and how fast they are then.

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
    """Where the jobs of a View are.

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

    def free_in_domains(self, gpu_type: int) -> Ints:
        """Return the GPUs of a type that are free in each domain, shape (domains,)."""
        free = np.where(self.node_type == gpu_type, self.free_on_node, 0)
        return np.bincount(self.domain, weights=free).astype(np.int64)

    def stranded_gpus(self, gpu_type: int, gpus: int) -> int:
        """Return the free GPUs that jobs of so many GPUs, each inside a domain, cannot use."""
        return int((self.free_in_domains(gpu_type) % gpus).sum())

    def fragmentation(self, gpu_type: int, gpus: int) -> float:
        """Return `stranded_gpus` over all free GPUs of the type; 0 where none is free."""
        free = int(self.free_in_domains(gpu_type).sum())
        return self.stranded_gpus(gpu_type, gpus) / free if free else 0.0


@dataclass(frozen=True)
class StopCosts:
    """What it costs to stop each job of a View now; 0 for jobs that wait, but for `save_s`.

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
        """Return the costs of some jobs, by their places in the View."""
        columns = {name: value[rows] for name, value in vars(self).items() if name != "loses"}
        return replace(self, **columns)


@dataclass(frozen=True)
class View:
    """What a policy sees at a decision point: the n jobs in the system, in order of submission.

    A job that must be profiled (`clustergym.scenario.costs.ProfilePrice`) is shown once it is profiled on
    some GPU type. The arrays are read-only; copy one to modify it.

    Attributes
    ----------
    now_s : float
    setting : Setting
    available : ndarray of int, shape (T,)
        GPUs a decision may use: all but those held for profiling or planned jobs or on failed nodes.
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
    pairs: Callable[[], PairOptions | None] = field(repr=False, default=lambda: None)
    where: Callable[[], Places | None] = field(repr=False, default=lambda: None)
    stops: Callable[[], StopCosts | None] = field(repr=False, default=lambda: None)

    def __post_init__(self) -> None:
        _lock(self)

    def with_columns(self, columns: Mapping[str, object]) -> View:
        """Return a View with other values of some fields, whose arrays are read-only already, without checks.

        In a quarter of the time of `dataclasses.replace`, for those who make thousands.
        """
        view = object.__new__(View)
        view.__dict__.update(self.__dict__)
        view.__dict__.update(columns)
        return view

    def __len__(self) -> int:
        return len(self.job)

    def iteration_time_s(self) -> Floats:
        """Return the seconds per iteration that the policy's information class knows.

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
        """Return on which types jobs fit with a count of their own, without making all of `feasible`.

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
        """Return the seconds each job would stand still if it were moved to (type, count) now.

        Returns
        -------
        ndarray of float, shape (n, T, K)
            For a queued job the cost of its start or resumption; 0 for the allotment it holds.
        """
        return self.costs()

    def batch_options(self) -> BatchOptions | None:
        """Return the global batches that jobs may train at; None if no job has a choice.

        Raises
        ------
        InformationError
            If the policy's information class is `none`.
        """
        return self.batches()

    def pair_options(self) -> PairOptions | None:
        """Return which jobs may share GPUs in pairs; None if the scenario has no table of pairs."""
        return self.pairs()

    def describe(self) -> str:
        """Return this View as text with units (`clustergym.scenario.view_text`)."""
        from clustergym.scenario.view_text import describe

        try:
            times = self.times()
        except InformationError:
            times = None
        return describe(self, times)

    def places(self) -> Places | None:
        """Return where jobs are; None where GPUs can be divided."""
        return self.where()

    def stop_costs(self) -> StopCosts:
        """Return what it costs to stop each job now, with and without notice.

        Raises
        ------
        InformationError
            If the View is of no run.
        """
        found = self.stops()
        if found is None:
            raise InformationError("this View is of no run, and does not know what a stop costs")
        return found


@dataclass(frozen=True)
class Decision:
    """A policy's decision: the allotment of every job that shall run from now on.

    A running job that is left out is preempted; one whose allotment is unchanged keeps running. A job
    whose batch alone changes continues without a restart, as jobs of Pollux change their batch while they
    train (OSDI '21, section 4.1).

    Attributes
    ----------
    job, gpu_type, gpus : ndarray of int, shape (m,)
        Trace row, index of the GPU type, GPU count.
    drop : ndarray of int
        Trace rows of jobs to drop for good.
    batch : ndarray of int, shape (m,), or None
        Global batch, samples; 0: the requested one. None: all train at the requested one.
    partner : ndarray of int, shape (m,), or None
        Trace row of the job that shares all its GPUs, which names it in turn and has the same type and
        count; -1: none. The GPUs of a pair count once. None: no job shares.
    avoid : mapping of int to tuple of int, or None
        Nodes that the launch of a job may not use, by row of the trace, such as those reserved for others.
    notice : ndarray of int
        Trace rows of running jobs that save before they are stopped, which they hold their GPUs for, or
        before they are launched on other GPUs, which then stands still for longer. Allowed only where jobs do
        not save whenever they are stopped (`StopCosts.loses`).
    move : mapping of int to Nodes or int, or None
        Nodes, as (node, GPUs), or the NVLink domain that jobs of the decision are to be on. A running job
        that is elsewhere moves there, at the price of a restart.
    again_s : float or None
        When the policy wants to decide next, if no event comes before. Counts where decision points are
        events; of several only the last.
    """

    job: Ints
    gpu_type: Ints
    gpus: Ints
    drop: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    batch: Ints | None = None
    partner: Ints | None = None
    avoid: Mapping[int, tuple[int, ...]] | None = None
    notice: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    move: Mapping[int, Nodes | int] | None = None
    again_s: float | None = None

    @staticmethod
    def of(allotments: Iterable[tuple[int, int, int]], drop: Iterable[int] = ()) -> Decision:
        """Build a decision from (job, type index, count) triples."""
        table = np.array(list(allotments), dtype=np.int64).reshape(-1, 3)
        return Decision(table[:, 0], table[:, 1], table[:, 2], np.array(list(drop), dtype=np.int64))

    def also(self, allotments: Iterable[tuple[int, int, int]]) -> Decision:
        """Return this decision with further (job, type index, count) triples."""
        more = Decision.of(allotments)
        if not len(more.job):
            return self
        none = np.full_like(more.gpus, -1)
        return replace(
            self,
            job=np.concatenate([self.job, more.job]),
            gpu_type=np.concatenate([self.gpu_type, more.gpu_type]),
            gpus=np.concatenate([self.gpus, more.gpus]),
            batch=None if self.batch is None else np.concatenate([self.batch, np.zeros_like(more.gpus)]),
            partner=None if self.partner is None else np.concatenate([self.partner, none]),
        )

    def paired(self, pairs: Iterable[tuple[int, int]]) -> Decision:
        """Return a copy of this decision in which the two jobs (trace rows) of each pair share their GPUs."""
        beside = {row: other for pair in pairs for row, other in (pair, pair[::-1])}
        partner = np.array([beside.get(row, -1) for row in self.job.tolist()], dtype=np.int64)
        return replace(self, partner=partner)

    @staticmethod
    def keep(view: View) -> Decision:
        """Build the decision that changes nothing."""
        held = np.flatnonzero(view.gpus > 0)
        partner = None if view.partner is None else view.partner[held]
        table = view.job[held], view.gpu_type[held], view.gpus[held]
        return Decision(*table, batch=view.batch[held], partner=partner)


class Policy(Parameters, ABC):
    """A scheduling policy. Its parameters are dataclass fields, so that a variant is a parameter.

    Attributes
    ----------
    information_class : InformationClass
        What the policy's View knows of iteration times.
    round_s : float or None
        Seconds between its decision points when the scenario leaves that to the policy;
        None: at every event.
    serves_parts : bool
        Whether it starts jobs that ask for parts of GPUs where there is room for them.
    needs_queues : bool
        Whether it divides GPUs among the queues of tenants, and refuses a scenario without.
    """

    config_key: ClassVar[str] = "policy"
    name: ClassVar[str]
    serves_parts: ClassVar[bool] = False
    needs_queues: ClassVar[bool] = False
    round_s: float | None = None

    @property
    @abstractmethod
    def information_class(self) -> InformationClass:
        """What the policy knows of iteration times; usually a plain class attribute."""

    @property
    def needs_places(self) -> bool:
        """Whether it asks where jobs are (`View.places`), moves them or gives them notice.

        The compiled engine does none of these. Usually a plain class attribute.
        """
        return False

    def check(self, trace: Trace, setting: Setting) -> None:
        """Raise an `InputError` if the trace or the cluster lacks what the policy needs."""

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Prepare for a new run; `rng` is the policy's own random generator, derived from the run's seed."""

    def fingerprint(self) -> str:
        """Return a digest of the files the policy reads, such as weights; empty if it reads none."""
        return ""

    def counters(self) -> Mapping[str, int]:
        """Return counts the policy made in the run, such as solver fallbacks, for result.json."""
        return {}

    @property
    def steady(self) -> bool:
        """Whether it decides the same again while the same jobs hold the same GPUs.

        Its decision then depends only on which jobs there are, what they ask for, hold and may hold, their
        iteration times and the GPUs that may be used: not on the time, on progress or on restarts.
        """
        return False

    @property
    def consistent(self) -> bool:
        """Whether it is steady, and decides the same on fewer GPUs that are still as many as it then uses.

        It also decides the same again once its decision has been carried out.
        """
        return False

    @property
    def only_starts(self) -> bool:
        """Whether it is steady, lets running jobs keep what they hold, and starts others at their requests.

        Where no request that waits fits in the free GPUs of a type it may run on, it then changes nothing.
        """
        return False

    @abstractmethod
    def schedule(self, view: View) -> Decision:
        """Return the decision for one decision point."""


@dataclass(frozen=True)
class Infeasible:
    """A placer's answer when it cannot place an allotment.

    Attributes
    ----------
    reason : str
        Why it cannot be placed, on one line.
    gpus_short, nodes_short : int
        Further GPUs and nodes that would have to be free; 0 if not known.
    """

    reason: str
    gpus_short: int = 0
    nodes_short: int = 0

    def __str__(self) -> str:
        """Return the reason and the number of GPUs and nodes short."""
        short = [
            f"{count} {unit}{'s' if count > 1 else ''} short"
            for count, unit in ((self.gpus_short, "GPU"), (self.nodes_short, "node"))
            if count
        ]
        return ", ".join([self.reason, *short])


class Placer(Parameters, ABC):
    """Chooses the nodes of an allotment. Its parameters are dataclass fields.

    Attributes
    ----------
    defragment_s : float or None
        Seconds between calls of `defragment`; None: never.
    """

    config_key: ClassVar[str] = "placer"
    name: ClassVar[str]
    defragment_s: float | None = None

    def reset(self, cluster: ClusterSpec, rng: np.random.Generator) -> None:
        """Prepare for a new run; `rng` is the placer's own random generator, derived from the run's seed."""

    def fingerprint(self) -> str:
        """Return a digest of the files the placer reads, such as weights; empty if it reads none."""
        return ""

    @abstractmethod
    def place(self, allocations: Allocations, gpu_type: int, gpus: int) -> Nodes | Infeasible:
        """Choose nodes for `gpus` GPUs of a type, without allocating them.

        The engine calls this only if `allocations.free[gpu_type] >= gpus`. A placer with further needs, such
        as whole nodes, returns `Infeasible` if they are not met; the job then waits.
        """

    @property
    def places_evenly(self) -> bool:
        """Whether it has a `place_evenly`."""
        return False

    def place_evenly(
        self, allocations: Allocations, gpu_type: int, gpus: int, nodes: int
    ) -> Nodes | Infeasible:
        """Choose as many nodes as a job asks for, with equally many of its GPUs on each; as `place`."""
        raise NotImplementedError

    @property
    def places_segments(self) -> bool:
        """Whether it has a `place_segments`."""
        return False

    def place_segments(
        self, allocations: Allocations, gpu_type: int, gpus: int, segment: int
    ) -> Nodes | Infeasible:
        """Choose nodes so that each block of `segment` GPUs lies in one NVLink domain; as `place`.

        Blocks of at most a node lie on one node; larger ones are of whole nodes.
        """
        raise NotImplementedError

    @property
    def places_parts(self) -> bool:
        """Whether it has a `place_part`."""
        return False

    def place_part(self, allocations: PartAllocations, job: int) -> Place | Infeasible:
        """Choose a node, and a device for a part of one, for a job on a divisible cluster.

        Parameters
        ----------
        allocations : PartAllocations
            `allocations.parts` says what the job asks for, `allocations.nodes` what is free.
        job : int
            Row of the trace.
        """
        raise NotImplementedError

    def defragment(self, allocations: Allocations) -> list[tuple[int, Nodes]]:
        """Propose better nodes for running jobs, keeping each job's GPU type and count.

        Proposals are independent: each must be possible alone, given the free GPUs and those of the job
        itself. The engine moves a job only if the move saves more time than its restart costs.
        """
        return []
