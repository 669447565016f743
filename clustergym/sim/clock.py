"""The clock of a run: SimPy's, in ticks (`scenario.clock`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import simpy

from clustergym.scenario.clock import seconds


class Clock(simpy.Environment):
    """SimPy's clock and calendar of events, with time in ticks (microseconds)."""

    @property
    def now(self) -> int:
        """The present time, in ticks."""
        return int(self._now)

    @property
    def now_s(self) -> float:
        """The present simulated time, in seconds."""
        return seconds(self.now)

    def after(self, delay: int, action: Callable[[], object]) -> None:
        """Schedule a call of `action` after a number of ticks."""
        callbacks: Any = self.timeout(delay).callbacks
        callbacks.append(lambda _: action())

    def follow(self, steps: Iterator[int]) -> None:
        """Run a generator in the simulation; each value it yields is the tick until which it waits."""
        self.process(self._wait(steps))

    def _wait(self, steps: Iterator[int]) -> Generator[simpy.Event, Any, None]:
        for tick in steps:
            yield self.timeout(max(tick - self.now, 0))
