"""Episodes on the compiled simulation with queues of tenants, whose agents edit the GPUs of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.envs.actions import EditActions
from clustergym.envs.queue_imbalance import COLUMNS
from clustergym.envs.scheduling import SchedulingEnv
from clustergym.envs.scheduling_costs import Outcomes
from clustergym.envs.vector import tenants_step
from clustergym.envs.vector.episode_batch import EpisodeBatch
from clustergym.envs.vector.episode_states import PreparedScenario, write_row
from clustergym.envs.vector.queues import LIMITS, SIZES, QueueState
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled.coverage import UncoveredError


class TenantsBatch(EpisodeBatch):
    """A batch of compiled episodes with queues of tenants; what these have missed is read from the events.

    Raises
    ------
    UncoveredError
        If an action is no edit of a job's GPUs.
    """

    compiled = staticmethod(tenants_step.apply_actions_with_queues)

    def __init__(self, single: SchedulingEnv, size: int, logged: bool, threads: int = 1) -> None:
        if not isinstance(single.actions, EditActions):
            message = f"actions={single.parameters.actions} with features=tenants is not covered"
            raise UncoveredError(message, field="env.features", remedy="give engine='simpy'")
        # Events are kept even where nobody asks for metrics: queues are counted by them.
        super().__init__(single, size, True, threads)
        self._usual = single.features.parts["tenants"].start
        self.queues = QueueState(
            size=np.zeros((size, SIZES), np.int64),
            leaf=np.zeros((size, 0), np.int64),
            parent=np.zeros((size, 0), np.int64),
            place=np.zeros((size, 0), np.int64),
            priority=np.zeros((size, 0), np.int64),
            limit=np.zeros((size, 0, LIMITS)),
            history_weight=np.zeros((size, 1)),
            quota=np.zeros((size, 0)),
            jobs=np.zeros((size, 0, 2), np.int64),
            gpus=np.zeros((size, 2, 0), np.int64),
            shown=np.zeros((size, 2, 0), np.int64),
            shares=np.zeros((size, 0)),
            missed=np.zeros((size, COLUMNS)),
            reference=np.zeros((size, 0, COLUMNS)),
        )

    def begin(self, rows: Sequence[int], scenarios: Sequence[tuple[Scenario, PreparedScenario]]) -> None:
        """Begin new episodes of scenarios, with their queues, in some rows of the batch."""
        for row, (_, prepared) in zip(rows, scenarios, strict=True):
            assert prepared.queues is not None
            tables = zip(self.queues, prepared.queues, strict=True)
            self.queues = QueueState._make(write_row(table, row, own) for table, own in tables)
        super().begin(rows, scenarios)

    def arguments(self, actions: Ints) -> tuple[Any, ...]:
        """Return what the compiled function takes between the common arrays and the results' arrays."""
        return self.queues, self._usual, actions

    def get_outcomes(self, row: int) -> Outcomes:
        """Return when each job of an episode has left so far, and what queues have missed."""
        found = super().get_outcomes(row)
        assert found.queues is not None
        for event in self.log(row).events:
            found.queues.read(event)
        return found
