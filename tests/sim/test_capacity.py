"""Nodes that are rented, worked out by hand: contracts, prices that change, nodes taken away with notice."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import ONE_S, Job, replays, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.measured_run import measure_run
from clustergym.scenario.clock import ticks
from clustergym.scenario.costs import Costs
from clustergym.scenario.disturbances.capacity import (
    BEGIN,
    END,
    NOTICE,
    ORDER,
    Capacity,
    Product,
    read_offers,
)
from clustergym.scenario.policy import Decision, InformationClass, Policy
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

HOUR = 3600.0
EVER = ((0, 1.0),)


def steps(*pairs):
    return tuple((ticks(time_s), value) for time_s, value in pairs)


def product(name, nodes, prices=EVER, supply=None, lead_s=0.0, term_s=0.0, notice_s=0.0):
    times = ticks(lead_s), ticks(term_s), ticks(notice_s)
    return Product(name, nodes, *times, prices, supply or ((0, len(nodes)),))


class Renter(Policy):
    """Decides by a table: time -> (targets, job -> GPUs); else all stays. It asks for each of these times."""

    name = "renter"
    information_class = InformationClass.NONE

    def __init__(self, entries):
        self.entries, self.views = dict(entries), []

    def schedule(self, view):
        self.views.append(view)
        targets, jobs = self.entries.pop(view.now_s, (None, None))
        decision = (
            Decision.keep(view) if jobs is None else Decision.of((row, 0, n) for row, n in jobs.items())
        )
        return replace(decision, capacity=targets, again_s=min(self.entries, default=None))


def run_of(jobs, nodes, capacity, entries, per_node=1, **more):
    scenario = small_scenario(jobs, {"X": (nodes, per_node)}, ONE_S, disturbances=(capacity,), **more)
    policy = Renter(entries)
    return simulate(scenario, policy, Buddy()), policy


def events_of(run, *kinds):
    return [
        (e.time_s, e.nodes[0][0] if e.nodes else e.job)
        for e in run.simulation.log.events
        if e.event_type in kinds
    ]


def cost_of(run):
    return measure_run(run.simulation).metrics["cost"]


def test_a_contract_comes_after_its_lead_and_goes_at_its_term_at_the_price_of_its_order():
    # Node 0 is one's own, node 1 a contract: ordered at 100 s for 2 USD an hour, there from 160 to 460 s. Job
    # b gets it at 160 and is 300 s on it, then waits with its work saved until a has ended on node 0 at 500,
    # and ends 100 s later. 300 s at 2 USD of the order (not at 5 USD of later) are 1/6 USD.
    contract = product("contract", (1,), steps((0, 2.0), (150.0, 5.0)), lead_s=60.0, term_s=300.0)
    entries = {0.0: (None, {0: 1}), 100.0: ((1,), None), 160.0: (None, {0: 1, 1: 1}), 500.0: (None, {1: 1})}
    jobs = [Job("a", 0.0, 500), Job("b", 0.0, 400)]
    run, policy = run_of(jobs, 2, Capacity((contract,)), entries)
    assert events_of(run, ORDER) == [(100.0, 1)]
    assert events_of(run, BEGIN) == [(160.0, 1)]
    assert events_of(run, END) == [(0.0, 1), (460.0, 1)]
    assert events_of(run, EventType.PREEMPT, EventType.COMPLETE) == [(460.0, 1), (500.0, 0), (600.0, 1)]
    assert cost_of(run) == pytest.approx(2.0 * 300 / 3600)
    rented = [(v.now_s, *v.capacity.held, *v.capacity.ordered, *v.capacity.offered) for v in policy.views]
    assert rented == [(0, 0, 0, 1), (100, 0, 0, 1), (160, 1, 0, 0), (460, 0, 0, 1), (500, 0, 0, 1)]


def test_nodes_at_once_cost_what_is_asked_for_at_each_moment():
    # Ordered at 0 and used by the same decision; 100 s at 3.6 USD an hour and 200 s at 36 are 0.1 + 2 USD.
    # Paid for in units of 250 s they are two units, 100 s at 3.6 and 400 s at 36: 4.1 USD.
    once = product("once", (0,), steps((0, 3.6), (100.0, 36.0)))
    for billed_s, cost in ((0.0, 2.1), (250.0, 4.1)):
        run, _ = run_of([Job("a", 0.0, 300)], 1, Capacity((once,), ticks(billed_s)), {0.0: ((1,), {0: 1})})
        assert events_of(run, EventType.COMPLETE) == [(300.0, 0)]
        assert cost_of(run) == pytest.approx(cost)
        timeline = measure_run(run.simulation).timeline
        assert timeline.further["cost"].tolist() == pytest.approx([0.0, cost])
        assert timeline.further["rented_gpus"].tolist() == [1, 0] or billed_s >= 0


def test_a_job_on_a_node_that_is_given_back_moves():
    # b runs on node 1, which is given back when a has left node 0: b goes on there after a restart of 10 s.
    once = product("once", (1,))
    entries = {0.0: ((1,), {0: 1, 1: 1}), 100.0: ((0,), {1: 1})}
    costs = Costs(search="proxy", profile={})
    jobs, restart_s = [Job("a", 0.0, 100), Job("b", 0.0, 200)], {"m": 10.0}
    run, _ = run_of(jobs, 2, Capacity((once,)), entries, costs=costs, checkpoint_s=restart_s)
    assert events_of(run, EventType.MIGRATE) == [(100.0, 0)]
    assert events_of(run, END) == [(0.0, 1), (100.0, 1)]
    first = 0.0 if not costs.first_launch else 10.0
    assert events_of(run, EventType.COMPLETE)[-1] == (210.0 + first, 1)


@pytest.mark.parametrize(("notice_s", "lost_s"), [(30.0, 0.0), (0.0, 100.0)])
def test_a_gang_keeps_its_work_only_if_the_notice_is_long_enough(notice_s, lost_s):
    # The gang has 4 GPUs on nodes 0 and 1; node 1 is taken away at 100 s. With notice it has saved, without
    # it goes back to its launch. It runs on at 200 s, when the node is offered again.
    spot = product("spot", (1,), supply=steps((0, 1), (100.0, 0), (200.0, 1)), notice_s=notice_s)
    entries = {0.0: ((1,), {0: 4}), 200.0: ((1,), {0: 4})}
    run, policy = run_of([Job("a", 0.0, 150, 4)], 2, Capacity((spot,)), entries, per_node=2)
    assert events_of(run, NOTICE) == ([(70.0, 1)] if notice_s else [])
    assert events_of(run, END) == [(0.0, 1), (100.0, 1)]
    assert [e.lost_s for e in run.simulation.log.events if e.event_type == EventType.FAIL] == [lost_s][
        : not notice_s
    ]
    assert events_of(run, EventType.COMPLETE) == [(250.0 + lost_s, 0)]
    assert cost_of(run) == pytest.approx(2 * (100 + 50 + lost_s) / 3600)
    assert [int(v.available[0]) for v in policy.views if v.now_s == 100.0] == [2]
    assert replays(run.simulation)


class CantBeLate(Policy):
    """The rules of "Can't Be Late" (NSDI '24) for one job: products spot and on-demand, a decision a step.

    `progress` is Uniform Progress as its authors' program has it (`rc_cr_threshold.py`); `greedy` waits for
    its safety net; `hindsight` has none: it knows that spot comes back.
    """

    name = "cant-be-late"
    information_class = InformationClass.NONE

    def __init__(self, work_h, deadline_h, delay_h, rules):
        self.all_h, self.deadline_h, self.delay_h, self.rules = work_h, deadline_h, delay_h, rules
        self.on = "idle"

    def schedule(self, view):
        rented, now = view.capacity, view.now_s / HOUR
        spot = bool(rented.held[0] + rented.offered[0])
        left = float(view.remaining_iterations[0]) / HOUR if len(view) else 0.0
        delay, done, rest = self.delay_h, self.all_h - left, self.deadline_h - now
        if self.on == "spot" and not rented.held[0]:
            self.on = "idle"
        wanted, expected = "spot" if spot else "idle", lambda time: time * self.all_h / self.deadline_h
        if self.rules == "progress":
            if done < expected(now) - 1e-9:
                wanted = "spot" if spot else "on-demand"
            if self.on == "on-demand" and (not spot or expected(now + 2 * delay) - done >= -1e-9):
                wanted = "on-demand"
        net = self.rules != "hindsight"
        if net and math.ceil(left + 2 * delay - 1e-9) >= math.floor(rest) and self.on != "spot":
            wanted = "on-demand"
        if net and math.ceil(left + delay - 1e-9) >= math.floor(rest):
            wanted = "spot" if self.on == "spot" else "on-demand"
        self.on = wanted if left > 1e-9 else "idle"
        jobs = Decision.of([] if self.on == "idle" else [(0, 0, 1)])
        return replace(jobs, capacity=(int(self.on == "spot"), int(self.on == "on-demand")))


@pytest.mark.parametrize(
    ("rules", "cost", "starts"),
    [
        ("progress", 13.0, [(0, 0), (4, 1), (7, 0)]),
        ("greedy", 14.0, [(0, 0), (5, 1)]),
        ("hindsight", 6.0, [(0, 0), (6, 0)]),
    ],
)
def test_the_published_case_of_spot_instances(rules, cost, starts):
    # 5 h of work in 10 h, 0.4 h lost at each start, spot at 1 USD a step of 1 h in steps 0, 1, 6, 7, 8 and 9,
    # on-demand at 3. Uniform Progress: spot in 0 and 1, on-demand in 4, 5 and 6, spot in 7 and 8: 4 + 9 = 13.
    # The greedy rule waits for its safety net: spot in 0 and 1, on-demand in 5, 6, 7 and 8: 2 + 12 = 14.
    # In hindsight spot is enough: 1.6 h of work in 0 and 1, and 3.4 in 6 to 9: 6. The job saves in half of
    # the 0.4 h, 720 s, so that a notice of 900 s keeps its work.
    spot = product("spot", (0,), supply=steps((0, 1), (2 * HOUR, 0), (6 * HOUR, 1)), notice_s=HOUR / 4)
    demand = product("on-demand", (1,), ((0, 3.0),))
    jobs, restart_s = [Job("a", 0.0, int(5 * HOUR))], {"m": 0.4 * HOUR}
    costs = Costs(search="proxy", profile={}, first_launch=True)
    scenario = small_scenario(jobs, {"X": (2, 1)}, ONE_S, costs=costs, checkpoint_s=restart_s, rounds=HOUR)
    scenario = replace(scenario, disturbances=(Capacity((spot, demand), ticks(HOUR)),))
    run = simulate(scenario, CantBeLate(5, 10, 0.4, rules), Buddy())
    metrics = measure_run(run.simulation).metrics
    assert metrics["cost"] == pytest.approx(cost)
    assert metrics["makespan"] <= 10 * HOUR
    begins = [(time_s / HOUR, node) for time_s, node in events_of(run, BEGIN)]
    assert begins == starts


def test_targets_that_are_none_are_refused_and_a_run_that_rents_nothing_stalls():
    once = Capacity((product("once", (0,)),))
    for targets in ((1, 1), (-1,), (0.5,)):
        with pytest.raises(DecisionError, match="has the targets"):
            run_of([Job("a", 0.0, 1)], 1, once, {0.0: (targets, {})})
    with pytest.raises(RuntimeError, match="stalled at 0 s: 1 jobs wait"):
        run_of([Job("a", 0.0, 1)], 1, once, {})
    scenario = small_scenario([Job("a", 0.0, 1)], {"X": (1, 1)}, ONE_S)
    with pytest.raises(DecisionError, match="orders nodes, and the scenario has none to rent"):
        simulate(scenario, Renter({0.0: ((1,), {0: 1})}), Buddy())


@pytest.mark.parametrize(
    ("row", "field", "line"),
    [
        ("0,spit,1,1", "product", 2),
        ("0,spot,dear,1", "usd_per_gpu_hour", 2),
        ("0,spot,-1,1", "usd_per_gpu_hour", 2),
        ("0,spot,1,0.5", "nodes", 2),
        ("0,spot,1,3", "nodes", 2),
        ("-1,spot,1,1", "time_s", 2),
        ("5,spot,1,1", "time_s", None),
        ("0,spot,1,1\n0,spot,2,1", "time_s", 3),
    ],
)
def test_each_wrong_cell_of_a_file_of_offers_is_named(tmp_path, row, field, line):
    path = tmp_path / "offers.csv"
    path.write_text(f"time_s,product,usd_per_gpu_hour,nodes\n{row}\n")
    with pytest.raises(InputError) as caught:
        read_offers(path, {"spot": 2})
    assert (caught.value.field, caught.value.line) == (field, line)
    path.write_text("time_s,product,usd_per_gpu_hour,nodes\n60,spot,2,0\n0,spot,1,2\n")
    assert read_offers(path, {"spot": 2})["spot"] == (steps((0, 1.0), (60, 2.0)), steps((0, 2), (60, 0)))
