"""The link between a live run's table and a back end: every answer is confirmed before it is given."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from clustergym.inputs.errors import InputError
from clustergym.live.backend import Backend, Part, Seen, parts_of
from clustergym.live.clocks import LiveClock

Answer = dict[str, Any]
"""Plain values: `t` is the clock's tick after the call, or None where it does not run by itself; `wall_s` is
then the time, seconds since 1970."""
Ask = Callable[[str, dict[str, Any]], Answer]
"""Makes a call, by its name and what it names."""

EVERY_S = 0.01
"""Wall seconds between two looks for a confirmation."""


class Link:
    """Makes the calls of a live run and waits until the back end shows what was asked.

    Parameters
    ----------
    backend : Backend
    clock : LiveClock
    poll_s, patience_s : float
        Wall seconds between polls, and until a confirmation counts as missing.

    Attributes
    ----------
    expected : callable
        Returns the parts that the run's table holds, by name.
    seconds : dict of str to list of float
        Wall seconds that each call took, by its name.
    """

    def __init__(self, backend: Backend, clock: LiveClock, poll_s: float, patience_s: float) -> None:
        self.backend, self.clock, self.poll_s, self.patience_s = backend, clock, poll_s, patience_s
        self.expected: Callable[[], Mapping[str, Part]] = dict
        self.seconds: dict[str, list[float]] = {}
        self._polled = 0.0

    def ask(self, call: str, given: dict[str, Any]) -> Answer:
        """Make a call: begin, start, stop, fail, repair or wait."""
        before = time.perf_counter()
        answer: Answer = getattr(self, f"_{call}")(**given)
        if call not in ("begin", "wait"):
            self.seconds.setdefault(call, []).append(time.perf_counter() - before)
        return {"t": self.clock.reading(), "wall_s": time.time(), **answer}

    def go_on(self, last: Answer) -> None:
        """Go on with a run that was killed, by the last answer that it was given."""
        self.clock.begin(last["wall_s"], last["t"] or 0)
        self.backend.poll()

    def _begin(self) -> Answer:
        self.clock.begin(time.time())
        return {}

    def _start(self, name: str, nodes: Any) -> Answer:
        begun: list[str] = []
        for part_name, part in parts_of(name, nodes).items():
            refused = self.backend.submit(part_name, part)
            if refused:
                self._stop(begun)
                return {"refused": refused}
            begun.append(part_name)
        return {}

    def _stop(self, names: Collection[str]) -> Answer:
        if names:
            self.backend.cancel(names)
            self._confirm(lambda seen: not seen.parts.keys() & set(names), f"end {', '.join(names)}")
        return {}

    def _fail(self, node: int) -> Answer:
        self.backend.node_down(node)
        self._confirm(
            lambda seen: node in seen.down and not any(node in part.nodes for part in seen.parts.values()),
            f"take node {node} out of use",
        )
        return {}

    def _repair(self, node: int) -> Answer:
        self.backend.node_up(node)
        if self.clock.reading() is None:
            self._confirm(lambda seen: node not in seen.down, f"put node {node} back into use")
        return {"back": node not in self.backend.poll().down}

    def _confirm(self, holds: Callable[[Seen], bool], what: str) -> None:
        until = time.monotonic() + self.patience_s
        while not holds(self.backend.poll()):
            if time.monotonic() > until:
                raise InputError(
                    f"the scheduler did not {what} within {self.patience_s:g} s",
                    field="live.patience_s",
                    remedy="look at its log; the run can be started again",
                )
            time.sleep(EVERY_S)

    def _wait(self, due: float | None, down: Collection[int]) -> Answer:
        """Wait until a tick (None: for ever), or until something happens that the run did not ask for."""
        with self.clock.waiting(due):
            return self._awaited(due, down)

    def _awaited(self, due: float | None, down: Collection[int]) -> Answer:
        running = self.clock.reading() is not None
        while True:
            left_s = self.poll_s if due is None else self.clock.seconds_until(due)
            if not running or time.monotonic() - self._polled >= self.poll_s:
                seen = self.backend.poll()
                self._polled = time.monotonic()
                gone = self._gone(seen)
                if gone or seen.down != set(down) or not running:
                    return {"gone": gone, "down": sorted(seen.down)}
            if left_s <= 0:
                return {}
            time.sleep(min(left_s, self.poll_s))

    def _gone(self, seen: Seen) -> list[str]:
        """Return the parts that are not there any more; raise an `InputError` if one is not as asked."""
        expected = self.expected()
        for name, part in seen.parts.items():
            if name in expected and expected[name] != part:
                raise InputError(
                    f"holds {part.gpus} GPUs on each of nodes {list(part.nodes)}, not what was asked",
                    field=name,
                    remedy=f"asked: {expected[name].gpus} on each of {list(expected[name].nodes)}",
                )
        return sorted(expected.keys() - seen.parts.keys())
