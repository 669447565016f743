"""The parameters of the Placement environment, as conf/env/placement.yaml has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import cast

from clustergym.envs.drawing import Problem, load_problem
from clustergym.errors import InputError, nearest, require
from clustergym.placement.communication import UNITS, Unit

GPT3_15B: Mapping[str, int | None] = {"hidden": 5120, "layers": 48, "heads": 40}
"""Of conf/model/gpt3.yaml."""

_CHOICES: Mapping[str, tuple[str, ...]] = {
    "unit": UNITS,
    "step": ("node", "group"),
    "on_illegal": ("penalty", "noop", "raise"),
    "observation": ("dict", "flat"),
}


@dataclass(frozen=True)
class PlacementParameters:
    """What a Placement environment is made with.

    Attributes
    ----------
    setting : {"i", "ii", "iii"}
        Arnold's benchmark setting; the next five fields change it.
    cluster : str or None
        A name of conf/cluster, or a YAML file; its nodes are of one kind.
    gpus, tensor_parallel, pipeline_parallel : int or None
        The job; DP is what they leave.
    core_oversubscription : float or None
        Factor by which a node's network is slower across minipods; None: the cluster's.
    unit : {"pp", "dp"}
        The communication groups that are placed one after the other.
    alpha : float or None
        Weight of the DP spread, 0 to 1; None: one of 0, 0.1 … 1 is drawn for each episode.
    step : {"node", "group"}
        What an action places: the next node of a group, or as many of its nodes as fit.
    reward : mapping of str to float
        Weights of the terms `spread`, `dp_spread`, `pp_spread`, `step_time`.
    model : mapping of str to int
        Fields of `clustergym.placement.step_time.PretrainingModel`, for the term `step_time`.
    on_illegal : {"penalty", "noop", "raise"}
        What follows when a full minipod is chosen.
    illegal_penalty : float
        What `penalty` takes off the reward, from 0.
    observation : {"dict", "flat"}
    infeasible : float
        Share of the episodes whose job does not fit, 0 to 1.
    max_steps : int or None
        Steps after which an episode is truncated; None: twice the nodes of the job.

    Raises
    ------
    InputError
        If a value is out of its range.
    """

    setting: str = "ii"
    cluster: str | None = None
    gpus: int | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    core_oversubscription: float | None = None
    unit: str = "pp"
    alpha: float | None = 0.5
    step: str = "node"
    reward: Mapping[str, float] = field(default_factory=lambda: {"spread": 1.0})
    model: Mapping[str, int | None] = field(default_factory=lambda: dict(GPT3_15B))
    on_illegal: str = "penalty"
    illegal_penalty: float = 1.0
    observation: str = "dict"
    infeasible: float = 0.0
    max_steps: int | None = None

    def __post_init__(self) -> None:
        for name, valid in _CHOICES.items():
            value = getattr(self, name)
            if value not in valid:
                raise InputError(
                    f"unknown value {value!r}", field=f"env.{name}", remedy=nearest(value, valid)
                )
        alpha, penalty, steps = self.alpha, self.illegal_penalty, self.max_steps
        require(alpha is None or 0 <= alpha <= 1, "env.alpha", alpha, "give 0 to 1, or null")
        require(0 <= self.infeasible <= 1, "env.infeasible", self.infeasible, "give a share, 0 to 1")
        require(isfinite(penalty) and penalty >= 0, "env.illegal_penalty", penalty, "give a number from 0")
        require(steps is None or steps >= 1, "env.max_steps", steps, "give a whole number from 1, or null")

    @property
    def unit_checked(self) -> Unit:
        """`unit` by the type that placement problems know."""
        return cast(Unit, self.unit)

    def problem(self) -> Problem:
        """Return the job and the minipods; raises as `load_problem`."""
        names = ("cluster", "gpus", "tensor_parallel", "pipeline_parallel", "core_oversubscription")
        changes = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return load_problem(self.setting, changes)
