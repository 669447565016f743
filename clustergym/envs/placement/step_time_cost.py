"""The predicted step time of a partly placed job, as a cost that a reward can weigh."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.parameters import build
from clustergym.envs.placement.communication import PretrainingJob
from clustergym.envs.placement.drawing import Problem
from clustergym.envs.placement.instances import Assignment
from clustergym.envs.placement.spread import cells
from clustergym.envs.placement.state import PlacementState
from clustergym.envs.placement.step_time import PretrainingModel, Tiers, predict


class StepTimeCost:
    """The share by which a training step takes longer than with the whole job inside a minipod.

    While groups are missing, they are taken to be placed like the last one that is whole, so that
    the cost is 0 until the first group is split or the second is elsewhere, and never falls.

    Parameters
    ----------
    problem : Problem
    model : mapping of str to int
        Fields of `clustergym.envs.placement.step_time.PretrainingModel`, but its name.

    Raises
    ------
    InputError
        By `check`, or when first asked: if the model is not possible, or does not divide into the job's
        stages.
    """

    def __init__(self, problem: Problem, model: Mapping[str, Any]) -> None:
        self._problem, self._fields = problem, dict(model)
        self._known: tuple[PlacementState, int, float] | None = None

    def __call__(self, state: PlacementState) -> float:
        """Return the cost of what is placed so far."""
        if state.group == 0:
            return 0.0
        if self._known is None or self._known[:2] != (state, state.group):
            share = self.seconds(_matrix(state)) / self.inside_s - 1.0
            self._known = (state, state.group, share)
        return self._known[2]

    def check(self) -> None:
        """Raise an InputError if the model is not possible."""
        self.inside_s  # noqa: B018  computed once

    @cached_property
    def inside_s(self) -> float:
        """Seconds of a step with the whole job inside a minipod, even if no minipod is large enough."""
        job = self._problem.job
        return self.seconds(np.zeros((job.rows, job.columns), dtype=np.int64))

    def seconds(self, matrix: Ints) -> float:
        """Return the seconds of a step, given the minipod of each node, shape (rows, columns)."""
        return predict(matrix, self._problem.job, self._model, self._tiers).total_s

    @cached_property
    def _model(self) -> PretrainingModel:
        made: PretrainingModel = build(PretrainingModel, {"name": "model", **self._fields}, "env.model")
        return made

    @cached_property
    def _tiers(self) -> Tiers:
        return Tiers.of(self._problem.cluster)


def _matrix(state: PlacementState) -> Ints:
    """Return the minipod of each node; missing groups are placed like the last whole group."""
    instance = state.instance
    job: PretrainingJob = instance.job
    rows = state.counts[: state.group]
    counts = np.array(rows + [rows[-1]] * (instance.groups - len(rows)), dtype=np.int64)
    return cells(Assignment(counts), job, instance.unit)
