"""The parameters of the Placement environment; the site's page is made from this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from clustergym.common.parameter_types import Fraction, NonNegativeFloat, PositiveInt
from clustergym.common.parameters import Parameters
from clustergym.envs.placement.communication import Unit
from clustergym.envs.placement.drawing import Problem, load_problem

GPT3_15B: Mapping[str, int | None] = {"hidden": 5120, "layers": 48, "heads": 40}
"""Of conf/model/gpt3.yaml."""


@dataclass(frozen=True)
class PlacementParameters(Parameters):
    """What a Placement environment is made with; the text below each field describes it.

    Raises
    ------
    InputError
        If a value is out of its range.
    """

    config_key: ClassVar[str] = "env"
    setting: str = "ii"
    """Arnold's benchmark setting: i, ii or iii; the next five fields change it."""
    cluster: str | None = None
    """A name of conf/cluster, or a YAML file; its nodes are of one kind."""
    gpus: int | None = None
    """GPUs of the job."""
    tensor_parallel: int | None = None
    """TP of the job."""
    pipeline_parallel: int | None = None
    """PP of the job; DP is what TP and PP leave."""
    core_oversubscription: float | None = None
    """Factor by which a node's network is slower across minipods; null: the cluster's."""
    unit: Unit = "pp"
    """The communication groups that are placed one after the other."""
    alpha: Fraction | None = 0.5
    """Weight of the DP spread, 0 to 1; null: each episode draws one of 0, 0.1 … 1."""
    step: Literal["node", "group"] = "node"
    """What an action places: the next node of a group, or as many of its nodes as fit."""
    reward: Mapping[str, float] = field(default_factory=lambda: {"spread": 1.0})
    """Weights of the terms spread, dp_spread, pp_spread and step_time."""
    model: Mapping[str, int | None] = field(default_factory=lambda: dict(GPT3_15B))
    """Fields of `clustergym.envs.placement.step_time.PretrainingModel`, for the term step_time."""
    on_illegal: Literal["penalty", "noop", "raise"] = "penalty"
    """What follows when the agent chooses a full minipod."""
    illegal_penalty: NonNegativeFloat = 1.0
    """What `penalty` takes off the reward, from 0."""
    observation: Literal["dict", "flat"] = "dict"
    """The form of an observation: a dict of arrays, or one array."""
    infeasible: Fraction = 0.0
    """Share of the episodes whose job does not fit, 0 to 1."""
    max_steps: PositiveInt | None = None
    """Steps after which an episode is truncated; null: twice the nodes of the job."""

    def problem(self) -> Problem:
        """Return the job and the minipods; raises as `load_problem`."""
        names = ("cluster", "gpus", "tensor_parallel", "pipeline_parallel", "core_oversubscription")
        changes = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return load_problem(self.setting, changes)
