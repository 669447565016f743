"""When policies decide by default, and percentiles of how long they take, kept in a histogram."""

import pytest

from clustergym.sim.drive import DecisionTimes


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
