"""What a changed cluster makes of the waits of drawn months: ratios of means, worked by hand."""

import pytest
from clustergym.operators.twin.whatif import ratios, summary


def months(*means):
    return [{"waits": {"queue": {"a": None if mean is None else {"mean_s": mean}}}} for mean in means]


def ratio_of(today, runs):
    return ratios(months(*today), months(*runs))["queue"].get("a")


def test_the_ratio_of_means_is_between_those_without_one_month():
    # 60 over 100 in all; without the first month 40 over 60, without the second 20 over 40, without the third
    # 60 over 100.
    found = ratio_of([40.0, 60.0, 0.0], [20.0, 40.0, 0.0])
    assert found == pytest.approx({"ratio": 0.6, "low": 0.5, "high": 2 / 3})


def test_one_month_has_no_range():
    assert ratio_of([50.0], [20.0]) == pytest.approx({"ratio": 0.4, "low": 0.4, "high": 0.4})
    # What is left without the first month has no wait today.
    assert ratio_of([50.0, 0.0], [20.0, 5.0]) == pytest.approx({"ratio": 0.5, "low": 0.4, "high": 0.4})


def test_months_without_jobs_of_a_group_do_not_count():
    assert ratio_of([50.0, None, 30.0], [20.0, 9.0, None]) == pytest.approx(
        {"ratio": 0.4, "low": 0.4, "high": 0.4}
    )
    assert ratio_of([None], [3.0]) is None
    assert ratio_of([0.0, 0.0], [3.0, 4.0]) is None


def test_a_summary_is_of_the_runs_that_have_a_figure():
    found = summary([{"wait": 2.0, "of": {"a": 1.0}}, {"wait": None, "of": {"a": 1.0}}, {"wait": 2.0}])
    assert found["wait"] == pytest.approx({"mean": 2.0, "low": 2.0, "high": 2.0})
    assert found["of"]["a"]["mean"] == 1.0
