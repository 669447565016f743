"""`agent=group_pg`: the auction's weights by a policy gradient; rollouts of a trace are compared.

Fits an auction's weights to the decisions of a policy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.agents import auction_features as features
from clustergym.agents.auction import make_bids, write_move_features
from clustergym.agents.auction_checkpoints import load
from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats
from clustergym.common.errors import InputError, require
from clustergym.common.parameter_types import AtLeastTwo, Factor, NonNegativeInt, PositiveFloat, PositiveInt
from clustergym.common.processes import Processes
from clustergym.envs.episodes import trace_seed
from clustergym.envs.registration import make_env
from clustergym.envs.vector.groups import groups, relative_to_group
from clustergym.scenario.policy import Decision, InformationClass, Policy, Setting, View
from clustergym.scenario.registry import make_placer, parse_policy
from clustergym.sim.drive import simulate
from clustergym.trace.trace import Trace
from clustergym.training.agents import Progress, TrainingOutcome
from clustergym.training.auction_evolution import start
from clustergym.training.split_env import EnvironmentAgent, make_compiled_envs, not_compiled
from clustergym.training.training_state import TrainingHistory

MOMENTS = (0.9, 0.999)
"""Adam's (Kingma and Ba, 2015)."""
FROM = ("start", "zeros")


@dataclass
class GroupPolicyGradient(EnvironmentAgent):
    """Likelihood-ratio gradient of a Gaussian policy over the weights of an auction (Williams, 1992).

    At decision points the policy draws the weights of a move's features from a normal distribution, whose
    mean is learned; the auction with these weights decides. One function scores the moves of every job on
    every type, so that the policy is equivariant in both. The return of an episode is compared with those of
    the same trace, as in group-relative policy optimisation (Shao et al., 2024), and there is no critic. The
    result is the mean with the best validation, an auction as of `agent=auction_es`.

    Parameters
    ----------
    env : mapping
        An `Auction` environment; `actions="weights"` is set.
    updates : int
    groups, size : int
        Traces of an update, and rollouts of each.
    hold : int
        Decision points that drawn weights are held for; 0: the whole episode, as an evolution strategy does.
    sigma : float
        Standard deviation of the weights.
    learning_rate : float
        Adam's.
    validate_every, validation : int
        Updates between validations; traces of the dev split.
    traces : int
        Traces of the training split that updates draw from.
    initial : str
        `start` (shortest remaining work first), `zeros`, or a checkpoint.
    expert : str or None
        Policy whose decisions are imitated first, in place of `initial`.
    expert_traces : int
    split : str
    """

    env: Mapping[str, Any] = field(default_factory=lambda: {"id": "ClusterGym/Auction-16-v1"})
    updates: PositiveInt = 100
    groups: PositiveInt = 8
    size: AtLeastTwo = 8
    hold: NonNegativeInt = 0
    sigma: PositiveFloat = 0.2
    learning_rate: Factor = 0.03
    validate_every: PositiveInt = 10
    validation: PositiveInt = 24
    traces: PositiveInt = 128
    initial: str = "start"
    expert: str | None = None
    expert_traces: PositiveInt = 12
    split: str = "train"

    name = "group_pg"

    def train(self, seed: int, processes: Processes, state: Path, progress: Progress) -> TrainingOutcome:
        """Train from the beginning, or from where a killed run left its state."""
        require(self.groups <= self.traces, "agent.groups", self.groups, f"give at most {self.traces}")
        envs, judges = self._envs(self.groups * self.size), self._envs(self.validation)
        kept = _State.read(state, {"agent": self.name, "seed": seed, **asdict(self)})
        progress(0, self.updates, {})
        if not kept.rows:
            kept.mean = self._first().tolist()
            kept.moments = [[0.0] * features.COUNT, [0.0] * features.COUNT]
            kept.rows.append(
                {"update": 0, "steps": 0, "seconds": 0.0, "dev_jct_h": self._validated(judges, kept)}
            )
            kept.best, kept.best_mean = kept.rows[0]["dev_jct_h"], kept.mean
        for row in kept.rows:
            progress(int(row["update"]), self.updates, row)
        while (number := int(kept.rows[-1]["update"]) + 1) <= self.updates:
            began = time.process_time()
            steps, found = self._update(
                envs, kept, random_streams.GROUP_GRADIENT.generator(seed, number), number
            )
            last = kept.rows[-1]
            seconds = last["seconds"] + time.process_time() - began
            kept.rows.append(
                {"update": number, "steps": last["steps"] + steps, "seconds": seconds, "jct_h": found}
            )
            if number % self.validate_every == 0 or number == self.updates:
                value = kept.rows[-1]["dev_jct_h"] = self._validated(judges, kept)
                if value < kept.best:
                    kept.best, kept.best_mean = value, kept.mean
                kept.write(state)
            progress(number, self.updates, kept.rows[-1])
        envs.close()
        judges.close()
        known = InformationClass(envs.single.parameters.information)
        # Seconds differ between runs, and a checkpoint of the same seed is to be the same.
        rows = [{key: value for key, value in row.items() if key != "seconds"} for row in kept.rows]
        return TrainingOutcome(np.array(kept.best_mean), known, {"updates": rows})

    def _envs(self, number: int) -> Any:
        given = {"features": "summary", "rows": 1, **self.env, "actions": "weights"}
        envs = make_compiled_envs(given, number)
        if envs is None:
            raise not_compiled(self.env, "choose env=auction-16 or auction-64; for Elastic, agent=job_credit")
        return envs

    def _first(self) -> Floats:
        """Return the mean that the search begins with."""
        if self.expert is not None:
            seeds = [trace_seed(self.split, at) for at in range(self.expert_traces)]
            return imitate_expert(self.expert, self.env, seeds)
        if self.initial in FROM:
            return start() if self.initial == "start" else np.zeros(features.COUNT)
        weights = load(self.initial).weights
        require(
            weights.size == features.COUNT,
            "agent.initial",
            self.initial,
            "name one that has no hidden units and measures no jobs",
        )
        return weights

    def _update(self, envs: Any, kept: _State, rng: np.random.Generator, number: int) -> tuple[int, float]:
        """Play a group on each trace and step the mean; return the steps and the mean JCT in hours."""
        drawn = rng.choice(self.traces, self.groups, replace=False)
        seeds = [trace_seed(self.split, int(at)) for at in drawn]
        mean = np.array(kept.mean)
        returns, noise, steps = play(envs, mean, groups(seeds, self.size), self.sigma, self.hold, rng)
        gradient = (relative_to_group(returns, self.size)[:, None] * noise).mean(axis=0)
        kept.mean = (mean + self._adam(kept, gradient, number)).tolist()
        return steps, float(np.exp(np.log(-returns).mean()))

    def _adam(self, kept: _State, gradient: Floats, number: int) -> Floats:
        first, second = (np.array(moment) for moment in kept.moments)
        first = MOMENTS[0] * first + (1.0 - MOMENTS[0]) * gradient
        second = MOMENTS[1] * second + (1.0 - MOMENTS[1]) * gradient**2
        kept.moments = [first.tolist(), second.tolist()]
        unbiased = first / (1.0 - MOMENTS[0] ** number), second / (1.0 - MOMENTS[1] ** number)
        step: Floats = self.learning_rate * unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
        return step

    def _validated(self, judges: Any, kept: _State) -> float:
        """Return the geometric mean over dev traces of the mean JCT in hours without noise."""
        seeds = [trace_seed("dev", at) for at in range(self.validation)]
        rng = random_streams.VALIDATION.generator(0)
        returns, _, _ = play(judges, np.array(kept.mean), groups(seeds, 1), 0.0, 0, rng)
        return float(np.exp(np.log(-returns).mean()))


def play(
    envs: Any,
    mean: Floats,
    options: Mapping[str, Any],
    sigma: float,
    hold: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, int]:
    """Play an episode of each environment with weights drawn about a mean, one for all or one for each.

    Returns
    -------
    returns : ndarray of float, shape (E,)
    noise : ndarray of float, shape (E, features.COUNT)
        Gradient of an episode's log-likelihood by the mean in units of its standard deviation, each entry of
        variance 1.
    steps : int
        Decisions in all.
    """
    envs.reset(options=dict(options))
    number = envs.num_envs
    returns, noise, draws = np.zeros(number), np.zeros((number, mean.shape[-1])), np.zeros(number)
    goes_on, drawn = np.ones(number, dtype=np.bool_), np.zeros(noise.shape)
    at = steps = 0
    while goes_on.any():
        if at == 0 or (hold and at % hold == 0):
            drawn = np.asarray(rng.standard_normal(noise.shape))
            noise[goes_on] += drawn[goes_on]
            draws[goes_on] += 1
        # In NextStep mode the action of an environment that is over counts for nothing.
        _, rewards, terminated, truncated, _ = envs.step(mean + sigma * drawn)
        returns[goes_on] += rewards[goes_on]
        steps, at = steps + int(goes_on.sum()), at + 1
        goes_on &= ~(terminated | truncated)
    return returns, noise / np.sqrt(draws)[:, None], steps


@dataclass
class _State(TrainingHistory):
    schema = "clustergym.group-gradient/1"
    mean: list[float] = field(default_factory=list)
    moments: Sequence[list[float]] = ()
    rows: list[dict[str, float]] = field(default_factory=list)
    best: float = float("inf")
    best_mean: list[float] = field(default_factory=list)

    def check(self) -> None:
        numbers = [self.mean, *self.moments, self.best_mean, [self.best]]
        finite = all(np.isfinite(np.array(part, dtype=np.float64)).all() for part in numbers)
        if not finite or [int(row["update"]) for row in self.rows] != list(range(len(self.rows))):
            raise ValueError("values that no training has written")


RIDGE, NEWTON_STEPS = 1.0, 20


class RecordingPolicy(Policy):
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
        """The expert's information class."""
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
        write_move_features(int(view.available.sum()), counts, make_bids(view, view.iteration_time_s()), out)
        gpu_type, gpus = np.full(n, -1), np.zeros(n)
        at = np.searchsorted(view.job, decision.job)
        gpu_type[at], gpus[at] = decision.gpu_type, decision.gpus
        there = out[..., :2].any(axis=-1)
        same_type = np.arange(view.feasible.shape[1])[None, :, None] == gpu_type[:, None, None]
        made = same_type & (counts[None, None, :] <= gpus[:, None, None])
        # A job grows on the type that it has: doublings elsewhere are no choice of the policy's.
        counted = there & (same_type | (out[..., features.NAMES.index("start")] > 0))
        self.moves.append(out[counted].astype(np.float64))
        self.made.append(made[counted])
        return decision


def imitate_expert(expert: str, env: Mapping[str, Any], trace_seeds: Sequence[int]) -> Floats:
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
    watched, made = (
        RecordingPolicy(parse_policy(expert, "agent.expert")),
        make_env({**env, "observation": "flat"}),
    )
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
