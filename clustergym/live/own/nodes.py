"""Find the GPUs that a user's jobs can use now: those that others leave free, outside reservations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from clustergym.cluster.slurm_text import gpus_of_gres
from clustergym.live.own.queue import OwnQueue, parse_pairs, parse_time

IN_USE = frozenset({"IDLE", "ALLOCATED", "MIXED", "COMPLETING", "PLANNED", "RESERVED", "CLOUD"})
"""States of nodes, as `scontrol` calls them, in which jobs can start there."""


@dataclass(frozen=True)
class Reservation:
    """Nodes that are reserved for others between two times, in seconds since 1970."""

    name: str
    start_s: float
    end_s: float
    nodes: frozenset[str]


@dataclass(frozen=True)
class NodeState:
    """A usable node: its GPUs and GPU type, how many are in use, and its partitions.

    Attributes
    ----------
    gpus, used : int
        GPUs, and how many of them jobs of anybody hold.
    gpu_type : str
        Name of the catalogue, or Slurm's.
    partitions : frozenset of str
    """

    gpus: int
    used: int
    gpu_type: str
    partitions: frozenset[str]


class Nodes:
    """The nodes of a Slurm cluster at a moment, and its reservations.

    Parameters
    ----------
    states : mapping of str to NodeState
        Without nodes that are out of use.
    reservations : iterable of Reservation
    default : str
        Slurm's default partition.
    """

    def __init__(
        self, states: Mapping[str, NodeState], reservations: Iterable[Reservation], default: str
    ) -> None:
        self.states, self.reservations, self.default = dict(states), tuple(reservations), default

    def of_partition(self, partition: str) -> dict[str, NodeState]:
        """Return the nodes of a partition (empty: the default) by name."""
        name = partition or self.default
        return {node: state for node, state in self.states.items() if name in state.partitions}

    def is_reserved(self, node: str, begin_s: float, end_s: float, by: str = "") -> bool:
        """Return whether a node is reserved for others during a job; `by` names the job's own reservation."""
        return any(
            node in one.nodes and one.start_s < end_s and one.end_s > begin_s
            for one in self.reservations
            if one.name != by
        )


def read_nodes(queue: OwnQueue) -> Nodes:
    """Ask Slurm for its nodes and reservations, and return them."""
    states = {}
    for line in queue.read("scontrol", "-d", "-o", "show", "node"):
        given = parse_pairs(line)
        gpus, gpu_type = gpus_of_gres(given.get("Gres", ""))
        flags = set(re.split(r"[+*~#!%$@^-]+", given.get("State", "")))
        if gpus and flags - {""} <= IN_USE and "*" not in given["State"]:
            used, _ = gpus_of_gres(given.get("GresUsed", ""))
            partitions = frozenset(given.get("Partitions", "").split(","))
            states[given["NodeName"]] = NodeState(gpus, used, gpu_type or "gpu", partitions)
    reservations = []
    for line in queue.read("scontrol", "-o", "show", "reservation"):
        given = parse_pairs(line)
        if "ReservationName" in given and given.get("Nodes", "(null)") != "(null)":
            times = (parse_time(given.get("StartTime", "")), parse_time(given.get("EndTime", "")))
            names = frozenset(queue.slurm.hosts(given["Nodes"]))
            reservations.append(Reservation(given["ReservationName"], *times, names))
    default = [line[:-1] for line in queue.read("sinfo", "-h", "-a", "-o", "%P") if line.endswith("*")]
    return Nodes(states, reservations, default[0] if default else "")


class Room:
    """Keeps count of the free GPUs of each node, from which those of starting jobs are subtracted.

    Parameters
    ----------
    nodes : Nodes
    now_s : float
        Since 1970.
    """

    def __init__(self, nodes: Nodes, now_s: float) -> None:
        self._nodes, self._now_s = nodes, now_s
        self._taken = Counter[str]()

    def take(
        self, partition: str, gpu_type: str, shape: tuple[int, int], limit_s: float, reservation: str = ""
    ) -> bool:
        """Count a job's GPUs (nodes, GPUs on each) as taken on the fullest nodes; return whether they fit.

        Nodes that are kept for others before the job's limit has passed are left out.
        """
        end_s = self._now_s + limit_s if limit_s == limit_s else float("inf")
        count, each = shape
        free = []
        for name, state in self._nodes.of_partition(partition).items():
            left = state.gpus - state.used - self._taken[name]
            fits = left >= each and gpu_type in ("", state.gpu_type)
            if fits and not self._nodes.is_reserved(name, self._now_s, end_s, reservation):
                free.append((left, name))
        if len(free) < count:
            return False
        for _, name in sorted(free)[:count]:
            self._taken[name] += each
        return True
