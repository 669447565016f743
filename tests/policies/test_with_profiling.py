"""Every policy that pays for what it knows, on clusters where types are profiled one after another."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import all_left, random_scenarios

from clustergym.scenario.costs import ProfilePrice
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.registry import make_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import simulate

PAYING = (InformationClass.BOOTSTRAP, InformationClass.DATA_PARALLEL, InformationClass.PROFILED)
POLICIES = (
    *("allox", "arena", "ares", "elasticflow", "gavel", "hesrpt", "lucid", "optimus", "pollux", "sia"),
    "themis",
)


def partly_data_parallel(scenario: Scenario, lost: list[int]) -> Scenario:
    """Return the scenario where pure data parallelism does not fit on some (class, type), all counts."""
    tables = scenario.tables
    data_parallel = tables.data_parallel.copy()
    for cell in lost:
        row, kind = divmod(cell, len(tables.gpu_types))
        data_parallel[row % len(tables.classes), kind] = np.inf
    return replace(scenario, tables=replace(tables, data_parallel=data_parallel))


@pytest.mark.parametrize("name", POLICIES)
@given(
    random_scenarios(),
    st.floats(1.0, 900.0),
    st.sampled_from(["job", "model"]),
    st.lists(st.integers(0, 5), max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_all_jobs_leave(name, scenario, seconds, reuse, lost):
    prices = {one.value: ProfilePrice(round(seconds, 3), 1, "each", "job") for one in PAYING}
    scenario = replace(scenario, costs=replace(scenario.costs, profile=prices, profile_reuse=reuse))
    parameters = {"name": name, **({"mode": "loosened"} if name == "elasticflow" else {})}
    run = simulate(partly_data_parallel(scenario, lost), make_policy(parameters), Buddy())
    assert all_left(run)
