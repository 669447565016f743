"""Policies of a menu decide in compiled episodes as they do in a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import clustergym
from clustergym.common.errors import InputError
from clustergym.envs.families import MetaEnv
from clustergym.envs.vector.environment import SchedulingVectorEnv
from clustergym.scenario.policy import InformationError
from clustergym.scenario.registry import parse_policy

POLICIES = (
    "fcfs",
    "fcfs queue=cluster",
    "fcfs backfill=aggressive",
    "las",
    "srtf",
    "srtf elastic=true",
    "srtf elastic=true hysteresis=1.0",
    "ares",
    "ares alpha=0.5 unknown_pool=0.25",
    "ares work_conserving=true",
    "hesrpt",
    "hesrpt leftover=false",
    "optimus",
    "optimus turn_restarts=0.0 hysteresis=0.0",
    "learned checkpoint=elastic",
    "learned checkpoint=elastic round_s=300",
)
CASES: dict[str, dict[str, Any]] = {
    "16 GPUs": {"cluster": "arena-16", "jobs": 15, "loads": (1.5,)},
    "64 GPUs of one type": {"cluster": "ares-64", "rule": "ares", "costs": "ares-profiled-free", "jobs": 15},
    "1280 GPUs": {"cluster": "arena-sim", "jobs": 20, "loads": (2.0,)},
    "jobs of unknown speed": {"cluster": "arena-a", "jobs": 15, "information": "data_parallel"},
    "bootstrap": {"cluster": "arena-16", "jobs": 15, "information": "bootstrap"},
}
SHORT_S = 14400.0
"""Jobs of at most four hours, which make a third of the rounds that jobs of twelve do."""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("text", POLICIES)
def test_a_policy_of_a_menu_decides_as_in_a_run(text: str, case: str) -> None:
    policy = parse_policy(text, "policy")
    information = CASES[case].get("information", policy.information_class.value)
    chosen = {**CASES[case], "information": information, "policies": (text,), "round_s": policy.round_s}
    chosen["max_duration_s"] = SHORT_S
    digests = []
    for engine in ("compiled", "simpy"):
        env = MetaEnv(engine=engine, **chosen)
        env.reset(seed=4)
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(np.int64(0))
            over = terminated or truncated
        digests.append(info["digest"])
    assert digests[0] == digests[1]
    if information == policy.information_class.value:
        assert digests[0] == clustergym.simulate(env.scenario, policy).digest


def test_a_policy_with_a_memory_does_not_see_what_others_decide() -> None:
    menu = ("ares", "ares work_conserving=true", "optimus")
    chosen: dict[str, Any] = {"cluster": "arena-16", "jobs": 20, "policies": menu, "round_s": 60.0}
    chosen["max_duration_s"] = SHORT_S
    digests = []
    for engine in ("compiled", "simpy"):
        env, rng = MetaEnv(engine=engine, **chosen), np.random.default_rng(0)
        for seed in (1, 2):
            env.reset(seed=seed)
            over = False
            while not over:
                _, _, terminated, truncated, info = env.step(rng.integers(3))
                over = terminated or truncated
            digests.append(info["digest"])
    assert digests[:2] == digests[2:]


@pytest.mark.parametrize("costs", ["profiled-free", "ares"])
def test_any_policy_plays_that_needs_no_places(costs: str) -> None:
    menu = ("fcfs any_type=random", "fcfs backfill=easy", "sjf", "tiresias", "gavel")
    chosen: dict[str, Any] = {"cluster": "arena-16", "jobs": 12, "policies": menu, "costs": costs}
    digests = []
    for engine in ("compiled", "simpy"):
        env, rng, over = MetaEnv(engine=engine, **chosen), np.random.default_rng(3), False
        env.reset(seed=3, options={"run_seed": 5})
        while not over:
            _, _, terminated, truncated, info = env.step(rng.integers(len(menu)))
            over = terminated or truncated
        digests.append(info["digest"])
    assert digests[0] == digests[1]


def test_a_policy_that_asks_where_jobs_are_is_refused() -> None:
    chosen: dict[str, Any] = {"cluster": "arena-16", "jobs": 6, "policies": ("las", "slurm-multifactor")}
    with pytest.raises(InputError, match="policy slurm-multifactor asks where jobs are"):
        MetaEnv(engine="compiled", **chosen)


def test_policies_that_need_iteration_times_stop_without_them() -> None:
    chosen: dict[str, Any] = {"cluster": "arena-16", "jobs": 6, "information": "none"}
    env = SchedulingVectorEnv(MetaEnv, policies=("las", "srtf"), **chosen)
    env.reset(seed=0)
    env.step(np.array([0]))
    with pytest.raises(InformationError, match="has no iteration times"):
        env.step(np.array([1]))


def test_many_small_jobs_launched_at_one_decision_are_all_logged() -> None:
    menu = ("ares alpha=0.6 unknown_pool=0.3", "ares", "ares work_conserving=true", "fcfs")
    chosen: dict[str, Any] = {"cluster": "ares-16", "rule": "ares", "costs": "ares-profiled-free", "jobs": 35}
    chosen |= {"loads": (0.7,), "information": "bootstrap", "round_s": None, "source": "helios"}
    digests = []
    for engine in ("compiled", "simpy"):
        env, rng, over = MetaEnv(engine=engine, policies=menu, **chosen), np.random.default_rng(49456), False
        env.reset(seed=49456)
        while not over:
            _, _, terminated, truncated, info = env.step(rng.integers(4))
            over = terminated or truncated
        digests.append(info["digest"])
    assert digests[0] == digests[1]
