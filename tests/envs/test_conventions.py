"""Gymnasium's conventions beyond its checker: signatures, types, metadata, and names of today's vectors.

Warnings are errors here, deprecations among them. `.ci/nightly` runs this file with Gymnasium's newest
release, and the scheduled workflow with its development branch as well.
"""

import inspect
import json

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.env_match import check_environments_match
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from clustergym.scenario.environments import ENVIRONMENTS

SIMPY = {"jobs": 6, "engine": "simpy"}
SCHEDULING = {**SIMPY, "rows": 6}
SMALL = {
    **{
        f"ClusterGym/{name}-16-v1": SCHEDULING
        for name in ("Elastic", "Fair", "Deadline", "Auction", "Tenants")
    },
    **{f"ClusterGym/{name}-16-v0": SCHEDULING for name in ("Burst", "Priority")},
    "ClusterGym/Knobs-16-v0": SIMPY,
    "ClusterGym/Placement-small-v0": {},
    "ClusterGym/Sharing-small-v1": {},
    "ClusterGym/Rack-576-v0": {},
    "ClusterGym/Capacity-16-v0": {},
}
DEPRECATED = ("seed", "reward_range", "_seed", "_reset", "_step", "_render")
"""Methods and attributes of environments that released versions of Gymnasium warn of or have removed."""
PLACING = ("Placement", "Sharing", "Rack", "Capacity")
VECTORS = [name for name in SMALL if not any(family in name for family in PLACING)]


def test_every_family_is_here():
    def family(name):
        return name.removeprefix("ClusterGym/").rpartition("-v")[0].split("-")[0]

    assert {family(name) for name in SMALL} == {family(row.id) for row in ENVIRONMENTS}


def legal(env, info):
    """Return a legal action."""
    if isinstance(env.action_space, gymnasium.spaces.Box):
        return env.action_space.sample()
    return env.action_space.sample(mask=np.asarray(info["action_mask"], dtype=np.int8))


@pytest.mark.filterwarnings("ignore:.*For Box action spaces")
@pytest.mark.parametrize("name", SMALL)
def test_signatures_types_and_metadata(name):
    env = gymnasium.make(name, **SMALL[name])
    core = env.unwrapped
    for word in ("seed", "options"):
        assert inspect.signature(core.reset).parameters[word].kind is inspect.Parameter.KEYWORD_ONLY
    assert not {"return_info"} & inspect.signature(core.reset).parameters.keys()
    assert [word for word in DEPRECATED if hasattr(type(core), word)] == []
    assert core.metadata["render_fps"] > 0
    assert "render.modes" not in core.metadata
    assert set(core.metadata["render_modes"]) <= {"ansi", "rgb_array"}
    assert core.render_mode is None
    assert json.loads(env.spec.to_json())["id"] == name
    check_env(core, skip_render_check=True)
    observation, info = env.reset(seed=3)
    assert core.np_random_seed == 3
    env.action_space.seed(3)
    for _ in range(20):
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, info = env.step(legal(env, info))
        assert type(reward) is float
        assert type(terminated) is type(truncated) is bool
        assert isinstance(info, dict)
        if terminated or truncated:
            observation, info = env.reset()
    env.close()
    env.close()


@pytest.mark.parametrize("name", SMALL)
def test_two_copies_match_step_by_step(name):
    made = [gymnasium.make(name, **SMALL[name]).unwrapped for _ in range(2)]
    check_environments_match(*made, num_steps=20, seed=5, info_comparison="equivalence")


@pytest.mark.compiled
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", VECTORS)
def test_vectors_say_how_they_begin_again_and_where_an_episode_ended(name, mode):
    envs = gymnasium.make_vec(name, 2, autoreset_mode=mode, **SMALL[name] | {"engine": "auto"})
    assert envs.metadata["autoreset_mode"] is mode
    assert envs.num_envs == 2
    assert envs.observation_space == batch_space(envs.single_observation_space, 2)
    assert envs.action_space == batch_space(envs.single_action_space, 2)
    _, info = envs.reset(seed=[1, 2])
    rng, ended = np.random.default_rng(0), np.zeros(2, dtype=bool)
    for _ in range(2000):
        if isinstance(envs.single_action_space, gymnasium.spaces.Box):
            actions = np.zeros(envs.action_space.shape, dtype=np.float32)
        else:
            actions = np.array([rng.choice(np.flatnonzero(row)) for row in info["action_mask"]])
        _, rewards, terminated, truncated, info = envs.step(actions)
        assert rewards.shape == terminated.shape == truncated.shape == (2,)
        ended = terminated | truncated
        if ended.any():
            break
    assert ended.any()
    assert ("final_obs" in info) == (mode is AutoresetMode.SAME_STEP)
    if "final_obs" in info:
        assert info["_final_obs"].tolist() == ended.tolist()
    envs.close()
