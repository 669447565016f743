"""Every scheduling environment keeps to Gymnasium's interface, alone, in vectors and under wrappers."""

import json
import multiprocessing
import re

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box
from gymnasium.wrappers import FlattenObservation, RecordEpisodeStatistics, TimeLimit
from scheduling_episodes import begun_vector, check_without_a_warning, digest_of, legal_episode

from clustergym.scenario.environments import ENVIRONMENTS, SCHEDULING, TIERS

IDS = [row.id for row in ENVIRONMENTS if not re.search("/(Placement|Sharing|Rack|Capacity)", row.id)]
SMALL = [
    *(f"ClusterGym/{family}-16-v1" for family in SCHEDULING),
    "ClusterGym/Tenants-16-v1",
    *(f"ClusterGym/{family}-16-v0" for family in TIERS if family != "Burst"),
]
FEW = {"jobs": 12, "traces": 1}
"""Few jobs, and one trace, which is built once for all environments of a size."""
WIDER = ".*symmetric and normalized"
"""What checkers say of numbers beyond -1 and 1: those of Knobs are what is added to weights."""
CHECKED = [*((name, "dict") for name in IDS), *((name, "flat") for name in SMALL)]


def test_every_family_in_every_size():
    sizes = ("", "-16", "-64", "-384", "-1280")
    every = {f"ClusterGym/{family}{size}-v1" for family in (*SCHEDULING, "Tenants") for size in sizes}
    every |= {f"ClusterGym/{family}-{size}-v0" for family, (_, sizes) in TIERS.items() for size in sizes}
    assert set(IDS) == every
    for name in IDS:
        size = next((word for word in name.split("-") if word.isdigit()), "64")
        assert gymnasium.make(name).unwrapped.features.total == int(size)


@pytest.mark.parametrize(("name", "observation"), CHECKED)
def test_it_is_checked_without_a_warning(name, observation):
    beyond = WIDER if "Knobs" in name else None
    check_without_a_warning(name, beyond, observation=observation, **FEW)


@pytest.mark.parametrize("name", SMALL)
def test_an_episode_to_the_end(name):
    env = gymnasium.make(name, **FEW)
    seen, rewards, actions, info = legal_episode(env, 3)
    for observation in seen:
        assert env.observation_space.contains(observation)
    assert info["metrics"]["jobs_finished"] + info["metrics"]["jobs_dropped"] == 12
    again = legal_episode(env, 3)
    assert again[1:3] == (rewards, actions)
    assert again[3]["digest"] == info["digest"]


@pytest.mark.parametrize("name", [name for name in SMALL if "Knobs" not in name])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors(name, mode):
    with begun_vector(name, mode, **FEW) as (envs, info):
        for _ in range(3):
            actions = info["action_mask"].shape[1] - 1 - info["action_mask"][:, ::-1].argmax(axis=1)
            if isinstance(envs.single_action_space, Box):
                actions = np.zeros(envs.action_space.shape, dtype=np.float32)
            _, rewards, terminated, truncated, info = envs.step(actions)
        assert np.isfinite(rewards).all()
        assert not (terminated | truncated).any()


@pytest.mark.parametrize("name", SMALL)
def test_wrappers(name):
    env = RecordEpisodeStatistics(FlattenObservation(gymnasium.make(name, **FEW)))
    seen, rewards, _, info = legal_episode(env, 1)
    flat, plain, _, _ = legal_episode(gymnasium.make(name, observation="flat", **FEW), 1)
    assert rewards == plain
    assert info["episode"]["r"] == pytest.approx(sum(rewards))
    assert all((one == other).all() for one, other in zip(seen, flat, strict=True))


def test_a_time_limit_truncates_and_masks_reach_through():
    env = TimeLimit(gymnasium.make(SMALL[0], **FEW), 5)
    _, rewards, _, info = legal_episode(env, 1)
    assert len(rewards) == 5
    assert env.get_wrapper_attr("action_masks")().tolist() == info["action_mask"].tolist()


@pytest.mark.parametrize("name", SMALL)
def test_a_spec_makes_the_same_environment_again(name):
    env = gymnasium.make(name, rows=20, reward={"slowdown": 2.0}, loads=[0.7, 1.3], baseline="fcfs", **FEW)
    text = env.spec.to_json()
    assert json.loads(text)["kwargs"]["rows"] == 20
    again = gymnasium.make(EnvSpec.from_json(text))
    first, second = legal_episode(env, 7, most=60), legal_episode(again, 7, most=60)
    assert first[1:3] == second[1:3]
    assert again.unwrapped.parameters == env.unwrapped.parameters


def test_an_unstepped_environment_crosses_to_a_spawned_worker():
    fresh = [gymnasium.make(name, **FEW) for name in SMALL]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        digests = pool.starmap(digest_of, [(env, 11) for env in fresh])
    assert digests == [digest_of(env, 11) for env in fresh]


@pytest.mark.parametrize("name", [*SMALL, "ClusterGym/Elastic-1280-v1"])
def test_pictures(name):
    pictures, texts = (gymnasium.make(name, render_mode=mode, **FEW) for mode in ("rgb_array", "ansi"))
    for env in (pictures, texts):
        env.reset(seed=4)
    before = pictures.render()
    legal_episode(pictures, 4, most=60)
    legal_episode(texts, 4, most=60)
    assert before.dtype == np.uint8
    assert pictures.render().shape == before.shape
    assert "of 12 have left" in texts.render()
    assert gymnasium.make(name, **FEW).unwrapped.render() is None
