"""The engine benchmark: processor time of runs and decisions as the cluster grows."""

from __future__ import annotations

import dataclasses
import itertools
import math
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

import numpy as np
import simpy

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.spec import ClusterSpec, Fabric
from clustergym.results.measured_run import measure_run
from clustergym.scenario.policy import Decision, Policy, View
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.scenario_config import build_scenario
from clustergym.sim.drive import drive
from clustergym.sim.engine import Simulation, Steps
from clustergym.sim.engines import AnySimulation
from clustergym.sim.guard import StepWatchdog
from clustergym.sim.log import EventType

SCHEMA = "clustergym.bench.engine/1"
GPUS = (64, 256, 1280, 5120, 10240)
POLICIES = ("fcfs", "srtf", "ares", "gavel", "arena")
HORIZON_H = 48.0
LOAD = 1.2
HEADING = (
    f"{'GPUs':>8}{'jobs':>8}  {'policy':<13}{'links':>7}{'CPU s':>9}{'events':>9}{'decisions':>10}"
    f"{'p50 ms':>9}{'p99 ms':>9}{'view':>6}{'policy':>7}{'enact':>6}{'rest':>6}{'MB':>7}"
)
"""p50 and p99 are of a decision; the shares are of the whole run, of which the rest is its events."""

CROWDED = Fabric(
    nodes_per_leaf=4, leaves_per_minipod=8, spine_oversubscription=2.0, core_oversubscription=4.0
)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class EngineOptions:
    """What is run.

    Attributes
    ----------
    gpus : sequence of int
        Sizes of the cluster.
    policies : sequence of mapping
        Name and parameters of each policy, as `make_policy` takes them.
    hours : float
        Simulated hours after which the clock stops.
    contention : bool
        Each policy also runs where jobs share links, on a more oversubscribed fabric.
    scattered : bool
        Jobs are placed at random minipods.
    repeat : int
        Runs of each, of which the quickest counts.
    """

    gpus: Sequence[int] = GPUS
    policies: Sequence[Mapping[str, Any]] = tuple({"name": name} for name in POLICIES)
    hours: float = HORIZON_H
    contention: bool = False
    scattered: bool = False
    repeat: int = 1


@dataclass
class Stopwatch:
    """Adds up the processor seconds of the calls it times."""

    spent_s: float = 0.0

    def timed(self, step: Callable[P, R]) -> Callable[P, R]:
        """Return the function, timed."""

        def run(*given: P.args, **named: P.kwargs) -> R:
            started = time.process_time()
            try:
                return step(*given, **named)
            finally:
                self.spent_s += time.process_time() - started

        return run


@dataclass
class TimeShares:
    """Processor seconds of each decision of a run: of the View, the policy and the enactment.

    Attributes
    ----------
    view_s : list of float
        Building the View, and what the policy asks of it later, such as iteration times.
    policy_s : list of float
        The policy, without what it asks of the View.
    enactment_s : list of float
        Checking the decision and carrying it out, with the placement of jobs.
    decision_s : list of float
        All that happens inside the policy's `schedule`.
    """

    view_s: list[float] = field(default_factory=list)
    policy_s: list[float] = field(default_factory=list)
    enactment_s: list[float] = field(default_factory=list)
    decision_s: list[float] = field(default_factory=list)


class TimedSimulation(Simulation):
    """A simulation that times the Views it builds and what policies ask of them."""

    stopwatch = Stopwatch()

    def make_view(self, tick: int | None = None) -> View:
        """Return the View of now, whose parts are timed."""
        self.stopwatch = Stopwatch()
        timed = self.stopwatch.timed
        view = timed(super().make_view)(tick)
        return dataclasses.replace(
            view, times=timed(view.times), costs=timed(view.costs), batches=timed(view.batches)
        )


def bare_simpy_events_per_s(events: int = 300_000) -> float:
    """Return the rate at which SimPy alone fires timeouts, each in a process of its own life."""

    def ticker(env: simpy.Environment) -> Generator[simpy.Event, Any, None]:
        for _ in range(events // 100):
            yield env.timeout(1)

    env = simpy.Environment()
    for _ in range(100):
        env.process(ticker(env))
    started = time.process_time()
    env.run()
    return events / (time.process_time() - started)


def scaled_cluster(gpus: int) -> ClusterSpec:
    """Return Arena's simulated cluster with its node counts scaled to about `gpus` GPUs."""
    whole = load_cluster("arena-sim")
    factor = gpus / int(whole.capacity.sum())
    groups = tuple(
        dataclasses.replace(group, nodes=max(1, round(group.nodes * factor))) for group in whole.groups
    )
    return dataclasses.replace(whole, name=f"{gpus} GPUs", groups=groups)


def benchmark_scenario(
    gpus: int, fabric: Fabric | None = None, contention: bool = False, hours: float = HORIZON_H
) -> Scenario:
    """Return the scenario of one row: a Philly-like trace at an offered load of 1.2, a job per two GPUs.

    With a `fabric` of its own, jobs are as large as Arena's, and two per GPU.
    """
    cluster = scaled_cluster(gpus)
    jobs = {"jobs": max(gpus // 2, 100)} if fabric is None else {"jobs": 2 * gpus, "requests": "arena"}
    config = {
        "scenario": {"name": f"benchmark-{gpus}", "oversize": "drop", "contention": contention},
        "costs": {},
        "cluster": {
            "name": cluster.name,
            "nodes": [
                {"gpu_type": g.gpu_type.name, "count": g.nodes, "gpus_per_node": g.gpus_per_node}
                for g in cluster.groups
            ],
            "fabric": dataclasses.asdict(fabric or cluster.fabric),
        },
        "trace": {"source": "philly", "load": LOAD, **jobs},
        "oracle": {"name": "roofline"},
        "seed": 0,
        "horizon_s": hours * 3600.0,
    }
    return build_scenario(config)


def engine_rows(options: EngineOptions) -> Iterator[dict[str, Any]]:
    """Run every policy on every size of cluster; yield the figures of each run."""
    fabric = CROWDED if options.contention else None
    placer = {"name": "minipod", "algorithm": "random_fit"} if options.scattered else {"name": "buddy"}
    for gpus in options.gpus:
        for contention, policy in itertools.product(
            (False, True)[: 1 + options.contention], options.policies
        ):
            scenario = benchmark_scenario(gpus, fabric, contention, options.hours)
            runs = (_timed_run(scenario, policy, placer) for _ in range(options.repeat))
            simulation, shares, cpu_s = min(runs, key=lambda run: run[2])
            yield {
                "gpus": gpus,
                "jobs": len(scenario.trace),
                "policy": policy["name"],
                "parameters": dict(policy),
                "contention": contention,
                **_figures(simulation, shares, cpu_s),
            }


class TimedSteps(StepWatchdog):
    """Measures the shares of each decision while `drive` runs a `TimedSimulation`."""

    def __init__(self) -> None:
        super().__init__()
        self.shares = TimeShares()

    def steps(self, simulation: AnySimulation, policy: Policy) -> Steps:
        """Return the three steps of a run, of which the decision and the enactment are timed."""
        assert isinstance(simulation, TimedSimulation)
        shares = self.shares

        def schedule(view: View) -> Decision:
            built_s = simulation.stopwatch.spent_s
            started = time.process_time()
            decision = policy.schedule(view)
            decision_s = time.process_time() - started
            asked_s = simulation.stopwatch.spent_s - built_s
            shares.view_s.append(built_s + asked_s)
            shares.policy_s.append(decision_s - asked_s)
            shares.decision_s.append(decision_s)
            return decision

        def apply(decision: Decision) -> None:
            started = time.process_time()
            simulation.apply(decision)
            shares.enactment_s.append(time.process_time() - started)

        return simulation.advance, schedule, apply


def _timed_run(
    scenario: Scenario, policy: Mapping[str, Any], placer: Mapping[str, Any]
) -> tuple[Simulation, TimeShares, float]:
    """Run a policy on a scenario; return the run, its shares and the processor seconds of the whole."""
    started, made, steps = time.process_time(), make_policy(policy), TimedSteps()
    simulation = TimedSimulation(scenario, make_placer(placer), made.information_class, made.round_s)
    drive(simulation, made, watch=steps)
    return simulation, steps.shares, time.process_time() - started


def _figures(simulation: Simulation, shares: TimeShares, cpu_s: float) -> dict[str, Any]:
    events, parts = simulation.log.events, dataclasses.asdict(shares)
    figures: dict[str, Any] = {
        "cpu_s": cpu_s,
        "simulated_s": simulation.end_s,
        "events": len(events),
        "rate_changes": sum(event.event_type == EventType.RATE for event in events),
        "jct_mean_censored_s": measure_run(simulation).metrics["jct_mean_censored"],
        "digest": simulation.log.digest,
        "decisions": len(shares.decision_s),
        "events_per_s": len(events) / cpu_s,
        "decisions_per_s": len(shares.decision_s) / cpu_s,
    }
    for part, seconds in parts.items():
        name = part.removesuffix("_s")
        figures[f"{name}_s_total"] = math.fsum(seconds)
        for share in (50, 99):
            figures[f"{name}_s_p{share}"] = float(np.percentile(seconds, share)) if seconds else 0.0
    figures["peak_bytes"] = _peak_bytes()
    return figures


def _peak_bytes() -> int:
    """Return the most memory that the process has held so far."""
    import resource  # not on Windows

    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return largest * (1 if sys.platform == "darwin" else 1024)  # Linux counts kilobytes, macOS bytes


def line(row: Mapping[str, Any]) -> str:
    """Return a row's figures as a line below `HEADING`."""
    parts = [row[f"{part}_s_total"] / row["cpu_s"] for part in ("view", "policy", "enactment")]
    shares = "".join(
        f"{share:>{width}.0%}" for share, width in zip([*parts, 1 - sum(parts)], (6, 7, 6, 6), strict=True)
    )
    links = "shared" if row["contention"] else "own"
    return (
        f"{row['gpus']:>8,}{row['jobs']:>8,}  {row['policy']:<13}{links:>7}"
        f"{row['cpu_s']:>9.2f}{row['events']:>9,}{row['decisions']:>10,}"
        f"{row['decision_s_p50'] * 1e3:>9.2f}{row['decision_s_p99'] * 1e3:>9.2f}"
        f"{shares}{row['peak_bytes'] / 1e6:>7,.0f}"
    )
