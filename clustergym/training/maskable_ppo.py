"""`agent=maskable_ppo`: masked PPO on edits, after imitation of a policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clustergym.common.parameter_types import AtLeastTwo, Factor, NonNegativeInt, PositiveFloat, PositiveInt
from clustergym.training.baselines import Ppo
from clustergym.training.imitating_agent import EXPERT, ImitatingAgent


@dataclass
class MaskablePpo(ImitatingAgent, Ppo):
    """Masked PPO (Huang and Ontanon, 2022) with a permutation-equivariant network.

    After imitation the critic alone learns for `critic_segments` segments, and after that both. `steps=0` is
    the imitator alone.

    Parameters
    ----------
    critic_segments : int
    critic_rate : float
        Learning rate in these segments.
    target_kl : float
        An update of the policy stops where it has moved by this (KL divergence).
    """

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
    batch_size: PositiveInt = 500
    critic_segments: NonNegativeInt = 2
    critic_rate: PositiveFloat = 1e-4
    n_steps: AtLeastTwo = 2500
    n_epochs: PositiveInt = 4
    clip_range: float = 0.1
    ent_coef: float = 0.0
    target_kl: PositiveFloat = 0.01

    name = "maskable_ppo"

    def model(self, envs: Any, seed: int) -> Any:
        """Return sb3-contrib's MaskablePPO with the equivariant network."""
        from sb3_contrib import MaskablePPO

        from clustergym.training.equivariant import EquivariantPolicy, shapes_of

        shapes = shapes_of(self.env_of("dev", 1))
        given = {"policy_kwargs": {"shapes": shapes, "hidden": self.hidden}, **self.algorithm()}
        return MaskablePPO(EquivariantPolicy, envs, seed=seed, target_kl=self.target_kl, **given)

    def segment(self, model: Any, number: int) -> None:
        """Let only the critic learn in the first segments after imitation."""
        moves = self.expert is None or number > self.critic_segments
        model.learning_rate = self.learning_rate if moves else self.critic_rate
        model._setup_lr_schedule()
        for parameter in model.policy.actor_parameters():
            parameter.requires_grad_(moves)
