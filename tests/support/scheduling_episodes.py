"""Plays scheduling environments in tests."""

import numpy as np
from gymnasium.spaces import Box


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
