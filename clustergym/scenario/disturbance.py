"""The hook for disturbances: what befalls nodes and jobs, whatever the policy decides."""
# ruff: noqa: D102 -- `sim.disturbances` describes the methods of `DisturbedRun`.

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.common.parameters import build
from clustergym.scenario.policy import Placer
from clustergym.trace.trace import Trace


class DisturbanceMetric(NamedTuple):
    """A metric of a disturbance, such as failures: its description, and a function that computes it.

    `figure` is given the log's events (`sim.log.Event`) that disturbances name, and those of jobs that were
    interrupted.
    """

    name: str
    unit: str
    better: Literal["lower", "higher", ""]
    definition: str
    figure: Callable[[Sequence[Any]], float | int | None]


class DisturbedRun(Protocol):
    """What a disturbance, such as node failures, may read and change in a run; all times are clock ticks."""

    trace: Trace
    placer: Placer
    allocations: Allocations

    @property
    def now(self) -> int: ...
    def follow(self, steps: Iterator[int]) -> None: ...
    def note(self, event_type: str, node: int, cause: str = "") -> None: ...
    def take_out(
        self,
        node: int,
        duration: int,
        events: tuple[str, str],
        reason: str,
        cause: str = "",
        detection: int = 0,
        restart_s: float = 0.0,
    ) -> None: ...
    def slow(
        self, node: int, factor: float, duration: int, events: tuple[str, str], cause: str = ""
    ) -> None: ...
    def list_jobs(self, node: int) -> list[int]: ...
    def halt(self, row: int, duration: int, undo: bool, reason: str, cause: str = "") -> None: ...
    def interrupt(self, row: int, reason: str, cause: str = "", restart_s: float = 0.0) -> None: ...
    def find_work_tick(self, row: int) -> int | None: ...
    def lose(self, node: int, event: str, reason: str) -> None: ...
    def give_back(self, node: int, event: str) -> None: ...
    def find_save_s(self, row: int) -> float: ...
    def save(self, row: int) -> None: ...
    def clear(self, nodes: Collection[int]) -> None: ...
    def drop(self, row: int, reason: str) -> None: ...
    def request(self, row: int) -> tuple[int, int]: ...
    def waits(self, row: int) -> bool: ...
    def find_queued_tick(self, row: int) -> int: ...
    def decide_again(self) -> None: ...
    def list_busy_nodes(self, tick: int) -> set[int]: ...
    def start_at_nodes(self, row: int, gpu_type: int, gpus: int, nodes: Nodes) -> None: ...


class ActiveDisturbance:
    """Base class of a disturbance, such as node failures, during one run; the engine calls its methods.

    Attributes
    ----------
    jobs : collection of int
        Jobs (rows of the trace) that the disturbance starts itself, and that no policy sees.
    """

    jobs: Collection[int] = ()

    @property
    def active(self) -> bool:
        """Whether it may still change something although no job runs or will arrive; False by default."""
        return False

    def withheld(self, until: float) -> Mapping[int, str]:
        """Return the nodes closed to jobs that would run until tick `until`, with reasons; here none."""
        return {}

    def note_launch(self, row: int) -> None:
        """Do nothing at the launch, relaunch or move of the job in a trace row; subclasses may react."""

    def note_interruption(self, row: int) -> None:
        """Do nothing when the job in a trace row loses its GPUs to a disturbance; subclasses may react."""

    def serve(self) -> None:
        """Do nothing after all events of an instant, before profiling and decisions; subclasses may act."""


class Disturbance(ABC):
    """Base class of the settings of a disturbance that no policy influences, such as node failures.

    Attributes
    ----------
    key, switch : str
        Key of its settings under `scenario` in the configuration; which of these says whether it is on.
    outages : tuple of (str, str)
        Names of the events that take a node out of use and give it back. Reports show the time between.
    metrics : tuple of DisturbanceMetric
    ends_jobs : bool
        Whether it may end jobs before their work is done, so that means over jobs leave them out.
    stops_lose : bool
        Whether jobs that are stopped or moved without notice go back to their last checkpoints.
    """

    key: ClassVar[str]
    switch: ClassVar[str]
    ends_jobs: ClassVar[bool] = False
    stops_lose: ClassVar[bool] = False
    outages: ClassVar[tuple[tuple[str, str], ...]] = ()
    metrics: ClassVar[tuple[DisturbanceMetric, ...]] = ()

    @classmethod
    def from_config(
        cls, given: Mapping[str, Any], cluster: ClusterSpec, trace: Trace, seed: int
    ) -> Self | None:
        """Build the disturbance from its keys under `scenario`; None if it is switched off.

        Here the keys are the fields of its dataclass; one without a seed of its own has the run's.
        """
        chosen: Self = build(cls, given, f"scenario.{cls.key}")
        # Before it is switched off, as a key that is wrong then would be overlooked.
        chosen.check(trace)
        if not getattr(chosen, cls.switch):
            return None
        return replace(chosen, seed=seed) if getattr(chosen, "seed", 0) is None else chosen  # type: ignore[type-var]

    def check(self, trace: Trace) -> None:  # noqa: B027 -- most have nothing to check
        """Raise an `InputError` if keys do not go with each other or with the trace; by default nothing."""

    @abstractmethod
    def start(self, run: DisturbedRun) -> ActiveDisturbance | None:
        """Start the disturbance in a run; return the object whose methods the engine calls, if any."""

    def checkpoints(self, cluster: ClusterSpec, nodes: Nodes) -> tuple[float, float] | None:
        """Return seconds of work between checkpoints on nodes, and of writing one, or None, the default.

        The least interval of all disturbances counts; where none asks for any (None), a job that is
        interrupted goes back to its launch.
        """
        return None

    def fingerprint(self) -> object:
        """Return the settings as JSON values, which enter the scenario's digest."""
        return asdict(self)  # type: ignore[call-overload]
