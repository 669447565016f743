"""`NAME, tuned`."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from benchmarks.stability_rules import ParameterRange, choose_tuned, draw_settings
from clustergym.common.errors import InputError
from clustergym.scenario.by_name import compose
from clustergym.scenario.registry import make_policy

SHORT = ["scenario=testbed", "trace=philly-like", "trace.jobs=30", "trace.load=3", "trace.requests=arena"]
SHORT += ["trace.max_duration_s=3600", "trace.max_gpus=32"]


def test_values_of_a_range() -> None:
    assert ParameterRange(2.0, 4.0).value(0.25) == 2.5
    assert ParameterRange(10.0, 1000.0, logarithmic=True).value(0.5) == pytest.approx(100.0)
    # Whole numbers from 1 to 4, each as likely.
    assert [ParameterRange(1, 4, whole=True).value(at) for at in (0.0, 0.25, 0.5, 0.999)] == [1, 2, 3, 4]
    # A list is scaled as a whole.
    assert ParameterRange(0.5, 2.0, times=(1000.0, 4000.0)).value(1.0) == [2000.0, 8000.0]
    for wrong in ((2.0, 1.0, False), (0.0, 1.0, True)):
        with pytest.raises(InputError, match="is no range"):
            ParameterRange(*wrong)


def test_the_same_settings_for_everybody() -> None:
    ranges = {"a": ParameterRange(0.0, 1.0), "b": ParameterRange(1, 8, whole=True)}
    drawn = draw_settings(ranges)
    assert len(drawn) == 20
    assert drawn == draw_settings(ranges)
    assert drawn != draw_settings(ranges, seed=1)
    assert {type(value) for setting in drawn for name, value in setting if name == "b"} == {int}
    with pytest.raises(InputError, match="nothing to draw"):
        draw_settings({})


def test_the_best_setting_on_the_train_cells_is_chosen() -> None:
    told: list[str] = []
    best, tried = choose_tuned(
        "arena", {"round_s": ParameterRange(30.0, 3000.0, logarithmic=True)}, SHORT, [0], 3, told.append
    )
    assert [word.partition(" ")[0] for word, _ in tried] == ["arena"] * 4
    assert tried[0][0] == "arena"
    assert dict(tried)[best] == min(jct_s for _, jct_s in tried)
    # Rounds of another length give other schedules.
    assert len({jct_s for _, jct_s in tried}) > 1
    assert len(told) == 4


def test_a_list_is_tried_as_a_policy_takes_it() -> None:
    ranges = {"thresholds_gpu_s": ParameterRange(0.5, 0.5, times=(3250.0, 7200.0))}
    _, tried = choose_tuned("tiresias", ranges, SHORT, [0], 1)
    assert [word for word, _ in tried] == ["tiresias", "tiresias thresholds_gpu_s=[1625.0,3600.0]"]


def test_every_setting_that_benchmarks_draw_is_one_of_its_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    tuning = importlib.import_module("tuning")
    for policy, ranges in tuning.RANGES.items():
        own = compose([f"policy={policy}"])["policy"]
        for setting in draw_settings(ranges):
            assert make_policy({**own, **dict(setting)}).name == own["name"]
