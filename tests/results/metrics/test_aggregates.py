"""Aggregates over cells, by hand."""

import numpy as np
import pytest
from scipy.stats import trim_mean

from clustergym.results.metrics.statistics import (
    aggregate_paired_difference,
    aggregate_paired_ratio,
    aggregate_stratified,
    interquartile_mean,
    probability_of_improvement,
)


def test_interquartile_mean_by_hand():
    assert interquartile_mean(np.array([0.0, 1.0, 3.0, 100.0])) == 2.0
    # Of five, the middle 2.5: the third whole, three quarters of its neighbours.
    assert interquartile_mean(np.array([9.0, 1.0, 2.0, 4.0, 3.0])) == pytest.approx(
        (0.75 * 2 + 3 + 0.75 * 4) / 2.5
    )
    assert interquartile_mean(np.array([7.0])) == 7.0
    values = np.random.default_rng(1).normal(size=24)
    assert interquartile_mean(values) == pytest.approx(trim_mean(values, 0.25))


def test_the_interval_is_stratified():
    # Scenarios that differ, seeds that do not: resampling inside a scenario changes nothing.
    assert aggregate_stratified([np.full(8, 1.0), np.full(8, 5.0)], "ab") == pytest.approx((3.0, 3.0, 3.0))
    found = aggregate_stratified([np.array([0.0, 1.0, 2.0, 3.0])], "a")
    assert found.low < found.value == 1.5 < found.high
    assert aggregate_stratified([np.array([0.0, 1.0, 2.0, 3.0])], "a") == found


def test_each_family_of_traces_weighs_the_same():
    # Over all twelve, the middle half is of "a" alone: 1.25. By family: 1 of two scenarios, and 10.
    scores = [np.array([0.0, 1.0, 1.0, 2.0]), np.array([0.0, 1.0, 1.0, 2.0]), np.full(4, 10.0)]
    assert aggregate_stratified(scores, "aab").value == pytest.approx((1.0 + 10.0) / 2)
    assert aggregate_stratified(scores, "aaa").value == pytest.approx(
        interquartile_mean(np.concatenate(scores))
    )
    better = [one + shift for one, shift in zip(scores, (0.5, 0.5, -1.0), strict=True)]
    assert aggregate_paired_difference(better, scores, "aab").value == pytest.approx((0.5 - 1.0) / 2)
    # Better in both scenarios of one family and worse in the only one of the other: even.
    assert probability_of_improvement(better, scores, "aab").value == pytest.approx(0.5)


def test_probability_of_improvement_by_hand():
    # Wins 2 of 3 and ties 1 of 1.
    mine, other = [np.array([2.0, 2.0, 0.0]), np.array([1.0])], [np.array([1.0, 1.0, 1.0]), np.array([1.0])]
    assert probability_of_improvement(mine, other, "ab").value == pytest.approx((2 / 3 + 0.5) / 2)
    assert probability_of_improvement(other, mine, "ab").value == pytest.approx((1 / 3 + 0.5) / 2)
    assert probability_of_improvement(mine, mine, "ab") == (0.5, 0.5, 0.5)


def test_an_interval_is_the_same_on_any_machine():
    # The draws are those of the first release.
    rng = np.random.default_rng(3)
    mine, other = ([rng.normal(size=30), rng.normal(size=7)] for _ in range(2))
    assert probability_of_improvement(mine, other, "ab") == pytest.approx((109 / 210, 64 / 210, 150.5 / 210))
    assert aggregate_stratified([np.random.default_rng(1).normal(size=30)], "a") == pytest.approx(
        (0.0460757174926, -0.2235407894080, 0.2833193662111)
    )


def test_interquartile_means_of_rows():
    rows = np.array([[0.0, 1.0, 3.0, 100.0], [4.0, 3.0, 2.0, 1.0]])
    assert interquartile_mean(rows).tolist() == [2.0, 2.5]


def test_a_difference_by_cell_is_sharper_than_its_parts():
    # Cells differ by far more than the two do; in every cell one is better by 0.1.
    hard = np.arange(8.0)
    mine, other = [hard + 0.1, hard - 3.9], [hard, hard - 4.0]
    assert (
        aggregate_stratified(mine, "aa").low
        < aggregate_stratified(other, "aa").value
        < aggregate_stratified(mine, "aa").high
    )
    assert aggregate_paired_difference(mine, other, "aa") == pytest.approx((0.1, 0.1, 0.1))
    assert aggregate_paired_difference(other, mine, "aa") == pytest.approx((-0.1, -0.1, -0.1))
    assert aggregate_paired_difference(mine, mine, "aa") == (0.0, 0.0, 0.0)


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
