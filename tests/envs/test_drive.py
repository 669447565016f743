"""Every policy plays an environment through its actions as it plays the simulator."""

import numpy as np
import pytest
import yaml

import clustergym
from clustergym.common.errors import InputError
from clustergym.common.paths import conf_dir
from clustergym.envs.actions import choose_rows
from clustergym.envs.driver import drive, driving_parameters
from clustergym.envs.families import AuctionEnv, DeadlineEnv, ElasticEnv
from clustergym.scenario.policy import Policy
from clustergym.scenario.registry import find_class, make_policy

_PRESETS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((conf_dir() / "policy").glob("*.yaml"))
}
POLICIES = {
    name: preset
    for name, preset in _PRESETS.items()
    if not find_class("policy", preset["name"]).needs_queues and name != "renting"
}
"""Policies of queues play environments with tenants alone (tests/envs/test_tenants_env.py)."""
QUICK = {"pollux": {"population": 8, "generations": 8}}


def made(name: str) -> Policy:
    return make_policy({**POLICIES[name], **QUICK.get(name, {})})


def env_for(policy: Policy, jobs: int, **parameters):
    drops = {"actions": "drop", "deadlines": True} if policy.name == "elasticflow" else {}
    return ElasticEnv(jobs=jobs, rows=jobs, **driving_parameters(policy), **drops, **parameters)


def same_as_the_simulator(name, env, seed):
    driven = drive(env, made(name), seed=seed)
    alone = clustergym.simulate(env.scenario, made(name))
    assert driven.digest == alone.digest
    assert driven.metrics == alone.metrics
    assert driven.lost == 0
    return driven


@pytest.mark.parametrize("name", POLICIES)
def test_small(name):
    env = env_for(made(name), 8 if name == "sia" else 16, cluster="arena-16")
    driven = same_as_the_simulator(name, env, 3)
    if driven.metrics["jobs_dropped"] == 0:
        assert driven.total_reward == pytest.approx(-driven.metrics["jct_mean"] / 3600)


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"pollux", "sia"}))
def test_medium(name):
    env = env_for(made(name), 60, max_duration_s=7200.0)
    same_as_the_simulator(name, env, 5)


def test_admission_once_suffices_elasticflow():
    policy = made("elasticflow")
    env = DeadlineEnv(cluster="arena-16", jobs=30, rows=30, **driving_parameters(policy))
    driven = same_as_the_simulator("elasticflow", env, 2)
    assert driven.metrics["jobs_dropped"] > 0
    # The share that met its deadline, less the share that was admitted and missed it.
    share = driven.metrics["deadline_satisfaction"]
    missed = 1.0 - share - driven.metrics["jobs_dropped"] / 30
    assert driven.total_reward == pytest.approx(share - missed)


def test_run_seed_is_the_seed_of_simulate():
    env = env_for(made("random"), 16, cluster="arena-16")
    driven = drive(env, "random", seed=3, options={"run_seed": 9})
    assert driven.digest == clustergym.simulate(env.scenario, "random", seed=9).digest
    assert driven.digest != clustergym.simulate(env.scenario, "random", seed=8).digest


def test_a_window_loses_edits_but_no_job():
    env = ElasticEnv(cluster="arena-16", jobs=60, rows=4, loads=[3.0], **driving_parameters("srtf"))
    driven = drive(env, "srtf", seed=1)
    assert driven.lost > 0
    assert driven.metrics["jobs_finished"] == 60


def test_drive_needs_the_policys_information():
    with pytest.raises(InputError, match=r"env\.information: is profiled, policy fcfs has none"):
        drive(ElasticEnv(cluster="arena-16", jobs=4), "fcfs")
    with pytest.raises(InputError, match="no edits to drive"):
        drive(AuctionEnv(cluster="arena-16", jobs=4), "fcfs")
    policy = made("elasticflow")
    env = ElasticEnv(cluster="arena-16", jobs=30, rows=30, deadlines=True, **driving_parameters(policy))
    with pytest.raises(InputError, match="drops jobs, and no action does"):
        drive(env, policy, seed=2)


class Jobs:
    """As much of a View as choosing rows takes."""

    def __init__(self, gpus):
        self.gpus = np.array(gpus)

    def __len__(self):
        return len(self.gpus)


@pytest.mark.parametrize(
    ("gpus", "rows", "turn", "chosen"),
    [
        ([1, 0, 0], 3, 0, [0, 1, 2]),
        # Six wait (0 2 4 6 8 9), four run (1 3 5 7); two rows each: the first, and one in turn.
        ([0, 1, 0, 1, 0, 1, 0, 1, 0, 0], 4, 0, [0, 1, 2, 3]),
        ([0, 1, 0, 1, 0, 1, 0, 1, 0, 0], 4, 1, [0, 1, 4, 5]),
        # After five turns of the waiting (2 4 6 8 9), and three of the running, from the start.
        ([0, 1, 0, 1, 0, 1, 0, 1, 0, 0], 4, 15, [0, 1, 2, 3]),
        # Eight rows for ten that wait: four in front, two at the back, two of 4 5 6 7 in turn.
        ([0] * 10, 8, 0, [0, 1, 2, 3, 4, 5, 8, 9]),
        ([0] * 10, 8, 1, [0, 1, 2, 3, 6, 7, 8, 9]),
        # One runs: what it leaves goes to the waiting, three of five rows to one in front, two in turn.
        ([0, 0, 0, 0, 0, 1], 4, 1, [0, 3, 4, 5]),
        # One waits: what it leaves goes to the running.
        ([1, 1, 1, 1, 1, 0], 4, 0, [0, 1, 2, 5]),
        ([0, 1, 1], 1, 0, [0]),
    ],
)
def test_rows_from_both_ends_and_in_turn(gpus, rows, turn, chosen):
    assert choose_rows(Jobs(gpus), rows, turn).tolist() == chosen


def test_every_job_comes_to_a_row():
    gpus = [0] * 40 + [1] * 30
    seen = set()
    for turn in range(40):
        seen |= set(choose_rows(Jobs(gpus), 4, turn).tolist())
    assert seen == set(range(70))
