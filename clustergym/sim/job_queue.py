"""The jobs on which a policy decides, and when its next decision is due."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.clock import ticks
from clustergym.scenario.scenario import Scenario
from clustergym.sim import rules
from clustergym.sim.clock import Clock
from clustergym.sim.state import JobStates, Phase


class JobQueue:
    """The jobs in the system, which of them the policy sees, and when the policy decides next.

    Attributes
    ----------
    ahead : int
        Jobs that are still to be submitted.
    scored_left : int
        Jobs that are scored and have not left; the run ends with the last of them.
    present : dict of int to None
        The jobs in the system, in order of submission.
    in_view : set of int
        Jobs that a View shows.
    due : bool
        Whether a decision is due now.
    always : bool
        Whether there is something to decide without jobs: which nodes to rent.
    decided_at : int
        Tick of the last decision point; -1: there was none.
    """

    def __init__(self, scenario: Scenario, clock: Clock, jobs: JobStates, round_s: float | None) -> None:
        self.clock, self.jobs, self._requested = clock, jobs, scenario.trace.global_batch
        self._round = None if round_s is None else ticks(round_s)
        self._apart = ticks(scenario.apart_s)
        self._round_pending = False
        self._rows: Ints | None = None
        self.ahead = len(scenario.trace)
        self._scored = scenario.scored
        self.scored_left = int(scenario.scored.sum())
        self.present: dict[int, None] = {}
        self.in_view: set[int] = set()
        self.due, self.decided_at = False, -1
        self._asked_for, self.always = -1, False

    @property
    def rows(self) -> Ints:
        """Jobs that the policy sees, as ascending rows of the trace."""
        if self._rows is None:
            self._rows = np.array(sorted(self.in_view), dtype=np.int64)
        return self._rows

    def enqueue(self, row: int) -> None:
        """Let a job wait for GPUs, and request a decision if the policy sees the job."""
        jobs = self.jobs
        rules.wait(jobs.job[row], self.clock.now)
        # A job that waits forgets the batch that was chosen for its last allotment.
        jobs.batch[row] = self._requested[row]
        if row not in jobs.unseen:
            self.in_view.add(row)
            self._rows = None
            self.decide_again()

    def hide(self, row: int) -> None:
        """Hide a job from the policy until it waits again."""
        self.in_view.discard(row)
        self._rows = None

    def leave(self, row: int, phase: Phase) -> None:
        """Remove a job, which has completed or is dropped, from the system."""
        self.jobs.phase[row] = phase
        self.scored_left -= bool(self._scored[row])
        self.hide(row)
        # At the end of the tick, so that one in which the last job leaves is simulated to its end.
        self.clock.after(0, lambda: self.present.pop(row, None))

    def decide_again(self) -> None:
        """Request that the policy decides again at the next possible time."""
        if self._round is None:
            # Decisions at events are at least `apart` ticks from each other (`scenario.apart_s`).
            left = self.decided_at + self._apart - self.clock.now if self.decided_at >= 0 else 0
            if left <= 0:
                self.due = True
            elif not self._round_pending:
                self._round_pending = True
                self.clock.after(left, self._begin_round)
        else:
            self.plan_round()

    def plan_round(self) -> None:
        """Plan the next decision round, if the policy decides in rounds and sees jobs."""
        if self._round is None or self._round_pending or not (self.in_view or self.always):
            return
        now = self.clock.now
        self._round_pending = True
        # An instant has one decision at most: if one is due or was taken now, the round is the next one.
        later = self.due or self.decided_at >= now
        self.clock.after(rules.find_next_round(self._round, later, now) - now, self._begin_round)

    def ask_at(self, tick: int) -> None:
        """Request a decision at a future tick, in place of an earlier request; ignored with rounds."""
        if self._round is None and tick != self._asked_for and tick > self.clock.now:
            self._asked_for = tick
            self.clock.after(tick - self.clock.now, self._decide_as_asked)

    def _decide_as_asked(self) -> None:
        # A later request has replaced this one, but SimPy cannot remove a timeout from its queue.
        if self.clock.now == self._asked_for:
            self.decide_again()

    def ask_later(self) -> None:
        """Postpone the pending decision by one tick."""
        self.clock.after(1, self._begin_round)

    def _begin_round(self) -> None:
        self._round_pending, self.due = False, True
