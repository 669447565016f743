"""What baselines see: hand-solved views, properties, malformed choices, and data-parallel memory."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from clustergym.errors import InputError
from clustergym.oracle.data_parallel import validate_memory
from clustergym.oracle.views import VIEWS, Times, data_parallel, linear, measured, view_from_config

DATA = Path(os.environ.get("CLUSTERGYM_DATA", Path(__file__).parents[3] / "shared" / "data")) / "arena"
MEMORY = DATA / "arena_dp_memory.csv"
INF, NAN = float("inf"), float("nan")
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
    assert seen.tolist() == [
        [[8, 4, 2, 1], [INF, 8, 4, 2]],
        [[INF, INF, 8, 4], [INF] * 4],
    ]


def test_data_parallelism_has_its_own_memory_limit() -> None:
    feasible = np.array([True, True, True, False])
    assert data_parallel(row(INF, 6, NAN, 2), feasible).tolist() == [INF, 6, INF, INF]


def test_a_measured_table() -> None:
    table = row(NAN, 6, INF, 2)
    assert measured(table, YES, COUNTS).tolist() == [INF, 6, INF, 2]
    # One GPU from two: twice as long; four from two: half.
    assert measured(table, YES, COUNTS, "linear").tolist() == [12, 6, 3, 2]
    assert measured(table, np.array([False, True, True, False]), COUNTS, "linear").tolist() == [
        INF,
        6,
        3,
        INF,
    ]
    assert measured(row(NAN, NAN, NAN, NAN), YES, COUNTS, "linear").tolist() == [INF] * 4


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
    assert (view_from_config({"name": "exact"})(Times(times, feasible, COUNTS)) == times).all()


def test_views_by_name() -> None:
    execution = row(6, 4, 3, 2).reshape(1, 1, 4)
    times = Times(execution, np.ones_like(execution, dtype=bool), COUNTS, execution * 2, execution * 3)
    expected = {
        "exact": [6, 4, 3, 2],
        "data_parallel": [12, 8, 6, 4],
        "bootstrap": [6, 3, 1.5, 0.75],
        "linear": [6, 3, 1.5, 0.75],
        "measured": [18, 12, 9, 6],
    }
    assert {name: view_from_config({"name": name})(times)[0, 0].tolist() for name in VIEWS} == expected
    knob = view_from_config({"name": "linear", "precise": 2})(times)
    assert knob[0, 0].tolist() == [6, 4, 2, 1]


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({}, r"view\.name: is missing"),
        ({"name": "liner"}, r"unknown view 'liner' \(did you mean linear\?\)"),
        ({"name": "linear", "precis": 2}, r"view\.precis: unknown key 'precis' \(did you mean precise\?\)"),
        ({"name": "linear", "precise": 0}, r"precise: 0 is not valid"),
        ({"name": "linear", "precise": 1.5}, r"view\.precise: 1\.5 is no int"),
        ({"name": "measured", "missing": "lin"}, r"missing: unknown value 'lin' \(did you mean linear\?\)"),
    ],
)
def test_views_that_cannot_be(choice: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        view_from_config(choice)


def test_a_view_of_times_that_an_oracle_does_not_have() -> None:
    times = Times(row(1, 1, 1, 1), YES, COUNTS)
    for name in ("data_parallel", "measured"):
        with pytest.raises(InputError, match=f"no {name} times"):
            view_from_config({"name": name})(times)


def test_tables_of_other_shapes() -> None:
    with pytest.raises(ValueError, match="feasible has shape"):
        Times(row(1, 1, 1, 1), YES[:3], COUNTS)
    with pytest.raises(ValueError, match="counts"):
        Times(row(1, 1, 1, 1), YES, COUNTS[::-1])


@pytest.mark.skipif(not MEMORY.is_file(), reason=f"Arena's published measurements are not in {DATA}")
def test_data_parallel_memory_against_measurements() -> None:
    found = validate_memory(MEMORY)
    # Measured medians: 4.7 % of 90 rows; 5.8 (bert), 11.1 (moe), 2.5 (wide_resnet).
    assert found["all"]["rows"] >= 90
    assert found["all"]["median"] < 5.5
    assert found["bert"]["median"] < 7
    assert found["moe"]["median"] < 13
    assert found["wide_resnet"]["median"] < 3.5


def test_memory_of_one_row_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "memory.csv"
    # Wide ResNet of 500M on 16 ranks: 12.25 bytes for each of its 0.487e9 parameters make 5.97 GB, and one of
    # 256 / 16 / 16 images about 1.04 GB: 7.0 GB. Against 14 GB that is an error of 50 %.
    path.write_text("model_family,params,batch_size,dp_degree,memory_gb\nwide_resnet,500M,256,16,14.0\n")
    assert validate_memory(path)["all"]["median"] == pytest.approx(50, abs=1)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ("bert,1.3B,128,0,9.0,1", r":2: dp_degree: 0 is below 1"),
        ("bert,1.3B,128,1,-9.0,1", r":2: memory_gb: -9 is below"),
        ("bert,1.3B,128,1,,1", r":2: memory_gb: is empty"),
        ("bert,1.3B,128,1,9.0,2", r":2: recorded: 2 is above 1"),
        ("bert,1.3B,128,1,9.0,0", r"recorded: no row has a value"),
        ("bert,1.4B,128,1,9.0,1", r":2: .*1\.4B.*1\.3B"),
        ("bertt,1.3B,128,1,9.0,1", r":2: .*bertt"),
    ],
)
def test_malformed_memory(tmp_path: Path, cells: str, message: str) -> None:
    path = tmp_path / "memory.csv"
    path.write_text(f"model_family,params,batch_size,dp_degree,memory_gb,recorded\n{cells}\n")
    with pytest.raises(InputError, match=message):
        validate_memory(path)
