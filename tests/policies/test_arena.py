"""Arena's heuristic scaling on cases solved by hand."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.arena import Arena
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.elastic import VirtualCluster
from clustergym.policies.shared.scaling_ilp import best_scalings
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import all_left, random_scenarios
from round_scenarios import first_decided, without_profiles
from scenarios import Job, decided, ends, price, small_scenario, times_of

from clustergym.common.errors import InputError
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.drive import simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventType

# Concave: throughput 1, 1.8, 3 on 1, 2, 4 GPUs of X.
CONCAVE = {"m": {"X": {1: 18.0, 2: 10.0, 4: 6.0, 8: 4.0}}}


def first_decision(scenario, **parameters):
    return first_decided(scenario, Arena(**parameters))


def view_at_300(scenario):
    """Return the View at 300 s, when the last job comes, of two that hold 4 GPUs each since 0."""
    simulation = Simulation(scenario, Buddy(), InformationClass.PROFILED)
    simulation.advance()
    simulation.apply(Decision.of([(0, 0, 4), (1, 0, 4)]))
    return simulation.advance()


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
    view = view_at_300(scenario)
    assert view.now_s == 300.0
    assert decided(scenario, Arena().schedule(view)) == {"a": ("X", 4), "b": ("X", 2), "c": ("X", 2)}


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
    decision = Arena(search_depth=depth).schedule(view_at_300(scenario))
    assert ("c" in decided(scenario, decision)) is launched


@pytest.mark.parametrize(("repay", "checkpoint_s", "gpus"), [(True, 19, 8), (True, 21, 4), (False, 21, 8)])
def test_a_scaling_up_repays_its_restart_if_it_must(repay, checkpoint_s, gpus):
    # Both start on 4; at 300 b ends and a has 10 iterations left: 8 GPUs save 10 x (6 - 4) = 20 s.
    jobs = [Job("a", 0, 60, gpus=4), Job("b", 0, 50, gpus=4, family="b")]
    times = {**CONCAVE, "b": {"X": {4: 6.0}}}
    scenario = small_scenario(jobs, {"X": (1, 8)}, times, checkpoint_s={"m": float(checkpoint_s)})
    run = simulate(scenario, Arena(round_s=None, repay_restarts=repay), Buddy(defragment_s=None))
    held = [e.gpus for e in run.simulation.log.events if e.job == 0 and e.iteration_time_s]
    assert held == ([4, 8] if gpus == 8 else [4])


@pytest.mark.parametrize(
    ("parameters", "held"),
    [({"search_depth": 1}, [4, 8]), ({"search_depth": 1, "grow_freely": True}, [8, 8])],
)
def test_search_depth_limits_scalings_up_too(parameters, held):
    # Each of two jobs starts on 4, twice its request, of 16; 8 are left, 4 more for each.
    scenario = small_scenario([Job("a", 0, 100, gpus=2), Job("b", 0, 100, gpus=2)], {"X": (2, 8)}, CONCAVE)
    assert sorted(gpus for _, gpus in first_decision(scenario, **parameters).values()) == held


def test_span_bounds_how_far_a_job_is_from_its_request():
    # As in the first test, but 4 is as far as twice the request goes.
    scenario = small_scenario([Job("a", 0, 100, gpus=2)], {"X": (1, 8)}, CONCAVE)
    assert first_decision(scenario, span=2) == {"a": ("X", 4)}


@pytest.mark.parametrize(("throughput", "halved"), [("raw", "slow"), ("normalised", "fast")])
def test_raw_throughput_spares_the_job_of_many_samples(throughput, halved):
    # 32 samples an iteration. Halving fast loses 32/1 - 32/1.6 = 12 samples/s, slow 32/10 - 32/25 = 1.92:
    # in samples/s slow gives way to c's 6.4. Relative to the request it is 1 - 1/1.6 = 0.375 against 0.6.
    times = {"fast": {"X": {2: 1.6, 4: 1.0}}, "slow": {"X": {2: 25.0, 4: 10.0}}, "two": {"X": {2: 5.0}}}
    jobs = [
        Job("fast", 0, 10_000, gpus=4, family="fast"),
        Job("slow", 0, 10_000, gpus=4, family="slow"),
        Job("c", 300, 10_000, gpus=2, family="two"),
    ]
    scenario = small_scenario(jobs, {"X": (1, 8)}, times, rounds=300.0)
    decision = decided(scenario, Arena(throughput=throughput).schedule(view_at_300(scenario)))
    assert decision == {"fast": ("X", 4), "slow": ("X", 4), "c": ("X", 2), halved: ("X", 2)}


# Queues

PASSING = {"two": {"X": {2: 10.0}}, "four": {"X": {4: 10.0}}, "eight": {"X": {8: 10.0}}}


def starts_of(jobs, **parameters):
    """Return when each job of 8 GPUs' jobs first starts, and who was preempted; rounds of 300 s."""
    scenario = small_scenario(jobs, {"X": (1, 8)}, PASSING, rounds=300.0)
    run = simulate(scenario, Arena(**parameters), Buddy())
    return times_of(run, EventType.START), list(times_of(run, EventType.PREEMPT))


@pytest.mark.parametrize(
    ("parameters", "low_s"),
    [
        ({}, 1500),
        ({"promote_after_s": 600.0}, 600),
        ({"overtaking": "any"}, 0),
        ({"queues": "run_time", "queue_bounds_h": (1.0,)}, 1500),
    ],
)
def test_only_the_top_queue_passes_its_blocked_head(parameters, low_s):
    # running holds 4 of 8 until 1000; head needs all 8 and is blocked until the round at 1200, ends at 1300.
    # beside is of head's queue: it passes at once. low is of a lower queue: it waits until head has started
    # and a round finds GPUs free, at 1500; promoted after 600 s of waiting it passes as beside did.
    jobs = [
        Job("running", 0, 100, gpus=4, family="four", priority=1),
        Job("head", 0, 10, gpus=8, family="eight", priority=1),
        Job("beside", 0, 10, gpus=2, family="two", priority=1),
        Job("low", 0, 10, gpus=2, family="two", priority=0),
    ]
    starts, preempted = starts_of(jobs, **parameters)
    assert starts == {"running": 0, "head": 1200, "beside": 0, "low": low_s}
    assert preempted == []


@pytest.mark.slow
def test_jobs_run_to_completion_however_long_the_head_waits():
    # long holds all there is for 400,000 s; the next round after it is at 400,200.
    times = {"m": {"X": {4: 1.0}}}
    jobs = [Job("long", 0, 400_000, gpus=4), Job("wait", 300, 1000, gpus=4, priority=9)]
    run = simulate(small_scenario(jobs, {"X": (1, 4)}, times, rounds=300.0), Arena(), Buddy())
    assert times_of(run, EventType.START) == {"long": 0.0, "wait": 400_200.0}
    assert not times_of(run, EventType.PREEMPT)


def test_the_queue_of_highest_priority_goes_first():
    # All three need the whole cluster, which running has until 300: urgent, the last to come, is next.
    jobs = [
        Job("running", 0, 20, gpus=8, family="eight"),
        Job("usual", 10, 10, gpus=8, family="eight"),
        Job("urgent", 20, 10, gpus=8, family="eight", priority=1),
    ]
    assert starts_of(jobs)[0] == {"running": 0, "urgent": 300, "usual": 600}


def test_a_job_that_cannot_be_launched_anywhere_blocks_nobody():
    # head takes 10 s and has 5; it is not dropped before it has waited a round.
    times = {"m": {"X": {4: 1.0}}, "one": {"X": {1: 1.0}}}
    jobs = [Job("head", 0, 10, gpus=4, deadline_s=5, priority=1), Job("low", 0, 10, family="one")]
    scenario = small_scenario(jobs, {"X": (1, 8)}, times, rounds=300.0)
    assert first_decision(scenario, objective="deadline") == {"low": ("X", 1)}


def test_queues_by_run_time_with_promotion():
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
        run = simulate(scenario, Arena(queues="run_time", promote_after_s=promote_after_s), Buddy())
        assert [e.job for e in run.simulation.log.events if e.event_type == EventType.START] == order


# Ablations


def test_without_elastic_scaling_a_job_has_what_it_asks_for():
    # As in the first test; and 2 of Y at 5 s beat 2 of X at 10 s.
    scenario = small_scenario([Job("a", 0, 100, gpus=2)], {"X": (1, 8)}, CONCAVE)
    assert first_decision(scenario, elastic=False) == {"a": ("X", 2)}


def test_without_heterogeneity_a_job_stays_on_its_type():
    times = {"m": {"X": {2: 10.0, 4: 6.0}, "Y": {1: 9.0, 2: 5.0, 4: 3.0}}}
    scenario = small_scenario([Job("a", 0, 100, gpus=2, gpu_type="X")], {"X": (1, 4), "Y": (1, 4)}, times)
    assert first_decision(scenario, hetero=False) == {"a": ("X", 4)}
    assert first_decision(scenario, elastic=False) == {"a": ("Y", 2)}
    assert first_decision(scenario, elastic=False, hetero=False) == {"a": ("X", 2)}


def test_the_planner_sets_what_is_known():
    # Data parallelism fits nowhere: as requested, though 4 GPUs would be faster.
    scenario = small_scenario([Job("a", 0, 100, gpus=2)], {"X": (1, 4)}, {"m": {"X": {2: 10.0, 4: 6.0}}})
    scenario = without_profiles(scenario, "m")
    for planner, information, gpus in (
        ("adaptive", InformationClass.PROFILED, 4),
        ("dp", InformationClass.DATA_PARALLEL, 2),
    ):
        policy = Arena(planner=planner, round_s=None)
        assert policy.information_class == information
        run = simulate(scenario, policy, Buddy())
        assert run.simulation.information == information
        assert [e.gpus for e in run.simulation.log.events if e.iteration_time_s] == [gpus]


# Objectives


def test_deadlines_make_a_job_take_what_meets_them_and_drop_what_cannot():
    # 100 iterations: a needs 100 s at best on 4 and asks for 1 (candidates 1, 2): 2 take 200 s and meet
    # 250; only then does it grow to 4, which is faster still. b is over by 90 at the earliest at 100.
    times = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}}
    jobs = [Job("a", 0, 100, deadline_s=250), Job("b", 0, 100, deadline_s=90), Job("c", 0, 10, gpus=2)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times)
    simulation = Simulation(scenario, Buddy(), InformationClass.PROFILED)
    decision = Arena(objective="deadline").schedule(simulation.advance())
    assert decided(scenario, decision) == {"a": ("X", 2), "c": ("X", 2)}
    assert [scenario.trace.job_id[row] for row in decision.drop] == ["b"]


def test_a_running_job_that_can_no_longer_meet_its_deadline_is_dropped():
    # a is alone on 4 until an estimate proves wrong: it runs at 2 s instead of 1 s an iteration. At
    # 60 it has done 30; 70 more are thought to take 70 s, until 130 > 120.
    scenario = small_scenario(
        [Job("a", 0, 100, gpus=4, deadline_s=120)], {"X": (1, 4)}, {"m": {"X": {4: 1.0}}}, rounds=60.0
    )
    slow = np.where(np.isfinite(scenario.tables.execution), 2.0, np.inf)
    scenario = replace(scenario, tables=replace(scenario.tables, execution=slow))
    run = simulate(scenario, Arena(objective="deadline"), Buddy())
    assert [(e.event_type, e.time_s) for e in run.simulation.log.events][-1] == (EventType.DROP, 60.0)


def test_deadlines_are_needed_by_name():
    scenario = small_scenario([Job("a", 0, 100)], {"X": (1, 4)}, CONCAVE)
    with pytest.raises(InputError, match="policy arena with objective=deadline needs deadlines"):
        simulate(scenario, Arena(objective="deadline"), Buddy())


@pytest.mark.parametrize(
    ("parameters", "order"),
    [
        ({}, [0, 1, 2]),
        ({"objective": "finish_time_fairness"}, [0, 1, 2]),
        ({"objective": "finish_time_fairness", "urgent_first": True}, [0, 2, 1]),
        ({"objective": "deadline"}, [0, 1, 2]),
        ({"objective": "deadline", "urgent_first": True}, [0, 2, 1]),
    ],
)
def test_urgent_jobs_go_first_in_their_queue_if_they_may(parameters, order):
    # At 3600, long has waited 3590 s of its 36,000: (3590 + 36,000) / 36,000 = 1.10. short has waited
    # 1800 s of its 1800: 2.0, and its deadline is the earlier one.
    times = {"m": {"X": {4: 1.0}}}
    jobs = [
        Job("running", 0, 3600, gpus=4, deadline_s=1e6),
        Job("long", 10, 36_000, gpus=4, deadline_s=9e5),
        Job("short", 1800, 1800, gpus=4, deadline_s=8e5),
    ]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times, rounds=300.0)
    run = simulate(scenario, Arena(**parameters), Buddy())
    assert [e.job for e in run.simulation.log.events if e.event_type == EventType.START] == order


# Crius


@pytest.mark.parametrize(
    ("opportunistic", "expected"),
    [(True, {"r": 100, "h": 200, "s": 1102}), (False, {"r": 100, "s": 1002, "h": 1102})],
)
def test_jobs_beside_a_blocked_head_are_suspended_when_it_fits(opportunistic, expected):
    # r holds 2 of 4 until 100; h needs 4 and waits; s starts beside it at 2 on the other 2. Suspended
    # at 100 after 9.8 of 100 iterations, s resumes at 200: 902 s more. Else h waits for s.
    times = {"two": {"X": {2: 10.0}}, "four": {"X": {4: 10.0}}}
    jobs = [
        Job("r", 0, 10, gpus=2, family="two"),
        Job("h", 1, 10, gpus=4, family="four"),
        Job("s", 2, 100, gpus=2, family="two"),
    ]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times)
    run = simulate(scenario, Arena(opportunistic=opportunistic, round_s=None), Buddy())
    assert ends(run) == expected


def test_what_ran_beside_a_head_that_has_started_is_not_suspended_for_another():
    # late comes after s, which started beside h: only h may take its place.
    times = {"two": {"X": {2: 10.0}}, "four": {"X": {4: 10.0}}}
    jobs = [
        Job("r", 0, 10, gpus=2, family="two"),
        Job("s", 2, 20, gpus=2, family="two"),
        Job("late", 3, 10, gpus=4, family="four"),
    ]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times)
    run = simulate(scenario, Arena(opportunistic=True, round_s=None), Buddy())
    assert not times_of(run, EventType.PREEMPT)


def test_a_job_that_is_to_be_profiled_waits_for_gpus_that_growth_has_taken():
    # a, profiled until 10, has grown to all 8 of X; late, of another model, is profiled when a has ended.
    jobs = [Job("a", 0, 1000, gpus=2), Job("late", 300, 10, family="one")]
    times = {**CONCAVE, "one": {"X": {1: 1.0}}}
    costs = Costs(search="proxy", profile=price("profiled", 10.0))
    scenario = small_scenario(jobs, {"X": (1, 8)}, times, costs=costs)
    run = simulate(scenario, Arena(round_s=None), Buddy())
    seen = [(e.event_type.value, e.time_s) for e in run.simulation.log.events if e.job == 1]
    end_s = next(e.time_s for e in run.simulation.log.events if e.event_type == EventType.COMPLETE)
    assert seen == [
        ("submit", 300.0),
        ("profile_start", end_s),
        ("profile_end", end_s + 10),
        ("start", end_s + 10),
        ("complete", end_s + 20),
    ]


# Integer program


def test_the_integer_program_sees_what_one_launch_after_another_does_not():
    # a comes first and takes all 4 GPUs for a value of 1; b and c have 1 each on 2.
    times = {"two": {"X": {2: 10.0}}, "four": {"X": {4: 10.0}}}
    jobs = [
        Job("a", 0, 10, gpus=4, family="four"),
        Job("b", 0, 10, gpus=2, family="two"),
        Job("c", 0, 10, gpus=2, family="two"),
    ]
    scenario = small_scenario(jobs, {"X": (1, 4)}, times)
    assert first_decision(scenario) == {"a": ("X", 4)}
    assert first_decision(scenario, ilp=True) == {"b": ("X", 2), "c": ("X", 2)}


@settings(max_examples=60, deadline=None)
@given(scenario=random_scenarios(together=True), running=st.integers(0, 3))
def test_the_integer_program_agrees_with_brute_force(scenario, running):
    cluster, waiting = instance(scenario, running)
    waiting = waiting[:2]
    before = total(cluster)
    options = [candidates(cluster, at, at in waiting) for at in range(len(cluster.gpu_type))]
    best = 0.0
    for combination in itertools.product(*options):
        free = cluster.view.free.copy()
        for at, (kind, level) in enumerate(combination):
            held = cluster.gpu_type[at]
            free[held] += cluster.counts[cluster.level[at]] if held >= 0 else 0
            free[kind] -= cluster.counts[level] if kind >= 0 else 0
        if (free >= 0).all():
            worth = sum(cluster.value[at, k, v] for at, (k, v) in enumerate(combination) if k >= 0)
            best = max(best, float(worth) - before)
    steps = best_scalings(cluster, np.array(waiting, dtype=np.int64), gap=0.0)
    assert steps is not None
    cluster.enact(steps)
    assert (cluster.free >= 0).all()
    assert total(cluster) - before == pytest.approx(best, abs=1e-5)


def instance(scenario, running):
    """Return a virtual cluster on which some jobs run as requested, and the positions that wait."""
    simulation = Simulation(scenario, Buddy(), InformationClass.PROFILED)
    view = simulation.advance()
    value = np.nan_to_num(10.0 / view.iteration_time_s(), posinf=0.0)
    cluster = VirtualCluster(view, value, view.iteration_time_s(), 3, repaid=True)
    for at in range(min(running, len(view))):
        kinds = np.flatnonzero(value[at, :, cluster.requested[at]] > 0)
        kinds = kinds[cluster.free[kinds] >= cluster.counts[cluster.requested[at]]]
        if len(kinds):
            cluster.gpu_type[at], cluster.level[at] = kinds[0], cluster.requested[at]
            cluster.free[kinds[0]] -= cluster.counts[cluster.requested[at]]
    cluster.view = replace(view, free=cluster.free.copy())
    return cluster, [at for at in range(len(view)) if cluster.gpu_type[at] < 0]


def total(cluster):
    held = np.flatnonzero(cluster.gpu_type >= 0)
    return float(cluster.value[held, cluster.gpu_type[held], cluster.level[held]].sum())


def candidates(cluster, at, waits):
    """Return all allotments a job may be given, by the rules as they are told in `best_scalings`."""
    now, asked = (int(cluster.gpu_type[at]), int(cluster.level[at])), int(cluster.requested[at])
    if now[0] < 0:
        found = [(-1, -1)]
        for kind, level in (
            itertools.product(range(len(cluster.free)), range(asked - 1, asked + 2)) if waits else ()
        ):
            if 0 <= level < len(cluster.counts) and cluster.value[at, kind, level] > 0:
                found.append((kind, level))
        return found
    left, found = float(cluster.view.remaining_iterations[at]), [now]
    for kind, level in itertools.product(range(len(cluster.free)), range(now[1] - 1, now[1] + 2)):
        if not 0 <= level < len(cluster.counts) or cluster.value[at, kind, level] <= 0:
            continue
        gains = cluster.value[at, kind, level] > cluster.value[(at, *now)]
        saved = left * (cluster.time_s[(at, *now)] - cluster.time_s[at, kind, level])
        if gains and saved > cluster.cost_s[at, kind, level] - cluster.cost_s[(at, *now)]:
            found.append((kind, level))
        elif kind == now[0] and asked - 1 <= level < now[1]:
            lasts = left * cluster.time_s[(at, *now)] > cluster.cost_s[at, kind, level]
            found += [(kind, level)] if lasts else []
    return found


# Any variant


VARIANTS = [
    {},
    {"ilp": True},
    {"elastic": False},
    {"hetero": False},
    {"span": 2, "opportunistic": True, "overtaking": "any"},
    {"planner": "dp"},
    {"throughput": "normalised", "repay_restarts": True, "grow_freely": True},
    {"queues": "run_time", "promote_after_s": 40.0, "queue_bounds_h": (0.01, 0.1)},
    {"objective": "finish_time_fairness", "urgent_first": True},
    {"objective": "deadline"},
    {"objective": "deadline", "ilp": True, "search_depth": 0},
]


@pytest.mark.parametrize("parameters", VARIANTS, ids=str)
@settings(max_examples=10, deadline=None)
@given(scenario=random_scenarios(data_parallel_fits=False))
def test_every_job_finishes_or_misses_its_deadline(parameters, scenario):
    priority = np.arange(len(scenario.trace), dtype=np.int64) % 3
    scenario = replace(scenario, trace=replace(scenario.trace, priority=priority))
    drops = parameters.get("objective") == "deadline"
    if drops and not np.isfinite(scenario.trace.deadline_s).any():
        return
    assert all_left(simulate(scenario, Arena(round_s=None, **parameters), Buddy()), drops)
