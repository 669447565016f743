"""Plays and checks environments in tests."""

import warnings
from contextlib import contextmanager

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import check_env
from same_values import assert_same


def drawn(env, mask, rng):
    """Draw a legal action."""
    if isinstance(env.action_space, Box):
        return rng.uniform(-1, 1, env.action_space.shape).astype(np.float32)
    return rng.choice(np.flatnonzero(mask))


def legal_episode(env, seed, most=None, **options):
    """Play legal actions at random; return the observations, rewards, actions and the last info."""
    rng = np.random.default_rng(seed)
    observation, info = env.reset(seed=seed, options=options)
    seen, rewards, actions, over = [observation], [], [], False
    while not over and (most is None or len(rewards) < most):
        action = drawn(env, info["action_mask"], rng)
        observation, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        seen.append(observation)
        rewards.append(reward)
        actions.append(action.tolist())
    return seen, rewards, actions, info


def digest_of(env, seed):
    """Play in a worker process."""
    return legal_episode(env, seed)[3]["digest"]


def check_without_a_warning(name, beyond=None, **parameters):
    """Let Gymnasium and Stable-Baselines3 check an environment; they may warn of nothing but `beyond`."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if beyond is not None:
            warnings.filterwarnings("ignore", beyond)
        check_env(gymnasium.make(name, **parameters).unwrapped)
        checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="SB3 is not installed")
        checker.check_env(gymnasium.make(name, **parameters))


def check_pictures(name, text):
    """Let five steps change an environment's picture, but not its size, and lead to some text."""
    pictures, texts = (gymnasium.make(name, render_mode=mode) for mode in ("rgb_array", "ansi"))
    for env in (pictures, texts):
        env.reset(seed=4)
    before = pictures.render()
    for _ in range(5):
        action = int(np.flatnonzero(pictures.unwrapped.action_masks())[0])
        pictures.step(action)
        texts.step(action)
        assert pictures.render().shape == before.shape
    assert before.dtype == np.uint8
    assert (pictures.render() != before).any()
    assert text in texts.render()


@contextmanager
def begun_vector(name, mode, **parameters):
    """Begin two environments in a vector, each as it begins alone; yield the vector and what it told."""
    envs = gymnasium.make_vec(name, num_envs=2, vectorization_mode=mode, **parameters)
    try:
        observation, info = envs.reset(seed=3)
        for at, seed in enumerate((3, 4)):
            alone, told = gymnasium.make(name, **parameters).reset(seed=seed)
            assert_same({key: part[at] for key, part in observation.items()}, alone, name)
            assert info["action_mask"][at].tolist() == told["action_mask"].tolist()
        yield envs, info
    finally:
        envs.close()
