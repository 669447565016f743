"""When a queue's decision is kept: all of its jobs keep type, count and batch."""

import numpy as np
import pytest
from batches import batch_scenario
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.parts_of_views import QueueViews
from scenarios import Job

from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.engine import Simulation


@pytest.fixture(scope="module")
def parts():
    """Three jobs: a has 2 X at its request of 32, b 1 X at a batch of 128, and c waits."""
    jobs = [Job("a", 0, 100), Job("b", 0, 100), Job("c", 0, 100)]
    scenario = batch_scenario(jobs, {32: 2.0, 128: 4.0}, (32.0,), counts=(1, 2), rounds=10.0)
    simulation = Simulation(scenario, Buddy(), InformationClass.BOOTSTRAP)
    view = simulation.advance()
    simulation.apply(decided([0, 1], [2, 1], [0, 128]))
    view = simulation.advance()
    return QueueViews(view.with_columns({"queue": np.zeros(3, dtype=np.int64)}), view.gpus, 1)


def decided(job, gpus, batch=None, drop=()):
    columns = (np.array(job), np.zeros(len(job), dtype=np.int64), np.array(gpus))
    return Decision(
        *columns, drop=np.array(drop, dtype=np.int64), batch=None if batch is None else np.array(batch)
    )


@pytest.mark.parametrize(
    "batches", [([0, 128], [128, 0]), ([32, 128], [128, 32])], ids=["at request", "named"]
)
def test_what_is_kept_may_be_named_in_any_order(parts, batches):
    assert parts.unless_kept(0, decided([0, 1], [2, 1], batches[0])) is None
    assert parts.unless_kept(0, decided([1, 0], [1, 2], batches[1])) is None


@pytest.mark.parametrize(
    "other",
    [
        decided([0, 1], [2, 1]),  # b at its request again
        decided([0, 1], [2, 1], [128, 128]),
        decided([0, 1], [1, 1], [0, 128]),
        decided([0], [2], [0]),
        decided([0, 2], [2, 1], [0, 128]),
        decided([0, 1, 2], [2, 1, 1], [0, 128, 0]),
        decided([0, 1], [2, 1], [0, 128], drop=[2]),
    ],
)
def test_another_decision_is_returned(parts, other):
    assert parts.unless_kept(0, other) is other
