"""`agent=maskable_ppo`: masked PPO on edits of allotments, after set-valued imitation of a policy.

A policy decides on all allotments; the environment takes the edits of single jobs in any order. So at each
step every edit that leads towards the decision is acceptable, and the loss is minus the log of their summed
probability. States after the first round are the imitator's own (DAgger, Ross et al., AISTATS 2011).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import (
    AtLeastTwo,
    Factor,
    NonNegativeInt,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
)
from clustergym.envs.actions import EditActions
from clustergym.envs.driver import targets
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_costs import jobs_in_system
from clustergym.scenario.policy import Decision, InformationError, Policy, View
from clustergym.scenario.registry import parse_policy
from clustergym.training.agents import Progress
from clustergym.training.network_agent import greedy_figures
from clustergym.training.split_env import SplitEnv
from clustergym.training.stable_baselines import Ppo
from clustergym.training.training_state import History, Tensors, arrays, load_arrays

EXPERT = "learned checkpoint=elastic round_s=300"


@dataclass
class MaskablePpo(Ppo):
    """PPO with masks of legal actions (Huang and Ontanon, 2022), and a network that treats all jobs alike.

    The actor first imitates `expert` in `imitation_rounds` rounds of `imitation_traces` traces. Then the
    critic alone learns for `critic_segments` segments, and after that both. `steps=0` is the imitator alone.

    Parameters
    ----------
    expert : str or None
        Policy with parameters, as `hesrpt round_s=300`; None: no imitation.
    imitation_rounds, imitation_traces, imitation_epochs, imitation_batch : int
        The first round is the expert's own play, the others the imitator's.
    imitation_rate : float
    temperature : float
        What the imitator's logits are divided by.
    critic_segments : int
    critic_rate : float
        Learning rate in these segments.
    target_kl : float
        An update of the policy stops where it has moved by this (KL divergence).
    """

    expert: str | None = EXPERT
    imitation_rounds: PositiveInt = 6
    imitation_traces: PositiveInt = 12
    imitation_epochs: PositiveInt = 6
    imitation_batch: PositiveInt = 128
    imitation_rate: PositiveFloat = 1e-3
    temperature: PositiveFloat = 1.0
    env: Mapping[str, Any] = field(
        default_factory=lambda: {
            "id": "ClusterGym/Elastic-16-v1",
            "information": "data_parallel",
            "mask_stop_while_idle": False,
            "baseline": EXPERT,
        }
    )
    steps: NonNegativeInt = 120_000
    validate_every: PositiveInt = 20_000
    validation: PositiveInt = 12
    learning_rate: Factor = 1e-4
    gamma: PositiveFraction = 1.0
    batch_size: PositiveInt = 500
    critic_segments: NonNegativeInt = 2
    critic_rate: PositiveFloat = 1e-4
    n_steps: AtLeastTwo = 2500
    n_epochs: PositiveInt = 4
    clip_range: float = 0.1
    ent_coef: float = 0.0
    target_kl: PositiveFloat = 0.01

    name = "maskable_ppo"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.expert is not None:
            parse_policy(self.expert, "agent.expert")

    def check_env(self, env: SplitEnv) -> None:
        """Raise an InputError if the environment lacks rows of jobs and masks of legal actions."""
        if not isinstance(getattr(env.unwrapped, "actions", None), EditActions):
            raise InputError(
                "has no rows of jobs with masked edits",
                field="env",
                remedy="give env=elastic-16, or agent=ppo",
            )

    def prepare(
        self, model: Any, validate: SplitEnv, seed: int, history: History, progress: Progress
    ) -> Tensors | None:
        """Train in rounds to imitate an expert; return the best round's tensors, or None without expert."""
        if self.expert is None:
            return None
        expert = parse_policy(self.expert, "agent.expert")
        return imitate(self, expert, model, validate, seed, history, progress)

    def model(self, envs: Any, seed: int) -> Any:
        """Make sb3-contrib's MaskablePPO for the training environments."""
        from sb3_contrib import MaskablePPO

        from clustergym.training.equivariant import EquivariantPolicy, find_shapes

        shapes = find_shapes(self.make_env("dev", 1))
        given = {"policy_kwargs": {"shapes": shapes, "hidden": self.hidden}, **self.algorithm()}
        return MaskablePPO(EquivariantPolicy, envs, seed=seed, target_kl=self.target_kl, **given)

    def segment(self, model: Any, number: int) -> None:
        """Prepare for segment `number` of the training: in the first ones, only the critic learns."""
        # An untrained critic would first drive the actor away from what it has imitated.
        moves = self.expert is None or number > self.critic_segments
        model.learning_rate = self.learning_rate if moves else self.critic_rate
        model._setup_lr_schedule()
        for parameter in model.policy.actor_parameters():
            parameter.requires_grad_(moves)


Chooser = Callable[[Any, Bools, Bools], int]
"""(observation, legal, acceptable) -> action."""


@dataclass
class Demonstrations:
    """Recorded steps to imitate: observations, legal actions, and actions that the expert would accept."""

    actions: int
    observations: list[npt.NDArray[np.float16]] = field(default_factory=list)
    legal: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    acceptable: list[npt.NDArray[np.uint8]] = field(default_factory=list)

    def add(self, observation: Any, legal: Bools, acceptable: Bools) -> None:
        """Record a step: an observation, and the masks of legal and of acceptable actions."""
        self.observations.append(np.asarray(observation, dtype=np.float16))
        self.legal.append(np.packbits(legal))
        self.acceptable.append(np.packbits(acceptable))

    def __len__(self) -> int:
        return len(self.observations)

    def batch(self, at: Ints) -> tuple[npt.NDArray[np.float32], Bools, Bools]:
        """Return the observations and both masks of the recorded steps number `at`, shape (len(at), …)."""
        observations = np.stack([self.observations[i] for i in at]).astype(np.float32)
        bits = [np.stack([rows[i] for i in at]) for rows in (self.legal, self.acceptable)]
        legal, acceptable = (
            np.unpackbits(mask, axis=1, count=self.actions).astype(np.bool_) for mask in bits
        )
        return observations, legal, acceptable


def acceptable_actions(actions: EditActions, gpu_type: Ints, gpus: Ints) -> Bools:
    """Return a mask of the legal actions that bring jobs to the GPU types and counts that an expert wants.

    Shape (actions,). They are the assignments and preemptions that give a job what it is to have; where none
    is legal though some job still waits for GPUs that another must give up, the preemptions of those others;
    and where no action helps, stopping alone.

    Parameters
    ----------
    actions : EditActions
    gpu_type, gpus : ndarray of int, shape (n,)
        What the jobs of the View are to have; type -1: nothing.
    """
    mask, found = actions.mask(), np.zeros(actions.number, dtype=np.bool_)
    wrong = (actions.target_type != gpu_type) | (actions.target_gpus != gpus)
    rows = np.flatnonzero(wrong[actions.shown])
    for row in rows:
        at = actions.shown[row]
        action = actions.index(int(row), int(gpu_type[at]), int(gpus[at]))
        found[action] = mask[action]
    if not found.any():
        # A waiting job needs GPUs of a running job that shall move: preempt the running job first.
        moving = rows[(actions.target_gpus[actions.shown[rows]] > 0)]
        preempts = moving * actions.width + actions.options
        stuck = any(not actions.assigned[actions.shown[row]] for row in rows)
        found[preempts] = mask[preempts] & stuck
    if not found.any():
        found[actions.stop] = True
    return found


def demonstrate(env: SplitEnv, expert: Policy, index: int, choose: Chooser, kept: Demonstrations) -> None:
    """Play a trace with the actions of `choose`; record at each step all actions that the expert accepts."""
    core = env.unwrapped
    assert isinstance(core, SchedulingEnv)
    assert isinstance(core.actions, EditActions)
    observation, _ = env.reset(options={"index": index})
    expert.check(core.known_trace, core.setting)
    expert.reset(core.setting, random_streams.POLICY.generator(0))
    seen, wanted = None, (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    while core.view is not None:
        if core.view is not seen:
            seen = core.view
            wanted = targets(seen, ask_expert(expert, seen))
        legal = core.actions.mask()
        acceptable = acceptable_actions(core.actions, *wanted) & legal
        # None where stopping is all that is left, and illegal: there is nothing to learn.
        if acceptable.any():
            kept.add(observation, legal, acceptable)
        action = choose(observation, legal, acceptable if acceptable.any() else legal)
        observation = env.step(np.int64(action))[0]


def ask_expert(expert: Policy, view: View) -> Decision:
    """Return an expert policy's decision; raise an InputError if the environment shows it too little."""
    try:
        return expert.schedule(view)
    except InformationError as error:
        raise InputError(
            str(error), field="agent.expert", remedy="give env.information=, or another expert"
        ) from error


def as_expert(rng: np.random.Generator) -> Chooser:
    """Return a function that chooses at random one of the actions that the expert accepts."""
    return lambda observation, legal, acceptable: int(rng.choice(np.flatnonzero(acceptable)))


def as_learner(policy: Any) -> Chooser:
    """Return a function that chooses a network's most probable legal action."""
    return lambda observation, legal, acceptable: int(policy.greedy_masked(observation, legal))


def imitate(
    agent: MaskablePpo,
    expert: Policy,
    model: Any,
    validate: SplitEnv,
    seed: int,
    history: History,
    progress: Progress,
) -> Tensors:
    """Train the network in rounds to imitate an expert; return the best round's tensors."""
    import torch

    env = agent.make_env(agent.split, agent.traces)
    rng = random_streams.IMITATION.generator(seed)
    kept = Demonstrations(int(env.action_space.n))  # type: ignore[attr-defined]
    optimizer = torch.optim.Adam(model.policy.actor_parameters(), lr=agent.imitation_rate)
    rows: list[dict[str, float]] = []
    history.stage["expert"] = measure_expert(expert, validate, agent.validation)
    best: Tensors = {}
    for number in range(agent.imitation_rounds):
        began = time.monotonic()
        choose = as_expert(rng) if number == 0 else as_learner(model.policy)
        for place in range(agent.imitation_traces):
            # Other traces in every round, all of them kept: DAgger learns from the union.
            index = (number * agent.imitation_traces + place) % agent.traces
            demonstrate(env, expert, index, choose, kept)
        loss, agreement = fit(
            model.policy, kept, agent.imitation_epochs, agent.imitation_batch, optimizer, rng
        )
        row = {"examples": len(kept), "imitation_loss": loss, "agreement": agreement}
        row |= greedy_figures(model.policy, validate, agent.validation)
        rows.append(row)
        if row["dev_return"] > history.best:
            history.best, best = row["dev_return"], arrays(model.policy)
        shown = {f"imitation/{name}": value for name, value in row.items()}
        took = {"imitation/seconds": time.monotonic() - began}
        progress(number + 1, agent.imitation_rounds, {**shown, **took})
    # The best round, not the last: a later one has more states, but may do worse on dev traces.
    history.stage["imitation"] = rows
    history.stage["imitator"] = history.best
    load_arrays(model.policy, best)
    model.policy.sharpen(agent.temperature)
    return arrays(model.policy)


def measure_expert(expert: Policy, env: SplitEnv, traces: int) -> dict[str, float]:
    """Return an expert's mean JCT in hours on the first traces of an environment."""
    hours = []
    ignored = Demonstrations(int(env.action_space.n))  # type: ignore[attr-defined]
    for index in range(traces):
        demonstrate(env, expert, index, as_expert(random_streams.EXPERT.generator(index)), ignored)
        hours.append(jobs_in_system(env.unwrapped.outcomes))  # type: ignore[attr-defined]
    return {"dev_jct_h": float(np.mean(hours))}


def set_loss(logits: Any, acceptable: Any) -> Any:
    """Return the loss of imitation: the mean of -log(probability of any acceptable action).

    Parameters
    ----------
    logits : torch.Tensor, shape (batch, actions)
        Minus infinity where illegal.
    acceptable : torch.Tensor of bool, shape (batch, actions)
        At least one in each row, and all legal.
    """
    import torch

    # -log sum_{a acceptable} p(a) = logsumexp over all legal - logsumexp over the acceptable.
    among = logits.masked_fill(~acceptable, -torch.inf)
    return (torch.logsumexp(logits, dim=1) - torch.logsumexp(among, dim=1)).mean()


def fit(
    policy: Any, kept: Demonstrations, epochs: int, batch_size: int, optimizer: Any, rng: np.random.Generator
) -> tuple[float, float]:
    """Train the actor on all recorded steps; return the last epoch's loss and share of acceptable actions.

    Returns
    -------
    float
        Mean loss of the last epoch.
    float
        Share of its steps whose most probable action was acceptable.
    """
    import torch

    loss_sum, hits = 0.0, 0
    for epoch in range(epochs):
        order = rng.permutation(len(kept))
        for first in range(0, len(order), batch_size):
            at = order[first : first + batch_size]
            observations, legal, acceptable = (torch.from_numpy(part) for part in kept.batch(at))
            logits = policy.logits(observations, legal)
            loss = set_loss(logits, acceptable)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.actor_parameters(), 1.0)
            optimizer.step()
            if epoch == epochs - 1:
                loss_sum += float(loss.detach()) * len(at)
                hits += int(acceptable[torch.arange(len(at)), logits.argmax(1)].sum())
    return loss_sum / len(kept), hits / len(kept)
