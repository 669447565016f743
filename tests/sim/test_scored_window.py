"""Runs that score the jobs of a window while others go on arriving."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.common.errors import InputError
from clustergym.results.bounds.bounds import compute_weights, lower_bounds
from clustergym.results.measured_run import simulate
from clustergym.scenario.by_name import compose
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario_config import build_scenario
from clustergym.sim.compiled.coverage import UncoveredError, check_covered

JOBS = [Job(str(row), 10.0 * row, 20) for row in range(10)]
TIMES = {"m": {"X": {1: 1.0}}}


def scenario_of(window: tuple[float, float] | None):  # type: ignore[no-untyped-def]
    """Return ten jobs of 20 s each on one GPU, one submitted each 10 s."""
    return replace(small_scenario(JOBS, {"X": (1, 1)}, TIMES), scored_s=window)


def test_the_run_ends_with_the_last_scored_job() -> None:
    result = simulate(scenario_of((20.0, 40.0)), FirstComeFirstServed(), Buddy())
    # Job k runs from 20 k to 20 k + 20 and comes at 10 k. Jobs 2 and 3 are scored: 40 and 50 s.
    assert result.metrics["jobs_scored"] == 2
    assert result.metrics["jct_mean"] == pytest.approx((40 + 50) / 2)
    assert result.metrics["queue_mean"] == pytest.approx((20 + 30) / 2)
    # The run ends at 80, when job 3 leaves; jobs 0 to 8 have come by then, 4 to 8 are left in the system.
    assert result.run.simulation.end_s == 80.0
    assert result.metrics["jobs_finished"] == 4
    assert result.metrics["jobs_submitted"] == 9
    # The last job of the trace comes at 90: arrivals went on.
    assert result.metrics["time_without_arrivals"] == 0
    # The GPU works all of the time, on jobs that are scored or not.
    assert result.metrics["gpu_utilization"] == pytest.approx(1.0)


def test_arrivals_that_end_too_early_are_told() -> None:
    result = simulate(scenario_of((60.0, 100.0)), FirstComeFirstServed(), Buddy())
    # Job 9 leaves at 200, 110 s after the last submission.
    assert result.metrics["time_without_arrivals"] == pytest.approx(110.0)
    assert result.metrics["jobs_finished"] == 10


def test_all_jobs_in_the_window_are_a_run_without_one() -> None:
    whole = simulate(scenario_of((0.0, 1e6)), FirstComeFirstServed(), Buddy())
    plain = simulate(scenario_of(None), FirstComeFirstServed(), Buddy())
    assert "jobs_scored" not in plain.metrics
    for name in ("jct_mean", "jct_p99", "queue_mean", "ftf_mean", "ftf_worst", "gpu_utilization"):
        assert whole.metrics[name] == plain.metrics[name]
    assert whole.digest == plain.digest
    assert scenario_of((0.0, 1e6)).sha256 != scenario_of(None).sha256


def test_fairness_is_of_scored_jobs_beside_the_others() -> None:
    result = simulate(scenario_of((20.0, 40.0)), FirstComeFirstServed(), Buddy())
    assert np.isfinite(result.fairness).sum() == 2


@pytest.mark.compiled
def test_the_compiled_engine_ends_with_the_last_scored_job_too() -> None:
    for window in ((20.0, 40.0), (60.0, 100.0)):
        scenario = scenario_of(window)
        compiled, events = (
            simulate(scenario, FirstComeFirstServed(), Buddy(), engine=engine)
            for engine in ("compiled", "simpy")
        )
        assert compiled.digest == events.digest
        assert compiled.run.simulation.end_s == events.run.simulation.end_s
        assert compiled.metrics == events.metrics
    with pytest.raises(UncoveredError, match="scores the jobs of a window"):
        check_covered(scenario, InformationClass.NONE, Buddy())


def test_bounds_are_of_scored_jobs() -> None:
    scenario = scenario_of((20.0, 40.0))
    # Jobs 2 and 3 alone, shortest remaining first: 20 to 40 and, submitted at 30, 40 to 60.
    assert lower_bounds(scenario).jct_mean == pytest.approx((20 + 30) / 2)
    assert compute_weights(scenario, "jct_mean").tolist() == [0.0, 0.0, 0.5, 0.5, *[0.0] * 6]
    fair = compute_weights(scenario, "ftf_mean")
    assert np.flatnonzero(fair).tolist() == [2, 3]
    # All ten jobs without a window: job k waits for those before it, 20 + 10 k each.
    assert lower_bounds(scenario_of(None)).jct_mean == pytest.approx(np.mean(20 + 10 * np.arange(10)))


def test_configuration() -> None:
    short = ["trace=philly-like", "trace.jobs=20", "trace.load=1.0"]
    scenario = build_scenario(compose([*short, "scenario.scored_s=[0,1000]"]))
    assert scenario.scored_s == (0.0, 1000.0)
    with pytest.raises(InputError, match="no job is submitted in this window"):
        build_scenario(compose([*short, "scenario.scored_s=[1e9,1e9]"]))
    with pytest.raises(InputError, match="in order"):
        build_scenario(compose([*short, "scenario.scored_s=[5,1]"]))
