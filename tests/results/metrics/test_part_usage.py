"""The course of parts of GPUs over a run, worked out by hand."""

import numpy as np
import pytest

from clustergym.results.metrics.parts import PartUsage

USAGE = PartUsage(
    np.array([-np.inf, 0.0, 10.0]),
    np.array([0.0, 2.0, 4.0]),
    np.array([0.0, 0.5, 1.0]),
    np.array([0.0, 1.0, 2.0]),
)


@pytest.mark.parametrize(
    ("since_s", "until_s", "mean"),
    [
        (0.0, 20.0, (10 * 2 + 10 * 4) / 20),
        (5.0, 20.0, (5 * 2 + 10 * 4) / 15),
        (-10.0, 10.0, (10 * 0 + 10 * 2) / 20),
        (12.0, 13.0, 4.0),
        (7.0, 7.0, None),
    ],
)
def test_a_mean_is_over_time(since_s, until_s, mean):
    assert USAGE.mean("allocated_gpus", since_s, until_s) == (None if mean is None else pytest.approx(mean))
