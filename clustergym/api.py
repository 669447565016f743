"""The same from Python: load a scenario, run a policy on it, look at the metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.metrics.jobs import JobRecords
from clustergym.metrics.metrics import Metrics
from clustergym.metrics.timeline import Timeline
from clustergym.output import measurement_of
from clustergym.policy import Placer, Policy
from clustergym.registry import make_placer, make_policy
from clustergym.scenario import Scenario
from clustergym.sim import run as driver


@dataclass(frozen=True)
class Result:
    """A finished run.

    Attributes
    ----------
    metrics : dict of str to number or None
        As in result.json; `clustergym.metrics.catalogue` defines them.
    jobs : JobRecords
        A row per job.
    timeline : Timeline
        The cluster's state over time.
    fairness : ndarray of float, shape (n,)
        Finish-time fairness of each job; NaN where it has none.
    digest : str
        SHA-256 over the event log.
    run : clustergym.sim.run.Run
        The simulation with its logs.
    """

    metrics: Metrics
    jobs: JobRecords
    timeline: Timeline
    fairness: npt.NDArray[np.float64]
    digest: str
    run: driver.Run


def compose(overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the configuration that `python -m clustergym.run` would run with these overrides.

    Raises
    ------
    InputError
        For whatever Hydra does not accept, with the nearest valid names.
    """
    from clustergym.hydra_edge import composed

    return composed("config", overrides)


def load_scenario(name: str = "testbed", overrides: Sequence[str] = (), seed: int = 0) -> Scenario:
    """Return a scenario of conf/scenario.

    Parameters
    ----------
    name : str
    overrides : sequence of str
        As on the command line: `cluster=arena-sim`, `horizon_s=3600`.
    seed : int

    Raises
    ------
    InputError
        If something in it is not valid.
    """
    from clustergym.config import build_scenario

    return build_scenario(compose([f"scenario={name}", *overrides, f"seed={seed}"]))


def simulate(
    scenario: Scenario, policy: Policy | str, placer: Placer | str = "buddy", seed: int = 0
) -> Result:
    """Run a policy, given by itself or by name, on a scenario."""
    policy = make_policy({"name": policy}) if isinstance(policy, str) else policy
    placer = make_placer({"name": placer}) if isinstance(placer, str) else placer
    run = driver.simulate(scenario, policy, placer, seed)
    return Result(*measurement_of(run.simulation), run.simulation.log.digest, run)
