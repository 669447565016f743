"""The clocks of live runs."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from heapq import heappop, heappush
from typing import Any

import simpy

from clustergym.scenarios.clock import TICKS_PER_S


class LiveClock(ABC):
    """Says what time it is in a live run."""

    @abstractmethod
    def begin(self, epoch_s: float) -> None:
        """Begin at a time, seconds since 1970."""

    @abstractmethod
    def reading(self) -> int | None:
        """Return the tick of now; None if only confirmed events move the clock."""

    @abstractmethod
    def seconds_until(self, tick: float) -> float:
        """Return the wall seconds until a tick; 0 or less: it has come."""


class LockStepClock(LiveClock):
    """Stands still until an event is confirmed, and then is at that event's time."""

    def begin(self, epoch_s: float) -> None:
        """Stand still."""

    def reading(self) -> None:
        """Return None."""
        return

    def seconds_until(self, tick: float) -> float:
        """Return 0: the next event comes at once."""
        return 0.0


class ScaledClock(LiveClock):
    """Runs with the wall clock, faster.

    Parameters
    ----------
    seconds_per_hour : float
        Wall seconds for an hour of the run.
    """

    def __init__(self, seconds_per_hour: float) -> None:
        self._ticks_per_s = 3600.0 / seconds_per_hour * TICKS_PER_S
        self._began = time.monotonic()

    def begin(self, epoch_s: float) -> None:
        """Count from a time, seconds since 1970."""
        self._began = time.monotonic() - (time.time() - epoch_s)

    def reading(self) -> int:
        """Return the tick of now."""
        return round((time.monotonic() - self._began) * self._ticks_per_s)

    def seconds_until(self, tick: float) -> float:
        """Return the wall seconds until a tick."""
        return tick / self._ticks_per_s - (time.monotonic() - self._began)


class LateClock(simpy.Environment):
    """SimPy's clock, which can be moved on by others: what was due before then happens late, in order.

    `_now`, `_queue` and `schedule` are SimPy's; two events of one late instant keep the order of the times
    they were due at.
    """

    _now: Any

    def catch_up(self, tick: int) -> None:
        """Move the clock on to a tick, if it is not there yet; late events are then due now."""
        if tick <= self._now:
            return
        late = []
        while self._queue and self._queue[0][0] <= tick:
            late.append(heappop(self._queue))
        self._now = tick
        for _, priority, _, event in late:
            heappush(self._queue, (tick, priority, next(self._eid), event))

    def peek(self) -> Any:
        """Return the tick of the next event; inf: there is none."""
        return self._queue[0][0] if self._queue else math.inf
