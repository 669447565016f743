"""Run a policy on a scenario and measure the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clustergym.arrays import Floats
from clustergym.interface.policy import Placer, Policy
from clustergym.interface.registry import make_placer, make_policy
from clustergym.metrics.jobs import JobRecords
from clustergym.metrics.losses import Loss
from clustergym.metrics.metrics import Measurement, Metrics, measure_scenario
from clustergym.metrics.timeline import Timeline
from clustergym.scenarios.scenario import Scenario
from clustergym.sim import drive as driver
from clustergym.sim.engine import Simulation
from clustergym.sim.guard import Watch


@dataclass(frozen=True)
class Result:
    """The result of a finished run.

    Attributes
    ----------
    metrics : dict of str to number or None
        As in result.json; `clustergym.metrics.catalogue` defines them.
    jobs : JobRecords
        A row per job.
    timeline : Timeline
        The cluster's state over time.
    fairness : ndarray of float, shape (n,)
        Finish-time fairness of each job; NaN if it is not defined.
    losses : dict of str to Loss
        What each cause of interruptions has cost (`clustergym.metrics.losses`).
    tenants : dict
        What each tenant had (`clustergym.metrics.tenants`); empty without queues.
    digest : str
        SHA-256 over the event log.
    run : clustergym.sim.drive.Run
        The simulation with its logs.
    """

    metrics: Metrics
    jobs: JobRecords
    timeline: Timeline
    fairness: Floats
    losses: dict[str, Loss]
    tenants: dict[str, Any]
    digest: str
    run: driver.Run


def measurement_of(simulation: Simulation) -> Measurement:
    """Compute the metrics, job records and timeline of a run from its event log."""
    return measure_scenario(simulation.scenario, simulation.log.events, simulation.end_s)


def result_of(run: driver.Run) -> Result:
    """Return a finished run with what the metrics say of it."""
    return Result(*measurement_of(run.simulation), run.simulation.log.digest, run)


def simulate(
    scenario: Scenario,
    policy: Policy | str,
    placer: Placer | str = "buddy",
    seed: int = 0,
    progress: driver.Progress | None = None,
    watch: Watch | None = None,
) -> Result:
    """Run a policy, given as an object or by its name, on a scenario.

    `progress` is called after each decision; `watch` limits how long policy and placer may take.
    """
    policy = make_policy({"name": policy}) if isinstance(policy, str) else policy
    placer = make_placer({"name": placer}) if isinstance(placer, str) else placer
    return result_of(driver.simulate(scenario, policy, placer, seed, progress, watch))
