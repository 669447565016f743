"""What knowing a job costs, worked out by hand: who pays, what is shared, and when profiling gives way."""

from dataclasses import replace

import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, Script, price, replays, small_scenario

from clustergym.results.measured_run import measure_run
from clustergym.scenario.costs import Costs
from clustergym.scenario.disturbances.failures import Failures, NodeFailure
from clustergym.scenario.policy import Decision, Infeasible, InformationClass
from clustergym.sim.allocator import Allocator
from clustergym.sim.drive import simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import EventType

PROFILED = InformationClass.PROFILED
ON_X = {1: 4.0, 2: 2.0, 4: 1.0}
TIMES = {
    "m": {"X": ON_X, "Y": {1: 8.0, 2: 4.0}},
    "n": {"X": ON_X},
    "o": {"X": ON_X},
    "q": {"X": {1: 1.0}, "Y": {1: 8.0, 2: 4.0}},
}
X = {"X": (1, 4)}
BY_COUNT = price("profiled", 30.0, per="configuration")


def scenario_of(jobs, groups=X, *, profile=None, reuse="model", **more):
    prices = price("profiled", 30.0) if profile is None else profile
    costs = Costs(search="proxy", profile=prices, profile_reuse=reuse)
    return small_scenario(jobs, groups, TIMES, costs=costs, **more)


def profiles_of(run):
    """Return (kind, time, job, GPU type) of each event of profiling."""
    kinds = (EventType.PROFILE_START, EventType.PROFILE_END)
    events = run.simulation.log.events
    return [(e.event_type.value[8:], e.time_s, e.job, e.gpu_type) for e in events if e.event_type in kinds]


def times_of(run, kind):
    return {e.job: e.time_s for e in run.simulation.log.events if e.event_type == kind}


def run_of(scenario, entries, information=PROFILED):
    """Run a script; a replay of its decisions gives the same log."""
    run = simulate(scenario, Script(scenario, entries, information), Buddy())
    assert replays(run.simulation)
    return run


@pytest.mark.parametrize(
    ("information", "known_at", "gpu_s"),
    [
        ("none", 0, 0),
        ("clairvoyant", 0, 0),
        ("bootstrap", 300, 600),
        ("data_parallel", 600, 1200),
        ("profiled", 510, 1020),
    ],
)
def test_each_class_pays_its_own_price(information, known_at, gpu_s):
    # By default one GPU of X and one of Y, for as long as the class takes.
    scenario = small_scenario(
        [Job("a", 0, 10)], {"X": (1, 4), "Y": (1, 2)}, TIMES, costs=Costs(search="proxy")
    )
    run = run_of(scenario, {float(known_at): {"a": ("X", 1)}}, InformationClass(information))
    assert times_of(run, EventType.START) == {0: known_at}
    metrics = measure_run(run.simulation).metrics
    assert metrics["profiling_gpu_hours"] == pytest.approx(gpu_s / 3600)
    assert metrics["jct_mean"] == known_at + 40


def test_a_price_for_each_configuration_adds_up_over_the_counts_that_fit():
    # X has counts 1, 2 and 4, Y 1 and 2: 90 s and 60 s; 2 GPUs each.
    prices = price("profiled", 30.0, gpus=2, per="configuration")
    scenario = scenario_of([Job("a", 0, 10)], {"X": (1, 4), "Y": (1, 2)}, profile=prices)
    run = run_of(scenario, {90.0: {"a": ("X", 1)}})
    assert profiles_of(run) == [("start", 0, 0, 0), ("start", 0, 0, 1), ("end", 60, 0, 1), ("end", 90, 0, 0)]
    hours = measure_run(run.simulation).metrics["profiling_gpu_hours"]
    assert hours == pytest.approx(2 * (90 + 60) / 3600)


def test_a_price_for_the_requested_type_leaves_the_others_unknown():
    # a asks for Y, b of the same model for X: b is known on Y when it comes, and profiled on X beside.
    jobs = [Job("a", 0, 10, gpu_type="Y"), Job("b", 30, 10, gpu_type="X")]
    scenario = scenario_of(
        jobs, {"X": (1, 4), "Y": (1, 2)}, profile=price("profiled", 30.0, types="requested")
    )
    script = Script(scenario, {60.0: {"a": ("Y", 1), "b": ("X", 1)}}, PROFILED)
    run = simulate(scenario, script, Buddy())
    assert profiles_of(run) == [("start", 0, 0, 1), ("end", 30, 0, 1), ("start", 30, 1, 0), ("end", 60, 1, 0)]
    assert script.views[0].feasible.any(axis=2).tolist() == [[False, True], [False, True]]
    # A job for any type is profiled on each.
    anywhere = replace(scenario_of([Job("a", 0, 10)], {"X": (1, 4), "Y": (1, 2)}), costs=scenario.costs)
    assert len(profiles_of(run_of(anywhere, {30.0: {"a": ("X", 1)}}))) == 4


@pytest.mark.parametrize(("reuse", "started"), [("model", [30, 30, 50]), ("job", [30, 40, 80])])
def test_what_recurs_is_profiled_once_or_each_time(reuse, started):
    # a and b wait for the one profile from 0 to 30, and c at 50 for none; or each for its own 30 s.
    jobs = [Job("a", 0, 10), Job("b", 10, 10), Job("c", 50, 10)]
    scenario = scenario_of(jobs, reuse=reuse)
    entries = {}
    for now in sorted(set(started)):
        entries[float(now)] = {f"{'abc'[at]}": ("X", 1) for at in range(3) if now - 40 < started[at] <= now}
    run = run_of(scenario, entries)
    assert list(times_of(run, EventType.START).values()) == started
    assert len(profiles_of(run)) == {"model": 2, "job": 6}[reuse]


def test_jobs_of_another_model_share_nothing():
    run = run_of(
        scenario_of([Job("a", 0, 10), Job("b", 5, 10, family="n")]), {35.0: {"a": ("X", 1), "b": ("X", 1)}}
    )
    assert profiles_of(run) == [("start", 0, 0, 0), ("start", 5, 1, 0), ("end", 30, 0, 0), ("end", 35, 1, 0)]


def test_a_job_that_waits_comes_before_a_profile_that_would_start():
    # a, known from 30 on, waits. At 45 b comes, of another model; a is given all 4 GPUs then, and b's profile
    # starts when a has ended, at 65.
    jobs = [Job("a", 0, 20, gpus=4), Job("b", 45, 10, family="n"), Job("wake", 45, 1)]
    run = run_of(scenario_of(jobs), {45.0: {"a": ("X", 4)}, 95.0: {"b": ("X", 1), "wake": ("X", 1)}})
    assert times_of(run, EventType.START) == {0: 45, 1: 95, 2: 95}
    assert profiles_of(run)[2:] == [("start", 65, 1, 0), ("end", 95, 1, 0)]


def test_a_profile_that_a_scheduler_refuses_stays_first_of_its_type(monkeypatch):
    # The scheduler refuses a's profile at 0. When b comes at 40 it is asked again: both run from 40 to 70.
    scenario = scenario_of([Job("a", 0, 10), Job("b", 40, 10, family="n")])
    answers, allocate = [Infeasible("the nodes are lost")], Allocator.allocate
    monkeypatch.setattr(Allocator, "allocate", lambda *given: answers.pop() if answers else allocate(*given))
    run = simulate(scenario, Script(scenario, {70.0: {"a": ("X", 1), "b": ("X", 1)}}, PROFILED), Buddy())
    assert profiles_of(run) == [
        ("start", 40, 0, 0),
        ("start", 40, 1, 0),
        ("end", 70, 0, 0),
        ("end", 70, 1, 0),
    ]


def test_a_profile_takes_what_a_decision_leaves_and_keeps_it_to_its_end():
    # a waits and is left waiting at 40: b's profile starts on one of 4 GPUs, and 3 are left to a until 70.
    jobs = [Job("a", 0, 20, gpus=2), Job("b", 40, 10, family="n"), Job("wake", 45, 1)]
    scenario = scenario_of(jobs)
    entries = {45.0: {"a": ("X", 2)}, 70.0: {"a": ("X", 2), "b": ("X", 1), "wake": ("X", 1)}}
    script = Script(scenario, dict(entries), PROFILED)
    simulate(scenario, script, Buddy())
    seen = {view.now_s: (view.available.tolist(), view.free.tolist()) for view in script.views}
    assert seen[45.0] == ([3], [3])
    assert profiles_of(run_of(scenario, entries))[2:] == [("start", 40, 1, 0), ("end", 70, 1, 0)]


def test_while_no_job_waits_profiling_comes_before_growth():
    # a runs on 2 of 4 GPUs; at 50 c ends and b comes, whose profile leaves 1 GPU to the decision.
    jobs = [Job("a", 0, 50, gpus=2), Job("c", 0, 5, gpu_type="X"), Job("b", 50, 10, family="n")]
    scenario = scenario_of(jobs)
    script = Script(
        scenario, {30.0: {"a": ("X", 2), "c": ("X", 1)}, 80.0: {"a": ("X", 2), "b": ("X", 1)}}, PROFILED
    )
    simulate(scenario, script, Buddy())
    seen = {view.now_s: (view.available.tolist(), view.free.tolist()) for view in script.views}
    assert seen[30.0] == ([4], [4])
    assert seen[50.0] == ([3], [1])


def test_a_profile_stops_when_its_job_completes():
    # Each for itself: a's profile on Y waits for z's, until 50; both jobs run on X from 50 to 90.
    scenario = scenario_of(
        [Job("z", 0, 10), Job("a", 0, 10)],
        {"X": (1, 4), "Y": (1, 1)},
        profile=price("profiled", 50.0),
        reuse="job",
    )
    run = run_of(scenario, {50.0: {"z": ("X", 1), "a": ("X", 1)}})
    on_y = [one for one in profiles_of(run) if one[3] == 1]
    assert on_y == [("start", 0, 0, 1), ("end", 50, 0, 1), ("start", 50, 1, 1), ("end", 90, 1, 1)]
    assert measure_run(run.simulation).metrics["profiling_gpu_hours"] == pytest.approx(190 / 3600)


def test_a_profile_that_waits_is_not_made_when_its_job_has_left():
    # z runs on the only Y from 30 to 110; a, from 60 to 100 on X, is never profiled there.
    jobs = [Job("z", 0, 10), Job("a", 30, 10)]
    scenario = scenario_of(jobs, {"X": (1, 4), "Y": (1, 1)}, reuse="job")
    run = run_of(scenario, {30.0: {"z": ("Y", 1)}, 60.0: {"z": ("Y", 1), "a": ("X", 1)}})
    assert times_of(run, EventType.COMPLETE) == {0: 110, 1: 100}
    assert [one for one in profiles_of(run) if one[3] == 1] == [("start", 0, 0, 1), ("end", 30, 0, 1)]


def test_a_profile_stops_when_its_job_is_dropped():
    # Of two types, Y takes 60 s and X 30: a is dropped at 30.
    scenario = scenario_of([Job("a", 0, 10, family="q")], {"X": (1, 4), "Y": (1, 2)}, profile=BY_COUNT)
    simulation = Simulation(scenario, Buddy(), PROFILED)
    assert simulation.advance() is not None
    simulation.apply(Decision.of([], [0]))
    assert simulation.advance() is None
    ends = [(e.time_s, e.gpu_type) for e in simulation.log.events if e.event_type == EventType.PROFILE_END]
    assert ends == [(30, 0), (30, 1)]


def test_a_shared_profile_goes_on_for_another_job_and_stops_with_the_last():
    # q takes 30 s on X and 60 s on Y. a ends at 40, and its profile on Y goes on for b, which needs none of
    # its own; b ends at 50, with 10 s left. c, which may start at once on X, has them measured at 110.
    jobs = [Job("a", 0, 10, family="q"), Job("b", 35, 10, family="q"), Job("c", 100, 20, family="q")]
    scenario = scenario_of(jobs, {"X": (1, 4), "Y": (1, 2)}, profile=BY_COUNT)
    run = run_of(scenario, {30.0: {"a": ("X", 1)}, 40.0: {"b": ("X", 1)}, 100.0: {"c": ("X", 1)}})
    assert times_of(run, EventType.COMPLETE) == {0: 40, 1: 50, 2: 120}
    assert profiles_of(run) == [
        ("start", 0, 0, 0),
        ("start", 0, 0, 1),
        ("end", 30, 0, 0),
        ("end", 40, 0, 1),
        ("start", 40, 1, 1),
        ("end", 50, 1, 1),
        ("start", 100, 2, 1),
        ("end", 110, 2, 1),
    ]


def test_a_node_that_fails_loses_what_its_profile_has_measured():
    # 10 of its 30 s are lost at 10; the node is back at 20.
    scenario = replace(
        scenario_of([Job("a", 0, 10)]), disturbances=(Failures((NodeFailure(10.0, 0, 10.0),)),)
    )
    run = run_of(scenario, {50.0: {"a": ("X", 1)}})
    assert profiles_of(run) == [("start", 0, 0, 0), ("end", 10, 0, 0), ("start", 20, 0, 0), ("end", 50, 0, 0)]
