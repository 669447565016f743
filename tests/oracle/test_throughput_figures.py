"""Errors of predicted throughputs, by groups of rows and along curves of more GPUs, worked by hand."""

from types import SimpleNamespace

import pytest

from clustergym.oracle.calibration.throughput_validation import figures, scaling_curves
from clustergym.oracle.stacks.throughput import ThroughputRow


def row_of(number, gpus, measured, *, model="m", experts=0, release="2025-01", tensor=1, source="s"):
    """A row of a table: `gpus` GPUs that did `measured` tokens per second each."""
    plan = SimpleNamespace(tensor=tensor, pipeline=1, recompute=0.0, compiled=True, precision="bf16")
    shape = SimpleNamespace(name=model, experts=experts)
    setting = SimpleNamespace(shape=shape, plan=plan, sequence_length=8192)
    return ThroughputRow(
        f"r{number}", source, release, "pretrain", model, "H100", "bf16", gpus, measured, setting
    )


def test_speeds_per_gpu_are_relative_to_those_on_the_fewest():
    rows = [
        row_of(0, 16, 80.0),
        row_of(1, 8, 100.0),
        row_of(2, 8, 90.0),  # Another batch on 8 GPUs, a slower one.
        row_of(3, 32, 50.0),
        row_of(4, 8, 70.0, tensor=2),  # A plan that was measured on one number of GPUs only.
        row_of(5, 16, 60.0, experts=8, model="e"),
        row_of(6, 8, 60.0, experts=8, model="e"),
        row_of(7, 64, 10.0, model="big"),
        row_of(8, 128, 9.0, model="big"),
        row_of(9, 65, 10.0, model="bigger"),
        row_of(10, 128, 9.0, model="bigger"),
    ]
    predicted = [90.0, 120.0, 7.0, 30.0, 70.0, 60.0, 60.0, 10.0, 10.0, 10.0, 10.0]
    first, big = scaling_curves(rows, predicted)
    assert first == {
        "model": "m",
        "gpu_type": "H100",
        "fewest": 8,
        "first_error": pytest.approx(0.2),
        "points": [
            {"gpus": 16, "measured": 0.8, "predicted": 0.75},
            {"gpus": 32, "measured": 0.5, "predicted": 0.25},
        ],
    }
    assert (big["model"], big["fewest"], big["first_error"]) == ("big", 64, 0.0)
    assert big["points"] == [{"gpus": 128, "measured": 0.9, "predicted": 1.0}]


def test_rows_without_a_number_are_on_no_curve():
    rows = [row_of(0, 8, 100.0), row_of(1, None, 80.0), row_of(2, 16, None), row_of(3, 32, 50.0)]
    assert scaling_curves(rows, [100.0, 80.0, 80.0, None]) == []


def test_errors_by_hand():
    # Three dense rows off by 10, 20 and 50 %, the last of an old release; one of experts, off by 40 %; one
    # that does not fit; and one that nobody measured.
    rows = [
        row_of(0, 8, 100.0, release="2025-02"),
        row_of(1, 16, 100.0, model="n"),
        row_of(2, 8, 100.0),
        row_of(3, 32, 100.0, experts=4, model="e", source="t"),
        row_of(4, 64, 100.0, model="o"),
        row_of(5, 128, None),
    ]
    made = [
        {"predicted": 110.0, "predicted_search": 109.0, "fits": True},
        {"predicted": 80.0, "predicted_search": 80.0, "fits": True},
        {"predicted": 150.0, "predicted_search": 160.0, "fits": True},
        {"predicted": 140.0, "predicted_search": 150.0, "fits": True},
        {"predicted": None, "predicted_search": None, "fits": False},
        {"predicted": 50.0, "predicted_search": 40.0, "fits": True},
    ]
    found = figures(rows, made)
    names = ("measured_rows", "expressed", "refused", "slower_than_published", "most_gpus")
    assert [found[name] for name in names] == [5, 5, 1, 1, 64]
    errors = {name: (one["rows"], one["mape"], one["median_ape"]) for name, one in found["errors"].items()}
    assert errors["dense"] == pytest.approx((3, 0.8 / 3, 0.2))
    assert errors["dense, newest release"] == pytest.approx((2, 0.15, 0.15))
    for name in ("experts, newest release", "experts, all releases"):
        assert errors[name] == pytest.approx((1, 0.4, 0.4))
    groups = [name for name in found if name[:3] == "by_"]
    rows_of = {name: {key: one["rows"] for key, one in found[name].items()} for name in groups}
    assert rows_of == {"by_source": {"s": 3, "t": 1}, "by_gpu_type": {"H100": 4}}
    assert found["by_source"]["t"]["mape"] == pytest.approx(0.4)
