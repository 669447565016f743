"""Ask a policy what to do with a user's scripts now, by the first step of a simulation.

Its cluster is the GPUs that the user's jobs can use: those that others leave free, outside reservations.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.cluster.slurm_text import host_names, key_values, parse_gres
from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.common.columns import DAY_S
from clustergym.oracle.base import OracleTables
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.scenario import Scenario, list_allowed_counts, model_classes
from clustergym.scenario.tenants.queue_tree import Tenants
from clustergym.sim.from_now import MARK, list_moments
from clustergym.trace.trace import Trace

from ..slurm import parse_time
from .queue import OwnQueue
from .script import Script

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
    host : str
        Name of the node; empty: that by which it is known. A node with several types has a state for each.
    """

    gpus: int
    used: int
    gpu_type: str
    partitions: frozenset[str]
    host: str = ""


@dataclass
class Nodes:
    """The nodes of a Slurm cluster at a moment, its reservations, and what was taken since.

    Attributes
    ----------
    states : dict of str to NodeState
        Without nodes that are out of use.
    reservations : tuple of Reservation
    default : str
        Slurm's default partition.
    """

    states: dict[str, NodeState]
    reservations: tuple[Reservation, ...] = ()
    default: str = ""
    _taken: Counter[str] = field(default_factory=Counter)

    def of_partition(self, partition: str) -> dict[str, NodeState]:
        """Return the nodes of a partition (empty: the default) by name."""
        name = partition or self.default
        return {node: state for node, state in self.states.items() if name in state.partitions}

    def is_reserved(self, node: str, begin_s: float, end_s: float, by: str = "") -> bool:
        """Return whether a node is reserved for others during a job; `by` names the job's own reservation."""
        of_others = (one for one in self.reservations if one.name != by and node in one.nodes)
        return any(one.start_s < end_s and one.end_s > begin_s for one in of_others)

    def take(self, script: Script, gpus: int, now_s: float) -> bool:
        """Count so many GPUs for a script as taken on the fullest nodes; return whether they fit.

        Nodes that are kept for others before the script's limit has passed are left out.
        """
        end_s = now_s + script.limit_s if script.limit_s == script.limit_s else float("inf")
        (count, each), gpu_type, free = script.shape(gpus), script.known_type, []
        for name, state in self.of_partition(script.partition).items():
            left = state.gpus - state.used - self._taken[name]
            fits = left >= each and gpu_type in ("", state.gpu_type)
            if fits and not self.is_reserved(state.host or name, now_s, end_s, script.reservation):
                free.append((left, name))
        if len(free) < count:
            return False
        self._taken.update({name: each for _, name in sorted(free)[:count]})
        return True


def read_nodes(queue: OwnQueue) -> Nodes:
    """Ask Slurm for its nodes and reservations, and return them."""
    states = dict[str, NodeState]()
    for line in queue.read("scontrol", "-d", "-o", "show", "node"):
        given = key_values(line)
        flags = set(re.split(r"[+*~#!%$@^-]+", given.get("State", "")))
        if flags - {""} <= IN_USE and "*" not in given.get("State", "*"):
            states |= _read_node(given)
    reservations = []
    for line in queue.read("scontrol", "-o", "show", "reservation"):
        given = key_values(line)
        if "ReservationName" in given and given.get("Nodes", "(null)") != "(null)":
            times = (parse_time(given.get("StartTime", "")), parse_time(given.get("EndTime", "")))
            names = frozenset(host_names(given["Nodes"]))
            reservations.append(Reservation(given["ReservationName"], *times, names))
    default = [line[:-1] for line in queue.read("sinfo", "-h", "-a", "-o", "%P") if line.endswith("*")]
    return Nodes(states, tuple(reservations), default[0] if default else "")


def _read_node(given: Mapping[str, str]) -> dict[str, NodeState]:
    """Return a node's state for each type of its GPUs.

    Of a node of which it is not clear what is in use, everything is, unless it is idle.
    """
    try:
        gpus = parse_gres(given.get("Gres", "")).by_type
        # Of a node that has become idle Slurm may leave GPUs in AllocTRES, for good.
        idle = given["State"].startswith("IDLE")
        keys = ("GresUsed",) if idle else ("GresUsed", "AllocTRES")
        busy = [parse_gres(given.get(key, "")) for key in keys]
        used = [found.by_type for found in busy] if "GresUsed" in given or idle else [gpus]
        parts = any(found.parts for found in busy)
    except ValueError:
        return {}
    partitions, name, found = frozenset(given.get("Partitions", "").split(",")), given["NodeName"], {}
    for gpu_type, count in gpus.items():
        # What is in use without a type can be of any.
        held = max(one.get(gpu_type, 0) + one.get("", 0) if gpu_type else sum(one.values()) for one in used)
        key = name if len(gpus) == 1 else f"{name}:{gpu_type}"
        held = count if parts else min(held, count)
        found[key] = NodeState(count, held, gpu_type or "gpu", partitions, "" if key == name else name)
    return found


OTHERS = "others on "
"""Begins the name of the job that stands for all GPUs of a type that others hold."""
OTHERS_S = DAY_S
"""For how long a policy expects others to hold them, and a job without a limit to run."""
LEAST_LEFT_S = 60.0


@dataclass(frozen=True)
class OwnJob:
    """A user's Slurm script that runs or waits: when it was submitted and started, and its GPUs.

    Attributes
    ----------
    script : Script
    submit_s, start_s : float
        First submission and start of this attempt, seconds since 1970; NaN: it waits.
    gpus : int
        What it holds or, waiting, asks for.
    """

    script: Script
    submit_s: float
    start_s: float
    gpus: int


def decide_now(
    jobs: Sequence[OwnJob],
    nodes: Mapping[str, NodeState],
    now_s: float,
    make: Callable[[], tuple[Policy, Placer]],
    queues: str | None = None,
) -> dict[str, int]:
    """Return the GPUs that the policy from `make` now gives each script, by name; 0: it waits or stops.

    The jobs are those of one partition. Every job is taken to run for its limit. A job with several sizes
    is taken to be the faster the more GPUs it has, in proportion; others have one size.

    Parameters
    ----------
    jobs : sequence of OwnJob
    nodes : mapping of str to NodeState
        Of the partition, by name.
    now_s : float
        Since 1970.
    make : callable
        Returns the policy and the placer.
    queues : str, optional
        File of queues, by account.
    """
    cluster = _cluster(nodes)
    most = dict(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))
    most[""] = max(most.values(), default=0)
    jobs = [job for job in jobs if job.gpus <= most.get(job.script.known_type, 0)]
    if not jobs:
        return {}
    base_s = min([*(job.submit_s for job in jobs), now_s])
    scenario = _scenario(cluster, _table(jobs, nodes, now_s, base_s), jobs, queues)
    running = [job.script.name for job in jobs if job.start_s == job.start_s]
    running += [name for name in scenario.trace.job_id if name.startswith(OTHERS)]
    policy, placer = make()
    moment = next(list_moments(scenario, policy, placer, running, now_s - base_s), None)
    if moment is None:
        return {}
    given = dict(zip(moment.decision.job.tolist(), moment.decision.gpus.tolist(), strict=True))
    names = {job.script.name for job in jobs}
    return {name: given.get(row, 0) for row, name in enumerate(moment.job_id) if name in names}


def _cluster(nodes: Mapping[str, NodeState]) -> ClusterSpec:
    """Return a cluster with all GPUs of each type as one node, as Slurm decides where jobs fit."""
    gpus = Counter[str]()
    for state in nodes.values():
        gpus[state.gpu_type] += state.gpus
    known, plain = load_gpu_types(), GpuType("gpu", 100.0, 20.0, None, 40.0, 900.0, "pcie4", 32.0, 100.0)
    types = ((replace(known.get(name, plain), name=name), count) for name, count in sorted(gpus.items()))
    return ClusterSpec("own", tuple(NodeGroup(gpu_type, 1, count) for gpu_type, count in types), Fabric())


Row = tuple[str, float, float, int, str, str, str]
"""Name, submission, work, GPUs, type, account and model of a job."""


def _table(jobs: Sequence[OwnJob], nodes: Mapping[str, NodeState], now_s: float, base_s: float) -> list[Row]:
    """Return the rows of jobs, of what others hold, and of the mark, by submission."""
    rows, held = list[Row](), Counter[str]()
    for job in jobs:
        script = job.script
        limit_s = script.limit_s if script.limit_s == script.limit_s else OTHERS_S
        sizes = ".".join(map(str, script.sizes))
        at_s, work_s = job.submit_s - base_s, limit_s
        if job.start_s == job.start_s:
            left_s = max(job.start_s + limit_s - now_s, LEAST_LEFT_S)
            at_s, work_s = 0.0, now_s - base_s + left_s
            held[script.known_type] += job.gpus
        model = f"{job.gpus}of{sizes}"
        rows.append((script.name, at_s, work_s, job.gpus, script.known_type, script.account, model))
    for gpu_type in sorted({state.gpu_type for state in nodes.values()}):
        used = sum(state.used for state in nodes.values() if state.gpu_type == gpu_type)
        # Of a script that names no type it is not known which it holds: those of the first with so many.
        ours = min(held[gpu_type], used) + min(max(used - held[gpu_type], 0), held.get("", 0))
        held[""] -= min(max(used - held[gpu_type], 0), held.get("", 0))
        if used > ours:
            work_s = now_s - base_s + OTHERS_S
            account = jobs[0].script.account
            rows.append((OTHERS + gpu_type, 0.0, work_s, used - ours, gpu_type, account, "others"))
    rows.append((MARK, now_s - base_s, 1.0, 1, "", jobs[0].script.account, MARK))
    return sorted(rows, key=lambda row: row[1])


def _scenario(
    cluster: ClusterSpec, rows: Sequence[Row], jobs: Sequence[OwnJob], queues: str | None
) -> Scenario:
    names, submit_s, work_s, gpus, types, accounts, models = zip(*rows, strict=True)
    trace = Trace.from_columns(
        "now",
        submit_s=np.array(submit_s, dtype=np.float64),
        iterations=np.maximum(np.ceil(work_s), 1).astype(np.int64),
        gpus=np.array(gpus, dtype=np.int64),
        job_id=names,
        gpu_type=types,
        virtual_cluster=accounts,
        user=accounts,
        model_family=models,
    )
    sizes = {size for job in jobs for size in job.script.sizes}
    counts = list_allowed_counts(cluster, "power_of_two", [*gpus, *sizes])
    classes = model_classes(trace)
    table = np.full((len(classes), len(cluster.gpu_types), len(counts), 4), np.inf)
    for at, model in enumerate(classes):
        asked, _, given = model.family.partition("of")
        for place, count in enumerate(counts):
            if model.family in (MARK, "others"):
                table[at, :, place] = 1.0
            elif str(count) == asked or str(count) in given.split("."):
                table[at, :, place] = int(asked) / count
    return Scenario(
        name="own",
        version=0,
        cluster=cluster,
        trace=trace,
        tables=OracleTables(classes, cluster.gpu_types, np.array(counts), table, table, table),
        checkpoint_s=np.zeros(len(classes)),
        costs=Costs(search="proxy", profile={}, first_launch=False, restart_s=LEAST_LEFT_S),
        rounds="event",
        tenants=None if queues is None else Tenants.from_queues(queues, trace, cluster.gpu_types),
    )
