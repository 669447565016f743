"""The link between a live run's table and a back end: every answer is confirmed before it is given."""

import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from clustergym.common.errors import InputError, visible

from .backend import BackendStatus, FakeBackend, NoAnswerError, Part, list_parts
from .clocks import LiveClock
from .slurm_backend import SlurmBackend

Answer = dict[str, Any]
"""Plain values: `t` is the clock's tick after the call, or None where it does not run by itself; `wall_s` is
then the time, seconds since 1970."""
Ask = Callable[[str, dict[str, Any]], Answer]
"""Makes a call, by its name and what it names."""

EVERY_S = 0.01
"""Wall seconds between two looks for a confirmation."""
AGAIN_S = 5.0
"""Wall seconds after which what is not confirmed is asked for again."""
MOST_REFUSALS = 20
"""Refusals of a job's launch, one after another, with which a run ends once they last for its patience."""


class Link:
    """Makes the calls of a live run to the scheduler, and waits until their effect is confirmed.

    Parameters
    ----------
    backend : SlurmBackend or FakeBackend
    clock : LiveClock
    poll_s, patience_s : float
        Wall seconds between polls, and until a confirmation, or an answer at all, counts as missing.

    Attributes
    ----------
    expected : callable
        Returns the parts that the run's table holds, by name.
    seconds : dict of str to list of float
        Wall seconds that each call took, by its name.
    """

    def __init__(
        self, backend: SlurmBackend | FakeBackend, clock: LiveClock, poll_s: float, patience_s: float
    ) -> None:
        self.backend, self.clock, self.poll_s, self.patience_s = backend, clock, poll_s, patience_s
        self.expected: Callable[[], Mapping[str, Part]] = dict
        self.seconds: dict[str, list[float]] = {}
        self._polled = 0.0
        self._unsure_since: dict[int, float] = {}
        self._refused_at: dict[str, list[float]] = {}

    def ask(self, call: str, given: dict[str, Any]) -> Answer:
        """Make a call by name (begin, start, stop, fail, repair or wait), and return the answer."""
        before = time.perf_counter()
        answer: Answer = getattr(self, f"_{call}")(**given)
        if call not in ("begin", "wait"):
            self.seconds.setdefault(call, []).append(time.perf_counter() - before)
        return {"t": self.clock.reading(), "wall_s": time.time(), **answer}

    def continue_run(self, last: Answer) -> None:
        """Continue a run that was killed, from the last answer that it received."""
        self.clock.begin(last["wall_s"], last["t"] or 0)
        self._poll()

    def _begin(self) -> Answer:
        self.clock.begin(time.time())
        return {}

    def _poll(self) -> BackendStatus:
        """Poll the scheduler; keep trying for a while if it does not answer, as during a restart."""
        until = time.monotonic() + self.patience_s
        while True:
            try:
                seen = self.backend.poll()
            except NoAnswerError:
                if time.monotonic() > until:
                    raise
                time.sleep(self.poll_s)
                continue
            now = time.monotonic()
            self._unsure_since = {node: self._unsure_since.get(node, now) for node in seen.unsure}
            return seen

    # Starts and stops

    def _start(self, name: str, nodes: Any) -> Answer:
        job = name.rpartition("-")[0]
        if job in self._refused_at and self.clock.reading() is None:
            # Without a clock that runs, all refusals would be used up before a node can have become free.
            again_at = self._refused_at[job][-1] + self.patience_s / (MOST_REFUSALS - 1)
            time.sleep(max(again_at - time.monotonic(), 0.0))
        begun: list[str] = []
        for part_name, part in list_parts(name, nodes).items():
            refused = self._submit(part_name, part)
            if refused and self._settle(part):
                refused = self._submit(part_name, part)
            if refused:
                self._stop(begun)
                self._note_refusal(job, refused)
                return {"refused": refused}
            begun.append(part_name)
        self._refused_at.pop(job, None)
        return {}

    def _submit(self, part_name: str, part: Part) -> str:
        try:
            return self.backend.submit(part_name, part)
        except NoAnswerError:
            self._poll()
            return self.backend.submit(part_name, part)

    def _settle(self, part: Part) -> bool:
        """Wait, where no time of the run passes, until it is known whether nodes can be used.

        Return whether that was not known.
        """
        waited = False
        while self.clock.reading() is None:
            unsure = self._poll().unsure & set(part.nodes)
            if all(self._measure_silence(node) > self.patience_s for node in unsure):
                break
            waited = True
            time.sleep(self.poll_s)
        return waited

    def _measure_silence(self, node: int) -> float:
        return time.monotonic() - self._unsure_since[node]

    def _note_refusal(self, job: str, refused: str) -> None:
        """Say that a launch is refused; raise an `InputError` if it was too often.

        The last refusal is no answer: a run that is started again asks anew.
        """
        times = self._refused_at.setdefault(job, [])
        times.append(time.monotonic())
        if len(times) == 1:
            limit = f"given up after {MOST_REFUSALS} times and {self.patience_s:g} s"
            told = f"the scheduler refuses its launch: {visible(refused)} (asked again; {limit})"
            print(f"note: {job}: {told}", file=sys.stderr, flush=True)
        lasts_s = times[-1] - times[0]
        if len(times) >= MOST_REFUSALS and lasts_s >= self.patience_s:
            message = f"the scheduler refused its launch {len(times)} times in {lasts_s:.0f} s: {refused}"
            remedy = "look at its nodes; the run goes on if it is started again"
            raise InputError(message, field=job, remedy=remedy)

    def _stop(self, names: Collection[str]) -> Answer:
        if names:
            self._confirm(
                lambda: self.backend.cancel(names),
                lambda seen: not seen.parts.keys() & set(names),
                f"end {', '.join(names)}",
            )
        return {}

    def _fail(self, node: int) -> Answer:
        self._confirm(
            lambda: self.backend.node_down(node),
            lambda seen: node in seen.down and not any(node in part.nodes for part in seen.parts.values()),
            f"take node {node} out of use",
        )
        return {}

    def _repair(self, node: int) -> Answer:
        if self.clock.reading() is None:
            self._confirm(
                lambda: self.backend.node_up(node),
                lambda seen: node not in seen.down | seen.unsure,
                f"put node {node} back into use",
            )
        else:
            self.backend.node_up(node)
        seen = self._poll()
        return {"back": node not in seen.down | seen.unsure}

    def _confirm(self, act: Callable[[], None], holds: Callable[[BackendStatus], bool], what: str) -> None:
        """Repeat a call until the scheduler shows its effect; calls get lost while a scheduler restarts."""
        began = acted = time.monotonic()
        act()
        while not holds(self._poll()):
            now = time.monotonic()
            if now - began > self.patience_s:
                message = f"the scheduler did not {what} within {self.patience_s:g} s"
                remedy = "look at its log; the run can be started again"
                raise InputError(message, field="live.patience_s", remedy=remedy)
            if now - acted > AGAIN_S:
                act()
                acted = now
            time.sleep(EVERY_S)

    # Waiting

    def _wait(self, due: float | None, down: Collection[int]) -> Answer:
        """Wait until a tick (None: for ever), or until something happens that the run did not ask for."""
        running = self.clock.reading() is not None
        with self.clock.waiting(due):
            while True:
                if not running or time.monotonic() - self._polled >= self.poll_s:
                    gone, lost = self._changes(set(down))
                    self._polled = time.monotonic()
                    if gone or lost != set(down) or not running:
                        return {"gone": gone, "down": sorted(lost)}
                left_s = self.poll_s if due is None else self.clock.compute_wait_s(due)
                if left_s <= 0:
                    return {}
                time.sleep(min(left_s, self.poll_s))

    def _changes(self, known: set[int]) -> tuple[list[str], set[int]]:
        """Return the allocations that have vanished, and the nodes that are out of use now.

        A change counts if two polls, one after another, show it: a single one can be from a moment in which
        the scheduler knows little.
        """
        seen = self._poll()
        gone, lost = self.expected().keys() - seen.parts.keys(), self._lost(seen, known)
        if not gone and lost == known and not self._wrong(seen):
            return [], lost
        time.sleep(self.poll_s)
        again = self._poll()
        wrong = self._wrong(seen) & self._wrong(again)
        if wrong:
            name = min(wrong)
            part, asked = again.parts[name], self.expected()[name]
            message = f"holds {part.gpus} GPUs on each of nodes {list(part.nodes)}, not what was asked"
            remedy = f"asked: {asked.gpus} on each of {list(asked.nodes)}"
            raise InputError(message, field=name, remedy=remedy)
        lost_again = self._lost(again, known)
        return sorted(gone - again.parts.keys()), (lost & lost_again) | (known & (lost | lost_again))

    def _wrong(self, seen: BackendStatus) -> set[str]:
        """Return the names of allocations whose nodes differ from what was asked for."""
        expected = self.expected()
        return {name for name, part in seen.parts.items() if expected.get(name, part) != part}

    def _lost(self, seen: BackendStatus, known: set[int]) -> set[int]:
        """Return the nodes out of use; a node unknown to the scheduler keeps its former state for a while."""
        silent = {node for node in seen.unsure if self._measure_silence(node) > self.patience_s}
        return set(seen.down) | (set(seen.unsure) & known) | silent
