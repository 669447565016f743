"""Agents on edits of allotments that may imitate a policy first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import PositiveFloat, PositiveInt
from clustergym.envs.actions import EditActions
from clustergym.envs.scheduling_costs import jobs_in_system
from clustergym.scenario.policy_text import policy_of
from clustergym.training.agents import Progress
from clustergym.training.imitation import Demonstrations, as_expert, as_learner, demonstrate, fit
from clustergym.training.network_agent import NetworkAgent, greedy_figures
from clustergym.training.split_env import SplitEnv
from clustergym.training.training_state import History, Tensors, arrays, load_arrays

EXPERT = "learned checkpoint=elastic round_s=300"


@dataclass
class ImitatingAgent(NetworkAgent):
    """The common part of the agents with the equivariant network, which may begin as an imitator.

    The actor imitates `expert` in `imitation_rounds` rounds of `imitation_traces` traces.

    Parameters
    ----------
    expert : str or None
        Policy with parameters, as `hesrpt round_s=300`; None: no imitation.
    imitation_rounds, imitation_traces, imitation_epochs, imitation_batch : int
        The first round is the expert's own play, the others the imitator's.
    imitation_rate : float
    temperature : float
        What the imitator's logits are divided by.
    """

    expert: str | None = EXPERT
    imitation_rounds: PositiveInt = 6
    imitation_traces: PositiveInt = 12
    imitation_epochs: PositiveInt = 6
    imitation_batch: PositiveInt = 128
    imitation_rate: PositiveFloat = 1e-3
    temperature: PositiveFloat = 1.0

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

    def prepare(
        self, model: Any, validate: SplitEnv, seed: int, history: History, progress: Progress
    ) -> Tensors | None:
        """Imitate the expert; return the imitator that is best on validation."""
        if self.expert is None:
            return None
        import torch

        env = self.env_of(self.split, self.traces)
        expert, rng = policy_of(self.expert, "agent.expert"), random_streams.IMITATION.generator(seed)
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
            demonstrate(env, expert, index, as_expert(random_streams.EXPERT.generator(index)), ignored)
            hours.append(jobs_in_system(env.unwrapped.outcomes))  # type: ignore[attr-defined]
        return {"dev_jct_h": float(np.mean(hours))}
