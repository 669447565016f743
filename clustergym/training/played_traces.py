"""Episodes of agents on given traces of the environments, and what is known on the same traces."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats

HEURISTICS = ("hesrpt", "srtf elastic=true")
ENDS = 1_000_000
"""Steps after which an episode is given up."""


class Played(NamedTuple):
    """Results of episodes that were played on several traces: arrays with an element for each trace.

    Attributes
    ----------
    jct_s, steps, moves : ndarray of float, shape (traces,)
        Mean JCT; steps; steps at which the clock moved.
    returns : ndarray of float, shape (traces,)
        Sums of rewards.
    complete : ndarray of bool, shape (traces,)
        All jobs have left: the episode neither stalled nor was cut short.
    """

    jct_s: Floats
    steps: Floats
    moves: Floats
    returns: Floats
    complete: Bools


def play_traces(envs: Any, seeds: list[int], decide: Callable[[Any, Any, Bools], Any]) -> Played:
    """Play one episode on each trace with the actions of `decide`; return the episodes' results.

    Parameters
    ----------
    envs : SchedulingVectorEnv
        With as many environments as seeds, and `autoreset_mode="Disabled"`.
    seeds : list of int
        Of the traces.
    decide : callable
        (observations, masks, which episodes are over) -> actions. Those of episodes that are over count for
        nothing: the environment plays its trace again beside the others.
    """
    observations, _ = envs.reset(seed=0, options={"trace_seed": seeds})
    jct_s, steps, moves, returns = np.zeros((4, len(seeds)))
    complete, over = np.zeros((2, len(seeds)), dtype=np.bool_)
    found = Played(jct_s, steps, moves, returns, complete)
    for _ in range(ENDS):
        before = envs.batch.reached
        actions = decide(observations, envs.action_masks(), over)
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        found.steps[:] += ~over
        found.returns[:] += np.where(over, 0.0, rewards)
        found.moves[:] += ~over & (envs.batch.reached > before)
        ended = terminated | truncated
        for row in np.flatnonzero(ended & ~over).tolist():
            found.jct_s[row] = infos["metrics"]["jct_mean_censored"][row]
            found.complete[row] = terminated[row] and not infos["stalled"][row]
        over |= ended
        if over.all():
            break
        if ended.any():
            observations, _ = envs.reset(options={"reset_mask": ended, "trace_seed": seeds})
    return found


def simulate_policy(envs: Any, seeds: list[int], policy: str) -> Floats:
    """Simulate a policy on each seed's trace, deciding at the times set by `envs`; return mean JCTs (s)."""
    import clustergym
    from clustergym.scenario.registry import parse_policy

    episodes, rng = envs.single.episodes, random_streams.FIRST_EPISODE.generator(0)
    chosen = parse_policy(f"{policy} round_s={envs.single.parameters.round_s}", "policy")
    scenarios = (episodes.choose({"trace_seed": seed}, rng) for seed in seeds)
    return np.array([clustergym.simulate(one, chosen).metrics["jct_mean"] for one in scenarios])


@cache
def best_known_weights() -> Floats:
    """Return the best known agent's weights, one for each feature by which it scores giving GPUs to a job.

    They are those of the shipped checkpoint `elastic`.
    """
    from clustergym.agents import auction_features
    from clustergym.agents.auction_checkpoints import load

    weights = np.zeros(auction_features.COUNT)
    known = load("elastic").weights[: auction_features.COUNT]
    weights[: len(known)] = known
    return weights


def play_best_known(parameters: Any, seeds: list[int]) -> Floats:
    """Play the best known agent with the jobs, loads and cluster of `parameters`; return mean JCTs (s)."""
    return play_weights(parameters, seeds, np.tile(best_known_weights(), (len(seeds), 1)))


def play_weights(parameters: Any, seeds: list[int], weights: Floats) -> Floats:
    """Play an auction by weights, shape (seeds, features), on each seed's trace; return mean JCTs (s)."""
    same = {name: getattr(parameters, name) for name in ("jobs", "loads", "cluster")}
    envs: Any = gymnasium.make_vec(
        "ClusterGym/Auction-v1",
        num_envs=len(seeds),
        observation="flat",
        autoreset_mode="Disabled",
        actions="weights",
        features="summary",
        rows=1,
        **same,
    )
    found = play_traces(envs, seeds, lambda *_: weights)
    envs.close()
    return found.jct_s
