"""A simulation whose launches, stops and node failures happen on a real scheduler."""

from __future__ import annotations

import math
from collections import Counter
from functools import partial
from typing import Any, ClassVar

import simpy

from clustergym.cluster.spec import Nodes
from clustergym.live.backend import Part, parts_of
from clustergym.live.clocks import LateClock
from clustergym.live.link import Answer, Ask
from clustergym.scenario.clock import TICKS_PER_S, seconds, ticks
from clustergym.scenario.disturbances.failures import NODE_FAIL, NODE_REPAIR
from clustergym.scenario.policy import Infeasible, InformationClass, Placer, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Simulation
from clustergym.sim.log import Event, EventKind, EventLog

RETRY_S = 60.0
"""Seconds of the run after which a decision is asked for because the scheduler refused a launch."""


class LiveSimulation(Simulation):
    """A run of which the jobs' GPUs are held by a scheduler.

    The table of jobs, the View, the checks of decisions and the logs are the simulation's own. What holds
    GPUs is started and stopped on the scheduler: all stops first, confirmed, then the starts. What the
    scheduler shows without having been asked, such as a job that is gone or a node that is down, is an event.

    Parameters
    ----------
    scenario, placer, information, policy_round_s, seed
        As of `Simulation`.
    ask : callable
        Makes the calls: `Link.ask`, or a journal before it.
    run : str
        The run's name, with which the names of its allocations begin.

    Attributes
    ----------
    started : dict of str to Part
        All allocations that the scheduler has given so far, by name.
    """

    clock_type: ClassVar[type[simpy.Environment]] = LateClock
    _clock: LateClock

    def __init__(
        self,
        scenario: Scenario,
        placer: Placer,
        information: InformationClass,
        policy_round_s: float | None,
        seed: int,
        ask: Ask,
        run: str,
    ) -> None:
        self._ask_link, self._run = ask, run
        self.started: dict[str, Part] = {}
        self._begun = False
        self._stopped: dict[int, Event] = {}
        self._names: dict[int, str] = {}
        self._attempts: Counter[int] = Counter()
        self._leaving: list[str] = []
        self._seen_down: set[int] = set()
        super().__init__(scenario, placer, information, policy_round_s, seed)

    def expected(self) -> dict[str, Part]:
        """Return the allocations that the table holds, by name."""
        return {
            part_name: part
            for holder, name in self._names.items()
            for part_name, part in parts_of(name, self.allocations.holding(holder)).items()
        }

    def _ask(self, call: str, **given: object) -> Answer:
        if not self._begun:
            self._begun = True
            self._ask("begin")
        answer = self._ask_link(call, given)
        if answer["t"] is not None:
            self._clock.catch_up(answer["t"])
        return answer

    # Starts and stops

    def _take(self, holder: int, nodes: Nodes) -> Nodes | Infeasible:
        self._stop_leaving()
        self._attempts[holder] += 1
        label = f"{holder}" if holder >= 0 else f"p{-holder}"
        name = f"{self._run}-{label}-{self._attempts[holder]}"
        answer = self._ask("start", name=name, nodes=[list(pair) for pair in nodes])
        if "refused" in answer:
            self._after(ticks(RETRY_S), self.decide_again)
            return Infeasible(f"the scheduler refuses: {answer['refused']}")
        self._names[holder] = name
        self.started |= parts_of(name, nodes)
        return super()._take(holder, nodes)

    def _release(self, holder: int) -> Nodes:
        nodes = super()._release(holder)
        self._leaving += parts_of(self._names.pop(holder), nodes)
        return nodes

    def _stop_leaving(self) -> None:
        leaving, self._leaving = self._leaving, []
        if leaving:
            self._ask("stop", names=leaving)

    # Time

    def _next_instant(self) -> float:
        self._stop_leaving()
        due = super()._next_instant()
        if due == 0 and not self._begun:
            # The clock runs from the first call on: what is due at 0 is not late.
            return due
        if self._horizon is not None:
            due = min(due, self._horizon + 1)
        lost = {node for node, times in self._out.items() if times}
        if due == math.inf and not self._seen_down:
            return due
        waited = self._ask("wait", due=None if due == math.inf else due, down=sorted(lost))
        down = set(waited.get("down", lost))
        for node in sorted(down - lost):
            self._after(0, partial(self._is_down, node))
        for name in waited.get("gone", ()):
            self._after(0, partial(self._is_gone, name))
        for node in sorted(self._seen_down - down):
            self._after(0, partial(self._is_back, node))
        return super()._next_instant()

    def _decision_point(self) -> View:
        self._stop_leaving()
        return super()._decision_point()

    def _finish(self, end: int) -> None:
        self._stop_leaving()
        super()._finish(end)
        # Submissions that came while calls were made are logged late, at their own times.
        in_order = sorted(self.log.events, key=lambda event: event.time_s)
        self.log = EventLog()
        self.log.extend(in_order)

    # What the scheduler shows without having been asked

    def _is_gone(self, part_name: str) -> None:
        name = part_name.rpartition(".")[0]
        holder = next((holder for holder, held in self._names.items() if held == name), None)
        if holder is None:
            return
        if holder >= 0:
            self.interrupt(holder, "ended by the scheduler")
        else:
            self._profiles.forget(self._put_off(holder))

    def _is_down(self, node: int) -> None:
        self._seen_down.add(node)
        self._lose(node, NODE_FAIL, f"node {node} is down")

    def _is_back(self, node: int) -> None:
        self._seen_down.discard(node)
        super()._give_back(node, NODE_REPAIR)

    # Failures that the scenario asks for

    def take_out(
        self, node: int, duration: int, events: tuple[str, str], reason: str, *more: Any, **named: Any
    ) -> None:
        """Take a node out of use on the scheduler, see it gone, and go on as the simulation does."""
        if not self._out[node]:
            self._ask("fail", node=node)
        super().take_out(node, duration, events, reason, *more, **named)

    def _give_back(self, node: int, event: str) -> None:
        if self._out[node] == 1 and not self._ask("repair", node=node)["back"]:
            self._seen_down.add(node)
            return
        super()._give_back(node, event)

    # What the log says of late events

    def _record(self, kind: str, row: int, *columns: object, **named: object) -> None:
        if kind == EventKind.SUBMIT:
            self.log.append(Event(seconds(int(self.jobs.submit[row])), kind, row))
        else:
            super()._record(kind, row, *columns, **named)  # type: ignore[arg-type]

    def _vacate(self, row: int) -> Nodes:
        jobs = self.jobs
        done = max(int(jobs.worked_until[row]), int(jobs.ready[row]))
        done += math.ceil(float(jobs.remaining[row]) * float(jobs.iteration_s[row]) * TICKS_PER_S)
        locality = int(self.scenario.cluster.locality(self.allocations.holding(row)))
        pace = int(jobs.gpu_type[row]), int(jobs.gpus[row]), (), locality, 0.0, float(jobs.iteration_s[row])
        self._stopped[row] = Event(self.now_s, EventKind.RATE, row, *pace)
        if done < self.now:
            self._stand_still(row, done)
        return super()._vacate(row)

    def _launch(self, row: int, kind: int, gpus: int, *, rescale: bool, **how: Any) -> None:
        super()._launch(row, kind, gpus, rescale=rescale, **how)
        if rescale and (stopped := ticks(self._stopped[row].time_s)) < self.now:
            self._stand_still(row, stopped)

    def _stand_still(self, row: int, since: int) -> None:
        """Log that a job whose GPUs were last given up has stood still from a tick until now."""
        still_s = seconds(self.now - since)
        self.log.append(self._stopped[row]._replace(time_s=seconds(since), overhead_s=still_s))
