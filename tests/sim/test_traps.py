"""Faults of published simulators, each shown not to be here."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.random import RandomLegal
from scenarios import Job, Script, replays, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.measured_run import measure_run
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import Decision, InformationClass, InformationError, Policy
from clustergym.sim.decision_checks import DecisionError
from clustergym.sim.drive import drive, replay, simulate
from clustergym.sim.engine import Change, Simulation, StalledError
from clustergym.sim.log import EventType
from clustergym.sim.state import Phase

X = {"X": (1, 4)}
LINEAR = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}}


def times_of(run, kind):
    return {
        run.simulation.scenario.trace.job_id[e.job]: e.time_s
        for e in run.simulation.log.events
        if e.event_type == kind
    }


def test_progress_is_not_revalued_at_the_new_speed():
    # 100 iterations: 40 s on 1 GPU at 4 s do 10; the other 90 take 90 s on 4 GPUs: ends at 130.
    # Revaluing the 40 s at the new speed would count 40 iterations and end at 100.
    scenario = small_scenario([Job("a", 0, 100), Job("tick", 40, 1)], X, LINEAR)
    script = {0.0: {"a": ("X", 1)}, 40.0: {"a": ("X", 2), "tick": ("X", 1)}, 44.0: {"a": ("X", 4)}}
    run = simulate(scenario, Script(scenario, script), Buddy(defragment_s=None))
    # 10 by 40; 4 s at 2 s an iteration do 2; 88 left at 1 s.
    assert times_of(run, EventType.COMPLETE) == {"tick": 44.0, "a": 132.0}


@pytest.mark.parametrize("information", list(InformationClass))
def test_a_restart_costs_every_policy_the_same(information):
    scenario = small_scenario(
        [Job("a", 0, 100), Job("b", 50, 10)],
        X,
        LINEAR,
        checkpoint_s={"m": 25.0},
        costs=Costs(search="pruned", profile={}),
    )
    script = {0.0: {"a": ("X", 1)}, 50.0: {"a": ("X", 2), "b": ("X", 1)}}
    run = simulate(scenario, Script(scenario, script, information), Buddy(defragment_s=None))
    overhead = [e.overhead_s for e in run.simulation.log.events if e.iteration_time_s]
    # start of a: 10 s search; rescale of a: 25 + 20; start of b: 10.
    assert overhead == [10.0, 45.0, 10.0]


def views_of(scenario):
    """Yield each View of a run under FCFS."""
    simulation, fcfs = Simulation(scenario, Buddy(), InformationClass.NONE), FirstComeFirstServed()
    while (view := simulation.advance()) is not None:
        yield view
        simulation.apply(fcfs.schedule(view))


class DoesNothing(Policy):
    """What a policy with a missing solver amounts to."""

    name = "nothing"
    information_class = InformationClass.NONE

    def __init__(self, round_s):
        self.round_s = round_s

    def schedule(self, view):
        return Decision.of([])


@pytest.mark.parametrize("round_s", [None, 60.0])
def test_a_policy_that_starts_nothing_is_an_error(round_s):
    scenario = small_scenario([Job("first", 0, 10), Job("second", 5, 10)], X, LINEAR, rounds="policy")
    with pytest.raises(StalledError, match=r"2 jobs wait \(first: first\), nothing runs"):
        simulate(scenario, DoesNothing(round_s), Buddy())


class Eager(Policy):
    """Tries to start every job of the trace at once."""

    name = "eager"
    information_class = InformationClass.NONE

    def schedule(self, view):
        return Decision.of([(0, 0, 1), (1, 0, 1)])


def test_a_job_cannot_be_started_before_it_is_submitted():
    scenario = small_scenario([Job("early", 0, 10), Job("late", 500, 10)], X, LINEAR)
    with pytest.raises(DecisionError, match=r"job late: is not in the system now") as caught:
        simulate(scenario, Eager(), Buddy())
    assert caught.value.job_id == "late"


def test_no_view_shows_a_job_that_is_not_submitted_yet():
    jobs = [Job(f"j{i}", 10.0 * i, 7) for i in range(6)]
    scenario = small_scenario(jobs, X, LINEAR)
    assert all((view.submit_s <= view.now_s).all() for view in views_of(scenario))


def test_a_job_that_fits_nowhere_is_dropped_by_name_and_blocks_no_one():
    scenario = small_scenario(
        [Job("huge", 0, 10, gpus=4, family="huge"), Job("next", 1, 10, gpus=4)], X, {**LINEAR, "huge": {}}
    )
    run = simulate(scenario, FirstComeFirstServed(round_s=None), Buddy())
    drops = [(e.job, e.reason) for e in run.simulation.log.events if e.event_type == EventType.DROP]
    assert drops == [(0, "fits nowhere")]
    assert times_of(run, EventType.START) == {"next": 1.0}
    assert [Phase(phase).name for phase in run.simulation.jobs.phase] == ["DROPPED", "COMPLETED"]
    metrics = measure_run(run.simulation).metrics
    assert (metrics["jobs_dropped"], metrics["jobs_finished"]) == (1, 1)


def test_unfinished_jobs_are_reported_and_kept_in_the_censored_mean():
    # a runs 0-100. b (1 GPU, 4 s x 50) waits behind a's 4 GPUs, runs 100-300, cut at 200.
    jobs = [Job("a", 0, 100, gpus=4), Job("b", 50, 50)]
    scenario = small_scenario(jobs, X, LINEAR, horizon_s=200.0)
    run = simulate(scenario, FirstComeFirstServed(round_s=None), Buddy())
    metrics = measure_run(run.simulation).metrics
    assert (metrics["jobs_finished"], metrics["jobs_unfinished"]) == (1, 1)
    assert metrics["jct_mean"] == pytest.approx(100.0)
    assert metrics["jct_mean_censored"] == pytest.approx((100.0 + 150.0) / 2)
    assert metrics["makespan"] is None


def test_first_launches_are_no_restarts_and_every_job_is_in_the_averages():
    jobs = [Job("one", 0, 100), Job("four", 0, 100, gpus=4), Job("two", 0, 10, gpus=2)]
    scenario = small_scenario(jobs, X, LINEAR)
    run = simulate(scenario, FirstComeFirstServed(round_s=None), Buddy())
    metrics = measure_run(run.simulation).metrics
    assert metrics["restarts_mean"] == 0.0
    # one: 400 s. four waits for it: 400 + 100. two comes after: 500 + 20.
    assert metrics["jct_mean"] == pytest.approx((400 + 500 + 520) / 3)


def test_events_at_one_instant_are_one_decision_point():
    # a ends at exactly 20 s, when b and c are submitted.
    jobs = [Job("a", 0, 20, gpus=4), Job("b", 20, 5, gpus=2), Job("c", 20, 5, gpus=2)]
    scenario = small_scenario(jobs, X, LINEAR)
    seen = [(view.now_s, view.job.tolist()) for view in views_of(scenario)]
    assert seen == [(0.0, [0]), (20.0, [1, 2])]


def test_the_seed_is_nought_unless_another_is_given():
    jobs = [Job(f"j{row}", 10.0 * row, 50, gpus=2) for row in range(12)]
    scenario = small_scenario(jobs, X, LINEAR)

    def digest(*seed):
        return simulate(scenario, RandomLegal(), Buddy(), *seed).simulation.log.digest

    def driven(*seed):
        policy = RandomLegal()
        simulation = Simulation(scenario, Buddy(), policy.information_class, policy.round_s, *seed)
        return drive(simulation, policy, *seed).simulation.log.digest

    assert digest() == digest(0) == driven() == driven(0)
    assert digest(1) == driven(1) != digest(0)


@pytest.mark.parametrize(("time_s", "rounds"), [(5.0, 40.0), (1000.0, 40.0), (1000.0, "event")])
def test_a_log_that_names_another_time_is_one_line(time_s, rounds):
    # Decision points are at 0, when a comes, and at 40, when b does and a ends; at events a policy may ask
    # for others.
    scenario = small_scenario([Job("a", 0, 10), Job("b", 40, 10)], X, LINEAR, rounds=rounds)
    launch = Change(0.0, ((0, 0, 1),), (), ()), Change(40.0, ((1, 0, 1),), (), ())
    assert replay(scenario, Buddy(), InformationClass.NONE, None, 0, launch).end_s == 80.0
    log = sorted([*launch, Change(time_s, (), (0,), ())], key=lambda change: change.time_s)
    with pytest.raises(InputError) as error:
        replay(scenario, Buddy(), InformationClass.NONE, None, 0, log)
    line = f"decision log: the decision at {time_s} s is not at a decision point"
    assert str(error.value) == f"{line} (the log is of another scenario, version or seed)"


def test_a_policy_decides_again_when_it_asked_to():
    # Of two times that it asks for, only the last counts: 9, not 6.
    scenario = small_scenario([Job("a", 0, 10), Job("b", 3, 10)], X, LINEAR)
    simulation, asked = Simulation(scenario, Buddy(), InformationClass.NONE), {0.0: 6.0, 3.0: 9.0}
    seen = []
    while (view := simulation.advance()) is not None:
        seen.append(view.now_s)
        decision = Decision.keep(view)
        if view.now_s == 9.0:
            decision = decision.also([(0, 0, 1), (1, 0, 1)])
        simulation.apply(replace(decision, again_s=asked.get(view.now_s)))
    assert seen == [0.0, 3.0, 9.0]
    assert simulation.end_s == 49.0
    assert replays(simulation)


@pytest.mark.parametrize("again_s", [float("nan"), float("inf"), "soon"])
def test_a_policy_decides_again_at_a_time(again_s):
    scenario = small_scenario([Job("a", 0, 10)], X, LINEAR)
    simulation = Simulation(scenario, Buddy(), InformationClass.NONE)
    view = simulation.advance()
    with pytest.raises(DecisionError, match="asks to decide again at"):
        simulation.apply(replace(Decision.keep(view), again_s=again_s))


def test_rounds_come_only_while_jobs_are_in_the_system():
    jobs = [Job("a", 130, 50), Job("b", 100_000, 1)]
    scenario = small_scenario(jobs, X, LINEAR, rounds=100.0)
    # a starts at the round of 200 s and ends at 400; b is submitted on a round.
    assert [view.now_s for view in views_of(scenario)] == [200.0, 300.0, 100_000.0]


def test_information_class_none_sees_no_iteration_times():
    scenario = small_scenario([Job("a", 0, 10)], X, LINEAR)
    view = Simulation(scenario, Buddy(), InformationClass.NONE).advance()
    with pytest.raises(InformationError, match="no iteration times"):
        view.iteration_time_s()


def test_bootstrap_scales_the_least_feasible_count_linearly():
    scenario = small_scenario([Job("a", 0, 10, gpus=2)], X, {"m": {"X": {2: 3.0, 4: 2.9}}})
    view = Simulation(scenario, Buddy(), InformationClass.BOOTSTRAP).advance()
    # 1 GPU does not fit; 2 take 3 s, so 4 would take 1.5 s, whatever the truth.
    assert view.iteration_time_s()[0, 0].tolist() == [np.inf, 3.0, 1.5]
