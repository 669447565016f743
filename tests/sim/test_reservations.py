"""Nodes kept for planned jobs, worked out by hand; and what holds of any run with planned jobs."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from random_scenarios import all_left, random_scenarios, with_queues_for
from refusals import refused
from scenarios import ONE_S, Job, price, replays, small_scenario, small_trace

import clustergym
from clustergym.common.errors import InputError
from clustergym.results.measured_run import measure_run
from clustergym.scenario.costs import Costs
from clustergym.scenario.disturbances.failures import Failures, NodeFailure
from clustergym.scenario.disturbances.reservations import PlannedJobs, Reservation
from clustergym.scenario.policy import Decision, InformationClass, Placer, Policy
from clustergym.scenario.registry import entry_points, make_policy
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType


class InOrder(Policy):
    """Runs whatever fits, in order of submission, as requested."""

    name, information_class = "in-order", InformationClass.PROFILED

    def __init__(self, information=InformationClass.PROFILED):
        self.information_class, self.views = information, []

    def schedule(self, view):
        self.views.append(view)
        free, chosen = int(view.available[0]), []
        for at in np.argsort(view.gpus == 0, kind="stable").tolist():
            gpus = int(view.requested_gpus[at])
            if gpus <= free:
                free -= gpus
                chosen.append((int(view.job[at]), 0, gpus))
        return Decision.of(chosen)


def scenario_of(jobs, planned, nodes=3, lead_s=60.0, **kwargs):
    scenario = small_scenario(jobs, {"X": (nodes, 4)}, ONE_S, **kwargs)
    row = {name: row for row, name in enumerate(scenario.trace.job_id)}
    entries = tuple(Reservation(row[name], start_s, lead_s) for name, start_s in planned.items())
    return replace(scenario, disturbances=(PlannedJobs(entries),))


def with_failures(scenario, failures):
    return replace(scenario, disturbances=(failures, *scenario.disturbances))


def planned_from(given, trace):
    return PlannedJobs.from_config(given, scenario_of([Job("a", 0.0, 1)], {}).cluster, trace, seed=0)


def events_of(run, *kinds):
    ids = run.simulation.scenario.trace.job_id
    return [(e.time_s, ids[e.job]) for e in run.simulation.log.events if e.event_type in kinds]


def nodes_of(run, job):
    ids = run.simulation.scenario.trace.job_id
    starts = (EventType.START, EventType.RESUME)
    events = run.simulation.log.events
    return [(e.time_s, e.nodes) for e in events if e.event_type in starts and ids[e.job] == job]


OPPORTUNISTS = [
    Job("a", 0.0, 50, 4),
    Job("p", 30.0, 30, 8),
    Job("b", 45.0, 40, 4),
    Job("c", 50.0, 60, 4),
    Job("d", 55.0, 60, 4),
]


def test_who_ends_in_time_may_use_the_nodes_that_drain():
    # Of three nodes a has 2 until 50; 0 and 1 are kept for p from 40 on. b, from 45 to 85, is done before 100
    # and gets node 0. c would run from 50 to 110 and gets node 2, which is nobody's. d finds node 1 free at
    # 55, but would run until 115: it waits, at 85 too. At 100 p starts; at 110 c ends, d runs on node 2.
    scenario = scenario_of(OPPORTUNISTS, {"p": 100.0})
    run = simulate(scenario, InOrder(), Buddy())
    whole = lambda *nodes: tuple((node, 4) for node in nodes)  # noqa: E731
    assert nodes_of(run, "b") == [(45.0, whole(0))]
    assert nodes_of(run, "c") == [(50.0, whole(2))]
    assert nodes_of(run, "p") == [(100.0, whole(0, 1))]
    assert nodes_of(run, "d") == [(110.0, whole(2))]
    assert events_of(run, EventType.UNPLACED) == [(55.0, "d"), (85.0, "d")]
    refused = next(e for e in run.simulation.log.events if e.event_type == EventType.UNPLACED)
    assert refused.reason == "nodes are kept for planned job p, 4 GPUs short"
    assert events_of(run, EventType.PREEMPT) == []
    assert events_of(run, EventType.COMPLETE)[-2:] == [(130.0, "p"), (170.0, "d")]
    assert replays(run.simulation)


def test_without_iteration_times_nobody_may():
    run = simulate(scenario_of(OPPORTUNISTS, {"p": 100.0}), InOrder(InformationClass.NONE), Buddy())
    # b finds two free nodes at 45, but runs only where a did, from 50 on; c and d wait for p.
    assert nodes_of(run, "b") == [(50.0, ((2, 4),))]
    assert nodes_of(run, "p") == [(100.0, ((0, 4), (1, 4)))]


def test_nodes_that_will_be_free_by_themselves_are_kept_first():
    # Node 2 is the one Buddy breaks no pair for, but a holds it until 500; b, on node 0, ends at 90.
    jobs = [Job("a", 0.0, 500, 4), Job("b", 1.0, 89, 4), Job("p", 0.0, 30, 4), Job("q", 0.0, 30, 4)]
    run = simulate(scenario_of(jobs, {"p": 100.0, "q": 101.0}), InOrder(), Buddy())
    assert sorted([nodes_of(run, "p"), nodes_of(run, "q")]) == [[(100.0, ((0, 4),))], [(101.0, ((1, 4),))]]
    assert events_of(run, EventType.PREEMPT) == []


def test_a_placer_that_spreads_jobs_gets_whole_nodes_for_planned_ones():
    # p needs 4 GPUs, one whole node. The placer names GPUs on three nodes for them: the first is kept.
    class Spreading(Placer):
        name = "spreading"

        def place(self, allocations, gpu_type, gpus):
            if gpus < 3:
                return ((1, gpus),)
            return ((0, 1), (1, 1), (2, gpus - 2))

    jobs = [Job("a", 0.0, 50, 2), Job("p", 0.0, 30, 4)]
    run = simulate(scenario_of(jobs, {"p": 10.0}), InOrder(), Spreading())
    assert nodes_of(run, "p") == [(10.0, ((0, 4),))]
    assert events_of(run, EventType.COMPLETE) == [(40.0, "p"), (50.0, "a")]


def test_a_planned_start_at_a_round_does_not_make_two_rounds_of_it():
    # p starts at 60, as the round comes; a and b each ask for one node of two, so b waits until p ends at 90.
    policy = InOrder()
    jobs = [Job("a", 0.0, 130, 4), Job("b", 30.0, 20, 4), Job("p", 0.0, 30, 4)]
    scenario = scenario_of(jobs, {"p": 60.0}, nodes=2, lead_s=60.0, rounds=60.0)
    run = simulate(scenario, policy, Buddy())
    assert [(view.now_s, view.available.tolist()) for view in policy.views] == [
        (0.0, [8]),
        (60.0, [4]),
        (120.0, [8]),
    ]
    assert events_of(run, EventType.COMPLETE) == [(90.0, "p"), (130.0, "a"), (140.0, "b")]


def test_policies_neither_see_planned_jobs_nor_count_on_their_gpus():
    policy = InOrder()
    simulate(scenario_of(OPPORTUNISTS, {"p": 100.0}), policy, Buddy())
    assert all(1 not in view.job for view in policy.views)
    at = {view.now_s: view.available.tolist() for view in policy.views}
    assert [at[55.0], at[100.0], at[110.0], at[130.0]] == [[12], [4], [4], [12]]


def test_who_is_still_there_at_the_planned_start_is_preempted():
    # e on nodes 0 and 1 and f on 2 hold all of them for 1,000 s. p gets the best one of the whole cluster,
    # node 2, which breaks no pair. f waits until 130: 900 iterations are left; a checkpoint loads in 7 s.
    jobs = [Job("e", 0.0, 1000, 8), Job("f", 0.0, 1000, 4), Job("p", 0.0, 30, 4)]
    scenario = scenario_of(jobs, {"p": 100.0}, checkpoint_s={"m": 7.0})
    run = simulate(scenario, InOrder(), Buddy())
    assert nodes_of(run, "p") == [(100.0, ((2, 4),))]
    assert events_of(run, EventType.PREEMPT) == [(100.0, "f")]
    assert events_of(run, EventType.COMPLETE) == [(130.0, "p"), (1000.0, "e"), (130.0 + 7 + 900, "f")]


def test_a_profiling_in_the_way_is_put_off():
    # q's profiling holds a GPU of node 0, the only one, from 95 on; p needs it from 100 to 130.
    jobs = [Job("p", 0.0, 30, 4), Job("q", 95.0, 10)]
    costs = Costs(search="proxy", profile=price("profiled", 20.0))
    scenario = scenario_of(jobs, {"p": 100.0}, nodes=1, lead_s=0.0, costs=costs)
    run = simulate(scenario, InOrder(), Buddy())
    assert events_of(run, EventType.PROFILE_START) == [(95.0, "q"), (130.0, "q")]
    # 5 of its 20 s are measured: it ends at 145, and q runs for 10 s.
    assert events_of(run, EventType.COMPLETE) == [(130.0, "p"), (155.0, "q")]


def test_a_profiling_that_would_not_end_in_time_waits():
    jobs = [Job("p", 0.0, 30, 4), Job("q", 95.0, 10)]
    costs = Costs(search="proxy", profile=price("profiled", 20.0))
    run = simulate(scenario_of(jobs, {"p": 100.0}, nodes=1, costs=costs), InOrder(), Buddy())
    assert events_of(run, EventType.PROFILE_START) == [(130.0, "q")]


def test_a_kept_node_that_fails_is_replaced_and_a_planned_job_starts_anew():
    # Node 2 is kept from 40 on and fails at 70: node 0 instead. That fails at 110, before a checkpoint: p
    # starts anew on node 1 at once.
    scenario = scenario_of([Job("p", 0.0, 30, 4)], {"p": 100.0})
    schedule = (NodeFailure(70.0, 2, 500.0), NodeFailure(110.0, 0, 500.0))
    run = simulate(with_failures(scenario, Failures(schedule)), InOrder(), Buddy())
    assert nodes_of(run, "p") == [(100.0, ((0, 4),)), (110.0, ((1, 4),))]
    assert events_of(run, EventType.COMPLETE) == [(140.0, "p")]


def test_with_too_few_nodes_a_planned_job_waits_for_a_repair_and_nothing_is_half_placed():
    scenario = scenario_of([Job("p", 0.0, 30, 8), Job("g", 95.0, 2, 4)], {"p": 100.0}, nodes=2)
    failures = Failures((NodeFailure(90.0, 1, 30.0),))
    run = simulate(with_failures(scenario, failures), InOrder(), Buddy())
    assert nodes_of(run, "p") == [(120.0, ((0, 4), (1, 4)))]
    assert nodes_of(run, "g") == [(95.0, ((0, 4),))]


def test_the_last_node_of_a_planned_job_keeps_its_other_gpus_for_others():
    scenario = scenario_of([Job("p", 0.0, 30, 2), Job("g", 101.0, 5, 2)], {"p": 100.0}, nodes=1)
    run = simulate(scenario, InOrder(), Buddy())
    assert nodes_of(run, "g") == [(101.0, ((0, 2),))]


def test_a_planned_job_of_any_type_gets_the_one_it_is_fastest_on():
    times = {"m": {"X": {2: 3.0}, "Y": {2: 2.0}}}
    scenario = small_scenario([Job("p", 0.0, 10, 2)], {"X": (1, 4), "Y": (1, 4)}, times)
    scenario = replace(scenario, disturbances=(PlannedJobs((Reservation(0, 100.0, 60.0),)),))
    run = simulate(scenario, InOrder(), Buddy())
    assert nodes_of(run, "p") == [(100.0, ((1, 2),))]
    assert events_of(run, EventType.COMPLETE) == [(120.0, "p")]


POLICIES = sorted(set(entry_points("policy")) - {"learned", "renting"})


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=9, deadline=None)
@given(
    random_scenarios(),
    st.sampled_from([0.0, 50.0, 400.0]),
    st.integers(0, 100),
    st.sampled_from(["failures", "planned", "both"]),
)
def test_every_policy_lives_with_failures_and_planned_jobs(name, scenario, lead_s, seed, what):
    # Five nodes, each down for a tenth of the time.
    assume(name != "elasticflow" or np.isfinite(scenario.trace.deadline_s).any())
    rows = range(0, 0 if what == "failures" else len(scenario.trace), 3)
    planned = tuple(Reservation(row, float(scenario.trace.submit_s[row]) + 100.0, lead_s) for row in rows)
    failures = Failures(mtbf_s=900.0, mttr_s=100.0, seed=seed, checkpoint_every_s=20.0)
    both = failures, PlannedJobs(planned)
    chosen = {"failures": both[:1], "planned": both[1:], "both": both}[what]
    scenario = with_queues_for(name, replace(scenario, disturbances=chosen))
    run = simulate(scenario, make_policy({"name": name}), Buddy(defragment_s=100.0), seed)
    assert all_left(run, drops=True)
    starts = measure_run(run.simulation).records.first_start_s
    assert all(starts[entry.job] >= entry.start_s - 1e-6 for entry in planned)
    assert replays(run.simulation, Buddy(defragment_s=100.0), seed)


TRACE = small_trace([Job("first", 10.0, 5), Job("second", 20.0, 5)])


def test_configuration(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("start_s,job_id\n10,first\n20,second\n")
    at_once = planned_from({"path": str(path)}, TRACE)
    assert at_once == PlannedJobs((Reservation(0, 10.0, 3600.0), Reservation(1, 20.0, 3600.0)))
    path.write_text("start_s,job_id\n90,first\n50,second\n")
    planned = planned_from({"path": str(path), "lead_s": 5}, TRACE)
    assert planned == PlannedJobs((Reservation(1, 50.0, 5.0), Reservation(0, 90.0, 5.0)))
    assert planned_from({}, TRACE) is None
    with pytest.raises(InputError, match=r"scenario\.reservations\.lead_s: -1"):
        planned_from({"lead_s": -1}, TRACE)


@pytest.mark.slow
def test_from_the_configuration_to_the_log(tmp_path):
    scenario = clustergym.load_scenario("testbed", ["horizon_s=20000"])
    job = scenario.trace.job_id[20]
    path = tmp_path / "planned.csv"
    path.write_text(f"job_id,start_s\n{job},9000\n")
    overrides = ["horizon_s=20000", f"scenario.reservations.path={path}"]
    planned = clustergym.load_scenario("testbed", overrides)
    assert planned.sha256 != scenario.sha256
    result = clustergym.simulate(planned, "sjf")
    assert result.jobs.first_start_s[20] == 9000.0


def test_planned_jobs_choose_nodes_in_order_of_their_starts():
    # z leaves node 0 at 20; a holds node 1 until 150. At 50 nodes are kept for p, planned for 200, and q, for
    # 100. q chooses first, though p stands before it in the trace: node 0, which is free by itself at 100.
    jobs = [Job("p", 0.0, 30, 4), Job("q", 0.0, 30, 4), Job("z", 0.0, 20, 4), Job("a", 1.0, 149, 4)]
    scenario = small_scenario(jobs, {"X": (2, 4)}, ONE_S)
    scenario = replace(
        scenario, disturbances=(PlannedJobs((Reservation(1, 100.0, 50.0), Reservation(0, 200.0, 150.0))),)
    )
    run = simulate(scenario, InOrder(), Buddy())
    assert nodes_of(run, "q") == [(100.0, ((0, 4),))]
    assert nodes_of(run, "p")[0][0] == 200.0
    assert events_of(run, EventType.PREEMPT) == []


@pytest.mark.parametrize(("iterations", "start_s"), [(35, 45.0), (36, 150.0)])
def test_who_ends_exactly_at_the_planned_start_may_use_its_nodes_standstill_included(iterations, start_s):
    # b searches 4 x 5 = 20 s and works 35 s: from 45 until 100, when p starts on the only node. A second
    # more, and it waits until p has searched and worked: 100 + 20 + 30.
    costs = replace(scenario_of([Job("p", 0.0, 30, 4)], {}).costs, search="pruned")
    costs = replace(costs, search_s_per_gpu={"pruned": 5.0}, search_s_max={"pruned": 100.0})
    jobs = [Job("p", 0.0, 30, 4), Job("b", 45.0, iterations, 4)]
    run = simulate(scenario_of(jobs, {"p": 100.0}, nodes=1, costs=costs), InOrder(), Buddy())
    assert nodes_of(run, "b") == [(start_s, ((0, 4),))]
    assert nodes_of(run, "p") == [(100.0, ((0, 4),))]


@pytest.mark.parametrize(("iterations", "node"), [(100, 0), (101, 1)])
def test_a_node_that_is_free_exactly_at_the_planned_start_is_not_busy(iterations, node):
    # a holds node 0 until 100, or 101; p, planned for 100, takes node 0 where it is free by itself by then.
    jobs = [Job("a", 0.0, iterations, 4), Job("p", 0.0, 30, 4)]
    run = simulate(scenario_of(jobs, {"p": 100.0}, nodes=2), InOrder(), Buddy())
    assert nodes_of(run, "p") == [(100.0, ((node, 4),))]
    assert events_of(run, EventType.PREEMPT) == []


@refused("reservations")
def test_a_bad_file_is_named_by_line_and_column(given, said, tmp_path):
    (tmp_path / "r.csv").write_text(f"job_id,start_s\n{given}\n")
    with said.of_error(tmp_path):
        planned_from({"path": str(tmp_path / "r.csv")}, TRACE)
