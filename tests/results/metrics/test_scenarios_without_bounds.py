"""Scenarios in which a run may be better than a certificate can prove: bounds are refused in one line."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
from batches import batch_scenario
from refusals import refused
from scenarios import Job, small_scenario

from clustergym.commands import bound
from clustergym.common.errors import InputError
from clustergym.results.bounds.bounds import build_programme
from clustergym.results.bounds.price_search import search
from clustergym.results.measured_run import measure_run
from clustergym.scenario.disturbances import DISTURBANCES
from clustergym.scenario.disturbances.time_limits import TimeLimits
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.sim.drive import simulate

ONE_GPU = {"m": {"X": {1: 1.0}}}


def metrics_of(scenario, **policy):
    run = simulate(scenario, make_policy(policy), make_placer({"name": "buddy"}))
    return measure_run(run.simulation).metrics


def test_time_limits_that_end_jobs():
    # a is done at 10 s, b would be at 1,010 s: 510 s in the mean. Killed after its 60 s, b is in no mean.
    jobs = [Job("a", 0, 10), Job("b", 0, 1000)]
    scenario = small_scenario(jobs, {"X": (1, 1)}, ONE_GPU)
    limited = replace(scenario, trace=replace(scenario.trace, time_limit_s=np.array([60.0, 60.0])))
    assert search(build_programme(limited, "jct_mean")).value == pytest.approx(510, rel=0.02)
    killing = replace(limited, disturbances=(TimeLimits(kill=True),))
    assert metrics_of(killing, name="fcfs")["jct_mean"] == 10.0
    for metric in ("jct_mean", "ftf_mean"):
        with pytest.raises(InputError, match=r"ended before their work is done.*scenario\.time_limits"):
            build_programme(killing, metric)


def test_a_job_that_is_ended_meets_no_deadline():
    jobs = [Job("a", 0, 10, deadline_s=50), Job("b", 0, 1000, deadline_s=2000)]
    scenario = small_scenario(jobs, {"X": (1, 1)}, ONE_GPU)
    killing = replace(
        scenario,
        trace=replace(scenario.trace, time_limit_s=np.array([60.0, 60.0])),
        disturbances=(TimeLimits(kill=True),),
    )
    assert metrics_of(killing, name="fcfs")["deadline_satisfaction"] == 0.5
    assert search(build_programme(killing, "deadline_satisfaction")).value == 1.0


def test_jobs_that_policies_may_drop():
    # All 4 GPUs do an iteration in 1 s. In any order a and b take 100 + 200 s: 150 s in the mean. ElasticFlow
    # drops b, which cannot end by 150 s beside a, and has 100 s.
    jobs = [Job("a", 0, 100, gpus=4, deadline_s=110), Job("b", 0, 100, gpus=4, deadline_s=150)]
    scenario = small_scenario(jobs, {"X": (1, 4)}, {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}})
    assert metrics_of(scenario, name="elasticflow", round_s=None)["jct_mean"] == 100.0
    with pytest.raises(InputError, match="may drop jobs that have deadlines"):
        build_programme(scenario, "jct_mean")
    without = replace(scenario, trace=replace(scenario.trace, deadline_s=np.full(2, np.nan)))
    assert search(build_programme(without, "jct_mean")).value == pytest.approx(150, rel=0.02)


def test_every_disturbance_says_whether_it_ends_jobs():
    """Whoever adds one has to say which: `ends_jobs` of those that call `DisturbedRun.drop`."""
    ends = {
        key for key, found in DISTURBANCES.items() if ".drop(" in inspect.getsource(inspect.getmodule(found))
    }
    assert {key for key, found in DISTURBANCES.items() if found.ends_jobs} == ends == {"time_limits"}


@pytest.mark.slow
def test_policies_that_choose_the_batch_are_bounded():
    # An iteration of 32 takes 1 s, one of 64 1.2 s. Under much noise nothing is lost: 100 iterations of
    # 32 are 50 of 64, 60 s. A bound by the requested batch alone, 100 s, would be false.
    scenario = batch_scenario([Job("a", 0, 100)], {32: 1.0, 64: 1.2}, [1e9])
    value = search(build_programme(scenario, "jct_mean")).value
    figure = metrics_of(scenario, name="sia", round_s=1.0)["jct_mean"]
    assert value <= figure + 1e-9
    assert value == pytest.approx(60, rel=1e-3)
    assert figure < 100


@refused("bound", words=True)
def test_the_command_refuses_in_one_line(given, said, capsys):
    small = ["scenario=testbed", "cluster=arena-16", "trace=philly-like", "trace.jobs=10"]
    assert bound.main([*small, *given]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    said.check(printed.err)
