"""Small scenarios with every number given, for tests worked out by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from clustergym.policies.placers.buddy import Buddy

from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.oracle.base import OracleTables
from clustergym.scenario.costs import Costs, ProfilePrice
from clustergym.scenario.disturbance import Disturbance
from clustergym.scenario.disturbances.failures import Failures
from clustergym.scenario.disturbances.reservations import PlannedJobs, Reservation
from clustergym.scenario.policy import Decision, InformationClass, Placer, Policy, View
from clustergym.scenario.scenario import Scenario, list_allowed_counts, model_classes
from clustergym.sim.drive import Run, replay, simulate
from clustergym.sim.engines import AnySimulation
from clustergym.sim.log import EventType
from clustergym.trace.trace import Trace

Times = Mapping[str, Mapping[str, Mapping[int, float]]]
"""model family -> GPU type -> count -> seconds per iteration; what is left out is infeasible."""
ONE_S: Times = {"m": {"X": {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0}}}


@dataclass(frozen=True)
class Job:
    """One row of a small trace."""

    job_id: str
    submit_s: float
    iterations: int
    gpus: int = 1
    gpu_type: str = ""
    family: str = "m"
    deadline_s: float = float("nan")
    priority: int = 0


def failures_of(scenario: Scenario) -> Failures:
    """Return the failures of a scenario; none by default."""
    return next((found for found in scenario.disturbances if isinstance(found, Failures)), Failures())


def planned_of(scenario: Scenario) -> tuple[Reservation, ...]:
    """Return the planned jobs of a scenario."""
    return next((found.planned for found in scenario.disturbances if isinstance(found, PlannedJobs)), ())


def price(
    information: str, seconds: float, gpus: int = 1, types: str = "each", per: str = "job"
) -> dict[str, ProfilePrice]:
    """Return prices of profiling for one information class."""
    return {information: ProfilePrice(seconds, gpus, types, per)}


def small_trace(jobs: Sequence[Job]) -> Trace:
    return Trace.from_columns(
        "small",
        submit_s=np.array([job.submit_s for job in jobs], dtype=np.float64),
        iterations=np.array([job.iterations for job in jobs], dtype=np.int64),
        gpus=np.array([job.gpus for job in jobs], dtype=np.int64),
        job_id=tuple(job.job_id for job in jobs),
        model_family=tuple(job.family for job in jobs),
        global_batch=np.full(len(jobs), 32, dtype=np.int64),
        gpu_type=tuple(job.gpu_type for job in jobs),
        deadline_s=np.array([job.deadline_s for job in jobs], dtype=np.float64),
        priority=np.array([job.priority for job in jobs], dtype=np.int64),
    )


def small_cluster(groups: Mapping[str, tuple[int, int]]) -> ClusterSpec:
    """Build a cluster of `{GPU type: (nodes, GPUs a node)}`."""
    return ClusterSpec(
        "small",
        tuple(
            NodeGroup(GpuType(name, 100.0, 20.0, None, 40.0, 900.0, "pcie4", 32.0, 100.0), nodes, per_node)
            for name, (nodes, per_node) in groups.items()
        ),
        Fabric(nodes_per_leaf=4, leaves_per_minipod=2),
    )


def small_scenario(
    jobs: Sequence[Job],
    groups: Mapping[str, tuple[int, int]],
    times: Times,
    *,
    checkpoint_s: Mapping[str, float] | None = None,
    costs: Costs | None = None,
    rounds: str | float = "event",
    horizon_s: float | None = None,
    oversize: str = "error",
    counts_rule: str = "power_of_two",
    disturbances: tuple[Disturbance, ...] = (),
) -> Scenario:
    """Build a scenario whose times hold at every locality."""
    trace, cluster = small_trace(jobs), small_cluster(groups)
    classes = model_classes(trace)
    counts = list_allowed_counts(cluster, counts_rule)
    table = np.full((len(classes), len(groups), len(counts), 4), np.inf)
    for row, model in enumerate(classes):
        for kind, name in enumerate(cluster.gpu_types):
            for count, seconds in times.get(model.family, {}).get(name, {}).items():
                if count in counts:
                    table[row, kind, counts.index(count)] = seconds
    tables = OracleTables(classes, cluster.gpu_types, np.array(counts), table, table, table)
    free = Costs(search="proxy", profile={})
    per_family = checkpoint_s or {}
    return Scenario(
        name="small",
        version=0,
        cluster=cluster,
        trace=trace,
        tables=tables,
        checkpoint_s=np.array([per_family.get(model.family, 0.0) for model in classes]),
        costs=costs or free,
        rounds=rounds,
        horizon_s=horizon_s,
        oversize=oversize,
        counts_rule=counts_rule,
        disturbances=disturbances,
    )


class Script(Policy):
    """Decides what a table says: time -> job id -> (GPU type, count); between entries, keeps."""

    name = "script"
    information_class = InformationClass.NONE

    def __init__(
        self,
        scenario: Scenario,
        entries: Mapping[float, Mapping[str, tuple[str, int]]],
        information: InformationClass = InformationClass.NONE,
    ) -> None:
        self.row = {name: row for row, name in enumerate(scenario.trace.job_id)}
        self.kind = {name: kind for kind, name in enumerate(scenario.cluster.gpu_types)}
        self.entries = dict(entries)
        self.information_class = information  # type: ignore[misc]
        self.views: list[View] = []

    def schedule(self, view: View) -> Decision:
        self.views.append(view)
        if view.now_s not in self.entries:
            return Decision.keep(view)
        wanted = self.entries.pop(view.now_s)
        return Decision.of((self.row[job], self.kind[kind], gpus) for job, (kind, gpus) in wanted.items())


def times_of(run: Run, kind: EventType) -> dict[str, float]:
    """Return when an event of some type befell each job that had one, the last such event, by job id."""
    ids = run.simulation.scenario.trace.job_id
    return {ids[e.job]: e.time_s for e in run.simulation.log.events if e.event_type == kind}


def ends(run: Run) -> dict[str, float]:
    """Return when each job that completed did, by job id."""
    return times_of(run, EventType.COMPLETE)


def allotments(decision: Decision) -> dict[int, tuple[int, int]]:
    """Return GPU type and GPU count by job."""
    triples = zip(decision.job, decision.gpu_type, decision.gpus, strict=True)
    return {int(job): (int(kind), int(gpus)) for job, kind, gpus in triples}


def decided(scenario: Scenario, decision: Decision) -> dict[str, tuple[str, int]]:
    """Return the names of GPU types and the GPU counts, by job id."""
    ids, kinds = scenario.trace.job_id, scenario.cluster.gpu_types
    return {ids[job]: (kinds[kind], gpus) for job, (kind, gpus) in allotments(decision).items()}


def run_of(
    jobs: Sequence[Job],
    nodes: int,
    disturbance: Disturbance,
    entries: Mapping[float, Mapping[str, tuple[str, int]]],
    information: InformationClass = InformationClass.NONE,
    **more: object,
) -> tuple[Run, Script]:
    """Run a script on nodes of four X, of which an iteration takes 1 s; return the run and the script."""
    scenario = small_scenario(jobs, {"X": (nodes, 4)}, ONE_S, **more)  # type: ignore[arg-type]
    scenario = replace(scenario, disturbances=(disturbance,))
    script = Script(scenario, entries, information)
    return simulate(scenario, script, Buddy()), script


def events_of(run: Run, *kinds: str) -> list[tuple[float, int]]:
    """Return the time and the job of each event of some kinds."""
    return [(event.time_s, event.job) for event in run.simulation.log.events if event.event_type in kinds]


def replays(simulation: AnySimulation, placer: Placer | None = None, seed: int = 0) -> bool:
    """Return whether the decisions of a run, carried out anew, give the same log."""
    scenario, changes = simulation.scenario, list(simulation.iterate_changes())
    placer = placer or Buddy()
    again = replay(scenario, placer, simulation.information, simulation.round_s, seed, changes)
    return again.log.digest == simulation.log.digest and again.log.events == simulation.log.events
