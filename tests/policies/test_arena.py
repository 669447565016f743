"""Arena's heuristic scaling on cases solved by hand."""

from __future__ import annotations

import pytest
from scenarios import Job, small_scenario

from clustergym.policy import Decision, InformationClass
from clustergym.sim.costs import Costs
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventKind
from clustergym.sim.run import simulate
from policies.arena import Arena
from policies.placement.buddy import Buddy

# Concave: throughput 1, 1.8, 3 on 1, 2, 4 GPUs of X.
CONCAVE = {"m": {"X": {1: 18.0, 2: 10.0, 4: 6.0, 8: 4.0}}}


def first_decision(scenario, **parameters):
    simulation = Simulation(scenario, Buddy(), InformationClass.PROFILED)
    view = simulation.advance()
    decision = Arena(**parameters).schedule(view)
    return decided(scenario, decision)


def decided(scenario, decision):
    ids, kinds = scenario.trace.job_id, scenario.cluster.gpu_types
    return {
        ids[row]: (kinds[kind], int(gpus))
        for row, kind, gpus in zip(decision.job, decision.gpu_type, decision.gpus, strict=True)
    }


def test_a_lone_job_takes_twice_its_request_and_what_stays_idle():
    # N = 2: candidates 1, 2, 4 are worth 10/18, 1, 10/6: 4 is launched; growing to 8 is worth 10/4.
    scenario = small_scenario([Job("a", 0, 100, gpus=2)], {"X": (1, 8)}, CONCAVE)
    assert first_decision(scenario) == {"a": ("X", 8)}


def test_it_chooses_the_type_of_highest_throughput():
    times = {"m": {"X": {2: 10.0, 4: 6.0}, "Y": {1: 9.0, 2: 5.0, 4: 3.0}}}
    scenario = small_scenario([Job("a", 0, 100, gpus=2, gpu_type="X")], {"X": (1, 4), "Y": (1, 4)}, times)
    assert first_decision(scenario) == {"a": ("Y", 4)}


def test_a_job_launches_by_scaling_down_the_one_with_least_loss():
    # a holds 4 at 6 s, asked for 4; b holds 4 and scales badly: halving b loses 1 - 6/6.5 = 0.08,
    # halving a loses 1 - 6/10 = 0.4. c runs on 2 only and is worth 1 on the 2 that b gives up.
    times = {**CONCAVE, "flat": {"X": {2: 6.5, 4: 6.0}}, "two": {"X": {2: 10.0}}}
    jobs = [
        Job("a", 0, 10_000, gpus=4),
        Job("b", 0, 10_000, gpus=4, family="flat"),
        Job("c", 300, 10_000, gpus=2, family="two"),
    ]
    scenario = small_scenario(jobs, {"X": (1, 8)}, times, rounds=300.0)
    simulation = Simulation(scenario, Buddy(), InformationClass.PROFILED)
    policy = Arena()
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 4), (1, 0, 4)]))
    view = simulation.advance()
    assert view is not None
    assert view.now_s == 300.0
    assert decided(scenario, policy.schedule(view)) == {"a": ("X", 4), "b": ("X", 2), "c": ("X", 2)}


@pytest.mark.parametrize(("depth", "launched"), [(1, False), (2, True)])
def test_search_depth_limits_how_many_jobs_are_scaled(depth, launched):
    # c asks for 4 and can run on 4 only; a and b give 2 each: two scalings.
    times = {"flat": {"X": {2: 6.5, 4: 6.0}}, "four": {"X": {4: 6.0}}}
    jobs = [
        Job("a", 0, 10_000, gpus=4, family="flat"),
        Job("b", 0, 10_000, gpus=4, family="flat"),
        Job("c", 300, 10_000, gpus=4, family="four"),
    ]
    scenario = small_scenario(jobs, {"X": (1, 8)}, times, rounds=300.0)
    simulation = Simulation(scenario, Buddy(), InformationClass.PROFILED)
    policy = Arena(search_depth=depth)
    view = simulation.advance()
    simulation.apply(policy.schedule(view))
    view = simulation.advance()
    assert ("c" in decided(scenario, policy.schedule(view))) is launched


def test_no_scaling_up_that_does_not_repay_its_restart():
    # 8 GPUs save 10 iterations x (6 - 4) = 20 s.
    for checkpoint_s, gpus in ((19.0, 8), (21.0, 4)):
        jobs = [Job("a", 0, 60, gpus=4), Job("b", 0, 50, gpus=4, family="b")]
        times = {**CONCAVE, "b": {"X": {4: 6.0}}}
        scenario = small_scenario(
            jobs,
            {"X": (1, 8)},
            times,
            checkpoint_s={"m": checkpoint_s},
            costs=Costs(search="proxy", profile_s={}),
        )
        run = simulate(scenario, Arena(round_s=None), Buddy(defragment_s=None))
        # Both start on 4; at 300 b ends and a has 10 iterations left.
        held = [e.gpus for e in run.simulation.log.events if e.job == 0 and e.iteration_time_s]
        assert held == ([4, 8] if gpus == 8 else [4])


def test_jobs_run_to_completion_but_a_privileged_head_preempts():
    # long holds the only allotment there is. wait is blocked; after a day it may preempt.
    times = {"m": {"X": {4: 1.0}}}
    jobs = [Job("long", 0, 400_000, gpus=4), Job("wait", 300, 1000, gpus=4)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times, rounds=300.0)
    run = simulate(scenario, Arena(privilege_after_s=86_400.0), Buddy())
    starts = {e.job: e.time_s for e in run.simulation.log.events if e.kind == EventKind.START}
    # wait is queued from 300 on.
    assert starts == {0: 0.0, 1: 86_700.0}
    preempted = [e.job for e in run.simulation.log.events if e.kind == EventKind.PREEMPT]
    assert preempted == [0]


def test_queues_are_by_run_time_with_promotion():
    # Both wait behind full GPUs. short (0.5 h) goes first although it came later; with an early
    # promotion, long has been moved up to the same queue and goes first, by submission.
    times = {"m": {"X": {4: 1.0}}}
    jobs = [
        Job("running", 0, 3600, gpus=4),
        Job("long", 10, 36_000, gpus=4),
        Job("short", 1800, 1800, gpus=4),
    ]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times, rounds=300.0)
    for promote_after_s, order in ((1e6, [0, 2, 1]), (1000.0, [0, 1, 2])):
        run = simulate(scenario, Arena(promote_after_s=promote_after_s), Buddy())
        assert [e.job for e in run.simulation.log.events if e.kind == EventKind.START] == order
