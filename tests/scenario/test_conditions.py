"""Conditions of a run that keys of the scenario set: wrong estimates, a cap on GPUs, drawn priorities."""

import numpy as np
import pytest

from clustergym.common.errors import InputError
from clustergym.scenario.by_name import compose
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario_config import build_scenario

SHORT = ["scenario=testbed", "trace=philly-like", "trace.jobs=40", "trace.load=3", "trace.requests=arena"]
SHORT += ["trace.max_duration_s=3600", "trace.max_gpus=32"]


def built(*words):
    return build_scenario(compose([*SHORT, *words]))


def test_wrong_estimates_change_what_is_told_and_not_what_runs():
    scenario, wrong = (built("seed=3", f"scenario.estimates_off={off}") for off in (0, 0.1))
    for information in ("profiled", "data_parallel", "bootstrap"):
        told, truth = (one.known_times(InformationClass(information)) for one in (wrong, scenario))
        ratio = told[np.isfinite(truth)] / truth[np.isfinite(truth)]
        assert 0.9 <= ratio.min() < 0.98
        assert 1.02 < ratio.max() <= 1.1
    # One factor for all counts of a model and type.
    profiled = InformationClass.PROFILED
    fits = scenario.feasible[:, :, 0] & scenario.feasible[:, :, 1]
    told, truth = (one.known_times(profiled)[fits] for one in (wrong, scenario))
    assert np.allclose(told[:, 0] / truth[:, 0], told[:, 1] / truth[:, 1])
    exact = InformationClass.CLAIRVOYANT
    assert np.array_equal(wrong.known_times(exact), scenario.known_times(exact))
    assert np.array_equal(wrong.execution, scenario.execution)
    assert scenario.sha256 != wrong.sha256


def test_one_family_is_misjudged_as_a_whole():
    # Seed by seed one family of the trace is told 0.7 or 1.3 times its times, on every type and count; all
    # others are told the truth. Over 8 seeds both signs and several families are drawn.
    drawn = set()
    for seed in range(8):
        off = built(f"seed={seed}", "scenario.family_off=0.3")
        families = np.array([model.family for model in off.tables.classes])
        wrong = off.estimates_off != 1.0
        assert len(set(families[wrong.any(axis=1)])) == 1
        assert wrong[families == families[wrong.any(axis=1)][0]].all()
        factors = set(np.round(off.estimates_off[wrong], 9).tolist())
        assert len(factors) == 1
        drawn.add((families[wrong.any(axis=1)][0], factors.pop()))
    assert {factor for _, factor in drawn} == {0.7, 1.3}
    assert len({family for family, _ in drawn}) > 1


def test_no_job_may_hold_more_than_the_cap():
    # 64 GPUs of two types: counts 1, 2, ..., 32 of each; with a cap of 16 the last is not offered. The jobs
    # are the same.
    plain, capped = (built("trace.max_gpus=16", f"scenario.most_gpus={most}") for most in ("null", "16"))
    assert plain.tables.counts.tolist() == [1, 2, 4, 8, 16, 32]
    assert capped.tables.counts.tolist() == [1, 2, 4, 8, 16]
    assert np.array_equal(capped.trace.gpus, plain.trace.gpus)
    assert capped.trace.sha256 == plain.trace.sha256
    with pytest.raises(InputError, match=r"scenario\.oversize=drop"):
        built("scenario.most_gpus=1")


def test_priorities_are_drawn_from_classes():
    # Of 600 jobs each of three classes has about 200 (sd 11.5), whatever the jobs are, and two seeds differ.
    plain, three = (built("trace.jobs=600", f"scenario.priority_classes={n}") for n in (1, 3))
    assert set(plain.trace.priority.tolist()) == {0}
    assert np.bincount(three.trace.priority, minlength=3).tolist() == pytest.approx([200, 200, 200], abs=50)
    assert np.array_equal(three.trace.iterations, plain.trace.iterations)
    other = built("trace.jobs=600", "scenario.priority_classes=3", "seed=1")
    assert not np.array_equal(other.trace.priority, three.trace.priority)
