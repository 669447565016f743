"""When slurmctld starts jobs in order, makes a pass of backfill, and computes fair shares anew.

Sources: SchedMD's slurm.conf on `bf_interval`, `batch_sched_delay` and `PriorityCalcPeriod`.
"""

from dataclasses import dataclass, field

from clustergym.scenario.policy import View


@dataclass
class SlurmClock:
    """Keeps the times at which Slurm's controller is due to do its periodic work.

    Parameters
    ----------
    backfill_interval_s, batch_sched_delay_s : float
        Least seconds between two passes of backfill, and between two starts of jobs in order.
    fair_share_interval_s : float
        Seconds between two computations of fair shares. 0: at each decision point.
    boot_s : float or None
        Time at which slurmctld began, on the clock of the run. Backfill makes its first pass an interval
        later, and shares are computed at whole intervals after it. None: at time 0, backfill's first pass
        with the first jobs.
    """

    backfill_interval_s: float
    batch_sched_delay_s: float
    fair_share_interval_s: float
    boot_s: float | None = None
    _puts_off_main_pass: bool = field(default=False, init=False)
    _next_shares_s: float = field(default=0.0, init=False)
    _next_backfill_s: float = field(default=0.0, init=False)
    _next_main_s: float = field(default=0.0, init=False)
    _tried: bytes = field(default=b"", init=False)
    _seen: bytes = field(default=b"", init=False)
    _planned: bytes = field(default=b"", init=False)
    _passes_idly: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        if self.boot_s is not None and self.backfill_interval_s:
            # At whole intervals after it, but not when it begins. Where it began after the first job was
            # submitted it only began again: the passes before are taken to have had the same phase.
            first_s = self.boot_s % self.backfill_interval_s
            self._next_backfill_s = first_s if self.boot_s else self.backfill_interval_s

    def see(self, state: bytes) -> None:
        """Store the state that backfill depends on, as bytes, to notice changes."""
        self._seen = state

    def begins_backfill(self, now_s: float) -> bool:
        """Return whether a backfill pass is due (interval over, state changed); if so, note its begin."""
        if self._passes_idly and now_s > self._next_backfill_s:
            # Slurm's last pass found nobody waiting; the next is as long after it as after any.
            self._next_backfill_s += self.backfill_interval_s
        if now_s < self._next_backfill_s or self._seen == self._planned:
            return False
        self._next_backfill_s, self._planned = now_s + self.backfill_interval_s, self._seen
        return True

    def begins_main_pass(self, view: View) -> bool:
        """Return whether Slurm's main pass is due (interval over, jobs or GPUs changed); if so, note it."""
        there = view.job.tobytes() + view.available.tobytes()
        if there == self._tried or view.now_s < self._next_main_s:
            self._puts_off_main_pass = there != self._tried
            return False
        self._tried, self._next_main_s = there, view.now_s + self.batch_sched_delay_s
        self._puts_off_main_pass = False
        return True

    def begins_shares(self, now_s: float) -> bool:
        """Return whether fair shares are due to be recomputed; if so, set when they are due next.

        That is at whole intervals after slurmctld began, not an interval after the last time.
        """
        if now_s < self._next_shares_s:
            return False
        every_s, began_s = self.fair_share_interval_s, self.boot_s or 0.0
        self._next_shares_s = began_s + ((now_s - began_s) // every_s + 1.0) * every_s if every_s else now_s
        return True

    def next_pass_s(
        self, now_s: float, backfills: bool, shares: bool, waiting: int, started: int
    ) -> float | None:
        """Return the time (s) of the controller's next pass if no event comes before; None if there is none.

        Parameters
        ----------
        now_s : float
        backfills, shares : bool
            Whether there are passes of backfill at all, and whether fair shares count.
        waiting, started : int
            Jobs that waited before this decision, and those of them that it starts.
        """
        changed = started > 0 or self._seen != self._planned
        self._passes_idly = changed and waiting == started
        if waiting == started:
            return None
        due = []
        if backfills and changed:
            due.append(self._next_backfill_s)
        if shares:
            due.append(self._next_shares_s)
        if self._puts_off_main_pass:
            due.append(self._next_main_s)
        return min((time_s for time_s in due if time_s > now_s), default=None)
