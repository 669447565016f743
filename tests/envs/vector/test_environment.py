"""A vector environment is the same as single environments, stepped one by one on the SimPy engine."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from same_steps import assert_same_steps
from same_values import assert_same

import clustergym  # noqa: F401  registers the environments
from clustergym.cluster.spec import Fabric
from clustergym.common.errors import InputError
from clustergym.envs.families import AuctionEnv, DeadlineEnv, ElasticEnv, FairEnv, TenantsEnv
from clustergym.envs.vector.environment import SchedulingVectorEnv

# Jobs of at most four hours: an episode has a third of the rounds that it has with jobs of twelve.
SMALL: dict[str, Any] = {"cluster": "arena-16", "jobs": 12, "rows": 8, "max_duration_s": 14400.0}
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "elastic": (ElasticEnv, SMALL),
    "flat": (ElasticEnv, {**SMALL, "observation": "flat", "rows": 3}),
    "summary": (ElasticEnv, {**SMALL, "features": "summary", "information": "none", "on_illegal": "repair"}),
    "events": (ElasticEnv, {**SMALL, "round_s": None, "horizon_s": 30000.0}),
    "never idle": (ElasticEnv, {**SMALL, "mask_stop_while_idle": True}),
    "profiles": (ElasticEnv, {**SMALL, "costs": "default"}),
    "baseline": (
        ElasticEnv,
        {**SMALL, "baseline": "srtf", "reward": {"jobs_in_system": 1.0, "slowdown": 0.5}},
    ),
    "baseline at the horizon": (ElasticEnv, {**SMALL, "baseline": "fcfs", "horizon_s": 17000.0}),
    "fair": (FairEnv, {"cluster": "ares-16", "jobs": 6, "rows": 4, "round_s": 900.0}),
    "deadline": (DeadlineEnv, SMALL),
    "deadline, baseline": (DeadlineEnv, {**SMALL, "baseline": "elasticflow", "traces": 4}),
    "scores": (AuctionEnv, {**SMALL, "rows": 4}),
    "scores, flat": (AuctionEnv, {**SMALL, "observation": "flat", "round_s": None, "horizon_s": 30000.0}),
    "scores, no moves": (AuctionEnv, {**SMALL, "features": "jobs"}),
    "weights": (AuctionEnv, {**SMALL, "rows": 3, "actions": "weights", "features": "summary"}),
    "drop": (
        DeadlineEnv,
        {
            **SMALL,
            "actions": "drop",
            "on_illegal": "penalty",
            "reward": {"slowdown": 0.3, "unfairness": 1.0, "deadlines_met": 2.0},
        },
    ),
    "tenants": (
        TenantsEnv,
        {
            "cluster": "ares-16",
            "queues": "philly-16",
            "jobs": 8,
            "rows": 4,
            "round_s": 900.0,
            "baseline": "fcfs",
            "horizon_s": 50000.0,
            "reward": {"jobs_in_system": 1.0, "owed": 1.0},
        },
    ),
    "tenants, queues of each trace": (
        TenantsEnv,
        {
            "cluster": "ares-16",
            "queues": "virtual_cluster",
            "jobs": 6,
            "rows": 12,
            "round_s": 900.0,
            "horizon_s": 30000.0,
            "observation": "flat",
        },
    ),
}


def drawn_actions(envs: SchedulingVectorEnv, rng: np.random.Generator) -> np.ndarray:
    """Draw an action for each environment, one in fifty of them legal or not."""
    masks = envs.action_masks()
    if isinstance(envs.action_space, Box):
        return rng.uniform(-1, 1, masks.shape).astype(np.float32)
    legal = [int(rng.choice(np.flatnonzero(mask))) for mask in masks]
    any_action = rng.integers(masks.shape[1], size=len(masks))
    return np.where(rng.random(len(masks)) < 0.02, any_action, legal)


MODES = list(AutoresetMode)
EVERY_MODE = ("elastic", "baseline at the horizon", "drop", "scores")
"""Cases that end in different ways; each of the others is stepped in one mode, in turn."""
STEPPED = [
    (case, mode)
    for at, case in enumerate(CASES)
    for mode in (MODES if case in EVERY_MODE else [MODES[at % len(MODES)]])
]


@pytest.mark.parametrize(("case", "mode"), STEPPED, ids=lambda value: getattr(value, "value", value))
def test_it_is_the_same_as_single_environments(case: str, mode: AutoresetMode) -> None:
    single, parameters = CASES[case]
    mine = SchedulingVectorEnv(single, 3, autoreset_mode=mode, threads=1, **parameters)
    other = SyncVectorEnv([lambda: single(engine="simpy", **parameters)] * 3, autoreset_mode=mode)
    # Each of the three environments ends twice or so; no case takes 900 steps to that.
    assert_same_steps(mine, other, mode, drawn_actions, ends=6)


@pytest.mark.parametrize("case", ["elastic", "scores"])
@pytest.mark.parametrize("copy", [True, False])
def test_a_reset_of_some_leaves_the_masks_of_the_others(case: str, copy: bool) -> None:
    single, parameters = CASES[case]
    envs = SchedulingVectorEnv(single, 3, copy=copy, threads=1, **parameters)
    envs.reset(seed=5)
    before = np.array(envs.action_masks())
    assert before.any(axis=1).all()
    _, info = envs.reset(seed=7, options={"reset_mask": np.array([False, True, False])})
    after = envs.action_masks()
    np.testing.assert_array_equal(after[[0, 2]], before[[0, 2]])
    # The info has the mask of what was reset, and none of the others.
    assert info["_action_mask"].tolist() == [False, True, False]
    np.testing.assert_array_equal(info["action_mask"][1], after[1])
    assert not info["action_mask"][[0, 2]].any()


def test_a_scenario_of_another_cluster_runs_on_the_simpy_engine() -> None:
    """Its nodes are not those that the compiled episodes of the environment have."""
    simpy, auto = ElasticEnv(engine="simpy", **SMALL), ElasticEnv(engine="auto", **SMALL)
    simpy.reset(seed=1)
    cluster = replace(simpy.scenario.cluster, fabric=Fabric(nodes_per_leaf=1))
    options = {"scenario": replace(simpy.scenario, cluster=cluster)}
    assert_same(auto.reset(seed=1, options=options), simpy.reset(seed=1, options=options), "reset")
    while simpy.view is not None:
        action = int(np.flatnonzero(simpy.action_masks())[0])
        assert_same(auto.step(action), simpy.step(action), "step")
    with pytest.raises(InputError, match="has another cluster"):
        ElasticEnv(engine="compiled", **SMALL).reset(options=options)


@pytest.mark.parametrize("copy", [True, False])
def test_only_copies_outlive_the_next_episode(copy: bool) -> None:
    envs = SchedulingVectorEnv(ElasticEnv, 2, copy=copy, threads=1, **{**SMALL, "observation": "flat"})
    first, _ = envs.reset(seed=1)
    second, _ = envs.reset(seed=2)
    assert np.shares_memory(first, second) is not copy
