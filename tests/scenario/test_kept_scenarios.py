"""Scenarios that a sweep keeps from one run to the next."""

from clustergym.scenario.by_name import compose
from clustergym.scenario.scenario_config import build_from_json, kept_scenario

SMALL = ["scenario=testbed", "cluster=arena-16", "trace=philly-like", "trace.jobs=3"]


def test_runs_of_other_policies_share_a_scenario():
    first = kept_scenario(compose([*SMALL, "policy=fcfs"]))
    assert kept_scenario(compose([*SMALL, "policy=srtf"])) is first
    assert kept_scenario(compose([*SMALL, "seed=1"])).sha256 != first.sha256
    assert kept_scenario(compose(SMALL)) is first


def test_a_scenario_of_a_file_is_built_anew(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("submit_s,gpus,duration_s\n0,1,600\n")
    config = compose([*SMALL[:2], "trace=file", f"trace.path={path}"])
    assert len(kept_scenario(config).trace) == 1
    path.write_text("submit_s,gpus,duration_s\n0,1,600\n5,1,600\n")
    assert len(kept_scenario(config).trace) == 2


def test_only_so_many_are_kept_the_oldest_go_first():
    build_from_json.cache_clear()
    configs = [compose([*SMALL, f"seed={seed}"]) for seed in range(9)]
    zero, one, *_ = map(kept_scenario, configs)
    # Eight are kept.
    assert kept_scenario(configs[1]) is one
    assert kept_scenario(configs[0]) is not zero
