"""Random small scenarios for properties that every policy must have."""

import numpy as np
from hypothesis import strategies as st
from queue_quotas import with_tenants
from round_scenarios import without_profiles
from scenarios import Job, price, small_scenario

from clustergym.results.measured_run import measure_run
from clustergym.results.metrics.intervals import Outcome
from clustergym.scenario.costs import Costs
from clustergym.scenario.registry import find_class
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import Run

GROUPS = {"X": (3, 4), "Y": (2, 2)}
TIMES = {
    "m": {"X": {1: 3.0, 2: 1.7, 4: 1.0, 8: 0.7}, "Y": {1: 5.0, 2: 3.1, 4: 2.0}},
    "slow": {"X": {1: 2.0, 2: 2.5, 4: 3.0}, "Y": {1: 9.0}},
    "big": {"X": {4: 2.3, 8: 1.3}, "Y": {}},
}
CHECKPOINT_S = {"m": 11.0, "big": 23.5, "slow": 3.0}

_rows = st.lists(
    st.tuples(
        st.floats(0, 300).map(lambda t: round(t, 3)),
        st.integers(1, 200),
        st.sampled_from([1, 2, 4]),
        st.sampled_from(sorted(TIMES)),
        st.sampled_from(["", "X", "Y"]),
        st.sampled_from([np.nan, 30.0, 300.0, 1500.0]),
    ),
    min_size=1,
    max_size=10,
)


@st.composite
def random_scenarios(draw: st.DrawFn, data_parallel_fits: bool = True, together: bool = False) -> Scenario:
    """Draw jobs, rounds and costs.

    `together`: all jobs are submitted at 0. Unless `data_parallel_fits`, it does for no `big` job.
    """
    jobs = [
        Job(f"j{i}", 0.0 if together else submit, iterations, gpus, kind, family, submit + allowed_s)
        for i, (submit, iterations, gpus, family, kind, allowed_s) in enumerate(sorted(draw(_rows), key=str))
    ]
    jobs.sort(key=lambda job: job.submit_s)
    costs = Costs(
        search=draw(st.sampled_from(["pruned", "proxy"])),
        profile=draw(st.sampled_from([{}, price("profiled", 20.0)])),
    )
    rounds = draw(st.sampled_from(["event", 30.0]))
    scenario = small_scenario(jobs, GROUPS, TIMES, checkpoint_s=CHECKPOINT_S, costs=costs, rounds=rounds)
    if data_parallel_fits:
        return scenario
    return without_profiles(scenario, "big")


def all_left(run: Run, drops: bool = False) -> bool:
    """Return whether every job completed, or (if the policy may) was dropped; checks the log on the way."""
    outcome = measure_run(run.simulation).records.outcome
    gone = (outcome == Outcome.FINISHED) | (drops & (outcome == Outcome.DROPPED))
    return bool(gone.all())


def with_queues_for(policy: str, scenario: Scenario) -> Scenario:
    """Return the scenario, with two queues of tenants that submit in turn if the policy needs queues."""
    if not find_class("policy", policy).needs_queues:
        return scenario
    return with_tenants(scenario, tenants=["ab"[row % 2] for row in range(len(scenario.trace))])
