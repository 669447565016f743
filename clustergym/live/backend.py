"""The interface through which a live run talks to a scheduler: a back end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from clustergym.cluster.spec import Nodes
from clustergym.common.errors import InputError


class NoAnswerError(InputError):
    """A scheduler did not answer, or not so that it can be read; it may if it is asked again."""


@dataclass(frozen=True)
class Part:
    """An allocation with the same number of GPUs on each of its nodes.

    Attributes
    ----------
    nodes : tuple of int
        Nodes of the scenario's cluster, ascending.
    gpus : int
        GPUs on each.
    """

    nodes: tuple[int, ...]
    gpus: int


def list_parts(name: str, nodes: Nodes) -> dict[str, Part]:
    """Return the parts, by name, that together hold the nodes and GPUs of a launch."""
    counts = sorted({gpus for _, gpus in nodes}, reverse=True)
    return {
        f"{name}.{number}": Part(tuple(node for node, on_node in nodes if on_node == gpus), gpus)
        for number, gpus in enumerate(counts)
    }


@dataclass(frozen=True)
class BackendStatus:
    """The state of the scheduler that a back end returns when it is polled.

    Attributes
    ----------
    parts : mapping of str to Part
        Allocations of this run that hold nodes, by name.
    down : frozenset of int
        Nodes that are out of use.
    unsure : frozenset of int
        Nodes of which the scheduler does not know now whether they can be used: it was just started, or they
        do not answer it.
    """

    parts: Mapping[str, Part]
    down: frozenset[int]
    unsure: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Claim:
    """The mark on a scheduler that one live run has the cluster for itself.

    Attributes
    ----------
    run : str
        The run's name.
    holder : str
        Whose it is and where its folder is, in words.
    own : bool
        Whether it is of the run that asks.
    """

    run: str
    holder: str
    own: bool


@dataclass(frozen=True)
class FinishedAllocation:
    """An entry of the scheduler's own log of ended jobs; times are seconds since 1970."""

    name: str
    state: str
    nodes: tuple[int, ...]
    start_s: float
    end_s: float


class Backend(ABC):
    """A scheduler that holds GPUs for a live run. All calls may be repeated without harm.

    Attributes
    ----------
    told : str
        What it is, for the result.
    """

    told: str = ""

    @abstractmethod
    def first_claim(self) -> Claim | None:
        """Return the claim of the run that drives the cluster now, if there is one."""

    @abstractmethod
    def claim(self, where: str) -> None:
        """Claim the cluster for this run, described by `where`."""

    @abstractmethod
    def others(self) -> list[str]:
        """Return the jobs of others on the run's nodes, in words."""

    @abstractmethod
    def submit(self, name: str, part: Part) -> str:
        """Hold GPUs under a name; return why not, or nothing."""

    @abstractmethod
    def cancel(self, names: Collection[str]) -> None:
        """End allocations of this run; unknown names are already gone."""

    @abstractmethod
    def poll(self) -> BackendStatus:
        """Return which nodes are held by whom, and which are out of use.

        Raises
        ------
        NoAnswerError
            If that is not known now.
        """

    @abstractmethod
    def node_down(self, node: int) -> None:
        """Take a node out of use, with all that runs there."""

    @abstractmethod
    def node_up(self, node: int) -> None:
        """Put a node back into use."""

    @abstractmethod
    def log(self) -> Sequence[FinishedAllocation] | None:
        """Return the scheduler's own log of this run's ended allocations; None if it keeps none."""

    @abstractmethod
    def close(self) -> str:
        """End all that this run started; return what may be left, in words, or nothing."""
