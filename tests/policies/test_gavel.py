"""Gavel: rounds and shares worked out by hand, and legal runs to the end."""

import pytest
from clustergym.policies.gavel import OBJECTIVES, Gavel
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared import finish_times, linear_programs
from hypothesis import given, settings
from hypothesis import strategies as st
from round_scenarios import (
    assert_counts_jobs_without_profiles,
    first_view,
    random_scenarios,
    run_to_the_end,
    without_profiles,
)
from scenarios import Job, ends, small_scenario

from clustergym.policies import gavel
from clustergym.sim.drive import simulate

SECOND = {"m": {"X": {1: 1.0}}}


def shares(scenario, objective, second_stage=False):
    view = first_view(scenario, Gavel())
    return OBJECTIVES[objective](view, finish_times.request_times(view), second_stage)


def test_two_jobs_take_turns_of_a_round():
    # Shares 1/2 each: a 0-360, b 360-720; even at 720, where the first comes first: a ends at 1080, b at
    # 1440. If ties are held, b holds the GPU at 720, and ends at 1080.
    scenario = small_scenario([Job("a", 0, 720), Job("b", 0, 720)], {"X": (1, 1)}, SECOND, rounds="policy")
    assert ends(simulate(scenario, Gavel(), Buddy())) == {"a": 1080.0, "b": 1440.0}
    assert ends(simulate(scenario, Gavel(hold_ties=True), Buddy())) == {"a": 1440.0, "b": 1080.0}


@pytest.mark.parametrize(
    ("interval_s", "b_ends_s", "solved_s"),
    [(0.0, 1980, [0, 720, 2160]), (1080.0, 2340, [0, 1080, 2520]), (1920.0, 3420, [0, 2160, 4320])],
)
def test_two_solutions_are_some_time_apart(interval_s, b_ends_s, solved_s):
    # a has the only GPU from 0 with 4500 s of work; b with 540 s comes at 400. From the solution for both
    # on, shares are 1/2, and a priority is the time owed at the end of the round over that received and
    # 180 s. Solved at 720: a 900/900, b 180/180: a. 1080: a 1080/1260, b 360/180: b. 1440: a 1260/1260,
    # b 540/540: a. 1800: a 1440/1620, b 720/540: b, to 1980. The GPU idles to 2160; a ends at 5220.
    # Solved at 1080 or 2160, the same that much later. 1,920 s apart are six rounds.
    jobs = [Job("a", 0, 4500), Job("b", 400, 540)]
    scenario = small_scenario(jobs, {"X": (1, 1)}, SECOND, rounds="policy")
    seen_s = []

    class Watch(Gavel):
        def _solve(self, view, times):
            seen_s.append(view.now_s)
            return super()._solve(view, times)

    assert ends(simulate(scenario, Watch(solve_interval_s=interval_s), Buddy())) == {"a": 5220, "b": b_ends_s}
    assert seen_s == solved_s


def test_a_job_that_comes_between_solutions_gets_idle_gpus_only():
    # a and b, of 360 s and 4500 s, have a GPU each; c comes at 100. a's GPU is free from 360: c runs from
    # 360 to 960 though it has no share before 2160.
    jobs = [Job("a", 0, 360), Job("b", 0, 4500), Job("c", 100, 600)]
    scenario = small_scenario(jobs, {"X": (1, 2)}, SECOND, rounds="policy")
    policy = Gavel()
    assert ends(simulate(scenario, policy, Buddy())) == {"a": 360.0, "b": 4500.0, "c": 960.0}
    assert policy.counters()["programs"] == 2


def test_the_second_stage_spends_what_the_first_leaves_idle():
    # a runs on X only for 100 s, b on X or Y for 200 s: 200 s in all, in which b runs all the time and a
    # half of it or more. Of these optima HiGHS gives the least; the second stage the greatest.
    times = {"a": {"X": {1: 1.0}}, "b": {"X": {1: 1.0}, "Y": {1: 1.0}}}
    jobs = [Job("a", 0, 100, family="a"), Job("b", 0, 200, family="b")]
    scenario = small_scenario(jobs, {"X": (1, 1), "Y": (1, 1)}, times)
    for second_stage, a_runs in ((False, 0.5), (True, 1.0)):
        a, b = shares(scenario, "min_makespan", second_stage).sum(axis=1)
        assert (a, b) == pytest.approx((a_runs, 1.0), abs=1e-5)


def test_max_min_fairness_gives_each_job_the_type_that_suits_it():
    # Rates (4, 1), (2, 2), (1, 4): as in the test of the linear program, 5/9 for a and c.
    times = {"a": {"F": {1: 0.25}, "S": {1: 1.0}}, "b": {"F": {1: 0.5}, "S": {1: 0.5}}}
    times["c"] = {"F": {1: 1.0}, "S": {1: 0.25}}
    jobs = [Job(name, 0, 1000, family=name) for name in "abc"]
    scenario = small_scenario(jobs, {"F": (1, 1), "S": (1, 1)}, times)
    expected = [5 / 9, 0, 4 / 9, 4 / 9, 0, 5 / 9]
    for objective in ("max_min_fairness", "max_min_water_filling"):
        assert shares(scenario, objective).ravel().tolist() == pytest.approx(expected, abs=1e-5)


def test_makespan_and_total_throughput():
    # One GPU; 100 s and 300 s: 1/4 and 3/4 end together. On two types, a is faster on F by 3 a
    # second, b by 1: a has F, b has S.
    scenario = small_scenario([Job("a", 0, 100), Job("b", 0, 300)], {"X": (1, 1)}, SECOND)
    assert shares(scenario, "min_makespan").ravel().tolist() == pytest.approx([0.25, 0.75], abs=1e-5)
    times = {"m": {"F": {1: 1 / 4}, "S": {1: 1.0}}, "n": {"F": {1: 1 / 3}, "S": {1: 1 / 2}}}
    jobs = [Job("a", 0, 100), Job("b", 0, 100, family="n")]
    scenario = small_scenario(jobs, {"F": (1, 1), "S": (1, 1)}, times)
    assert shares(scenario, "max_total_throughput").ravel().tolist() == pytest.approx([1, 0, 0, 1])


def test_finish_time_fairness_makes_up_for_time_waited():
    # At 360 s b (100 s of work) comes to a, which has done 360 of 720 s on the only GPU. Alone on
    # half of it: 1440 and 200 s. (360 + 360/x)/1440 = (100/(1 - x))/200.
    scenario = small_scenario([Job("a", 0, 720), Job("b", 360, 100)], {"X": (1, 1)}, SECOND, rounds=360.0)
    seen = []

    class Watch(Gavel):
        def schedule(self, view):
            decision = super().schedule(view)
            seen.append(self._rounds.share.copy())
            return decision

    simulate(scenario, Watch(objective="finish_time_fairness", solve_interval_s=0.0), Buddy())
    x, y = seen[1].ravel().tolist()
    assert x + y == pytest.approx(1.0)
    assert (360 + 360 / x) / 1440 == pytest.approx(0.5 / y, rel=1e-4)


@settings(max_examples=40, deadline=None)
@given(random_scenarios(), st.sampled_from(sorted(OBJECTIVES)), st.booleans())
def test_it_is_legal_and_ends(scenario, objective, guard):
    policy = Gavel(objective=objective, guard=guard)
    run_to_the_end(scenario, policy)
    assert policy.counters()["solver_fallbacks"] == 0


@settings(max_examples=10, deadline=None)
@given(random_scenarios(rounds="event"), st.sampled_from(sorted(OBJECTIVES)))
def test_it_is_legal_at_every_event(scenario, objective):
    run_to_the_end(scenario, Gavel(objective=objective))


@settings(max_examples=15, deadline=None)
@given(random_scenarios(), st.sampled_from(sorted(OBJECTIVES)))
def test_jobs_without_profiles_run_and_are_counted(scenario, objective):
    policy = Gavel(objective=objective)
    assert_counts_jobs_without_profiles(scenario, policy)


def test_a_type_without_profile_is_not_used_by_a_share():
    times = {"m": {"X": {1: 1.0}, "Y": {1: 1.0}}}
    scenario = small_scenario([Job("a", 0, 100), Job("b", 0, 100)], {"X": (1, 1), "Y": (1, 1)}, times)
    share = shares(without_profiles(scenario, "m", ("Y",)), "max_min_fairness")
    assert share.ravel().tolist() == pytest.approx([0.5, 0, 0.5, 0])


def test_isolated_shares_stand_in_for_a_failed_program(monkeypatch):
    def fail(*_):
        raise linear_programs.SolverError("no")

    monkeypatch.setitem(gavel.OBJECTIVES, "min_makespan", fail)
    scenario = small_scenario([Job("a", 0, 720), Job("b", 0, 100)], {"X": (1, 1)}, SECOND, rounds="policy")
    policy = Gavel(objective="min_makespan", solve_interval_s=0.0)
    assert set(ends(simulate(scenario, policy, Buddy()))) == {"a", "b"}
    # Solved for {a, b}, and for a once b has left.
    assert policy.counters() == {"programs": 2, "solver_fallbacks": 2, "jobs_without_profile": 0}
