"""What synthetic scenarios are drawn from: laws of speed and least counts, with draws chosen by hand."""

from typing import Any

import numpy as np
import pytest

from clustergym.training.distribution import iteration_times, least_counts, speedups


class Chosen:
    """Draws the middle of each range, whole numbers and chances as given, and no spread."""

    def __init__(self, whole: list[int], chances: list[float] | None = None) -> None:
        self.whole, self.chances = np.array(whole), np.array(chances)

    def integers(self, *given: int, size: int) -> Any:
        return self.whole

    def uniform(self, low: float, high: float, size: Any) -> Any:
        return np.full(size, (low + high) / 2)

    def random(self, size: int) -> Any:
        return self.chances

    def normal(self, mean: float, deviation: float, size: Any) -> Any:
        return np.full(size, mean)


def test_the_three_laws_of_speed():
    power, amdahl, talking = speedups(Chosen([0, 1, 2]), 3, np.array([1, 2, 4]))
    assert power.tolist() == pytest.approx([1.0, 2**0.75, 4**0.75])
    serial, talk = 10**-1.75, 10**-1.85
    assert amdahl.tolist() == pytest.approx([1.0, 1 / ((1 + serial) / 2), 1 / (serial + (1 - serial) / 4)])
    assert talking.tolist() == pytest.approx([1.0, 1 / (1 / 2 + talk * 2**0.3), 1 / (1 / 4 + talk * 4**0.3)])


def test_the_least_counts():
    # The first fits on one GPU whatever it asks for; others halve their request up to twice, down to one.
    drawn = Chosen([2, 0, 1, 2, 2], [0.0, 0.999, 0.999, 0.999, 0.999])
    assert least_counts(drawn, np.array([8, 8, 8, 8, 2])).tolist() == [1, 8, 4, 2, 1]


def test_times_are_as_asked_at_the_request_and_slower_on_later_types():
    # By the power law four GPUs are 4^0.75 times as fast as one. The second type is 1.85 times slower, of
    # two GPUs.
    drawn = Chosen([0], [0.0])
    counts, capacity = np.array([1, 2, 4]), np.array([4, 2])
    times = iteration_times(drawn, np.array([4]), np.array([10.0]), 2, counts, capacity)
    assert times[0, 0].tolist() == pytest.approx([10 * 4**0.75, 10 * 2**0.75, 10.0])
    assert times[0, 1].tolist() == pytest.approx([18.5 * 4**0.75, 18.5 * 2**0.75, np.inf])
    drawn = Chosen([0], [0.999])
    # It needs all four.
    times = iteration_times(drawn, np.array([4]), np.array([10.0]), 2, counts, capacity)
    assert times[0].tolist() == [[np.inf, np.inf, 10.0], [np.inf, np.inf, np.inf]]
