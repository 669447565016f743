"""The interface of policies and placers. What a policy sees is in `view`; it answers with a `Decision`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.parameters import Parameters
from clustergym.scenario.view import (
    KNOWS,
    QUEUED,
    RUNNING,
    BatchOptions,
    CapacityView,
    InformationClass,
    InformationError,
    PairOptions,
    Places,
    Setting,
    StopCosts,
    View,
)

if TYPE_CHECKING:
    from clustergym.cluster.allocation import Allocations, PartAllocations
    from clustergym.cluster.parts import Place
    from clustergym.cluster.spec import ClusterSpec, Nodes
    from clustergym.trace.trace import Trace

__all__ = ["KNOWS", "QUEUED", "RUNNING", "BatchOptions", "CapacityView", "Decision", "Infeasible"]
__all__ += ["InformationClass", "InformationError", "PairOptions", "Placer", "Places", "Policy"]
__all__ += ["Setting", "StopCosts", "View"]


@dataclass(frozen=True)
class Decision:
    """A policy's decision: the GPU type and count of every job that is to run from now on.

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
    capacity : tuple of int or None
        Target of each product that can be rented (`View.capacity`): nodes that are to be held or ordered.
        What is ordered with no lead may be used at once. Jobs that stay on a node that is given back move.
        None: what is held and ordered stays.
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
    capacity: tuple[int, ...] | None = None

    @staticmethod
    def of(allotments: Iterable[tuple[int, int, int]], drop: Iterable[int] = ()) -> Decision:
        """Build a decision from (trace row, GPU type index, GPU count) triples, and trace rows to drop."""
        table = np.fromiter(chain.from_iterable(allotments), dtype=np.int64).reshape(-1, 3)
        return Decision(table[:, 0], table[:, 1], table[:, 2], np.array(list(drop), dtype=np.int64))

    def also(self, allotments: Iterable[tuple[int, int, int]]) -> Decision:
        """Return a copy of this decision with further (trace row, GPU type index, GPU count) triples."""
        # A new start trains at the requested batch (0) and shares with nobody (-1).
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
        """Return a copy of this decision in which the two jobs of each pair (trace rows) share their GPUs."""
        # Each of a pair names the other, which the engine checks.
        beside = {row: other for pair in pairs for row, other in (pair, pair[::-1])}
        partner = np.array([beside.get(row, -1) for row in self.job.tolist()], dtype=np.int64)
        return replace(self, partner=partner)

    @staticmethod
    def keep(view: View) -> Decision:
        """Build the decision in which every job keeps what it holds."""
        # With batch and partner: leaving them out would ask for the requested batch, and end a pair.
        held = np.flatnonzero(view.gpus > 0)
        partner = None if view.partner is None else view.partner[held]
        table = view.job[held], view.gpu_type[held], view.gpus[held]
        return Decision(*table, batch=view.batch[held], partner=partner)


class Policy(Parameters, ABC):
    """Base class of scheduling policies; a policy's parameters are the fields of its dataclass.

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
    with_options : str
        Module of the class that is built in its place where a parameter is given that it lacks; empty: none.
    """

    config_key: ClassVar[str] = "policy"
    name: ClassVar[str]
    serves_parts: ClassVar[bool] = False
    needs_queues: ClassVar[bool] = False
    with_options: ClassVar[str] = ""
    round_s: float | None = None

    @property
    @abstractmethod
    def information_class(self) -> InformationClass:
        """What the policy knows of iteration times; usually a plain class attribute."""

    @property
    def needs_places(self) -> bool:
        """Whether the policy reads where jobs run, moves them or lets them save before stops; False here.

        The compiled engine does none of these. Usually a plain class attribute.
        """
        return False

    def check(self, trace: Trace, setting: Setting) -> None:
        """Raise an `InputError` if the trace or cluster lacks what the policy needs; by default nothing."""

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Prepare for a new run, here not at all; `rng` is the policy's own generator, seeded by the run."""

    def fingerprint(self) -> str:
        """Return a digest of files that the policy reads, such as weights; empty by default: no files."""
        return ""

    def counters(self) -> Mapping[str, int]:
        """Return what the policy counted, such as solver failures, by name for result.json; here nothing."""
        return {}

    @property
    def steady(self) -> bool:
        """Whether decisions depend on jobs, GPUs and iteration times alone, so stay valid; False by default.

        Its decision then depends only on which jobs there are, what they ask for, hold and may hold, their
        iteration times and the GPUs that may be used: not on the time, on progress or on restarts.
        """
        return False

    @property
    def consistent(self) -> bool:
        """Whether the policy is `steady`, and decides the same with fewer idle GPUs; False by default.

        It also decides the same again once its decision has been carried out.
        """
        return False

    @property
    def only_starts(self) -> bool:
        """Whether the policy is `steady`, and only starts jobs at their requests; False by default.

        Where no request that waits fits in the free GPUs of a type it may run on, it then changes nothing.
        """
        return False

    @abstractmethod
    def schedule(self, view: View) -> Decision:
        """Decide which jobs hold which GPUs from now on, given the View at a decision point."""


@dataclass(frozen=True)
class Infeasible:
    """A placer's answer if it finds no nodes for a job: the reason, and how many GPUs and nodes are missing.

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
    """Base class of placers, which choose nodes for a job; parameters are the dataclass's fields.

    Attributes
    ----------
    defragment_s : float or None
        Seconds between calls of `defragment`; None: never.
    """

    config_key: ClassVar[str] = "placer"
    name: ClassVar[str]
    defragment_s: float | None = None

    def reset(self, cluster: ClusterSpec, rng: np.random.Generator) -> None:
        """Prepare for a new run, here not at all; `rng` is the placer's own generator, seeded by the run."""

    def fingerprint(self) -> str:
        """Return a digest of files that the placer reads, such as weights; empty by default: no files."""
        return ""

    @abstractmethod
    def place(self, allocations: Allocations, gpu_type: int, gpus: int) -> Nodes | Infeasible:
        """Choose nodes for `gpus` GPUs of a type (an index), without allocating them.

        The engine calls this only if `allocations.free[gpu_type] >= gpus`. A placer with further needs, such
        as whole nodes, returns `Infeasible` if they are not met; the job then waits.
        """

    @property
    def places_evenly(self) -> bool:
        """Whether the placer can put equally many GPUs on each node (`place_evenly`); False by default."""
        return False

    def place_evenly(
        self, allocations: Allocations, gpu_type: int, gpus: int, nodes: int
    ) -> Nodes | Infeasible:
        """Choose the given number of nodes, equally many GPUs on each; by default not implemented."""
        raise NotImplementedError

    @property
    def places_segments(self) -> bool:
        """Whether the placer can keep GPU blocks in NVLink domains (`place_segments`); False by default."""
        return False

    def place_segments(
        self, allocations: Allocations, gpu_type: int, gpus: int, segment: int
    ) -> Nodes | Infeasible:
        """Choose nodes such that each `segment` GPUs are in one NVLink domain; by default not implemented.

        Blocks of at most a node lie on one node; larger ones are of whole nodes.
        """
        raise NotImplementedError

    @property
    def places_parts(self) -> bool:
        """Whether the placer can place parts of GPUs (`place_part`); False by default."""
        return False

    def place_part(self, allocations: PartAllocations, job: int) -> Place | Infeasible:
        """Choose a node and GPU for the part of a GPU that row `job` requests; by default not implemented.

        Parameters
        ----------
        allocations : PartAllocations
            `allocations.parts` says what the job asks for, `allocations.nodes` what is free.
        job : int
            Row of the trace.
        """
        raise NotImplementedError

    def defragment(self, allocations: Allocations) -> list[tuple[int, Nodes]]:
        """Return (trace row, better nodes) of running jobs, which keep GPU type and count; none by default.

        Proposals are independent: each must be possible alone, given the free GPUs and those of the job
        itself. The engine moves a job only if the move saves more time than its restart costs.
        """
        return []
