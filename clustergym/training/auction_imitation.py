"""Fits an auction's weights to the decisions of a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clustergym.agents import auction_features as features
from clustergym.agents.auction import bids_of, described_moves
from clustergym.common.arrays import Bools, Floats
from clustergym.common.errors import InputError
from clustergym.envs.registration import make_env
from clustergym.scenario.policy import Decision, InformationClass, Policy, Setting, View
from clustergym.scenario.policy_text import policy_of
from clustergym.scenario.registry import make_placer
from clustergym.sim.drive import simulate
from clustergym.trace.trace import Trace

RIDGE, NEWTON_STEPS = 1.0, 20


class Watched(Policy):
    """A policy whose decisions are recorded as moves of an auction: those made, and those that were not.

    Attributes
    ----------
    moves : list of ndarray of float, shape (m, features.COUNT)
    made : list of ndarray of bool, shape (m,)
    """

    name = "watched"

    def __init__(self, expert: Policy) -> None:
        self.expert, self.round_s = expert, expert.round_s
        self.moves: list[Floats] = []
        self.made: list[Bools] = []

    @property
    def information_class(self) -> InformationClass:
        """That of the expert."""
        return self.expert.information_class

    def check(self, trace: Trace, setting: Setting) -> None:
        """Check what the expert needs."""
        self.expert.check(trace, setting)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Prepare the expert for a run."""
        self.expert.reset(setting, rng)

    def schedule(self, view: View) -> Decision:
        """Return the expert's decision, and record it."""
        decision = self.expert.schedule(view)
        counts, n = view.setting.counts.astype(np.int64), len(view)
        if not n:
            return decision
        out = np.zeros((*view.feasible.shape, features.COUNT), dtype=np.float32)
        described_moves(int(view.available.sum()), counts, bids_of(view, view.iteration_time_s()), out)
        kind, gpus = np.full(n, -1), np.zeros(n)
        at = np.searchsorted(view.job, decision.job)
        kind[at], gpus[at] = decision.gpu_type, decision.gpus
        there = out[..., :2].any(axis=-1)
        same_type = np.arange(view.feasible.shape[1])[None, :, None] == kind[:, None, None]
        made = same_type & (counts[None, None, :] <= gpus[:, None, None])
        # A job grows on the type that it has: doublings elsewhere are no choice of the policy's.
        counted = there & (same_type | (out[..., features.NAMES.index("start")] > 0))
        self.moves.append(out[counted].astype(np.float64))
        self.made.append(made[counted])
        return decision


def imitated(expert: str, env: Mapping[str, Any], trace_seeds: Sequence[int]) -> Floats:
    """Return weights by logistic regression: a move that the expert's decision includes is to score above 0.

    Parameters
    ----------
    expert : str
        A policy with its parameters, as `hesrpt round_s=300`.
    env : mapping
        Of an `Auction` environment.
    trace_seeds : sequence of int
        Traces that the expert plays.
    """
    watched, made = Watched(policy_of(expert, "agent.expert")), make_env({**env, "observation": "flat"})
    known = made.unwrapped.parameters.information_class  # type: ignore[attr-defined]
    if watched.information_class != known:
        message = f"knows {watched.information_class.value}, and the environment {known.value}"
        raise InputError(
            message, field="agent.expert", remedy=f"give env.information={watched.information_class}"
        )
    for seed in trace_seeds:
        made.reset(options={"trace_seed": seed})
        scenario = made.unwrapped.scenario  # type: ignore[attr-defined]
        simulate(scenario, watched, make_placer({"name": "buddy"}))
    made.close()
    return logistic(np.concatenate(watched.moves), np.concatenate(watched.made))


def logistic(values: Floats, labels: Bools) -> Floats:
    """Return the weights of a logistic regression with a small ridge, by Newton's method."""
    weights = np.zeros(values.shape[1])
    for _ in range(NEWTON_STEPS):
        chance = 1.0 / (1.0 + np.exp(-np.clip(values @ weights, -30.0, 30.0)))
        gradient = values.T @ (chance - labels) + RIDGE * weights
        curvature = (values * (chance * (1.0 - chance))[:, None]).T @ values + RIDGE * np.eye(len(weights))
        weights -= np.linalg.solve(curvature, gradient)
    return weights
