"""The clocks of live runs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

from clustergym.scenario.clock import TICKS_PER_S
from clustergym.sim.clock import Clock


class LiveClock:
    """The clock of a live run, in ticks (microseconds); this one, of lock-step, moves by events alone.

    It moves when the scheduler has confirmed an event, to the time of that event.
    """

    def begin(self, wall_s: float, tick: int = 0) -> None:
        """Start the clock at a tick and a wall time (seconds since 1970); here it always starts at tick 0."""

    def reading(self) -> int | None:
        """Return the present time in ticks; None if only events move the clock."""
        return None

    def compute_wait_s(self, tick: float) -> float:
        """Return the real seconds to wait until a tick, 0 or less if it is past; here it comes at once."""
        return 0.0

    @contextmanager
    def waiting(self, due: float | None) -> Iterator[None]:
        """Give a context inside which the run waits for tick `due`; here it does nothing."""
        yield


class ScaledClock(LiveClock):
    """A clock that runs faster than real time while the run waits, and in real time otherwise.

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
        """Start at `tick` plus the real time since `wall_s` (seconds since 1970) times the clock's speed."""
        self._since = time.monotonic()
        self._tick = tick + max(time.time() - wall_s, 0.0) * self._scale * TICKS_PER_S

    def _now(self) -> float:
        return self._tick + (time.monotonic() - self._since) * self._pace * TICKS_PER_S

    def reading(self) -> int:
        """Return the present time in ticks."""
        return round(self._now())

    def compute_wait_s(self, tick: float) -> float:
        """Return the real seconds until a tick at the clock's fast speed; below 0 if it is past."""
        return (tick - self._now()) / (self._scale * TICKS_PER_S)

    @contextmanager
    def waiting(self, due: float | None) -> Iterator[None]:
        """Give a context in which the clock runs fast, but not beyond the tick that is waited for."""
        self._turn(self._scale, self._now())
        try:
            yield
        finally:
            late = 0.0 if due is None else max(self._now() - due, 0.0)
            self._turn(1.0, self._now() - late * (1.0 - 1.0 / self._scale))

    def _turn(self, pace: float, tick: float) -> None:
        self._since, self._tick, self._pace = time.monotonic(), tick, pace


class LateClock(Clock):
    """A SimPy clock that can be moved forward; events that were due earlier then happen late, in order.

    `_now`, `_queue` and `schedule` are SimPy's; two events of one late instant keep the order of the times
    they were due at.
    """

    _now: Any

    def catch_up(self, tick: int) -> None:
        """Move the clock forward to a tick, unless it is past; events due before it then happen at once."""
        if tick <= self._now:
            return
        late = []
        while self._queue and self._queue[0][0] <= tick:
            late.append(heappop(self._queue))
        self._now = tick
        for _, priority, _, event in late:
            heappush(self._queue, (tick, priority, next(self._eid), event))
