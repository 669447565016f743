"""When policies decide by default, and percentiles of how long they take, kept in a histogram."""

from dataclasses import MISSING, fields

import pytest
from scenarios import Job, small_scenario

from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import DecisionTimes


def test_a_scenario_that_says_nothing_has_the_rounds_of_the_policy():
    given = small_scenario([Job("a", 0, 1)], {"X": (1, 4)}, {"m": {"X": {1: 1.0}}})
    said = {one.name: getattr(given, one.name) for one in fields(Scenario) if one.default is MISSING}
    assert Scenario(**said).round_s(60.0) == 60.0
    assert Scenario(**said).round_s(None) is None


def test_percentiles_are_good_to_two_per_cent():
    times = DecisionTimes()
    # 1.1^0 to 1.1^99 ms, the longest first: the 50th is 1.1^49, the 99th 1.1^98 ms.
    for power in reversed(range(100)):
        times.add(1e-3 * 1.1**power)
    assert times.count == 100
    assert times.percentile(0.5) == pytest.approx(1e-3 * 1.1**49, rel=0.011)
    assert times.percentile(0.99) == pytest.approx(1e-3 * 1.1**98, rel=0.011)
    assert times.percentile(0.0) == pytest.approx(1e-3, rel=0.011)
    assert times.percentile(1.0) == pytest.approx(1e-3 * 1.1**99, rel=0.011)


def test_no_decision_has_no_percentile_and_no_time_is_a_nanosecond():
    times = DecisionTimes()
    assert times.percentile(0.5) is None
    times.add(0.0)
    assert times.percentile(0.5) == pytest.approx(1e-9, rel=0.011)
