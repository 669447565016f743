"""What jobs ask for, as disturbances and policies see it."""

from dataclasses import replace

import numpy as np
from clustergym.operators.policies.slurm_placer import SlurmPlacer
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.scenario.disturbances.reservations import fill_nodes
from clustergym.scenario.policy import InformationClass, Placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation

# Y is twice as fast as X on every count.
TIMES = {"m": {"X": {1: 4.0, 2: 2.0}, "Y": {1: 2.0, 2: 1.0}}}
JOBS = [Job("x", 0.0, 10, gpus=2, gpu_type="X"), Job("y", 0.0, 10, gpu_type="Y"), Job("any", 0.0, 10, gpus=2)]


def simulate(scenario: Scenario, placer: Placer) -> Simulation:
    return Simulation(scenario, placer, InformationClass.CLAIRVOYANT, None, 0)


def test_a_job_of_any_type_asks_for_its_fastest() -> None:
    made = simulate(small_scenario(JOBS, {"X": (1, 2), "Y": (1, 2)}, TIMES), Buddy())
    assert [made.disturbances.request(row) for row in range(3)] == [(0, 2), (1, 1), (1, 2)]


def test_policies_see_the_nodes_that_jobs_ask_for() -> None:
    plain = small_scenario(JOBS, {"X": (2, 2), "Y": (2, 2)}, TIMES)
    view = simulate(plain, Buddy()).advance()
    assert view.requested_nodes is None
    asked = replace(plain, trace=replace(plain.trace, nodes=np.array([2, 0, 1])))
    view = simulate(asked, SlurmPlacer()).advance()
    assert view.requested_nodes.tolist() == [2, 0, 1]


def test_a_planned_job_fills_its_nodes_in_order() -> None:
    assert fill_nodes((3, 5, 7), 10, 4) == ((3, 4), (5, 4), (7, 2))
    assert fill_nodes((3,), 4, 4) == ((3, 4),)
