"""Updates of a masked network from groups of rollouts. Importing this imports PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from clustergym.common import random_streams
from clustergym.envs.episodes import trace_seed
from clustergym.training.group_rollouts import Rollouts, advantages, play

LARGEST_NORM = 0.5
"""That gradients are clipped to, as in Stable-Baselines3."""


class GroupUpdates:
    """A masked network, and the updates that train it.

    Parameters
    ----------
    policy : EquivariantPolicy
    envs : SchedulingVectorEnv
    agent : MaskedGroupGradient
        Its parameters.

    Attributes
    ----------
    num_timesteps : int
        Steps of the environments so far.
    """

    def __init__(self, policy: Any, envs: Any, agent: Any) -> None:
        self.policy, self.envs, self.agent = policy, envs, agent
        self.num_timesteps = 0
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Seed the draws of traces, actions and batches."""
        self._rng, self._generator = (
            random_streams.GROUP_UPDATES.generator(seed),
            torch.Generator().manual_seed(seed),
        )

    def learn(self, steps: int) -> dict[str, float]:
        """Update until that many steps more are played; return the mean of the updates' figures."""
        rows, until = [], self.num_timesteps + steps
        while self.num_timesteps < until:
            rows.append(self._update())
        means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
        return {"updates": len(rows), **means}

    def _update(self) -> dict[str, float]:
        agent = self.agent
        drawn = self._rng.choice(agent.traces, agent.groups, replace=False)
        seeds = [trace_seed(agent.split, int(at)) for at in drawn]
        rollouts = play(self.envs, self.policy, seeds, agent.size, self._generator)
        self.num_timesteps += len(rollouts.actions)
        credits = advantages(rollouts, agent.size, agent.baseline, agent.scale)
        figures = self._step(rollouts, torch.from_numpy(credits).float())
        return {"train_return": float(rollouts.returns.mean()), **figures}

    def _step(self, rollouts: Rollouts, credits: torch.Tensor) -> dict[str, float]:
        """Step the actor over the batches of some rollouts; return the figures of the last batch."""
        figures: dict[str, float] = {}
        for _ in range(self.agent.n_epochs):
            order = torch.from_numpy(self._rng.permutation(len(credits)))
            for batch in torch.split(order, self.agent.batch_size):
                logits = self.policy.logits(rollouts.observations[batch].float(), rollouts.masks[batch])
                logs = torch.log_softmax(logits, dim=1)
                entropy = -(logs.exp() * logs.masked_fill(~rollouts.masks[batch], 0.0)).sum(dim=1).mean()
                log_ratio = logs.gather(1, rollouts.actions[batch, None])[:, 0]
                log_ratio = log_ratio - rollouts.log_probabilities[batch]
                gained = compute_clipped_gain(log_ratio, credits[batch], self.agent.clip_range)
                moved = float((log_ratio.exp() - 1 - log_ratio).detach().mean())
                figures = {"approx_kl": moved, "entropy": float(entropy.detach())}
                if moved > 1.5 * self.agent.target_kl:
                    return figures
                self._descend(-gained - self.agent.ent_coef * entropy)
        return figures

    def _descend(self, loss: torch.Tensor) -> None:
        self.policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.actor_parameters(), LARGEST_NORM)
        self.policy.optimizer.step()


def compute_clipped_gain(log_ratio: torch.Tensor, credits: torch.Tensor, clip_range: float) -> torch.Tensor:
    """Return the mean of min(ratio x credit, clipped ratio x credit) (Schulman et al., 2017, equation 7).

    Parameters
    ----------
    log_ratio, credits : torch.Tensor, shape (steps,)
        Log of an action's probability now over that at which it was drawn; what it is credited with.
    clip_range : float
    """
    ratio = log_ratio.exp()
    clipped = ratio.clamp(1.0 - clip_range, 1.0 + clip_range)
    return torch.minimum(ratio * credits, clipped * credits).mean()
