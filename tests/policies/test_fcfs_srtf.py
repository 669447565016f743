"""First come first served and shortest remaining time first, on cases solved by hand."""

from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.fcfs_backfill import FcfsWithOptions
from clustergym.policies.srtf import ShortestRemainingTimeFirst
from scenarios import Job, ends, small_scenario

from clustergym.scenario.costs import Costs
from clustergym.sim.drive import simulate

LINEAR = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}, "Y": {1: 8.0, 2: 4.0}}}


def test_fcfs_does_not_backfill():
    # a holds 2 of 4 GPUs for 200 s; b needs 4 and blocks; c would fit beside a but comes after b.
    jobs = [Job("a", 0, 100, gpus=2), Job("b", 1, 10, gpus=4), Job("c", 2, 10, gpus=1)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, LINEAR)
    run = simulate(scenario, FirstComeFirstServed(round_s=None), Buddy())
    assert ends(run) == {"a": 200.0, "b": 210.0, "c": 250.0}


def test_fcfs_queues_per_type_or_for_the_whole_cluster():
    # b waits for X behind a; c asks for Y, which is free.
    jobs = [
        Job("a", 0, 100, gpus=4, gpu_type="X"),
        Job("b", 1, 10, gpus=4, gpu_type="X"),
        Job("c", 2, 10, gpus=1, gpu_type="Y"),
    ]
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (1, 2)}, LINEAR)
    per_type = simulate(scenario, FirstComeFirstServed(round_s=None, queue="gpu_type"), Buddy())
    assert ends(per_type) == {"a": 100.0, "b": 110.0, "c": 82.0}
    whole = simulate(scenario, FirstComeFirstServed(round_s=None, queue="cluster"), Buddy())
    assert ends(whole) == {"a": 100.0, "b": 110.0, "c": 180.0}


def test_fcfs_starts_a_job_of_any_type_where_it_fits():
    jobs = [Job("a", 0, 10, gpus=4), Job("b", 0, 10, gpus=2)]
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (1, 2)}, LINEAR)
    run = simulate(scenario, FirstComeFirstServed(round_s=None), Buddy())
    assert ends(run) == {"a": 10.0, "b": 40.0}


def test_fcfs_takes_the_last_type_though_it_is_full_as_gavels_simulator():
    # At 0 both types have free GPUs: a, b and c all get B, the last by name. a holds 2 of its 4 GPUs to 20,
    # b waits for 4 of them (20 to 30), c behind b (30 to 35), while A idles. At 1 B has none left: d gets A.
    times = {"m": {kind: {1: 1.0, 2: 1.0, 4: 1.0} for kind in "AB"}}
    jobs = [Job("a", 0, 20, gpus=2), Job("b", 0, 10, gpus=4), Job("c", 0, 5), Job("d", 1, 5)]
    scenario = small_scenario(jobs, {"B": (1, 4), "A": (1, 4)}, times)
    run = simulate(scenario, FcfsWithOptions(any_type="last", round_s=None), Buddy())
    assert ends(run) == {"a": 20.0, "b": 30.0, "c": 35.0, "d": 6.0}
    # With room: a on B, b on A, c beside a, d too.
    first = simulate(scenario, FirstComeFirstServed(round_s=None), Buddy())
    assert ends(first) == {"a": 20.0, "b": 10.0, "c": 5.0, "d": 6.0}


def test_fcfs_with_the_last_type_passes_by_a_type_that_the_request_cannot_use_and_waits_its_turn():
    # a cannot run on B and gets A; b asks for more than any type has free and waits, and c behind it.
    times = {"a": {"A": {4: 1.0}}, "m": {"A": {1: 1.0, 4: 1.0}, "B": {1: 1.0}}}
    jobs = [Job("a", 0, 10, gpus=4, family="a"), Job("b", 0, 10, gpus=4), Job("c", 0, 5)]
    scenario = small_scenario(jobs, {"A": (1, 4), "B": (1, 2)}, times)
    run = simulate(scenario, FcfsWithOptions(any_type="last", round_s=None), Buddy())
    assert ends(run) == {"a": 10.0, "b": 20.0, "c": 15.0}


def test_fcfs_draws_a_type_with_room():
    jobs = [Job("a", 0, 10, gpus=2, gpu_type="X"), Job("b", 1, 10, gpus=4)]
    times = {"m": {"X": {2: 2.0, 4: 1.0}, "Y": {4: 2.0}, "Z": {4: 3.0}}}
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (1, 4), "Z": (1, 4)}, times)
    policy = FcfsWithOptions(any_type="random", round_s=None)
    found = {ends(simulate(scenario, policy, Buddy(), seed))["b"] for seed in range(16)}
    assert found == {1.0 + 20.0, 1.0 + 30.0}


def test_fcfs_waits_for_its_round():
    scenario = small_scenario([Job("a", 10, 10, gpus=4)], {"X": (1, 4)}, LINEAR, rounds="policy")
    run = simulate(scenario, FirstComeFirstServed(), Buddy())
    assert ends(run) == {"a": 310.0}


def test_a_request_that_does_not_fit_in_memory_is_raised():
    # 1 GPU is asked for; only 2 fit: 10 x 2 s.
    scenario = small_scenario([Job("a", 0, 10, gpus=1)], {"X": (1, 4)}, {"m": {"X": {2: 2.0, 4: 1.0}}})
    run = simulate(scenario, FirstComeFirstServed(round_s=None), Buddy())
    assert ends(run) == {"a": 20.0}
    assert scenario.request_changed.tolist() == [True]


def test_srtf_preempts_for_a_shorter_job_and_counts_restarts():
    # long: 100 s alone on 4. At 10, short (20 s) preempts it: 90 left. short ends at 30;
    # long resumes with a checkpoint of 5 s: 30 + 5 + 90 = 125.
    jobs = [Job("long", 0, 100, gpus=4), Job("short", 10, 20, gpus=4, family="s")]
    times = {**LINEAR, "s": {"X": {4: 1.0}}}
    scenario = small_scenario(jobs, {"X": (1, 4)}, times, checkpoint_s={"m": 5.0})
    run = simulate(scenario, ShortestRemainingTimeFirst(round_s=None), Buddy())
    assert ends(run) == {"short": 30.0, "long": 125.0}


def test_srtf_does_not_preempt_a_job_that_ends_before_the_other_could():
    # At 5 s, a has 5 s of search and 60 s of work left; b would take 10 s of search and 56 s: a stays.
    jobs = [Job("a", 0, 60, gpus=4), Job("b", 5, 56, gpus=4)]
    costs = Costs(search="pruned", search_s_per_gpu={"pruned": 2.5}, profile={})
    scenario = small_scenario(jobs, {"X": (1, 4)}, {"m": {"X": {4: 1.0}}}, costs=costs)
    run = simulate(scenario, ShortestRemainingTimeFirst(round_s=None), Buddy())
    # a: 10 s search + 60; b: from 70, 10 + 56.
    assert ends(run) == {"a": 70.0, "b": 136.0}


def test_srtf_takes_the_fastest_free_type_for_a_request_of_any():
    jobs = [Job("a", 0, 10, gpus=2), Job("b", 0, 20, gpus=2)]
    scenario = small_scenario(jobs, {"Y": (1, 2), "X": (1, 2)}, LINEAR)
    run = simulate(scenario, ShortestRemainingTimeFirst(round_s=None), Buddy())
    # a is shortest: X, 20 s. b gets Y at 4 s an iteration: 80 s (it keeps its type).
    assert ends(run) == {"a": 20.0, "b": 80.0}
