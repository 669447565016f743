"""Notice: a job saves while it holds its GPUs, and only then is it stopped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.clock import ticks
from clustergym.sim.disturbances import Disturbances
from clustergym.sim.log import EventType


class Notices:
    """Lets running jobs save their state on their GPUs before they are stopped."""

    def __init__(self, disturbances: Disturbances) -> None:
        self._disturbances, self._execution = disturbances, disturbances.execution
        self._jobs, self._queue = self._execution.jobs, self._execution.queue

    def stop_all(self, drops: Sequence[int], preempts: Sequence[int], saves: Sequence[int]) -> None:
        """Drop the jobs `drops`, stop the jobs `preempts` at once, and let the jobs `saves` save first."""
        for row in drops:
            self._execution.drop(row, "policy")
        for row in preempts:
            if not self._disturbances.give_up(row):
                self._execution.preempt(row, saves=False)
        for row in saves:
            self.give(row)

    def give(self, row: int) -> None:
        """Let a running job save its state, then stop it; a job that hangs is interrupted at once."""
        if self._disturbances.give_up(row):
            return
        jobs, clock, takes = self._jobs, self._execution.clock, ticks(float(self._jobs.save_s[row]))
        self._disturbances.stand_still(row, takes)
        jobs.saving[row] = end = clock.now + takes
        self._execution.progress.update_speed(row, EventType.SAVE)
        self._queue.hide(row)
        clock.after(takes, lambda: self._stop(row, end))

    def _stop(self, row: int, end: int) -> None:
        """Stop a job that has saved, unless it has lost its GPUs in the meantime."""
        if self._jobs.saving.get(row) == end and not self._disturbances.give_up(row):
            self._execution.preempt(row)

    def coming_gpus(self) -> Ints | None:
        """Return the GPUs of each type that jobs which are saving will release; None if no job saves."""
        rows = list(self._jobs.saving)
        if not rows:
            return None
        types = len(self._execution.scenario.cluster.gpu_types)
        found: Ints = np.zeros(types, dtype=np.int64)
        np.add.at(found, self._jobs.gpu_type[rows], self._jobs.gpus[rows])
        return found
