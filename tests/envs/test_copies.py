"""Copied or pickled in the middle of an episode, an environment goes on alike; spaces sample by its masks."""

import copy
import functools
import multiprocessing
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.vector import AsyncVectorEnv
from same_values import assert_same

from clustergym.scenario.environments import SCHEDULING, TIERS

SMALL = [f"ClusterGym/{family}-16-v1" for family in SCHEDULING]
SMALL += [f"ClusterGym/{family}-16-v0" for family in TIERS if family != "Knobs"]
"""Not Knobs, whose episodes are one step."""
ALL = [*SMALL, "ClusterGym/Placement-small-v0", "ClusterGym/Rack-576-v0"]


def sampled(env, mask):
    """Draw a legal action; of a vector of numbers every one is."""
    space = env.action_space
    return space.sample() if isinstance(space, Box) else space.sample(mask=mask)


def begun(name, steps=15, **parameters):
    """Return an environment in the middle of an episode."""
    if "Placement" not in name:
        parameters = {"jobs": 30 if "Rack" in name else 8, **parameters}
    env = gymnasium.make(name, **parameters)
    _, info = env.reset(seed=2)
    env.action_space.seed(2)
    for _ in range(steps):
        info = env.step(sampled(env, info["action_mask"]))[-1]
    return env


def rest_of(env):
    """Play to the end of the episode, and one step of the next; return all that an agent sees."""
    seen, over = [], False
    mask = env.unwrapped.action_masks()
    while not over:
        action = sampled(env, mask)
        observation, reward, terminated, truncated, info = env.step(action)
        mask, over = info["action_mask"], terminated or truncated
        parts = {name: part.tolist() for name, part in observation.items()}
        seen.append((action.tolist(), parts, reward, info.get("now_s"), info.get("digest")))
    observation, info = env.reset()
    return seen, {name: part.tolist() for name, part in observation.items()}, info["action_mask"].tolist()


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("way", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_in_the_middle_goes_on_as_the_first(name, way):
    env = begun(name, 7)
    other = way(env)
    first = rest_of(env)
    assert len(first[0]) > 3
    assert rest_of(other) == first


def test_a_copy_keeps_its_baseline_its_illegal_actions_and_its_seeds():
    env = begun("ClusterGym/Elastic-16-v1", 0, baseline="srtf", on_illegal="ignore")
    env.reset(seed=5, options={"trace_seed": 9, "run_seed": 3})
    illegal = int(np.flatnonzero(env.unwrapped.action_masks() == 0)[0])
    for _ in range(400):
        env.step(illegal)
    other = pickle.loads(pickle.dumps(env))
    # The thousandth illegal action in a row ends an episode: 400 were before the copy.
    infos = [[each.step(illegal)[2] for _ in range(600)] for each in (env, other)]
    assert infos[0] == infos[1] == [False] * 599 + [True]


def test_a_copy_of_a_copy_and_of_what_is_over():
    env = begun("ClusterGym/Elastic-16-v1", 5)
    again = copy.deepcopy(copy.deepcopy(env))
    first = rest_of(env)
    assert rest_of(again) == first
    done = begun("ClusterGym/Priority-16-v0", 0, jobs=2)
    while not done.step(np.zeros(done.action_space.shape))[2]:
        pass
    other = copy.deepcopy(done)
    assert other.unwrapped.view is None
    assert other.unwrapped.log.digest == done.unwrapped.log.digest


def test_a_copy_and_the_first_do_not_disturb_each_other():
    env = begun("ClusterGym/Elastic-16-v1", 5)
    expected = rest_of(copy.deepcopy(env))
    for _ in range(3):
        rest_of(copy.deepcopy(env))
    assert rest_of(env) == expected


def test_wrapped_in_a_spawned_worker():
    env = begun("ClusterGym/Elastic-16-v1", 6, max_episode_steps=40)  # counted by a wrapper
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there = pool.apply(rest_of, (env,))
    assert there == rest_of(env)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_a_vector_of_environments_that_were_begun(context):
    name = "ClusterGym/Elastic-16-v1"
    env = begun(name, 6)
    vector = AsyncVectorEnv([functools.partial(copy.copy, env)] * 2, context=context)
    try:
        observation, info = vector.reset(seed=[4, 5])
        for at, seed in enumerate((4, 5)):
            single, single_info = env.reset(seed=seed)
            assert_same({key: part[at] for key, part in observation.items()}, single, "reset")
            assert info["action_mask"][at].tolist() == single_info["action_mask"].tolist()
            assert info["action_mask"].dtype == np.int8
        vector.action_space.seed(0)
        actions = vector.action_space.sample(mask=tuple(info["action_mask"]))
        assert not vector.step(actions)[-1]["illegal"].any()
    finally:
        vector.close()


@pytest.mark.parametrize("name", [name for name in ALL if "Auction" not in name and "Priority" not in name])
def test_a_mask_is_what_spaces_sample_by(name):
    env = begun(name, 3)
    mask = env.unwrapped.action_masks()
    assert mask.dtype == np.int8
    assert set(mask.tolist()) <= {0, 1}
    drawn = {int(env.action_space.sample(mask=mask)) for _ in range(200)}
    assert drawn <= set(np.flatnonzero(mask).tolist())
    # Another number than 1 for a legal action, or a mask that is shared, would show here.
    mask[:] = 0
    assert env.unwrapped.action_masks().any()
