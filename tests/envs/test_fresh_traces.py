"""Freshly drawn traces: what depends on the cluster alone is computed once, and nothing else changes."""

import numpy as np
import pytest

from clustergym.envs.episodes import Episodes
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.oracle.roofline import roofline_oracle
from clustergym.scenario.by_name import compose
from clustergym.scenario.scenario_config import Conditions, build_scenario

RNG = np.random.default_rng(0)


def test_scenarios_of_shared_conditions_are_those_built_alone():
    config = compose(["cluster=arena-16", "trace=philly-like", "trace.jobs=20", "trace.load=1.0"])
    shared = Conditions.from_config(config)
    drawn = [shared.scenario(config["trace"], seed).sha256 for seed in range(6)]
    assert drawn == [build_scenario({**config, "seed": seed}).sha256 for seed in range(6)]
    assert len(set(drawn)) == 6


def test_a_model_class_is_built_once_per_environment(monkeypatch: pytest.MonkeyPatch):
    built: list[int] = []
    best_times = roofline_oracle.best_times

    def counted(work, devices, layout):
        built.append(work.global_batch.size)
        return best_times(work, devices, layout)

    monkeypatch.setattr(roofline_oracle, "best_times", counted)
    episodes = Episodes(SchedulingParameters(cluster="arena-16", jobs=150))
    seen = {
        model
        for seed in range(900_000, 900_008)
        for model in episodes.choose({"trace_seed": seed}, RNG).tables.classes
    }
    before = len(built)
    again = episodes.choose({"trace_seed": 900_100}, RNG).tables.classes
    assert set(again) <= seen
    assert len(built) == before
