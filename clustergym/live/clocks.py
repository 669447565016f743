"""The clocks of live runs."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

from clustergym.scenario.clock import TICKS_PER_S
from clustergym.sim.clock import Clock


class LiveClock(ABC):
    """Says what time it is in a live run."""

    @abstractmethod
    def begin(self, wall_s: float, tick: int = 0) -> None:
        """Begin with a tick at a time, seconds since 1970."""

    @abstractmethod
    def reading(self) -> int | None:
        """Return the tick of now; None if only confirmed events move the clock."""

    @abstractmethod
    def compute_wait_s(self, tick: float) -> float:
        """Return the wall seconds to wait until a tick; 0 or less if it is past."""

    @contextmanager
    def waiting(self, due: float | None) -> Iterator[None]:
        """Do nothing but wait, until a tick (None: for ever) at most."""
        yield


class LockStepClock(LiveClock):
    """Stands still until an event is confirmed, and then is at that event's time."""

    def begin(self, wall_s: float, tick: int = 0) -> None:
        """Begin at tick 0, and wait to be moved."""

    def reading(self) -> None:
        """Return None: this clock has no reading of its own."""
        return

    def compute_wait_s(self, tick: float) -> float:
        """Return 0: the next event comes at once."""
        return 0.0


class ScaledClock(LiveClock):
    """Runs faster than the wall clock while the run waits, and beside it otherwise.

    So calls and decisions take as long in the run as they really take, whatever the scale: 0.1 s of a
    scheduler are not 6 s of a run of which an hour takes 60 s.

    Parameters
    ----------
    seconds_per_hour : float
        Wall seconds for an hour of waiting.
    """

    def __init__(self, seconds_per_hour: float) -> None:
        self._scale = 3600.0 / seconds_per_hour
        self._pace = 1.0
        self._since, self._tick = time.monotonic(), 0.0

    def begin(self, wall_s: float, tick: int = 0) -> None:
        """Count from a tick at a time, seconds since 1970; what has passed since was waiting."""
        self._since = time.monotonic()
        self._tick = tick + max(time.time() - wall_s, 0.0) * self._scale * TICKS_PER_S

    def _now(self) -> float:
        return self._tick + (time.monotonic() - self._since) * self._pace * TICKS_PER_S

    def reading(self) -> int:
        """Return the tick of now."""
        return round(self._now())

    def compute_wait_s(self, tick: float) -> float:
        """Return the wall seconds of waiting until a tick."""
        return (tick - self._now()) / (self._scale * TICKS_PER_S)

    @contextmanager
    def waiting(self, due: float | None) -> Iterator[None]:
        """Run fast, but not on beyond the tick that was waited for."""
        self._turn(self._scale, self._now())
        try:
            yield
        finally:
            late = 0.0 if due is None else max(self._now() - due, 0.0)
            self._turn(1.0, self._now() - late * (1.0 - 1.0 / self._scale))

    def _turn(self, pace: float, tick: float) -> None:
        self._since, self._tick, self._pace = time.monotonic(), tick, pace


class LateClock(Clock):
    """SimPy's clock, which others can move forward; events that were due earlier then happen late, in order.

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
