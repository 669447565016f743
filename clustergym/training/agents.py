"""The interface of a trainable agent, and the table of agents."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy.typing as npt

from clustergym.common.arrays import Floats
from clustergym.common.errors import require_known
from clustergym.common.parameters import Parameters, build
from clustergym.common.processes import Processes
from clustergym.scenario.policy import InformationClass

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Called with (steps done, steps in all, figures) whenever the training has saved its state.

At the start it is called with what a killed run saved, in the same order, or with (0, steps in all, {})."""

AGENTS = {
    "auction_es": "clustergym.training.auction_evolution:AuctionEvolution",
    "job_credit": "clustergym.training.job_credit_agent:JobCreditAgent",
    "placer_es": "clustergym.training.placer_evolution:PlacerEvolution",
    "ppo": "clustergym.training.stable_baselines:Ppo",
    "sharing_es": "clustergym.training.sharing_evolution:SharingEvolution",
}
"""Agent name -> `module:class`, imported on first use."""


@dataclass(frozen=True, eq=False)
class TrainingOutcome:
    """The result of a training: weights, learning curves, and what the agent is told of iteration times.

    Attributes
    ----------
    weights : ndarray of float, or mapping of str to ndarray
        Of the auction, or the tensors of a network.
    information : InformationClass
    curves : mapping
        Plain numbers.
    described : mapping
        Of a network: what it depends on (`clustergym.training.network_checkpoints.describe_env`).
    """

    weights: Floats | Mapping[str, npt.NDArray[Any]]
    information: InformationClass
    curves: Mapping[str, Any]
    described: Mapping[str, Any] = field(default_factory=dict)


class Agent(Parameters, ABC):
    """Base of agents that can be trained; their dataclass fields are the parameters of the training."""

    config_key: ClassVar[str] = "agent"
    name: ClassVar[str]
    split: str

    @abstractmethod
    def train(self, seed: int, processes: Processes, state: Path, progress: Progress) -> TrainingOutcome:
        """Train with a seed, and save the progress to the file `state`, from which a killed run continues.

        Parameters
        ----------
        seed : int
        processes : int
            0: one per core; `ray` of agents with a population.
        state : Path
        progress : callable
        """

    def leak(self) -> tuple[str, str] | None:
        """Return a field's name and an error message if the agent would train on test jobs, else None."""
        if self.split == "train":
            return None
        return "agent.split", f"training on the {self.split} split would leak it"

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Return what the agent was trained on, for its checkpoint."""

    def save(self, path: Path, trained: TrainingOutcome, about: Mapping[str, Any]) -> None:
        """Write a checkpoint: the weights to `path`, and all else to a YAML file of the same name."""
        # Imported where they are needed: a network brings PyTorch with it.
        if isinstance(trained.weights, Mapping):
            from clustergym.training.network_checkpoints import save as save_network

            save_network(path, self.name, trained.weights, trained.described, trained.information, about)
        else:
            from clustergym.agents.auction_checkpoints import save

            save(path, trained.weights, trained.information, about)


def make_agent(parameters: Mapping[str, Any]) -> Agent:
    """Make the trainable agent that a mapping `{name: …, parameter: value, …}` describes.

    `scenarios` (of `auction_es`) and `env` (of the others) are mappings of their own.
    """
    given = dict(parameters)
    name = str(given.pop("name", ""))
    require_known(name, AGENTS, "agent", "agent.name")
    module, _, attribute = AGENTS[name].partition(":")
    made_by = getattr(importlib.import_module(module), attribute)
    agent: Agent = build(made_by, given, "agent")
    return agent
