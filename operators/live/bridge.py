"""A simulation whose launches, stops and node failures happen on a real scheduler."""

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

from clustergym.cluster.spec import Nodes
from clustergym.scenario.clock import TICKS_PER_S, seconds, ticks
from clustergym.scenario.disturbances.failures import NODE_FAIL, NODE_REPAIR
from clustergym.scenario.policy import Infeasible, View
from clustergym.sim.allocator import Allocator
from clustergym.sim.disturbances import Disturbances
from clustergym.sim.engine import Simulation
from clustergym.sim.job_execution import JobExecution
from clustergym.sim.job_queue import JobQueue
from clustergym.sim.log import Event, EventType

from .backend import Part, list_parts
from .clocks import LateClock
from .link import Answer, Ask

RETRY_S = 60.0
"""Seconds of the run after which a decision is asked for because the scheduler refused a launch."""


@dataclass(eq=False)
class LiveAllocator(Allocator):
    """Repeats a simulation's allocations on a live scheduler (Slurm, or a fake one), and their ends.

    Attributes
    ----------
    started : dict of str to Part
        All allocations that the scheduler has given so far, by name.
    names : dict of int to str
        Name of the allocation of each job and profile that holds nodes.
    begun : bool
        Whether a call was made.
    """

    started: dict[str, Part] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    begun: bool = False
    _attempts: Counter[int] = field(default_factory=Counter)
    _leaving: list[str] = field(default_factory=list)

    def connect(self, clock: LateClock, queue: JobQueue, ask: Ask, run: str) -> None:
        """Set the clock, the queue, the function `ask` that calls the scheduler, and the name of the run."""
        self._clock, self._queue, self._ask_link, self._run = clock, queue, ask, run

    def ask(self, call: str, **given: object) -> Answer:
        """Call the scheduler, move the clock forward to the time of its answer, and return the answer."""
        if not self.begun:
            self.begun = True
            self.ask("begin")
        answer = self._ask_link(call, given)
        if answer["t"] is not None:
            self._clock.catch_up(answer["t"])
        return answer

    def expected(self) -> dict[str, Part]:
        """Return the allocations that the scheduler should hold, by name."""
        holding = self.allocations.holding
        held = (list_parts(name, holding(holder)) for holder, name in self.names.items())
        return {name: part for parts in held for name, part in parts.items()}

    def allocate(self, holder: int, nodes: Nodes) -> Nodes | Infeasible:
        """Allocate GPUs to a job or profiling run on the scheduler; if refused, the policy decides again."""
        self.stop_released()
        self._attempts[holder] += 1
        label = f"{holder}" if holder >= 0 else f"p{-holder}"
        name = f"{self._run}-{label}-{self._attempts[holder]}"
        answer = self.ask("start", name=name, nodes=[list(pair) for pair in nodes])
        if "refused" in answer:
            self._clock.after(ticks(RETRY_S), self._queue.decide_again)
            return Infeasible(f"the scheduler refuses: {answer['refused']}")
        self.names[holder] = name
        self.started |= list_parts(name, nodes)
        return super().allocate(holder, nodes)

    def release(self, holder: int) -> Nodes:
        """Take back the nodes of a job or profiling run, and mark its allocation to be stopped soon."""
        nodes = super().release(holder)
        self._leaving += list_parts(self.names.pop(holder), nodes)
        return nodes

    def stop_released(self) -> None:
        """Stop the released allocations on the scheduler, and wait until they are gone."""
        leaving, self._leaving = self._leaving, []
        if leaving:
            self.ask("stop", names=leaving)


@dataclass(eq=False)
class LiveExecution(JobExecution):
    """Starts and stops a live run's jobs; logs how long they stand still until the scheduler has answered."""

    _stopped: dict[int, Event] = field(default_factory=dict)

    def vacate(self, row: int) -> Nodes:
        """Release a job's GPUs; if its work had ended earlier, log that it stood still since then."""
        jobs, now = self.jobs, self.clock.now
        done = max(int(jobs.worked_until[row]), int(jobs.ready[row]))
        done += math.ceil(float(jobs.remaining[row]) * float(jobs.iteration_s[row]) * TICKS_PER_S)
        locality = int(self.scenario.cluster.locality(self.allocator.allocations.holding(row)))
        pace = int(jobs.gpu_type[row]), int(jobs.gpus[row]), (), locality, 0.0, float(jobs.iteration_s[row])
        self._stopped[row] = Event(seconds(now), EventType.RATE, row, *pace)
        if done < now:
            self._stand_still(row, done)
        return super().vacate(row)

    def launch(self, row: int, gpu_type: int, gpus: int, *, rescale: bool, **how: Any) -> None:
        """Launch a job; if it was moved, log that it has stood still since it gave up its GPUs."""
        super().launch(row, gpu_type, gpus, rescale=rescale, **how)
        if rescale and (stopped := ticks(self._stopped[row].time_s)) < self.clock.now:
            self._stand_still(row, stopped)

    def _stand_still(self, row: int, since: int) -> None:
        """Log that a job whose GPUs were last given up has stood still from a tick until now."""
        still_s = seconds(self.clock.now - since)
        self.log.append(self._stopped[row]._replace(time_s=seconds(since), overhead_s=still_s))


class LiveDisturbances(Disturbances):
    """Takes nodes out of use on the scheduler, and notices nodes that the scheduler takes out.

    Attributes
    ----------
    seen_down : set of int
        Nodes that the scheduler has taken out of use.
    """

    allocator: LiveAllocator

    def __init__(self, execution: JobExecution) -> None:
        self.seen_down: set[int] = set()
        super().__init__(execution)

    def take_out(
        self, node: int, duration: int, events: tuple[str, str], reason: str, *more: Any, **named: Any
    ) -> None:
        """Take a node out of use on the scheduler and, once that is confirmed, in the simulation."""
        if not self.out[node]:
            self.allocator.ask("fail", node=node)
        super().take_out(node, duration, events, reason, *more, **named)

    def give_back(self, node: int, event: str) -> None:
        """Put a node back into use, unless the scheduler keeps it out."""
        if self.out[node] == 1 and not self.allocator.ask("repair", node=node)["back"]:
            self.seen_down.add(node)
            return
        super().give_back(node, event)

    def see_gone(self, part_name: str) -> None:
        """Interrupt the job or profiling run whose allocation the scheduler has ended."""
        name = part_name.rpartition(".")[0]
        holder = next((holder for holder, held in self.allocator.names.items() if held == name), None)
        if holder is None:
            return
        if holder >= 0:
            self.interrupt(holder, "ended by the scheduler")
        else:
            self.profiler.postpone(holder, forget=True)

    def see_down(self, node: int) -> None:
        """Take a node out of use in the simulation, after the scheduler has taken it out."""
        self.seen_down.add(node)
        self.lose(node, NODE_FAIL, f"node {node} is down")

    def see_back(self, node: int) -> None:
        """Put a node back into use in the simulation, after the scheduler has put it back."""
        self.seen_down.discard(node)
        super().give_back(node, NODE_REPAIR)


class LiveSimulation(Simulation):
    """A simulation whose jobs hold the GPUs of a real scheduler.

    The table of jobs, the View, the checks of decisions and the logs are the simulation's own. What holds
    GPUs is started and stopped on the scheduler: all stops first, confirmed, then the starts. What the
    scheduler shows without having been asked, such as a job that is gone or a node that is down, is an event.
    """

    clock_type: ClassVar[type[LateClock]] = LateClock
    allocator_type: ClassVar[type[LiveAllocator]] = LiveAllocator
    execution_type: ClassVar[type[LiveExecution]] = LiveExecution
    disturbances_type: ClassVar[type[LiveDisturbances]] = LiveDisturbances
    clock: LateClock
    allocator: LiveAllocator
    disturbances: LiveDisturbances

    def connect(self, ask: Ask, run: str) -> Self:
        """Let `ask` make the calls of a run, with whose name its allocations begin; return the simulation."""
        self.allocator.connect(self.clock, self.queue, ask, run)
        return self

    def next_instant(self) -> float:
        """Wait for the next event of simulation or scheduler; return its time in ticks (microseconds)."""
        due, clock, disturbances = super().next_instant(), self.clock, self.disturbances
        if due == 0 and not self.allocator.begun:
            # The clock runs from the first call on: what is due at 0 is not late.
            return due
        if self.horizon is not None:
            due = min(due, self.horizon + 1)
        lost = {node for node, times in disturbances.out.items() if times}
        if due == math.inf and not disturbances.seen_down:
            return due
        waited = self.allocator.ask("wait", due=None if due == math.inf else due, down=sorted(lost))
        down = set(waited.get("down", lost))
        for node in sorted(down - lost):
            clock.after(0, partial(disturbances.see_down, node))
        for name in waited.get("gone", ()):
            clock.after(0, partial(disturbances.see_gone, name))
        for node in sorted(disturbances.seen_down - down):
            clock.after(0, partial(disturbances.see_back, node))
        return super().next_instant()

    def advance(self) -> View | None:
        """Run to the next decision point; return what the policy sees, or None at the end (log sorted)."""
        view = super().advance()
        if view is None:
            self.log.sort()
        return view
