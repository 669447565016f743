"""`agent=masked_group_pg`: policy gradient on edits; rollouts of a trace are compared, there is no critic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from clustergym.common.errors import InputError, require
from clustergym.common.parameter_types import (
    AtLeastTwo,
    Factor,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
)
from clustergym.training.agents import Progress
from clustergym.training.imitating_agent import EXPERT, ImitatingAgent
from clustergym.training.network_agent import greedy_figures
from clustergym.training.split_env import SplitEnv, make_compiled_envs, not_compiled
from clustergym.training.training_state import History, Tensors, arrays, load_arrays


@dataclass
class MaskedGroupGradient(ImitatingAgent):
    """Clipped likelihood-ratio gradient of a permutation-equivariant network on masked edits.

    An update plays `groups` traces `size` times each and steps the actor; a segment ends with the first
    update that reaches `validate_every` steps.

    Parameters
    ----------
    initial : str or None
        A checkpoint of a network to begin with, in place of imitation.
    groups, size : int
        Traces of an update, and rollouts of each.
    baseline, scale : str
        See `clustergym.training.group_rollouts.advantages`.
    n_epochs : int
        Passes over the steps of an update. 1, and a batch that holds all of them: the plain gradient.
    clip_range, ent_coef : float
        Of the likelihood ratio; weight of the entropy.
    target_kl : float
        An update ends where the policy has moved by 1.5 times this (KL divergence).
    """

    env: Mapping[str, Any] = field(
        default_factory=lambda: {
            "id": "ClusterGym/Elastic-16-v1",
            "information": "data_parallel",
            "mask_stop_while_idle": False,
        }
    )
    steps: NonNegativeInt = 240_000
    validate_every: PositiveInt = 30_000
    validation: PositiveInt = 12
    learning_rate: Factor = 3e-4
    batch_size: PositiveInt = 500
    expert: str | None = EXPERT
    initial: str | None = None
    groups: PositiveInt = 8
    size: AtLeastTwo = 4
    baseline: Literal["group", "group_by_time", "none"] = "group_by_time"
    scale: Literal["group", "batch"] = "batch"
    n_epochs: PositiveInt = 4
    clip_range: PositiveFloat = 0.1
    ent_coef: NonNegativeFloat = 0.0
    target_kl: PositiveFloat = 0.01

    name = "masked_group_pg"

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.groups <= self.traces, "agent.groups", self.groups, f"give at most {self.traces}")
        both = self.expert is not None and self.initial is not None
        require(not both, "agent.initial", self.initial, "give agent.expert=null as well")

    @contextmanager
    def envs(self, processes: int) -> Iterator[Any]:
        """Make as many training environments as an update has episodes."""
        made = make_compiled_envs(self.env, self.groups * self.size)
        if made is None:
            raise not_compiled(self.env, "choose env=elastic-16, or agent=maskable_ppo")
        try:
            yield made
        finally:
            made.close()

    def model(self, envs: Any, seed: int) -> Any:
        """Return the network with its optimiser."""
        import torch

        from clustergym.training.equivariant import EquivariantPolicy, find_shapes
        from clustergym.training.group_updates import GroupUpdates

        torch.manual_seed(seed)
        spaces = (envs.single_observation_space, envs.single_action_space, lambda _: self.learning_rate)
        policy = EquivariantPolicy(*spaces, shapes=find_shapes(envs.single), hidden=self.hidden)
        return GroupUpdates(policy, envs, self)

    def begin(self, model: Any, seed: int) -> None:
        """Seed the random streams of a segment."""
        model.seed(seed)

    def learn(self, model: Any) -> dict[str, float]:
        """Make the updates of a segment; return the figures of their mean."""
        found: dict[str, float] = model.learn(self.validate_every)
        return found

    def prepare(
        self, model: Any, validate: SplitEnv, seed: int, history: History, progress: Progress
    ) -> Tensors | None:
        """Imitate the expert, or begin with a checkpoint or a random network."""
        if self.expert is not None:
            return super().prepare(model, validate, seed, history, progress)
        if self.initial is not None:
            self._load(model.policy, self.initial)
        history.stage["start"] = greedy_figures(model.policy, validate, self.validation)
        history.best = history.stage["start"]["dev_return"]
        return None

    def _load(self, policy: Any, name: str) -> None:
        """Load the network of a checkpoint."""
        from clustergym.training.network_checkpoints import load

        try:
            load_arrays(policy, arrays(load(name).policy))
        except RuntimeError as error:
            raise InputError(
                f"{name} has another network", field="agent.initial", remedy="give its agent.hidden and env"
            ) from error
