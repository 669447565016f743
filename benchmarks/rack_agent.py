"""An agent of `ClusterGym/Rack-576-v0`: a linear score for each action, whose weights CMA-ES finds.

It reads the observation alone, treats all racks alike, and plays the legal action with the highest score.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from clustergym.common.arrays import Floats
from clustergym.training.evolution import start_search

NAME = "ClusterGym/Rack-576-v0"
TRAIN, DEV = 1_000_000, 2_000_000
"""Seeds of episodes from which the agent learns, and of those by which a run is followed."""
LARGEST = 5
"""Index into the observation's `queue` of the trays that gangs with segments of 16 trays wait for."""

START = np.zeros(23)
"""Weights of best fit with moves into room that one move makes; from here the search begins."""
START[[0, 5, 14, 15, 19]] = -4.0, -6.0, -7.0, -4.0, 6.0


def score_actions(observation: Floats, weights: Floats) -> Floats:
    """Return the scores of all actions of a flat observation of R = 8 racks, shape (2 R + 1,)."""
    free, gang, leaves, moves, own, queue = np.split(observation, [8, 11, 19, 20, 28])
    segment, segments, waited = gang[0], 4 * gang[1], gang[2]
    rest, empty, small = free - segment, free > 0.999, segment < 0.5
    fits, large = rest > -1e-6, queue[LARGEST]
    placing = [rest, np.abs(rest) < 1e-6, empty, empty * small, own > 0]
    # Whether a small segment would have to go in a rack that is still whole.
    breaks = float(fits.any() and empty[fits].all() and small)
    waiting = [
        1.0,
        segment,
        waited,
        queue[0],
        large,
        breaks,
        breaks * large,
        segments - 1,
        (segment > 0.8) * waited,
    ]
    makes_room = free + leaves >= segment - 1e-6
    moving = [1.0, leaves, free, segment * segments, moves[0], makes_room, waited, large, segments > 1.5]
    place = sum(weight * part for weight, part in zip(weights[:5], placing, strict=True))
    wait = sum(weight * part for weight, part in zip(weights[5:14], waiting, strict=True))
    move = sum(weight * part for weight, part in zip(weights[14:], moving, strict=True))
    return np.concatenate([place, move, [wait]])


def play(env: gymnasium.Env[Any, Any], weights: Floats, seed: int) -> float:
    """Play an episode; return its cost, minus the return."""
    observation, info = env.reset(seed=seed)
    cost, over = 0.0, False
    while not over:
        scores = score_actions(observation.astype(np.float64), weights)
        scores[info["action_mask"] == 0] = -np.inf
        observation, reward, terminated, truncated, info = env.step(int(scores.argmax()))
        cost, over = cost - float(reward), terminated or truncated
    return cost


def evolve(seed: int, generations: int, episodes: int, tell: Callable[[str], None]) -> Floats:
    """Return weights by CMA-ES: 12 candidates a generation, all on the same fresh episodes."""
    env = gymnasium.make(NAME, observation="flat").unwrapped
    search = start_search(START, 0.7, 12, seed, diagonal=False)
    for generation in range(generations):
        first = TRAIN + 100_000 * seed + generation * episodes
        candidates = search.ask()
        episodes_of = range(first, first + episodes)
        costs = [float(np.mean([play(env, weights, at) for at in episodes_of])) for weights in candidates]
        search.tell(candidates, costs)
        if generation % 5 == 4:
            dev = np.mean([play(env, search.mean, DEV + at) for at in range(20)])
            tell(f"seed {seed}, generation {generation + 1}: {dev:.3f} h on 20 dev episodes")
    return np.asarray(search.mean)
