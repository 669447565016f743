"""Bounds of scenarios whose nodes fail and whose jobs are killed: beside all schedules, and never beaten."""

from dataclasses import replace

import numpy as np
import pytest
from all_schedules import all_schedules, metric_of
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from random_scenarios import random_scenarios
from scenarios import Job, small_scenario

from clustergym.results.bounds.bounds import Certificate, build_programme, lower_bounds, proven
from clustergym.results.bounds.price_search import search
from clustergym.scenario.disturbances.failures import Failures
from clustergym.scenario.failure_draws import NodeFailure
from clustergym.scenario.failure_model import FailureModel, Restart
from clustergym.scenario.registry import make_policy
from clustergym.scenario.scenario import Scenario


def with_ends(scenario: Scenario, shares: list[float]) -> Scenario:
    """Return a scenario whose jobs end after these shares of what they ask for."""
    asked = scenario.trace.iterations
    ends = np.maximum(1, np.rint(asked * shares)).astype(np.int64)
    outcome = tuple("completed" if share == 1 else "killed" for share in shares)
    return replace(scenario, trace=replace(scenario.trace, outcome=outcome, end_iterations=ends))


@pytest.mark.slow
def test_no_schedule_of_a_small_case_beats_its_bounds():
    # Two nodes of one GPU, 2 s an iteration on one and 1 s on both, 1 s for a restart. a asks for 8
    # iterations and is killed after 4. The best is b on both GPUs for 3 s, then a for 4 s: (3 + 7) / 2 = 5 s.
    # If the second node fails at 2 s for 3 s, b has a checkpoint of 2 iterations, stands still for 1 s, does
    # its third on one GPU until 5 s, and a ends at 9 s: (5 + 9) / 2 = 7 s.
    jobs = [Job("a", 0, 8), Job("b", 0, 3)]
    whole = small_scenario(jobs, {"X": (2, 1)}, {"m": {"X": {1: 2.0, 2: 1.0}}}, checkpoint_s={"m": 1.0})
    failing = Failures(schedule=(NodeFailure(2.0, 1, 3.0),), checkpoint_every_s=2.0)
    killed = with_ends(whole, [0.5, 1.0])
    both = replace(killed, disturbances=(failing,))
    least, least_unfailing = (min(all_schedules(one, "jct_mean")) for one in (both, killed))
    assert (least_unfailing, least) == (5.0, pytest.approx(7.0))
    for scenario in (killed, both):
        assert 3.5 < search(build_programme(scenario, "jct_mean")).value <= 5.0
        assert lower_bounds(scenario).jct_mean <= 5.0
    # Of the work that a asked for, the bound is one of longer schedules.
    assert search(build_programme(whole, "jct_mean")).value > 5.0


failures = st.builds(
    Failures,
    mtbf_s=st.sampled_from([500.0, 2000.0]),
    mttr_s=st.sampled_from([50.0, 400.0]),
    seed=st.integers(0, 2**20),
    checkpoint_every_s=st.sampled_from([20.0, 100.0]),
    model=st.builds(
        FailureModel,
        leaf_mtbf_s=st.sampled_from([None, 3000.0]),
        detection_s=st.sampled_from([0.0, 25.0]),
        restart=st.builds(
            Restart, in_place_share=st.sampled_from([0.0, 0.3]), process_share=st.sampled_from([0.0, 0.4])
        ),
        checkpoint_write_s=st.sampled_from([0.0, 2.0]),
    ),
)


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(random_scenarios(), failures, st.integers(0, 2**32 - 1))
def test_no_policy_beats_a_bound_where_nodes_fail_and_jobs_are_killed(scenario, failing, seed):
    rng = np.random.default_rng(seed)
    shares = np.where(rng.random(len(scenario.trace)) < 0.5, 1.0, rng.random(len(scenario.trace))).tolist()
    scenario = replace(with_ends(scenario, shares), disturbances=(failing,))
    no_deadlines = np.full(len(scenario.trace), np.nan)
    scenario = replace(scenario, trace=replace(scenario.trace, deadline_s=no_deadlines))
    edges_s = np.append(-1.0, np.sort(rng.uniform(0, 2000, 9)))
    prices = Certificate(edges_s, rng.choice([1e-3, 0.05]) * rng.exponential(size=(2, 9)))
    bound = proven(build_programme(scenario, "jct_mean"), prices)
    for name in ("srtf", "hesrpt", "ares"):
        found = metric_of(scenario, make_policy({"name": name}), "jct_mean")
        assert found >= max(bound, lower_bounds(scenario).jct_mean * (1 - 1e-9))
