"""Run a policy on a scenario and measure the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, nearest
from clustergym.results.metrics.jobs import JobRecords, Loss
from clustergym.results.metrics.metrics import Measurement, Metrics, MetricValue, measure_scenario
from clustergym.results.metrics.timeline import Timeline
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim import drive as driver
from clustergym.sim.engines import AnySimulation, Engine
from clustergym.sim.guard import StepWatchdog


class NamedMetrics(Metrics):
    """A dict of metrics by name; an unknown name raises a `KeyError` that suggests similar names."""

    def __missing__(self, name: str) -> MetricValue:
        turned = "_".join(reversed(str(name).split("_")))
        raise KeyError(f"no metric {name!r}: {nearest(turned if turned in self else str(name), self)}")


@dataclass(frozen=True)
class Result:
    """The result of a finished run: its metrics, job records, timeline and simulation.

    Attributes
    ----------
    metrics : dict of str to number or None
        As in result.json; `clustergym.results.metrics.catalogue` defines them.
    jobs : JobRecords
        A row per job.
    timeline : Timeline
        The cluster's state over time.
    fairness : ndarray of float, shape (n,)
        Finish-time fairness of each job; NaN if it is not defined.
    losses : dict of str to Loss
        What each cause of interruptions has cost (`clustergym.results.metrics.jobs`).
    tenants : dict
        What each tenant had (`clustergym.results.metrics.tenants`); empty without queues.
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


def measure_run(simulation: AnySimulation) -> Measurement:
    """Compute the metrics, job records and timeline of a run from its event log."""
    return measure_scenario(simulation.scenario, simulation.log.events, simulation.end_s)


def make_result(run: driver.Run) -> Result:
    """Compute the metrics of a finished run, and return its result."""
    measured = measure_run(run.simulation)
    named = measured._replace(metrics=NamedMetrics(measured.metrics))
    return Result(*named, run.simulation.log.digest, run)


def simulate(
    scenario: Scenario | str,
    policy: Policy | str,
    placer: Placer | str = "buddy",
    seed: int = 0,
    progress: driver.Progress | None = None,
    watch: StepWatchdog | None = None,
    engine: Engine = "auto",
) -> Result:
    """Run a policy on a scenario, and return the result with its metrics.

    Parameters
    ----------
    scenario : Scenario or str
        A scenario, or the name of one of conf/scenario (`load_scenario` takes overrides, too).
    policy : Policy or str
        A policy, its name, or a YAML file (`*.yaml`) with its `name` and parameters.
    placer : Placer or str
        Likewise.
    seed : int
        Of policy and placer.
    progress : callable, optional
        Called after each decision.
    watch : StepWatchdog, optional
        Limits how long policy and placer may take.
    engine : str
        `simpy`, `compiled`, or `auto`: compiled where that covers the scenario, Numba is there and many
        decisions are expected. The result is the same.
    """
    if isinstance(scenario, str):
        from clustergym.scenario.by_name import load_scenario

        scenario = load_scenario(scenario)
    _check_class("scenario", scenario, Scenario, "give clustergym.load_scenario(NAME, OVERRIDES)")
    policy = make_policy(_parameters(policy)) if isinstance(policy, str) else policy
    placer = make_placer(_parameters(placer)) if isinstance(placer, str) else placer
    _check_class("policy", policy, Policy, "give its name, a YAML file of its parameters, or a Policy")
    _check_class("placer", placer, Placer, "give its name, a YAML file of its parameters, or a Placer")
    return make_result(driver.simulate(scenario, policy, placer, seed, progress, watch, engine))


def _parameters(name: str) -> Mapping[str, Any]:
    """Return the name and parameters of a policy or placer that is given by name or by a YAML file."""
    if not name.endswith((".yaml", ".yml")):
        return {"name": name}
    from clustergym.common.yaml_file import read_mapping

    return read_mapping(Path(name)).content


def _check_class(field: str, given: object, wanted: type, remedy: str) -> None:
    if not isinstance(given, wanted):
        raise InputError(f"{given!r} is no {wanted.__name__}", field=field, remedy=remedy)
