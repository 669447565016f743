"""The `live` group of the configuration, and checks before a live run; nothing is submitted.

The checks say what a live run needs of the scenario and of a cluster.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameter_types import Period
from clustergym.common.parameters import Parameters
from clustergym.scenario.disturbances.failures import Failures
from clustergym.scenario.disturbances.reservations import PlannedJobs
from clustergym.scenario.policy import InformationClass, Policy
from clustergym.scenario.scenario import Scenario

from .slurm import COMMANDS, Slurm, SlurmWords


@dataclass(frozen=True)
class LiveOptions(Parameters):
    """Options of a live run; `conf/live.yaml` explains each key."""

    config_key: ClassVar[str] = "live"
    engine: Literal["slurm-local", "slurm", "fake"] = "slurm-local"
    clock: Literal["lockstep", "scaled"] = "lockstep"
    seconds_per_hour: Period = 60.0
    dry_run: bool = False
    partition: str | None = None
    nodes: tuple[str, ...] | None = None
    gpus: Literal["gres", "cpus"] = "gres"
    inject_failures: bool = False
    arguments: tuple[str, ...] = ()
    jobs: str | None = None
    accounts: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, str] = field(default_factory=dict)
    poll_s: Period = 0.2
    patience_s: Period = 60.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.jobs is not None and self.engine != "slurm":
            remedy = "give live.engine=slurm: they run on your cluster"
            raise InputError("are scripts of your own", field="live.jobs", remedy=remedy)
        if self.nodes is None:
            return
        twice = [name for place, name in enumerate(self.nodes) if name in self.nodes[:place]]
        if twice:
            raise InputError(f"node {twice[0]} is named twice", field="live.nodes", remedy="name each once")

    def team_words(self, team: str) -> list[str]:
        """Return the arguments of salloc for the account and partition of a team's jobs."""
        account, partition = self.accounts.get(team), self.partitions.get(team)
        return [*(["-A", account] if account else []), *(["-p", partition] if partition else [])]


def check_scenario(scenario: Scenario, policy: Policy, options: LiveOptions) -> None:
    """Raise an `InputError` if the scenario or policy needs something that no real scheduler offers."""
    if scenario.communication_s is not None:
        message = "jobs would share links, and the scheduler cannot tell how fast they then are"
        raise InputError(message, field="scenario.contention", remedy="give scenario.contention=false")
    if scenario.batch_choices is not None:
        message = "jobs would choose batches, whose efficiency the scheduler cannot tell"
        raise InputError(message, field="oracle", remedy="use an oracle without a choice of batches")
    if scenario.parts is not None or scenario.pairs is not None:
        message = "jobs would share GPUs, and the bridge gives whole ones to one job"
        field = "cluster" if scenario.pairs is None else "scenario.pairs"
        raise InputError(message, field=field, remedy="use a scenario of whole GPUs")
    for disturbance in scenario.disturbances:
        if not isinstance(disturbance, Failures | PlannedJobs):
            message = "the scheduler cannot be made to do it"
            raise InputError(message, field=f"scenario.{disturbance.key}", remedy="leave it out")
        if isinstance(disturbance, Failures) and options.engine == "slurm" and not options.inject_failures:
            message = "would set nodes of your cluster down"
            remedy = "give scenario.failures=null, or live.inject_failures=true"
            raise InputError(message, field="scenario.failures", remedy=remedy)
    if options.engine == "slurm" and policy.information_class == InformationClass.CLAIRVOYANT:
        message = f"policy {policy.name} must know the times jobs will really run at, which Slurm cannot tell"
        remedy = "choose one of another information class, or live.engine=slurm-local"
        raise InputError(message, field="policy", remedy=remedy)


class _Node(NamedTuple):
    cpus: int
    features: tuple[str, ...]
    gpus: int


NODE = re.compile(r"([^|\s]+)\|([^|\s]+)\|(\d{1,9})\+?\|([^|]*)\|([^|]*)")
"""A line of sinfo: name, partition, CPUs, features, and generic resources of a node."""


def _list_nodes(slurm: Slurm) -> tuple[dict[str, dict[str, _Node]], str]:
    """Return the nodes of each partition that sinfo shows, and the default one; other lines are left out."""
    partitions, default = dict[str, dict[str, _Node]](), ""
    for row in map(NODE.fullmatch, slurm.read("sinfo", "-h", "-a", "-N", "-o", "%N|%P|%c|%f|%G")):
        if row:
            partition = row[2].rstrip("*")
            default = partition if row[2].endswith("*") else default
            gpus = sum(int(found) for found in re.findall(r"gpu(?::[^:,()]+)?:(\d{1,9})", row[5]))
            node = _Node(int(row[3]), tuple(row[4].lower().split(",")), gpus)
            partitions.setdefault(partition, {})[row[1]] = node
    return partitions, default


def choose_words(
    slurm: Slurm, cluster: ClusterSpec, options: LiveOptions, teams: Sequence[str] = ()
) -> SlurmWords:
    """Choose and check Slurm nodes to stand for the scenario's; return a builder of Slurm commands on them.

    `teams` are those of the scenario's jobs, by row.
    """
    for command in COMMANDS:
        slurm.run(command, "--version")
    partitions, default = _list_nodes(slurm)
    partition = options.partition or default
    if partition not in partitions:
        message = f"no partition {partition!r}" if partition else "there is no default partition"
        raise InputError(message, field="live.partition", remedy=nearest(partition, partitions))
    nodes = partitions[partition]
    names = _by_feature(cluster, nodes) if options.nodes is None else _as_named(cluster, nodes, options.nodes)
    for name, gpus in zip(names, cluster.node_gpus.tolist(), strict=True):
        has = nodes[name].gpus if options.gpus == "gres" else nodes[name].cpus
        if has < gpus:
            unit = "GPUs (Gres gpu)" if options.gpus == "gres" else "CPUs"
            message = f"node {name} has {has} {unit}, the scenario's node has {gpus}"
            remedy = "name another cluster=, or let CPUs stand for GPUs with live.gpus=cpus"
            raise InputError(message, field="live.gpus", remedy=remedy)
    for team, of_team in options.partitions.items():
        outside = [name for name in names if name not in partitions.get(of_team, {})]
        if outside:
            message = f"node {outside[0]} is not in partition {of_team!r}"
            remedy = "name nodes that are in all of them with live.nodes=[…]"
            raise InputError(message, field=f"live.partitions.{team}", remedy=remedy)
    of_job = [options.team_words(team) for team in teams] if options.accounts or options.partitions else []
    return SlurmWords(
        tuple(names), options.partition or "", options.gpus == "gres", options.arguments, of_job
    )


def _as_named(cluster: ClusterSpec, known: Mapping[str, _Node], names: Sequence[str]) -> list[str]:
    unknown = [name for name in names if name not in known]
    if unknown:
        message = f"the partition has no node {unknown[0]!r}"
        raise InputError(message, field="live.nodes", remedy=nearest(unknown[0], known))
    if len(names) != len(cluster.node_type):
        message = f"names {len(names)} nodes, cluster {cluster.name} has {len(cluster.node_type)}"
        raise InputError(message, field="live.nodes", remedy="name one for each, in its order")
    return list(names)


def _by_feature(cluster: ClusterSpec, nodes: Mapping[str, _Node]) -> list[str]:
    names: list[str] = []
    for type_index, gpu_type in enumerate(cluster.gpu_types):
        wanted = int((cluster.node_type == type_index).sum())
        found = [name for name, node in nodes.items() if gpu_type.lower() in node.features]
        if len(found) < wanted:
            message = f"{len(found)} nodes have the feature {gpu_type.lower()}, {cluster.name} has {wanted}"
            remedy = "name Slurm's nodes with live.nodes=[…], or another cluster="
            raise InputError(message, field="live.nodes", remedy=remedy)
        names += found[:wanted]
    return names


def check_alone(others: Sequence[str]) -> None:
    """Raise an `InputError` if other users' jobs are on the run's nodes."""
    if others:
        more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
        message = f"its nodes have jobs that this run did not start: {others[0]}{more}"
        remedy = "name free nodes with live.nodes=[…], or wait until they have ended"
        raise InputError(message, field="live.engine", remedy=remedy)
