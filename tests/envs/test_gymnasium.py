"""Every placement environment keeps to Gymnasium's interface, alone, in vectors and under wrappers."""

import json
import multiprocessing

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.wrappers import FlattenObservation, RecordEpisodeStatistics, TimeLimit
from scheduling_episodes import begun_vector, check_pictures, check_without_a_warning, legal_episode

from clustergym.envs.placement.environment import PlacementEnv
from clustergym.scenario.environments import ENVIRONMENTS

IDS = [row.id for row in ENVIRONMENTS if "/Placement" in row.id]
SMALL = "ClusterGym/Placement-small-v0"


def placed_score(env, seed):
    """Play in a worker process."""
    return legal_episode(env, seed)[3]["score"]


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("observation", ["dict", "flat"])
def test_it_is_checked_without_a_warning(name, observation):
    check_without_a_warning(name, observation=observation)


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors(name, mode):
    with begun_vector(name, mode, alpha=None) as (envs, info):
        _, rewards, terminated, truncated, _ = envs.step(info["action_mask"].argmax(axis=1))
        assert rewards.tolist() == [-1.0, -1.0]
        assert not (terminated | truncated).any()


def test_a_vector_begins_again_by_itself():
    envs = gymnasium.make_vec(SMALL, num_envs=3, vectorization_mode="sync", on_illegal="raise")
    _, info = envs.reset(seed=0)
    ended = 0
    for _ in range(60):
        _, _, terminated, _, info = envs.step(info["action_mask"].argmax(axis=1))
        ended += int(terminated.sum())
    # Twelve steps and one to begin again: four whole episodes of each in 60 steps.
    assert ended == 3 * 4


def test_wrappers():
    env = RecordEpisodeStatistics(FlattenObservation(gymnasium.make(SMALL)))
    seen, rewards, _, info = legal_episode(env, 1)
    plain, plain_rewards, *_ = legal_episode(gymnasium.make(SMALL), 1)
    flat, *_ = legal_episode(gymnasium.make(SMALL, observation="flat"), 1)
    assert rewards == plain_rewards
    assert info["episode"]["r"] == pytest.approx(-info["score"])
    assert info["episode"]["l"] == 12
    for wrapped, parts, own in zip(seen, plain, flat, strict=True):
        assert wrapped.tolist() == np.concatenate(list(parts.values())).tolist() == own.tolist()


def test_a_time_limit_truncates_and_masks_reach_through():
    env = TimeLimit(gymnasium.make(SMALL), 5)
    _, rewards, _, info = legal_episode(env, 1)
    assert (len(rewards), info["placed"]) == (5, False)
    assert env.get_wrapper_attr("action_masks")().tolist() == info["action_mask"].tolist()


@pytest.mark.parametrize("name", IDS)
def test_a_spec_makes_the_same_environment_again(name):
    env = gymnasium.make(name, alpha=0.3, reward={"pp_spread": 2.0}, unit="dp")
    text = env.spec.to_json()
    assert json.loads(text)["kwargs"]["alpha"] == 0.3
    again = gymnasium.make(EnvSpec.from_json(text))
    first, second = legal_episode(env, 7), legal_episode(again, 7)
    assert first[1:3] == second[1:3]
    assert first[3]["score"] == second[3]["score"]
    assert again.unwrapped.parameters == env.unwrapped.parameters


@pytest.mark.processes
def test_an_environment_crosses_to_a_spawned_worker():
    fresh = [gymnasium.make(name) for name in IDS]
    begun = gymnasium.make(SMALL)
    begun.reset(seed=9)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        scores = pool.starmap(placed_score, [(env, 11) for env in [*fresh, begun]])
    assert scores == [placed_score(env, 11) for env in [*fresh, begun]]


@pytest.mark.parametrize("name", IDS)
def test_pictures(name):
    check_pictures(name, "DP spread 1, PP spread 1, score 1.00 (alpha 0.50)")


def test_text_by_hand():
    env = PlacementEnv("ansi", setting="i")
    env.reset(options={"free_nodes": [6, 3, 5]})
    for action in (0, 1, 1):
        env.step(action)
    assert env.render().splitlines() == [
        "96 GPUs (DP 12 x TP 4 x PP 2): 6 PP groups of 2 nodes",
        "minipod  nodes  others'  free  job  group",
        "      0      6        0     5    1      0",
        "      1      6        3     1    2      1",
        "      2      6        1     5    0      0",
        "group 1: 1 of 2 nodes placed",
        "DP spread 2, PP spread 2, score 2.00 (alpha 0.50)",
    ]
    env.reset(options={"free_nodes": [6, 3, 0]})
    assert "does not fit: 3 nodes are lacking" in env.render()
    assert PlacementEnv().render() is None
