"""Freshly drawn traces: what depends on the cluster alone is computed once, and nothing else changes."""

from clustergym.scenario.by_name import compose
from clustergym.scenario.scenario_config import Conditions, build_scenario


def test_scenarios_of_shared_conditions_are_those_built_alone():
    config = compose(["cluster=arena-16", "trace=philly-like", "trace.jobs=20", "trace.load=1.0"])
    shared = Conditions.from_config(config)
    drawn = [shared.scenario(config["trace"], seed).sha256 for seed in range(6)]
    assert drawn == [build_scenario({**config, "seed": seed}).sha256 for seed in range(6)]
    assert len(set(drawn)) == 6
