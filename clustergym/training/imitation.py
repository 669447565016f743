"""Set-valued imitation of a policy's edits, in the states that the imitator reaches.

A policy decides on all allotments; the environment takes the edits of single jobs in any order. So at each
step every edit that leads towards the decision is acceptable, and the loss is minus the log of their summed
probability. States after the first round are the imitator's own (DAgger, Ross et al., AISTATS 2011).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Ints
from clustergym.common.errors import InputError
from clustergym.envs.actions import EditActions
from clustergym.envs.driver import targets
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.scenario.policy import Decision, InformationError, Policy, View
from clustergym.training.split_env import SplitEnv

Chooser = Callable[[Any, Bools, Bools], int]
"""(observation, legal, acceptable) -> action."""


@dataclass
class Demonstrations:
    """Steps: observations, legal and acceptable actions; masks are kept as bits."""

    actions: int
    observations: list[npt.NDArray[np.float16]] = field(default_factory=list)
    legal: list[npt.NDArray[np.uint8]] = field(default_factory=list)
    acceptable: list[npt.NDArray[np.uint8]] = field(default_factory=list)

    def add(self, observation: Any, legal: Bools, acceptable: Bools) -> None:
        """Keep a step."""
        self.observations.append(np.asarray(observation, dtype=np.float16))
        self.legal.append(np.packbits(legal))
        self.acceptable.append(np.packbits(acceptable))

    def __len__(self) -> int:
        return len(self.observations)

    def batch(self, at: Ints) -> tuple[npt.NDArray[np.float32], Bools, Bools]:
        """Return observations, legal and acceptable actions of some steps, shape (len(at), …)."""
        observations = np.stack([self.observations[i] for i in at]).astype(np.float32)
        bits = [np.stack([rows[i] for i in at]) for rows in (self.legal, self.acceptable)]
        legal, acceptable = (
            np.unpackbits(mask, axis=1, count=self.actions).astype(np.bool_) for mask in bits
        )
        return observations, legal, acceptable


def acceptable_actions(actions: EditActions, kind: Ints, gpus: Ints) -> Bools:
    """Return which legal actions lead towards the wanted allotments, shape (actions,).

    They are the assignments and preemptions that give a job what it is to have; where none is legal though
    some job still waits for GPUs that another must give up, the preemptions of those others; and where no
    action helps, stopping alone.

    Parameters
    ----------
    actions : EditActions
    kind, gpus : ndarray of int, shape (n,)
        What the jobs of the View are to have; type -1: nothing.
    """
    mask, found = actions.mask(), np.zeros(actions.number, dtype=np.bool_)
    wrong = (actions.target_type != kind) | (actions.target_gpus != gpus)
    rows = np.flatnonzero(wrong[actions.shown])
    for row in rows:
        at = actions.shown[row]
        action = actions.index(int(row), int(kind[at]), int(gpus[at]))
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
    """Play a trace by `choose`, and keep the actions that the expert accepts at every step.

    Raises
    ------
    InputError
        If the environment shows less than the expert needs.
    """
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
            wanted = targets(seen, decision_of(expert, seen))
        legal = core.actions.mask()
        acceptable = acceptable_actions(core.actions, *wanted) & legal
        if acceptable.any():
            kept.add(observation, legal, acceptable)
        action = choose(observation, legal, acceptable if acceptable.any() else legal)
        observation = env.step(np.int64(action))[0]


def decision_of(expert: Policy, view: View) -> Decision:
    """Return an expert's decision, or raise an InputError about information that it lacks."""
    try:
        return expert.schedule(view)
    except InformationError as error:
        raise InputError(
            str(error), field="agent.expert", remedy="give env.information=, or another expert"
        ) from error


def as_expert(rng: np.random.Generator) -> Chooser:
    """Return a chooser that draws one of the expert's edits."""
    return lambda observation, legal, acceptable: int(rng.choice(np.flatnonzero(acceptable)))


def as_learner(policy: Any) -> Chooser:
    """Return a chooser that takes the greedy action of a network."""
    return lambda observation, legal, acceptable: int(policy.greedy_masked(observation, legal))


def set_loss(logits: Any, acceptable: Any) -> Any:
    """Return the mean of -log(sum of the probabilities of the acceptable actions).

    Parameters
    ----------
    logits : torch.Tensor, shape (batch, actions)
        Minus infinity where illegal.
    acceptable : torch.Tensor of bool, shape (batch, actions)
        At least one in each row, and all legal.
    """
    import torch

    among = logits.masked_fill(~acceptable, -torch.inf)
    return (torch.logsumexp(logits, dim=1) - torch.logsumexp(among, dim=1)).mean()


def fit(
    policy: Any, kept: Demonstrations, epochs: int, batch_size: int, optimizer: Any, rng: np.random.Generator
) -> tuple[float, float]:
    """Train the actor on all demonstrations.

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
