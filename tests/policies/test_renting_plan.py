"""Nodes that a plan rents for another policy, worked out by hand."""

from __future__ import annotations

import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.renting_plan import RentingPlan
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.measured_run import measure_run
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbances.capacity import BEGIN, END, ORDER, Capacity, Product
from clustergym.scenario.registry import make_policy
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

ONE_S = {"m": {"X": {1: 1.0, 2: 1.0}}}


def product(name, nodes, price=1.0, lead_s=0.0, term_s=0.0):
    return Product(name, nodes, ticks(lead_s), ticks(term_s), 0, ((0, price),), ((0, len(nodes)),))


def run_of(jobs, products, **parameters):
    """Simulate on two GPUs of one's own, and nodes of two GPUs that are rented."""
    rented = sum(len(one.nodes) for one in products)
    scenario = small_scenario(jobs, {"X": (1 + rented, 2)}, ONE_S, disturbances=(Capacity(products),))
    return simulate(scenario, RentingPlan("fcfs", **parameters), Buddy()).simulation


def events_of(simulation, *event_types):
    """Return the time of each event of some types, and its node, or its job."""
    return [
        (round(event.time_s, 3), event.nodes[0][0] if event.job < 0 else event.job)
        for event in simulation.log.events
        if event.event_type in event_types
    ]


def test_a_node_is_given_back_once_as_many_are_free_of_jobs():
    # x has the own node until 100 s. At 50 s four GPUs are asked for, two more than one's own: y and z start
    # on the rented node. At 100 s w gets one of the own GPUs. From 150 s on y and w ask for two GPUs, as
    # many as one's own, but each is on a node: only when y has ended, at 350 s, is one free.
    jobs = [Job("x", 0.0, 100, 2), Job("y", 10.0, 300), Job("z", 10.0, 90), Job("w", 90.0, 400)]
    once = product("once", (1,))
    run = run_of(jobs, (once,), rule="reactive", at_once=(-2.0, 0.0, 1.0, 0.0), every_s=50.0)
    assert events_of(run, EventType.START) == [(0.0, 0), (50.0, 1), (50.0, 2), (100.0, 3)]
    assert events_of(run, BEGIN, END) == [(0.0, 1), (50.0, 1), (400.0, 1)]
    assert measure_run(run).metrics["cost"] == pytest.approx(2 * 350 / 3600)


def test_the_cheapest_product_comes_first():
    # Six GPUs are asked for, four more than one's own: the cheaper product has one node, the dearer two.
    jobs = [Job(name, 0.0, 100, 2) for name in "abc"]
    products = (product("dear", (2, 3), 3.0), product("cheap", (1,), 2.0))
    run = run_of(jobs, products, rule="reactive", at_once=(-2.0, 0.0, 1.0, 0.0))
    assert events_of(run, ORDER) == [(0.0, 2), (0.0, 1)]
    assert events_of(run, EventType.START) == [(0.0, 0), (0.0, 1), (0.0, 2)]


def test_all_that_is_offered_is_rented_again_at_each_term():
    contract = product("contract", (1,), lead_s=10.0, term_s=100.0)
    run = run_of([Job("a", 0.0, 250, 2), Job("b", 0.0, 200, 2)], (contract,))
    # b is on it from 10 to 110 s and from 120 to 220 s.
    assert events_of(run, ORDER) == [(0.0, 1), (110.0, 1), (220.0, 1)]
    assert events_of(run, EventType.COMPLETE) == [(220.0, 1), (250.0, 0)]


def test_a_plan_within_a_plan_is_refused():
    with pytest.raises(InputError, match=r"^policy.within: rents itself \(give another policy\)"):
        make_policy({"name": "renting-plan", "within": "renting-plan"})
    with pytest.raises(InputError, match="has 2 numbers"):
        run_of([Job("a", 0.0, 1)], (product("once", (1,)),), rule="reactive", ahead=(0.0, 1.0))
