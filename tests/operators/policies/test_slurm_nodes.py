"""Slurm's nodes and reservations: cases solved by hand, and a pass of slurmctld from its log."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from clustergym.operators.policies.node_reservations import NodeReservations, Planned, consecutive_best_fit
from clustergym.operators.policies.slurm_multifactor import SlurmMultifactor
from clustergym.operators.policies.slurm_placer import SlurmPlacer
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.decision_log import parse_changes
from clustergym.results.result_writing import decision_lines
from clustergym.scenario.policy import Decision, InformationClass
from clustergym.scenario.tenants.queue_tree import Tenants
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import replay, simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventType
from clustergym.trace.native import read_trace

FLAT = {"m": {"X": dict.fromkeys((1, 2, 4, 8, 16), 1.0)}}
EVERY_POINT = {"backfill_interval_s": 0.0, "backfill_resolution_s": 0.0, "weight_fair_share": 0.0}
EVERY_POINT["batch_sched_delay_s"] = 0.0


@pytest.mark.parametrize(
    ("free", "gpus", "nodes", "expected"),
    [
        # Sets {0, 1} with 5, {3} with 3: the set with the fewest that suffice, there the node that suffices.
        ([4, 1, 0, 3], 2, 0, ((3, 2),)),
        ([4, 1, 0, 3], 4, 0, ((0, 4),)),
        # No node of {0, 1} has 5: its nodes one after another.
        ([4, 1, 0, 3], 5, 0, ((0, 4), (1, 1))),
        # No set suffices for 6: the largest first, the rest from the other.
        ([4, 1, 0, 3], 6, 0, ((0, 4), (1, 1), (3, 1))),
        ([4, 1, 0, 3], 9, 0, None),
        # Of two nodes alike, the first.
        ([2, 2, 8], 2, 0, ((0, 2),)),
        # Two nodes with 2 each: node 1 has not that many free, so the sets are {0} and {2, 3}.
        ([4, 1, 2, 3], 4, 2, ((2, 2), (3, 2))),
        ([4, 1, 0, 3], 4, 2, ((0, 2), (3, 2))),
        ([8, 1, 1, 1], 4, 2, None),
        # One node: only as many of a node's GPUs count as the job can use, so the first is as good as any.
        ([8, 2], 2, 1, ((0, 2),)),
        # {5} has one that counts, {0, 1} two (slurmctld 22.05.8, jobs with --gres).
        ([1, 1, 0, 0, 0, 4], 1, 1, ((5, 1),)),
    ],
)
def test_the_set_of_neighbours_that_fits_best(free, gpus, nodes, expected):
    assert consecutive_best_fit(np.array(free), gpus, nodes) == expected


@pytest.mark.parametrize(
    ("free", "gpus", "nodes", "expected"),
    [
        ([8, 2], 2, 1, ((1, 2),)),
        # One on each of two nodes: {3} alone is too few nodes, but has more free than {0, 1}, so it is the
        # first set, and then the better of the other (slurmctld 22.05.8, jobs with CPUs).
        ([2, 2, 0, 8], 2, 2, ((0, 1), (3, 1))),
    ],
)
def test_all_that_is_free_counts_where_cpus_stand_for_gpus(free, gpus, nodes, expected):
    assert consecutive_best_fit(np.array(free), gpus, nodes, capped=False) == expected


# One pass of slurmctld 22.05.8, times in seconds from a whole minute: now, what is free, running jobs (their
# limits, nodes), and (GPUs, limit in minutes, planned start, planned nodes) of each waiting job in order.
NOW_S, FREE = 107.0, [4, 0, 0, 0]
RUNNING = [
    (242, ((1, 8),)), (247, ((0, 2),)), (248, ((3, 8),)), (188, ((0, 1),)), (198, ((2, 4),)),
    (211, ((0, 1),)), (159, ((2, 2),)), (159, ((2, 2),)),
]  # fmt: skip
LOGGED = [
    (8, 1, 198, (2,)), (4, 3, 107, (0,)), (8, 2, 248, (3,)), (4, 1, 258, (2,)), (4, 1, 287, (0,)),
    (4, 2, 248, (1,)), (16, 2, 347, (0, 2)), (16, 1, 368, (1, 3)), (8, 2, 428, (1,)), (8, 2, 428, (3,)),
    (16, 2, 467, (0, 2)), (4, 1, 548, (1,)), (4, 1, 548, (3,)), (2, 5, 587, (2,)), (1, 1, 198, (0,)),
    (2, 1, 587, (0,)), (4, 1, 608, (1,)), (2, 2, 608, (3,)), (16, 2, 668, (0, 1)), (2, 1, 728, (3,)),
    (1, 2, 788, (0,)), (4, 1, 788, (1,)), (16, 1, 848, (1, 3)), (4, 1, 887, (2,)), (1, 1, 908, (0,)),
    (4, 1, 908, (1,)),
]  # fmt: skip


def test_a_pass_plans_what_slurmctld_logged():
    plan = NodeReservations(NOW_S, np.array(FREE), RUNNING, resolution_s=1.0, window_s=86_400.0)
    found = []
    for gpus, minutes, _, _ in LOGGED:
        planned = plan.plan(np.ones(4, dtype=bool), gpus, 0, 60.0 * minutes)
        found.append((gpus, minutes, planned.start_s, tuple(node for node, _ in planned.nodes)))
        if planned.start_s <= NOW_S:
            plan.start(planned.nodes, NOW_S + 60.0 * minutes)
        else:
            plan.reserve(planned, 60.0 * minutes)
    assert found == LOGGED


def plan_of(free, running, resolution_s=0.0, window_s=1000.0):
    return NodeReservations(0.0, np.array(free), running, resolution_s, window_s)


ALL = np.ones(2, dtype=bool)


def test_a_reservation_keeps_all_of_its_nodes():
    # Node 0 is half free, node 1 not at all. 8 GPUs wait for node 0 from 100 on, until 160.
    plan = plan_of([4, 0], [(100.0, ((0, 4),)), (500.0, ((1, 8),))])
    head = plan.plan(ALL, 8, 0, 60.0)
    assert head == Planned(100.0, ((0, 8),), ALL)
    plan.reserve(head, 60.0)
    # Until before 100 the free half may be used, not until 100: Slurm counts ends and starts alike.
    assert plan.plan(ALL, 2, 0, 99.0) == Planned(0.0, ((0, 2),), ALL)
    # Two GPUs for 100 s would leave 8 - 2 for nobody: they are planned after the reservation.
    assert plan.plan(ALL, 2, 0, 100.0) == Planned(160.0, ((0, 2),), ALL)
    # What would start after the window has no plan.
    assert plan.plan(ALL, 16, 0, 2000.0).start_s == 500.0
    assert plan_of([0, 0], [(100.0, ((0, 8),))], window_s=50.0).plan(ALL, 8, 0, 60.0) is None


@pytest.mark.parametrize(
    ("ends_s", "start_s"),
    [
        # The windows begin at the multiple of 30 after the first end, 120: up to 150, 180, 240.
        ((101.0, 150.0, 151.0), 150.0),
        ((101.0, 151.0, 170.0), 101.0),
        ((125.0, 150.0, 180.0), 180.0),
    ],
)
def test_ends_within_a_window_count_together(ends_s, start_s):
    # The first end suffices; its start is the last end of its window.
    running = [(end_s, ((0, 2),)) for end_s in ends_s]
    assert plan_of([2, 0], running).plan(ALL, 4, 0, 60.0).start_s == start_s


def test_a_job_past_its_limit_ends_soon():
    assert plan_of([0, 0], [(-5.0, ((0, 8),))]).plan(ALL, 8, 0, 60.0) == Planned(1.0, ((0, 8),), ALL)


def test_reservations_are_rounded_down():
    plan = plan_of([0, 0], [(100.0, ((0, 8),)), (400.0, ((1, 8),))], resolution_s=60.0)
    plan.reserve(plan.plan(ALL, 8, 0, 60.0), 60.0)
    # From 60 to 120, though the job is to run from 100 to 160.
    assert plan.plan(ALL, 8, 0, 60.0).start_s == 120.0


def run(jobs, limits_s, placer, nodes=None, queues="virtual_cluster", teams=None, origin=0.0, **parameters):
    scenario = small_scenario(jobs, {"X": (2, 4)}, FLAT)
    limits = np.array([limits_s[job.job_id] for job in jobs])
    asked = None if nodes is None else np.array([nodes[job.job_id] for job in jobs])
    teams = teams or ("a",) * len(jobs)
    trace = replace(scenario.trace, time_limit_s=limits, nodes=asked, virtual_cluster=teams)
    trace = replace(trace, provenance={**trace.provenance, "origin": origin})
    tenants = Tenants.from_queues(queues, trace, scenario.cluster.gpu_types)
    policy = SlurmMultifactor(**{**EVERY_POINT, **parameters}, round_s=None)
    return simulate(replace(scenario, trace=trace, tenants=tenants), policy, placer).simulation


def started(*arguments, **parameters):
    simulation = run(*arguments, **parameters)
    names = simulation.scenario.trace.job_id
    events = [e for e in simulation.log.events if e.event_type == EventType.START]
    return {names[e.job]: (e.time_s, tuple(e.nodes)) for e in events}


def test_a_pass_of_backfill_comes_an_interval_after_the_last():
    # The first pass is at 0. At 2 nothing is started behind big, which waits for both nodes until 300; at 30,
    # when nothing else happens, small is, as it ends before.
    jobs = [Job("b", 0, 100, gpus=4), Job("a", 0, 300, gpus=2), Job("big", 1, 50, gpus=8)]
    jobs += [Job("small", 2, 20, gpus=2)]
    limits_s = {job.job_id: float(job.iterations) for job in jobs}
    found = started(jobs, limits_s, SlurmPlacer(), backfill_interval_s=30.0)
    assert {name: at for name, (at, _) in found.items()} == {"b": 0.0, "a": 0.0, "small": 30.0, "big": 300.0}


def test_passes_keep_their_distance_to_the_start_of_slurmctld():
    # As above. slurmctld began 12 s before the log: passes at 18, 48, and so on. Without dates its time says
    # nothing.
    jobs = [Job("b", 0, 300, gpus=4), Job("a", 0, 100, gpus=2), Job("big", 1, 50, gpus=8)]
    jobs += [Job("small", 2, 20, gpus=2)]
    limits_s = {job.job_id: float(job.iterations) for job in jobs}
    clock = {"backfill_interval_s": 30.0, "booted": "2026-03-02T09:00:00"}
    for origin, small_s in (("2026-03-02T09:00:12", 18.0), (0.0, 30.0)):
        found = started(jobs, limits_s, SlurmPlacer(), origin=origin, **clock)
        assert {name: at for name, (at, _) in found.items()} == {
            "b": 0.0,
            "a": 0.0,
            "small": small_s,
            "big": 300.0,
        }
    with pytest.raises(InputError, match=r"policy\.booted: 'noon' is not a time"):
        started(jobs, limits_s, SlurmPlacer(), booted="noon")


def test_jobs_are_started_in_order_a_delay_after_the_last_time():
    jobs = [Job("b", 0, 100, gpus=4), Job("c", 1, 100, gpus=2), Job("d", 5, 100, gpus=2)]
    limits_s = {job.job_id: float(job.iterations) for job in jobs}
    found = started(jobs, limits_s, SlurmPlacer(), backfill_interval_s=1000.0, batch_sched_delay_s=3.0)
    assert {name: at for name, (at, _) in found.items()} == {"b": 0.0, "c": 3.0, "d": 6.0}


def test_a_job_that_a_limit_keeps_waiting_stops_nobody(tmp_path):
    # a2 would be the third pair of GPUs of team a, which may have four, and 2 are free: b1 has them.
    queues = tmp_path / "queues.yaml"
    queues.write_text("assign_by: virtual_cluster\nqueues:\n  a: {limit: 4}\n  b: {}\n")
    jobs = [Job("b0", 0, 100, gpus=4), Job("a1", 0, 100, gpus=2), Job("a2", 1, 10, gpus=4)]
    jobs += [Job("b1", 2, 10, gpus=2)]
    limits_s, teams = {job.job_id: float(job.iterations) for job in jobs}, ("b", "a", "a", "b")
    found = started(
        jobs, limits_s, SlurmPlacer(), queues=str(queues), teams=teams, backfill_interval_s=1000.0
    )
    assert {name: at for name, (at, _) in found.items()} == {"b0": 0.0, "a1": 0.0, "a2": 100.0, "b1": 2.0}


def test_a_job_that_waits_keeps_a_whole_node():
    # b has one GPU on each node until 200, a two more on node 0 until 100. mid wants a whole node: node 0
    # from 200. small (150 s) fits on node 1. late (250 s) would be on node 0 after 200, so it waits for
    # node 1, where small ends at 152, though from 100 on node 0 has three GPUs that nobody uses.
    jobs = [Job("b", 0, 200, gpus=2), Job("a", 0, 100, gpus=2), Job("mid", 1, 50, gpus=4)]
    jobs += [Job("small", 2, 150, gpus=2), Job("late", 3, 250, gpus=2)]
    limits_s = {job.job_id: float(job.iterations) for job in jobs}
    found = started(jobs, limits_s, SlurmPlacer(), {"b": 2, "a": 1, "mid": 1, "small": 1, "late": 1})
    assert found == {
        "b": (0.0, ((0, 1), (1, 1))),
        "a": (0.0, ((0, 2),)),
        "small": (2.0, ((1, 2),)),
        "late": (152.0, ((1, 2),)),
        "mid": (200.0, ((0, 4),)),
    }


def test_a_log_of_decisions_keeps_the_nodes_of_what_starts():
    # run has a GPU of each node until 200, two the next 2 of node 0; first waits for all of node 0 from 200
    # on. short, until 52, has the node that fits it best, 0; long, until 302, may not.
    jobs = [Job("run", 0, 200, gpus=2), Job("two", 0, 100, gpus=2), Job("first", 1, 50, gpus=4)]
    jobs += [Job("short", 2, 50, gpus=1), Job("long", 2, 300, gpus=1)]
    limits_s = {job.job_id: float(job.iterations) for job in jobs}
    asked = {"run": 2, "two": 1, "first": 1, "short": 1, "long": 1}
    simulation = run(jobs, limits_s, SlurmPlacer(), asked)
    names = simulation.scenario.trace.job_id
    nodes = {names[row]: given for change in simulation.changes for row, given in change.move}
    expected = {"run": ((0, 1), (1, 1)), "two": ((0, 2),), "first": ((0, 4),)}
    assert nodes == expected | {"short": ((0, 1),), "long": ((1, 1),)}
    result = {"policy": {"name": ""}, "placer": {"name": "", "parameters": {}}, "seed": 0}
    lines = [(at, line) for at, line in enumerate(decision_lines(simulation, result)) if "time_s" in line]
    changes = parse_changes(Path("log"), simulation.scenario, json.loads(json.dumps(lines)))
    assert changes == simulation.changes
    again = replay(simulation.scenario, SlurmPlacer(), simulation.information, None, 0, changes)
    assert again.log.digest == simulation.log.digest
    wrong = {**lines[-1][1], "avoid": [["run", [0]]]}
    with pytest.raises(InputError, match="run is not launched, or avoids what is no node"):
        parse_changes(Path("log"), simulation.scenario, [(1, wrong)])


def test_a_decision_avoids_what_is_a_node():
    simulation = Simulation(
        small_scenario([Job("a", 0, 5)], {"X": (2, 4)}, FLAT), SlurmPlacer(), InformationClass.NONE
    )
    view = simulation.advance()
    for node in (-1, 2):
        with pytest.raises(DecisionError, match=rf"a.* is to avoid node {node}, and there are 2"):
            simulation.apply(replace(Decision.of([(0, 0, 1)]), avoid={0: (node,)}))
    simulation.apply(replace(Decision.of([(0, 0, 1)]), avoid={0: (0,)}))
    assert view.places().free_on_node.tolist() == [4, 3]
    assert view.places().nodes == {0: ((1, 1),)}


def test_jobs_have_the_nodes_that_they_ask_for(tmp_path):
    jobs = [Job("one", 0, 50, gpus=2), Job("two", 0, 50, gpus=2), Job("four", 1, 50, gpus=4)]
    limits = dict.fromkeys(("one", "two", "four"), 60.0)
    found = started(jobs, limits, SlurmPlacer(), {"one": 1, "two": 2, "four": 1})
    assert found == {"one": (0.0, ((0, 2),)), "two": (0.0, ((0, 1), (1, 1))), "four": (50.0, ((0, 4),))}
    # Without such requests four fits in at once.
    free = started(jobs, limits, SlurmPlacer())
    assert free["four"][0] == 1.0


def test_placers_that_give_no_numbers_of_nodes_say_so():
    jobs = [Job("one", 0, 50, gpus=2)]
    with pytest.raises(
        InputError, match=r"placer: buddy does not place jobs on as many nodes .*placer=slurm"
    ):
        started(jobs, {"one": 60.0}, Buddy(), {"one": 2})
    with pytest.raises(InputError, match=r"trace.nodes: job one asks for 8 GPUs on 1 nodes"):
        started([Job("one", 0, 50, gpus=8)], {"one": 60.0}, SlurmPlacer(), {"one": 1})


def test_a_trace_keeps_the_nodes_that_jobs_ask_for(tmp_path):
    path = tmp_path / "t.csv"
    head = "job_id,submit_s,model_family,global_batch,iterations,gpus,nodes\n"
    path.write_text(head + "a,0,bert,8,1,4,2\nb,0,bert,8,1,4,\n")
    trace = read_trace(path)
    assert trace.nodes.tolist() == [2, 0]
    path.write_text(trace.csv_text())
    assert read_trace(path).sha256 == trace.sha256 != replace(trace, nodes=None).sha256
    path.write_text(head + "a,0,bert,8,1,4,2\nb,0,bert,8,1,4,3\n")
    with pytest.raises(InputError, match=r"t.csv:3: nodes: 4 GPUs cannot be divided evenly among 3 nodes"):
        read_trace(path)


def test_other_policies_wait_for_the_nodes_that_a_job_asks_for():
    scenario = small_scenario(
        [Job("a", 0, 50), Job("b", 0, 90), Job("c", 1, 10, gpus=8)], {"X": (2, 4)}, FLAT
    )
    trace = replace(scenario.trace, nodes=np.array([1, 1, 2]))
    done = simulate(replace(scenario, trace=trace), FirstComeFirstServed(), SlurmPlacer())
    starts = {
        e.job: (e.time_s, e.nodes) for e in done.simulation.log.events if e.event_type == EventType.START
    }
    assert starts[2] == (90.0, ((0, 4), (1, 4)))
