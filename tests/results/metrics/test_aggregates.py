"""Aggregates over cells, by hand."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from clustergym.results.metrics.statistics import aggregate_paired_ratio, interquartile_mean


def test_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([0.0, 1.0, 3.0, 100.0])) == 2.0
    # Of five, the middle 2.5: the third whole, three quarters of its neighbours.
    assert interquartile_mean(np.array([9.0, 1.0, 2.0, 4.0, 3.0])) == pytest.approx(
        (0.75 * 2 + 3 + 0.75 * 4) / 2.5
    )
    assert interquartile_mean(np.array([7.0])) == 7.0
    values = np.random.default_rng(1).normal(size=24)
    assert interquartile_mean(values) == pytest.approx(trim_mean(values, 0.25))


def test_interquartile_means_of_rows():
    rows = np.array([[0.0, 1.0, 3.0, 100.0], [4.0, 3.0, 2.0, 1.0]])
    assert interquartile_mean(rows).tolist() == [2.0, 2.5]


def test_a_paired_ratio_by_hand():
    # 30 / 70, and single seeds of 1/2, 1 and 1/4; what makes a seed hard for both is not in the interval.
    mine, other = np.array([10.0, 10.0, 10.0]), np.array([20.0, 10.0, 40.0])
    assert aggregate_paired_ratio(mine, other) == (pytest.approx(3 / 7), 0.25, 1.0)
    hard = np.array([1.0, 10.0, 100.0, 1000.0])
    assert aggregate_paired_ratio(0.9 * hard, hard) == pytest.approx((0.9, 0.9, 0.9))
    assert aggregate_paired_ratio(np.array([1.0, 3.0]), np.array([2.0, 2.0])) == (1.0, 0.5, 1.5)


def test_a_paired_ratio_narrows_with_seeds_and_needs_a_reference_above_0():
    rng = np.random.default_rng(5)
    few, many = (aggregate_paired_ratio(rng.uniform(1, 2, n), rng.uniform(2, 4, n)) for n in (5, 100))
    assert few.low < few.value < few.high
    assert many.high - many.low < (few.high - few.low) / 2
    assert aggregate_paired_ratio(np.array([1.0, 2.0]), np.array([0.0, 2.0])) is None
