"""What a trainable agent is, and where each one is found."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError, nearest
from clustergym.policy import InformationClass

Progress = Callable[[int, int, Mapping[str, float]], None]
"""Told (steps done, steps in all, figures) now and then."""

AGENTS = {"auction_es": "clustergym.learn.evolution:AuctionEvolution"}
"""Agent name -> `module:class`, imported when it is asked for."""


@dataclass(frozen=True, eq=False)
class Trained:
    """The outcome of a training: weights, information class, curves of plain numbers."""

    weights: npt.NDArray[np.float64]
    information: InformationClass
    curves: Mapping[str, Any]


class Agent(ABC):
    """Something to train. Parameters are dataclass fields; `split` names its training windows."""

    name: ClassVar[str]
    split: str

    @abstractmethod
    def train(self, seed: int, processes: int, state: Path, progress: Progress) -> Trained:
        """Train, keeping the state in a file so that a killed training goes on where it was.

        Parameters
        ----------
        seed : int
        processes : int
            0: one per core.
        state : Path
        progress : callable

        Raises
        ------
        InputError
            If the state is of another training, or a package is missing.
        """


def make_agent(parameters: Mapping[str, Any]) -> Agent:
    """Build an agent from `{name: …, parameter: value, …}`.

    Raises
    ------
    InputError
        For an unknown name or parameter, or a value of the wrong type.
    """
    from clustergym.learn.distribution import Distribution
    from clustergym.registry import build

    given = dict(parameters)
    name = str(given.pop("name", ""))
    if name not in AGENTS:
        raise InputError(f"unknown agent {name!r}", field="agent.name", remedy=nearest(name, AGENTS))
    module, _, attribute = AGENTS[name].partition(":")
    made_by = getattr(importlib.import_module(module), attribute)
    scenarios = build(Distribution, given.pop("scenarios", {}), "agent.scenarios")
    agent: Agent = build(made_by, given, "agent")
    agent.scenarios = scenarios  # type: ignore[attr-defined]
    return agent
