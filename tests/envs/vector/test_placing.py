"""The vector forms of Placement, Sharing and Rack are the same as single environments, stepped one by one."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from same_steps import assert_same_steps
from same_values import assert_same

import clustergym  # noqa: F401  registers the environments
from clustergym.common.errors import InputError
from clustergym.envs.placement.environment import PlacementEnv
from clustergym.envs.placement.vector import PlacementVectorEnv
from clustergym.envs.racks.environment import RackEnv
from clustergym.envs.racks.vector import RackVectorEnv
from clustergym.envs.sharing.environment import SharingEnv
from clustergym.envs.sharing.vector import SharingVectorEnv

PLACEMENT, SHARING = (PlacementEnv, PlacementVectorEnv), (SharingEnv, SharingVectorEnv)
RACK = (RackEnv, RackVectorEnv)
ALL_COSTS = {"spread": 0.5, "dp_spread": -1.0, "pp_spread": 0.25}
ALL_OF_SHARING = {"allocated": 1.0, "fragments": -2.0, "rejected": 0.3}
CASES: dict[str, tuple[tuple[Any, Any], dict[str, Any]]] = {
    "nodes": (PLACEMENT, {"setting": "i", "alpha": None}),
    "flat": (PLACEMENT, {"setting": "ii", "observation": "flat", "on_illegal": "noop"}),
    "all terms": (PLACEMENT, {"setting": "i", "reward": ALL_COSTS, "unit": "dp"}),
    "cut off": (PLACEMENT, {"setting": "i", "max_steps": 7}),
    "requests": (SHARING, {"nodes": 4}),
    "requests, flat": (SHARING, {"nodes": 4, "observation": "flat", "on_illegal": "noop"}),
    "all terms of sharing": (SHARING, {"nodes": 3, "reward": ALL_OF_SHARING, "max_steps": 40}),
    "gangs": (RACK, {"racks": 3, "jobs": 15}),
    "gangs are cut off": (
        RACK,
        {"racks": 2, "jobs": 12, "told_error": 0.3, "max_steps": 30, "on_illegal": "noop", "load": 1.5},
    ),
    "told, flat": (
        RACK,
        {"jobs": 30, "told_error": 0.3, "split": "dev", "load": 2.0, "observation": "flat"},
    ),
}
MODES = list(AutoresetMode)


def draw_actions(envs: Any, rng: np.random.Generator) -> np.ndarray:
    """Draw an action for each environment, one in twenty of them legal or not."""
    masks = envs.action_masks()
    legal = [int(rng.choice(np.flatnonzero(mask))) for mask in masks]
    any_action = rng.integers(masks.shape[1], size=len(masks))
    return np.where(rng.random(len(masks)) < 0.05, any_action, legal)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("case", CASES)
def test_it_is_the_same_as_single_environments(case: str, mode: AutoresetMode) -> None:
    (single, vector), parameters = CASES[case]
    mine = vector(3, autoreset_mode=mode, **parameters)
    other = SyncVectorEnv([lambda: single(**parameters)] * 3, autoreset_mode=mode)
    assert_same_steps(mine, other, mode, draw_actions, ends=9)


@pytest.mark.parametrize("case", ["nodes", "requests"])
def test_what_a_step_returned_stays_as_it_is(case: str) -> None:
    (_, vector), parameters = CASES[case]
    envs = vector(2, **parameters)
    observations, infos = envs.reset(seed=1)
    before = {name: part.copy() for name, part in observations.items()}, infos["action_mask"].copy()
    for _ in range(3):
        envs.step(envs.sample_actions())
    assert_same((observations, infos["action_mask"]), before, "after three steps")


@pytest.mark.parametrize("name", ["Placement-small-v0", "Sharing-small-v1", "Rack-told-v0"])
def test_gymnasium_makes_it_and_sampled_actions_are_legal(name: str) -> None:
    envs = gymnasium.make_vec(f"ClusterGym/{name}", num_envs=4, on_illegal="raise")
    envs.reset(seed=3)
    for _ in range(50):
        _, _, _, _, infos = envs.step(envs.sample_actions())
        assert not infos["illegal"].any()


def test_the_assignment_of_a_placed_job_has_all_its_nodes() -> None:
    envs = PlacementVectorEnv(2, setting="i", autoreset_mode="Disabled")
    envs.reset(seed=2)
    over = np.zeros(2, dtype=bool)
    while not over.any():
        assert envs.get_assignment(0).counts.sum() == 0
        over = envs.step(envs.sample_actions())[2]
    assert envs.get_assignment(int(np.argmax(over))).counts.sum() == 12


def test_what_is_wrong_is_said_in_one_line() -> None:
    envs = PlacementVectorEnv(2, setting="i", on_illegal="raise")
    with pytest.raises(InputError, match=r"options.free: unknown option 'free'"):
        envs.reset(seed=1, options={"free": [1, 2, 3]})
    envs.reset(seed=1, options={"free_nodes": [0, 6, 6]})
    with pytest.raises(InputError, match=r"0 is illegal now in environment 1"):
        envs.step([1, 0])
    with pytest.raises(InputError, match=r"3 is not an action of environment 0.*from 0 to 2"):
        envs.step([3, 1])
    with pytest.raises(InputError, match=r"draw nothing"):
        PlacementVectorEnv(2, render_mode="ansi")
    with pytest.raises(InputError, match=r"no state of each environment.*'sync'"):
        envs.get_attr("state")
