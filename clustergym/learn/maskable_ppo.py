"""`agent=maskable_ppo`: masked PPO on edits, after imitation of a policy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clustergym.envs.actions import EditActions
from clustergym.envs.policy_text import policy_of
from clustergym.envs.scheduling_costs import jobs_in_system
from clustergym.inputs.errors import InputError
from clustergym.inputs.parameter_types import (
    AtLeastTwo,
    Factor,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from clustergym.learn.agents import Progress
from clustergym.learn.baselines import Ppo
from clustergym.learn.imitation import Demonstrations, as_expert, as_learner, demonstrate, fit
from clustergym.learn.split_env import SplitEnv
from clustergym.learn.stable_baselines import STREAM, greedy_figures
from clustergym.learn.training_state import History, Tensors, arrays, load_arrays

EXPERT = "learned checkpoint=elastic round_s=300"


@dataclass
class MaskablePpo(Ppo):
    """Masked PPO (Huang and Ontanon, 2022) with a permutation-equivariant network.

    First the actor imitates `expert` in `imitation_rounds` rounds of `imitation_traces` traces. Then the
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

    env: Mapping[str, Any] = field(
        default_factory=lambda: {
            "id": "ClusterGym/Elastic-16-v0",
            "information": "data_parallel",
            "baseline": EXPERT,
        }
    )
    steps: NonNegativeInt = 120_000
    validate_every: PositiveInt = 20_000
    validation: PositiveInt = 12
    learning_rate: Factor = 1e-4
    batch_size: PositiveInt = 500
    expert: str | None = EXPERT
    imitation_rounds: PositiveInt = 6
    imitation_traces: PositiveInt = 12
    imitation_epochs: PositiveInt = 6
    imitation_batch: PositiveInt = 128
    imitation_rate: PositiveFloat = 1e-3
    temperature: PositiveFloat = 1.0
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
            policy_of(self.expert, "agent.expert")

    def check_env(self, env: SplitEnv) -> None:
        """Refuse environments without rows of jobs and masks of edits."""
        if not isinstance(getattr(env.unwrapped, "actions", None), EditActions):
            raise InputError(
                "has no rows of jobs with masked edits",
                field="env",
                remedy="give env=elastic-16, or agent=ppo",
            )

    def model(self, envs: Any, seed: int) -> Any:
        """Return sb3-contrib's MaskablePPO with the equivariant network."""
        from sb3_contrib import MaskablePPO

        from clustergym.learn.equivariant import EquivariantPolicy, shapes_of

        shapes = shapes_of(self.env_of("dev", 1))
        given = {"policy_kwargs": {"shapes": shapes, "hidden": self.hidden}, **self.algorithm()}
        return MaskablePPO(EquivariantPolicy, envs, seed=seed, target_kl=self.target_kl, **given)

    def prepare(
        self, model: Any, validate: SplitEnv, seed: int, history: History, progress: Progress
    ) -> Tensors | None:
        """Imitate the expert; return the imitator that is best on validation."""
        if self.expert is None:
            return None
        import torch

        env = self.env_of(self.split, self.traces)
        expert, rng = policy_of(self.expert, "agent.expert"), np.random.default_rng([seed, STREAM, 2**20])
        kept = Demonstrations(int(env.action_space.n))  # type: ignore[attr-defined]
        optimizer = torch.optim.Adam(model.policy.actor_parameters(), lr=self.imitation_rate)
        rows: list[dict[str, float]] = []
        history.stage["expert"] = self._expert_figures(validate)
        best: Tensors = {}
        for number in range(self.imitation_rounds):
            began = time.monotonic()
            choose = as_expert(rng) if number == 0 else as_learner(model.policy)
            for place in range(self.imitation_traces):
                index = (number * self.imitation_traces + place) % self.traces
                demonstrate(env, expert, index, choose, kept)
            loss, agreement = fit(
                model.policy, kept, self.imitation_epochs, self.imitation_batch, optimizer, rng
            )
            row = {"examples": len(kept), "imitation_loss": loss, "agreement": agreement}
            row |= greedy_figures(model.policy, validate, self.validation)
            rows.append(row)
            if row["dev_return"] > history.best:
                history.best, best = row["dev_return"], arrays(model.policy)
            shown = {f"imitation/{name}": value for name, value in row.items()}
            took = {"imitation/seconds": time.monotonic() - began}
            progress(number + 1, self.imitation_rounds, {**shown, **took})
        history.stage["imitation"] = rows
        history.stage["imitator"] = history.best
        load_arrays(model.policy, best)
        model.policy.sharpen(self.temperature)
        return arrays(model.policy)

    def _expert_figures(self, env: SplitEnv) -> dict[str, float]:
        """Return mean JCT in hours of the expert on the dev traces."""
        assert self.expert is not None
        expert, hours = policy_of(self.expert, "agent.expert"), []
        ignored = Demonstrations(int(env.action_space.n))  # type: ignore[attr-defined]
        for index in range(self.validation):
            demonstrate(env, expert, index, as_expert(np.random.default_rng(index)), ignored)
            hours.append(jobs_in_system(env.unwrapped.outcomes))  # type: ignore[attr-defined]
        return {"dev_jct_h": float(np.mean(hours))}

    def segment(self, model: Any, number: int) -> None:
        """Let only the critic learn in the first segments after imitation."""
        moves = self.expert is None or number > self.critic_segments
        model.learning_rate = self.learning_rate if moves else self.critic_rate
        model._setup_lr_schedule()
        for parameter in model.policy.actor_parameters():
            parameter.requires_grad_(moves)
