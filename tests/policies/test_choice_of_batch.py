"""Policies that choose the global batch: by hand, against the log, and what they refuse."""

from dataclasses import replace

import numpy as np
import pytest
from batches import batch_scenario, with_batches
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.pollux import Pollux
from clustergym.policies.shared.goodput import ObservedSpeeds, goodput_at_best_batch, jobs_with_a_choice
from clustergym.policies.sia import Sia
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.measured_run import measure_run
from clustergym.scenario.costs import Costs
from clustergym.scenario.policy import InformationClass
from clustergym.sim.drive import replay, simulate
from clustergym.sim.engine import Simulation
from clustergym.sim.log import LAUNCHES

SECONDS = {32: 2.0, 128: 4.0}
NOISE = (32.0, 160.0)
"""Efficiency at 128 is 0.4, then 2/3: the work of an iteration at 32 takes 2.5 s, then 1.5 s."""


def jct_s(scenario, policy):
    return measure_run(simulate(scenario, policy, Buddy()).simulation).metrics["jct_mean"]


@pytest.mark.parametrize("policy", [Sia, Pollux])
def test_the_batch_follows_the_noise_scale(policy):
    # 50 x 2 s at 32 until 100 s, then 50 x 1.5 s at 128; at the requested batch 200 s.
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE, rounds=10.0)
    chosen = policy()
    assert jct_s(scenario, chosen) == pytest.approx(175)
    assert chosen.counters()["jobs_choosing_batch"] == 1
    left = policy(batch="requested")
    assert jct_s(scenario, left) == 200
    assert left.counters()["jobs_choosing_batch"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Sia, Pollux])
def test_a_run_with_batches_replays(policy):
    jobs = [Job(f"j{at}", 40.0 * at, 300) for at in range(6)]
    seconds = {8: 0.9, 32: 2.0, 64: 2.9, 256: 8.0}
    noise = (20.0, 90.0, 400.0, 2000.0)
    scenario = batch_scenario(jobs, seconds, noise, counts=(1, 2, 4), checkpoint_s={"m": 9.0}, rounds=20.0)
    run = simulate(scenario, policy(), Buddy())
    assert sum(len(change.batch) for change in run.simulation.changes) > 6
    assert measure_run(run.simulation).metrics["jobs_finished"] == 6
    again = replay(scenario, Buddy(), InformationClass.BOOTSTRAP, 20.0, 0, run.simulation.changes)
    assert again.log.digest == run.simulation.log.digest


@pytest.mark.parametrize("policy", [Sia, Pollux])
def test_no_noise_scale_is_one_line_where_every_batch_is_to_be_chosen(policy):
    times = {"m": {"X": {1: 2.0}}}
    scenario = small_scenario([Job("a", 0, 10), Job("b", 0, 10)], {"X": (1, 2)}, times)
    with pytest.raises(
        InputError, match=r"policy\.batch: job a: model m at batch 32 has no noise scale"
    ) as bad:
        simulate(scenario, policy(batch="chosen"), Buddy())
    assert "give known or requested" in str(bad.value)
    assert jct_s(scenario, policy()) == 20
    assert jct_s(batch_scenario([Job("a", 0, 100)], SECONDS, NOISE), policy(batch="chosen")) > 0
    with pytest.raises(InputError, match=r"policy\.batch: unknown value 'chose' \(did you mean chosen"):
        policy(batch="chose")


def test_the_job_without_a_choice_is_named_with_its_line():
    scenario = small_scenario([Job("a", 0, 10), Job("b", 0, 10)], {"X": (1, 2)}, {"m": {"X": {1: 2.0}}})
    setting = Simulation(scenario, Buddy(), InformationClass.NONE).setting
    trace = replace(scenario.trace, path="jobs.csv", line=np.array([7, 8]))
    with pytest.raises(InputError, match=r"^jobs\.csv:7: policy\.batch: job a: .*known or requested"):
        jobs_with_a_choice("chosen", trace, setting)
    # A trace that was not read from a file has no line.
    with pytest.raises(InputError, match=r"^policy\.batch: job a: .*oracle=sia"):
        jobs_with_a_choice("chosen", scenario.trace, setting)
    assert jobs_with_a_choice("known", trace, setting) == jobs_with_a_choice("requested", trace, setting) == 0


def test_goodput_at_the_best_batch_by_hand():
    # One node of 4 X. On 1 X: 16 samples/s at 32, 128 x 0.4 / 4 = 12.8 at 128. On 2 X by the same local
    # batch: 32 takes as long as the least batch, 2 s: 16; 128 as long as 64 on one, 2 + (4 - 2) / 3 =
    # 2.66667 s: 19.2. On 4 X 128 takes 2 s: 25.6.
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE, counts=(1, 2, 4), rounds=10.0)
    view = Simulation(scenario, Buddy(), InformationClass.BOOTSTRAP).advance()
    options = view.batch_options()
    known = options.iteration_time_s[..., 0]
    assert options.iteration_time_s[0, 0].tolist() == [[2.0, 4.0], [2.0, 2.66667], [2.0, 2.0]]
    good, batch = goodput_at_best_batch(view, options, known)
    assert good[0, 0] == pytest.approx([16, 19.2, 25.6], rel=1e-5)
    assert batch[0, 0].tolist() == [32, 128, 128]
    # An estimate 3 s longer is 3 s longer at 128 too: 32 / 5 = 6.4; 51.2 / 7, / 5.66667, / 5.
    good, batch = goodput_at_best_batch(view, options, known + 3)
    assert good[0, 0] == pytest.approx([51.2 / 7, 51.2 / 5.66667, 10.24], rel=1e-5)
    # Half as long at 32 is half as long at 128.
    good, batch = goodput_at_best_batch(view, options, known / 2)
    assert good[0, 0] == pytest.approx([32, 38.4, 51.2], rel=1e-5)
    good, batch = goodput_at_best_batch(view, options, known / 8)
    assert good[0, 0] == pytest.approx([128, 153.6, 204.8], rel=1e-5)
    # Where a job does not fit, it has none, whatever was estimated; nor where no estimate is finite.
    nowhere = replace(options, iteration_time_s=np.full_like(options.iteration_time_s, np.inf))
    assert not goodput_at_best_batch(view, nowhere, known)[0].any()
    assert not goodput_at_best_batch(view, options, np.full_like(known, np.inf))[0].any()
    good, batch = goodput_at_best_batch(view, None, known)
    assert good[0, 0].tolist() == [16, 16, 16]
    assert (batch == 32).all()


def test_what_is_seen_at_one_batch_counts_for_the_others():
    # On 2 X an iteration at 128 takes 4 s, not the 2.66667 of the bootstrap: 1.33333 s more. One at 32 is
    # then thought to take 2 + 1.33333.
    scenario = batch_scenario([Job("a", 0, 100)], SECONDS, NOISE, counts=(1, 2), rounds=10.0)
    simulation, speeds = Simulation(scenario, Buddy(), InformationClass.BOOTSTRAP), ObservedSpeeds()
    view = simulation.advance()
    assert len(speeds.observe(view, view.batch_options())) == 0
    policy = Sia(batch="chosen", growth=None)
    decision = policy.schedule(view)
    assert (decision.gpus.tolist(), decision.batch.tolist()) == ([2], [128])
    speeds.record_decision(view, decision, view.batch_options())
    simulation.apply(decision)
    view = simulation.advance()
    assert speeds.observe(view, view.batch_options()).tolist() == [0]
    assert speeds.get_observed_times(view)[0, 0, 1] == pytest.approx(2 + 4 - 2.66667, rel=1e-5)


def test_nothing_is_learnt_over_a_change_of_efficiency():
    # 100 x 2.5 s a half at 128: the half ends at 125 s, between the rounds at 120 and 130 s.
    scenario = batch_scenario([Job("a", 0, 100)], {32: 3.0, 128: 4.0}, NOISE, rounds=10.0)
    simulation, speeds = Simulation(scenario, Buddy(), InformationClass.BOOTSTRAP), ObservedSpeeds()
    news = []
    while (view := simulation.advance()) is not None:
        options = view.batch_options()
        news += [view.now_s for _ in speeds.observe(view, options)]
        decision = Sia().schedule(view)
        assert decision.batch.tolist() == [128]
        speeds.record_decision(view, decision, options)
        simulation.apply(decision)
    assert news == [10.0]


@pytest.mark.parametrize(("hold", "moved"), [(True, [0, 160]), (False, [0, 20])])
def test_an_allocation_is_held_through_a_restart(hold, moved):
    # a's launch takes 150 s. The Y on which it is 80 times as fast has b, 100 times as fast, to 15 s. At
    # 20 s the restart factor is 20 / 170, and 80 times that is more than what a has.
    scenario = small_scenario(
        [Job("a", 0, 10_000), Job("b", 0, 15, family="other")],
        {"X": (1, 1), "Y": (1, 1)},
        {"m": {"X": {1: 8.0}, "Y": {1: 0.1}}, "other": {"X": {1: 100.0}, "Y": {1: 1.0}}},
        checkpoint_s={"m": 150.0},
        costs=Costs(search="proxy", profile={}, first_launch=True),
        rounds=20.0,
        horizon_s=400.0,
    )
    run = simulate(scenario, Sia(hold=hold, waiting_factor=False), Buddy())
    launches = [event for event in run.simulation.log.events if event.event_type in LAUNCHES]
    assert [event.time_s for event in launches if event.job == 0] == moved


def test_waiting_jobs_have_the_restart_factor_in_rounds_alone():
    # A launch takes 50 s. At 60 s of age it is worth 60 / 110 of the least goodput, which at p = -0.5 counts
    # 1.35, more than the incentive of 1.1; from 240 s on 1.099. At events alone it starts at once.
    def started(rounds, waiting_factor):
        costs = Costs(search="proxy", profile={}, first_launch=True)
        times = {"m": {"X": {1: 8.0}}}
        jobs, groups = [Job("a", 0, 100)], {"X": (1, 1)}
        scenario = small_scenario(jobs, groups, times, checkpoint_s={"m": 50.0}, costs=costs, rounds=rounds)
        run = simulate(scenario, Sia(waiting_factor=waiting_factor), Buddy())
        return next(event.time_s for event in run.simulation.log.events if event.event_type in LAUNCHES)

    assert started(60.0, True) == 240
    assert started(60.0, False) == 0
    assert started("event", True) == 0


def test_classes_without_a_choice_keep_their_batch_and_their_times():
    times = {"m": {"X": {1: 8.0, 2: 5.0}}, "other": {"X": {1: 6.0, 2: 4.0}}}
    jobs = [Job("a", 0, 100), Job("b", 0, 100, family="other")]
    scenario = with_batches(small_scenario(jobs, {"X": (1, 4)}, times), [32, 64], np.array([[500.0]]))
    alone = scenario.tables.classes.index(scenario.trace.model_class(1))
    scenario.tables.batches.sizes[alone, 1] = 0
    scenario.tables.batches.efficiency[alone, :, 1] = 0
    scenario.tables.batches.execution[alone, ..., 1] = np.inf
    assert scenario.batch_models == {scenario.trace.model_class(0)}
    known = scenario.get_known_batch_times(InformationClass.BOOTSTRAP)
    assert known[alone, 0, :2, 0].tolist() == [6.0, 3.0]
    policy = Sia(growth=None)
    run = simulate(scenario, policy, Buddy())
    assert policy.counters()["jobs_choosing_batch"] == 1
    assert {row for change in run.simulation.changes for row, _ in change.batch} <= {0}
    with pytest.raises(InputError, match="job b: model other at batch 32"):
        simulate(scenario, Sia(batch="chosen"), Buddy())
