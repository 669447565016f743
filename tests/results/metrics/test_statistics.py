"""The restricted mean against scipy, and intervals over seeds against tabulated quantiles."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.results.metrics.statistics import compute_restricted_mean, estimate, estimate_nonnegative


def test_restricted_mean_by_hand():
    # 4 at risk, one ends at 2: 3/4. At 3 one is lost sight of. 2 at risk, one ends at 5: 3/8.
    # Area to 8: 2 + 3 x 3/4 + 3 x 3/8 = 5.375.
    duration, ended = np.array([2.0, 3.0, 5.0, 8.0]), np.array([True, False, True, False])
    assert compute_restricted_mean(duration, ended, 8.0) == pytest.approx(5.375)
    # To 4: 2 + 2 x 3/4.
    assert compute_restricted_mean(duration, ended, 4.0) == pytest.approx(3.5)


samples = st.lists(st.tuples(st.integers(1, 30) | st.floats(0.1, 30), st.booleans()), min_size=1, max_size=30)


@given(samples, st.floats(0.5, 40))
@settings(max_examples=100, deadline=None)
def test_restricted_mean_is_the_area_under_scipys_survival_curve(drawn, limit):
    from scipy.stats import CensoredData, ecdf

    duration, ended = np.array([d for d, _ in drawn], dtype=float), np.array([e for _, e in drawn])
    survival = ecdf(CensoredData.right_censored(duration, ~ended)).sf
    grid = np.unique(np.concatenate(([0.0, limit], survival.quantiles)))
    grid = grid[grid <= limit]
    area = float(np.dot(survival.evaluate(grid[:-1]), np.diff(grid)))
    assert compute_restricted_mean(duration, ended, limit) == pytest.approx(area, rel=1e-9)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20))
def test_restricted_mean_of_uncensored_data_is_the_mean(values):
    duration = np.array(values)
    assert compute_restricted_mean(duration, np.full(len(values), True), 100.0) == pytest.approx(
        duration.mean(), abs=1e-9
    )


def test_estimate_is_students_interval_from_three_seeds_on():
    # s = 1, t(2, 97.5 %) = 4.302653: half the width is 4.302653 / sqrt(3).
    three = estimate([1.0, 2.0, 3.0])
    assert three.mean == 2.0
    assert three.high - three.mean == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert three.mean - three.low == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert (three.least, three.greatest, three.seeds) == (1.0, 3.0, 3)


def test_estimate_of_one_two_and_equal_values():
    assert estimate([4.0])[:3] == (4.0, 4.0, 4.0)
    assert estimate([1.0, 3.0])[:3] == (2.0, 1.0, 3.0)
    assert estimate([0.1, 0.1, 0.1])[1:3] == (0.1, 0.1)


def test_an_interval_on_the_logarithm_by_hand():
    # t(2, 97.5 %) s / sqrt(3) = 2.484138 of a mean of 2: factors of e^1.242069 = 3.462770.
    three = estimate_nonnegative([1.0, 2.0, 3.0])
    assert three[:3] == pytest.approx((2.0, 2 / 3.462770, 2 * 3.462770), rel=1e-6)
    # A share of 1/2 has odds of 1; s = 0.1, and 0.248414 / (1/2 x 1/2) = 0.993655: odds of e^-0.99, e^0.99.
    share = estimate_nonnegative([0.4, 0.5, 0.6], 1.0)
    assert share[:3] == pytest.approx(
        (0.5, 1 / (1 + np.exp(0.993655)), 1 / (1 + np.exp(-0.993655))), rel=1e-6
    )


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=30), st.booleans())
def test_an_interval_stays_within_the_quantitys_range(values, share):
    most = max(values) if share and max(values) > 0 else None
    found = estimate_nonnegative(values, most)
    slack = 1e-9 * found.mean
    assert 0 <= found.low <= found.mean + slack
    assert found.mean - slack <= found.high <= (np.inf if most is None else most * (1 + 1e-9))


def test_narrow_intervals_are_students():
    values = [1000.0, 1001.0, 1003.0, 1002.0]
    assert estimate_nonnegative(values)[:3] == pytest.approx(estimate(values)[:3], rel=1e-5)


def test_coverage_is_no_less_than_students_on_skewed_data():
    # The true mean is 1; 95 % of intervals should have it.
    drawn = np.random.default_rng(0).exponential(size=(2000, 5))
    covered = [
        np.mean([one.low <= 1 <= one.high for one in map(f, drawn)]) for f in (estimate, estimate_nonnegative)
    ]
    assert covered[1] > covered[0]
    assert covered[1] > 0.92
