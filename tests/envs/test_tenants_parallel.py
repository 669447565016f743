"""Tenants as agents of a PettingZoo game."""

import importlib
import sys
from dataclasses import replace

import numpy as np
import pytest
from example_files import import_file
from scenarios import Job, small_scenario

import clustergym
from clustergym.common.errors import InputError
from clustergym.scenario.registry import parse_policy
from clustergym.scenario.tenants.queue_tree import Tenants

pytest.importorskip("pettingzoo", reason="the extra pettingzoo is not installed")
tenants_parallel = importlib.import_module("clustergym.envs.tenants_parallel")
TenantsParallelEnv = tenants_parallel.TenantsParallelEnv


def weights(env, value):
    return {agent: np.full(1, value, dtype=np.float32) for agent in env.agents}


def test_pettingzoos_own_test_passes():
    from pettingzoo.test import parallel_api_test

    parallel_api_test(TenantsParallelEnv(jobs=10, round_s=600.0), num_cycles=300)


@pytest.mark.parametrize("value", [0.25, 1.0, 3.0])
def test_equal_weights_are_the_run_without_weights(value):
    env = TenantsParallelEnv(jobs=20)
    env.reset(seed=4)
    while env.agents:
        *_, infos = env.step(weights(env, value))
    run = clustergym.simulate(env.scenario, parse_policy("learned checkpoint=prior round_s=60", "policy"))
    assert {info["digest"] for info in infos.values()} == {run.digest}


@pytest.fixture
def two(tmp_path):
    """Return an environment, and two jobs of an hour on all 16 GPUs, one of each of two queues."""
    file = tmp_path / "queues.yaml"
    file.write_text("{unknown: a, queues: {a: {quota: 4}, b: {quota: 12}}}")
    env = TenantsParallelEnv(information="clairvoyant", queues=str(file))
    (name,) = env.episodes.cluster.gpu_types
    jobs = [Job("a1", 0, 3600, gpus=16), Job("b1", 0, 3600, gpus=16)]
    made = small_scenario(jobs, {name: (4, 4)}, {"m": {name: {16: 1.0}}})
    trace = replace(made.trace, virtual_cluster=("a", "b"))
    return env, replace(made, trace=trace, tenants=Tenants.from_queues(str(file), trace, (name,)))


@pytest.mark.parametrize(("favoured", "hours"), [("a", (1, 2)), ("b", (2, 1))])
def test_a_greater_weight_is_served_first(two, favoured, hours):
    """One job at a time runs for an hour: whose weight is greater leaves first, the other after two hours."""
    env, scenario = two
    env.reset(options={"scenario": scenario})
    returns = np.zeros(2)
    while env.agents:
        given = {agent: np.full(1, 4.0 if agent == favoured else 0.25, np.float32) for agent in env.agents}
        _, rewards, ended, cut, _ = env.step(given)
        returns += [rewards["a"], rewards["b"]]
    assert ended == {"a": True, "b": True}
    assert cut == {"a": False, "b": False}
    assert -returns == pytest.approx(hours)


def test_what_an_agent_sees(two):
    """At the start each queue has one job that waits, for all 16 GPUs: 1 / (1 + 5), 16 / (16 + 16)."""
    env, scenario = two
    observations, _ = env.reset(options={"scenario": scenario})
    seen = dict(zip(tenants_parallel.FEATURES, observations["a"].tolist(), strict=True))
    assert seen["jobs"] == seen["waiting"] == pytest.approx(1 / 6)
    assert (seen["held"], seen["asked"], seen["quota"], seen["free"]) == (0.0, 0.5, 0.25, 1.0)
    # Beyond the quotas of 4 and 12 nothing is left to share.
    assert seen["fair_share"] == 0.25
    assert seen["all_jobs"] == pytest.approx(2 / 52)
    assert seen["all_asked"] == pytest.approx(32 / 48)


def test_the_same_seed_is_the_same_episode():
    env = TenantsParallelEnv(jobs=10, round_s=600.0)
    digests = []
    for _ in range(2):
        env.reset(seed=7)
        rng = np.random.default_rng(0)
        while env.agents:
            drawn = {agent: rng.uniform(0.25, 4.0, 1).astype(np.float32) for agent in env.agents}
            *_, infos = env.step(drawn)
        digests.append(next(iter(infos.values()))["digest"])
    assert digests[0] == digests[1]


def test_mistakes_are_one_line():
    with pytest.raises(InputError, match=r"is no environment of tenants .*Tenants-16-v1"):
        TenantsParallelEnv("ClusterGym/Elastic-16-v1")
    with pytest.raises(InputError, match="queues that are the same in all episodes"):
        TenantsParallelEnv(queues="virtual_cluster")
    env = TenantsParallelEnv(jobs=4)
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"9\.\] of agent .* \(give one number from 0\.25 to 4"):
        env.step(weights(env, 9.0))
    with pytest.raises(InputError, match="there is none of agent"):
        env.step({})


def test_the_example_runs(capsys, tmp_path):
    module = import_file("examples/selfish_tenants.py")
    out = tmp_path / "found.json"
    words = ["--updates", "1", "--traces", "1", "--jobs", "8", "--round-s", "600", "--json", str(out)]
    assert module.main(words) == 0
    assert "all at the largest weight: mean JCT: 1.000" in capsys.readouterr().out
    assert out.is_file()
    assert module.main(["--traces", "0"]) == 2


def test_without_pettingzoo_a_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, tenants_parallel.__name__)
    message = r"^tenants_parallel: needs the package pettingzoo \(pip install .*\[pettingzoo\]'\)$"
    with pytest.raises(InputError, match=message):
        importlib.import_module(tenants_parallel.__name__)
