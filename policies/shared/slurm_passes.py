"""When slurmctld plans: in order of priority once jobs come or go, by backfill at intervals."""

from __future__ import annotations

from clustergym.common.arrays import Ints
from clustergym.scenario.policy import View


class SlurmPasses:
    """The times of Slurm's passes over the queue, and what each has seen.

    Parameters
    ----------
    backfill_interval_s, in_order_interval_s : float
        Least seconds between two passes of backfill, and between two in order of priority.
    """

    def __init__(self, backfill_interval_s: float, in_order_interval_s: float) -> None:
        self._backfill_interval_s, self._in_order_interval_s = backfill_interval_s, in_order_interval_s
        self._next_backfill_s = self._next_in_order_s = 0.0
        self._seen = self._planned = self._tried = b""
        self._passes_idly = self._puts_off = False

    def see(self, view: View, order: Ints) -> None:
        """Note what backfill goes by besides the time: who waits, in order, and what others hold."""
        columns = view.job[order], view.job, view.gpus, view.available
        self._seen = b"".join(column.tobytes() for column in columns)

    def begins_backfill(self, now_s: float) -> bool:
        """Whether a pass of backfill is due: an interval after the last, if anything has changed since."""
        if self._passes_idly and now_s > self._next_backfill_s:
            # Slurm's last pass found nobody waiting; the next is as long after it as after any.
            self._next_backfill_s += self._backfill_interval_s
        if now_s < self._next_backfill_s or self._seen == self._planned:
            return False
        self._next_backfill_s, self._planned = now_s + self._backfill_interval_s, self._seen
        return True

    def begins_in_order(self, view: View) -> bool:
        """Whether jobs are started in order: some have come or gone, and the last time is long enough ago."""
        there = view.job.tobytes() + view.available.tobytes()
        if there == self._tried or view.now_s < self._next_in_order_s:
            self._puts_off = there != self._tried
            return False
        self._tried, self._next_in_order_s = there, view.now_s + self._in_order_interval_s
        self._puts_off = False
        return True

    def end(self, started: int, waiting: int, backfills: bool) -> list[float]:
        """End a decision point that started some of the jobs that waited; return when passes are due next."""
        changed = started > 0 or self._seen != self._planned
        self._passes_idly = changed and started == waiting
        due_s = [self._next_backfill_s] if backfills and changed else []
        return [*due_s, self._next_in_order_s] if self._puts_off else due_s
