"""Rented nodes on both engines: the same events, costs and decision logs on drawn scenarios."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import Job, small_scenario

from clustergym.results.measured_run import measure_run
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbances.capacity import Capacity, Product
from clustergym.scenario.policy import Decision, InformationClass, Policy
from clustergym.sim.compiled.coverage import UncoveredError, check_runnable
from clustergym.sim.drive import simulate

TIMES = {"m": {"X": {1: 1.0, 2: 0.6, 4: 0.35}}}


class Drawn(Policy):
    """Gives GPUs to jobs in a drawn order, and rents at drawn targets, now and then."""

    name = "drawn"
    information_class = InformationClass.NONE

    def __init__(self, seed, per_node):
        self.rng, self.per_node = np.random.default_rng(seed), per_node
        self.seen = []

    def schedule(self, view):
        rented, free, targets = view.capacity, int(view.available[0]), None
        self.seen.append(
            (view.now_s, free, int(view.free[0]), *(tuple(part) for part in vars(rented).values()))
        )
        if self.rng.random() < 0.5:
            targets = tuple(self.rng.integers(0, 4, 2).tolist())
            more = np.array(targets) - rented.held - rented.ordered
            gained = np.where(rented.at_once, np.clip(more, 0, rented.offered), 0)
            given_back = np.where(rented.returnable, np.clip(-more, 0, rented.held), 0)
            free += int((gained - given_back).sum()) * self.per_node
        found = []
        for at in self.rng.permutation(len(view)).tolist():
            gpus = (
                int(view.gpus[at])
                if view.gpus[at] and self.rng.random() < 0.7
                else 2 ** int(self.rng.integers(3))
            )
            if gpus <= free and (not found or self.rng.random() < 0.9):
                found.append((int(view.job[at]), 0, gpus))
                free -= gpus
        return replace(Decision.of(found), capacity=targets)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), rounds=st.sampled_from(["event", 500.0]), per_node=st.sampled_from([1, 2]))
def test_both_engines_have_the_same_events(seed, rounds, per_node):
    rng = np.random.default_rng(seed)
    submit_s = np.sort(rng.integers(0, 4000, 12)).tolist()
    jobs = [Job(f"{row}", float(at), int(rng.integers(50, 3000)), 2) for row, at in enumerate(submit_s)]
    scenario = small_scenario(
        jobs, {"X": (8, per_node)}, TIMES, rounds=rounds, checkpoint_s={"m": 20.0}, horizon_s=9000.0
    )
    contract = Product(
        "contract", (2, 3, 4), ticks(300.0), ticks(900.0), 0, ((0, 1.0), (ticks(700.0), 2.5)), ((0, 3),)
    )
    demand = Product("on-demand", (5, 6, 7), 0, 0, 0, ((0, 3.0), (ticks(1000.0), 1.0)), ((0, 3),))
    scenario = replace(scenario, disturbances=(Capacity((contract, demand)),))
    runs, policies = [], []
    for engine in ("simpy", "compiled"):
        policies.append(Drawn(seed, per_node))
        runs.append(simulate(scenario, policies[-1], Buddy(), engine=engine).simulation)
    assert policies[0].seen == policies[1].seen
    assert list(runs[1].log.events) == runs[0].log.events
    assert runs[1].log.digest == runs[0].log.digest
    assert list(runs[1].iterate_changes()) == list(runs[0].iterate_changes())
    measured = [measure_run(run) for run in runs]
    assert measured[0].metrics == measured[1].metrics
    assert measured[0].metrics["cost"] >= 0


def test_spot_nodes_stay_with_simpy():
    spot = Product("spot", (0,), 0, 0, 0, ((0, 1.0),), ((0, 1), (5, 0)))
    capacity = Capacity((spot,))
    scenario = small_scenario([Job("a", 0.0, 5)], {"X": (2, 1)}, TIMES, disturbances=(capacity,))
    with pytest.raises(UncoveredError, match="has disturbances"):
        check_runnable(scenario, Buddy())
