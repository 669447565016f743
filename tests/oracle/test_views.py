"""Times extrapolated from few GPUs: hand-solved cases and properties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from clustergym.common.errors import InputError
from clustergym.oracle.base import linear

INF = float("inf")
COUNTS = np.array([1, 2, 4, 8])
YES = np.ones(4, dtype=bool)


def row(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float64)


def test_the_bootstrap_scales_the_least_feasible_count() -> None:
    # Two GPUs take 6 s an iteration, so linear scaling says 3 s on four and 1.5 s on eight.
    times = row(INF, 6, 5, 4)
    assert linear(times, np.isfinite(times), COUNTS).tolist() == [INF, 6, 3, 1.5]


def test_precise_points_then_linear_from_the_last_of_them() -> None:
    times = row(INF, 6, 5, 4)
    assert linear(times, np.isfinite(times), COUNTS, precise=2).tolist() == [INF, 6, 5, 2.5]
    assert linear(times, np.isfinite(times), COUNTS, precise=3).tolist() == times.tolist()
    assert linear(times, np.isfinite(times), COUNTS, precise=9).tolist() == times.tolist()


def test_an_infeasible_count_between_is_neither_precise_nor_scaled() -> None:
    feasible = np.array([True, False, True, True])
    assert linear(row(8, 5, 3, 2), feasible, COUNTS, precise=2).tolist() == [8, INF, 3, 1.5]
    # Feasible but without a time: scaled from the last precise point, 3 s on four GPUs.
    assert linear(row(8, INF, 3, 2), YES, COUNTS, precise=2).tolist() == [8, 6, 3, 1.5]
    assert linear(row(8, 4, 2, 1), ~YES, COUNTS).tolist() == [INF] * 4
    assert linear(row(INF, INF, INF, INF), YES, COUNTS).tolist() == [INF] * 4


def test_scaled_values_carry_six_digits() -> None:
    counts = np.array([1, 3])
    assert linear(row(1, 1), YES[:2], counts).tolist() == [1.0, 0.333333]


def test_each_class_and_type_has_its_own_base() -> None:
    times = np.array([[[8, 8, 8, 8], [INF, 8, 8, 8]], [[INF, INF, 8, 8], [INF] * 4]], dtype=np.float64)
    seen = linear(times, np.isfinite(times), COUNTS)
    assert seen.tolist() == [[[8, 4, 2, 1], [INF, 8, 4, 2]], [[INF, INF, 8, 4], [INF] * 4]]


TIMES = arrays.arrays(np.float64, (2, 3, 4), elements=st.one_of(st.floats(1e-3, 1e6), st.just(INF)))


@given(TIMES, arrays.arrays(np.bool_, (2, 3, 4)), st.integers(1, 5))
def test_views_know_no_time_where_a_job_may_not_run_and_the_truth_where_they_are_precise(
    times: np.ndarray, feasible: np.ndarray, precise: int
) -> None:
    seen = linear(times, feasible, COUNTS, precise)
    assert np.isinf(seen[~feasible]).all()
    known = feasible & np.isfinite(times)
    exact = known & (np.cumsum(known, axis=2) <= precise)
    assert (seen[exact] == times[exact]).all()
    # Beyond them GPU-seconds no longer rise: linear scaling is the best that can be.
    for c, t in np.ndindex(2, 3):
        beyond = np.flatnonzero(feasible[c, t] & ~exact[c, t])
        if not exact[c, t].any():
            assert np.isinf(seen[c, t]).all()
            continue
        last = int(np.flatnonzero(exact[c, t]).max())
        assert seen[c, t, beyond] * COUNTS[beyond] == pytest.approx(
            times[c, t, last] * COUNTS[last], rel=1e-5
        )


@given(TIMES)
def test_all_points_precise_is_the_truth(times: np.ndarray) -> None:
    feasible = np.isfinite(times)
    assert (linear(times, feasible, COUNTS, precise=4) == times).all()


def test_at_least_one_count_is_precise() -> None:
    with pytest.raises(InputError, match=r"precise: 0 is not valid"):
        linear(row(6, 4, 3, 2), YES, COUNTS, precise=0)
