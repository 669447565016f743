"""The world of a simulation: jobs and nodes that change over time, driven by SimPy's clock."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterator
from typing import Any, ClassVar

import numpy as np
import simpy

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Ints
from clustergym.scenario.clock import TICKS_PER_S, seconds, ticks
from clustergym.scenario.disturbance import Course
from clustergym.scenario.policy import Infeasible, InformationClass, Placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.links import SharedLinks
from clustergym.sim.log import NO_JOB, PACES, Event, EventKind, EventLog
from clustergym.sim.pairs import Sharing
from clustergym.sim.part_placing import part_allocations, place_part
from clustergym.sim.profiling import Profile, ProfileBook
from clustergym.sim.state import JobStates, Phase, ViewMaker, setting_of
from clustergym.trace.trace import COMPLETED, Trace


class World(ABC):
    """The jobs and nodes of a scenario; a subclass adds who decides which jobs run.

    Attributes
    ----------
    scenario : Scenario
    placer : Placer
    information : InformationClass
        What the deciding policy knows of iteration times.
    round_s : float or None
    setting : Setting
    log : EventLog
    jobs : JobStates
    allocations : Allocations
    sharing : Sharing or None
        Which jobs share GPUs in pairs; None: the scenario has none.
    """

    clock_type: ClassVar[type[simpy.Environment]] = simpy.Environment

    def __init__(
        self, scenario: Scenario, placer: Placer, information: InformationClass, round_s: float | None
    ) -> None:
        self.scenario, self.placer, self.information, self.round_s = scenario, placer, information, round_s
        self.setting = setting_of(scenario, round_s)
        self.log = EventLog()
        self.trace = scenario.trace
        self.jobs = JobStates(scenario)
        self._parts = part_allocations(scenario, placer)
        self.allocations = Allocations(scenario.cluster) if self._parts is None else self._parts
        self.sharing = None if scenario.pairs is None else Sharing(scenario, self.jobs, self.allocations)
        self._links = None if scenario.communication_s is None else SharedLinks(scenario.cluster)
        self._views = ViewMaker(scenario, self.jobs, information, self.setting)
        self._clock = self.clock_type()
        self._left: dict[int, simpy.Event] = {}
        self._in_view: set[int] = set()
        self._rows: Ints | None = None
        self._profiles = ProfileBook(scenario, information)
        self._failures_in_a_row = 0
        self._slow: dict[int, list[float]] = {}
        self._suspect: dict[int, str] = {}
        self._present = 0
        self._ahead = len(scenario.trace)
        self._clock.process(self._arrivals())
        self._courses: list[Course] = []
        self._unseen: set[int] = set()

    @abstractmethod
    def decide_again(self) -> None:
        """Ask for a decision at the next possible time."""

    @abstractmethod
    def _give_up(self, row: int) -> None:
        """Interrupt a job that hangs."""

    @property
    def known_trace(self) -> Trace:
        """The trace as the deciding policy may see it: where its log ends jobs, a clairvoyant one alone."""
        return self.trace if self.information == InformationClass.CLAIRVOYANT else self.trace.as_asked()

    @property
    def now_s(self) -> float:
        """Simulated time, seconds."""
        return seconds(self.now)

    @property
    def jobs_left(self) -> int:
        """Number of jobs that have completed or were dropped."""
        return int((self.jobs.phase >= Phase.COMPLETED).sum())

    @property
    def jobs_in_view(self) -> int:
        """Number of jobs that a View shows now."""
        return len(self._in_view)

    @property
    def now(self) -> int:
        """Present tick of the clock."""
        return int(self._clock.now)

    def _gpus_out_of_use(self) -> Ints:
        """Return how many GPUs of each type no decision may use, shape (T,)."""
        out, cluster = self._profiles.held.copy(), self.scenario.cluster
        for node in self.allocations.down:
            out[cluster.node_type[node]] += cluster.node_gpus[node]
        for row in self._unseen & self.allocations.holders:
            out[self.jobs.gpu_type[row]] += self.jobs.gpus[row]
        return out

    # The life of a job

    def _arrivals(self) -> Generator[simpy.Event, Any, None]:
        for row, submit in enumerate(self.jobs.submit.tolist()):
            if submit > self.now:
                yield self._clock.timeout(submit - self.now)
            self._ahead -= 1
            self._clock.process(self._life(row))

    def _life(self, row: int) -> Generator[simpy.Event, Any, None]:
        self._present += 1
        self._record(EventKind.SUBMIT, row)
        left = self._left[row] = self._clock.event()
        if not self.scenario.request_gpus[row]:
            self.drop(row, "fits nowhere")
        elif row in self._unseen:
            self._enqueue(row)
        elif self._profiles.gpus:
            self._profiles.ask(row, self.jobs.profiled[row])
            if self.jobs.profiled[row].any():
                self._enqueue(row)
            else:
                self.jobs.phase[row] = Phase.PROFILING
        else:
            self.jobs.profiled[row] = True
            self._enqueue(row)
        yield left
        self._present -= 1
        del self._left[row]

    def _leave(self, row: int, phase: Phase) -> None:
        self.jobs.phase[row] = phase
        self._pass_on_profiles(row)
        self._in_view.discard(row)
        self._rows = None
        self._left[row].succeed()

    def _enqueue(self, row: int) -> None:
        self.jobs.phase[row] = Phase.QUEUED
        self.jobs.queued_since[row] = self.now
        self.jobs.batch[row] = self.scenario.trace.global_batch[row]
        if row in self._unseen:
            return
        self._in_view.add(row)
        self._rows = None
        self.decide_again()

    # Profiling

    @property
    def _decision_comes_first(self) -> bool:
        """Whether a decision is made before profiles start: profiles are active and a job is queued."""
        return self._profiles.active and any(self.jobs.phase[row] == Phase.QUEUED for row in self._in_view)

    def _start_profiling(self) -> None:
        """Start waiting profiles on free GPUs, in the order in which they wait."""
        book = self._profiles
        for kind, queue in enumerate(book.waiting):
            while queue and self.allocations.free[kind] >= book.gpus:
                nodes = self._place(kind, book.gpus, self.now + queue[0].left)
                if isinstance(nodes, Infeasible) or not self._start_profile(queue.popleft(), nodes):
                    break

    def _start_profile(self, profile: Profile, nodes: Nodes) -> bool:
        """Start a profile on nodes; if they are not given, queue it first of its type and return False."""
        if isinstance(self._take(self._profile_holder(profile), nodes), Infeasible):
            self._profiles.put_off(profile)
            return False
        started, row, kind = self.now, profile.row, profile.kind
        self._profiles.start(profile, started)
        self._record(EventKind.PROFILE_START, row, gpu_type=kind, gpus=self._profiles.gpus, nodes=nodes)
        self._after(profile.left, lambda: self._profiled(profile, started))
        return True

    def _profile_holder(self, profile: Profile) -> int:
        return -1 - (profile.row * len(self.setting.gpu_types) + profile.kind)

    def _stop_profile(self, profile: Profile) -> Nodes:
        """Stop a profile and return the nodes it held."""
        nodes = self._release(self._profile_holder(profile))
        self._profiles.stop(profile, self.now)
        row, kind = profile.row, profile.kind
        self._record(EventKind.PROFILE_END, row, gpu_type=kind, gpus=self._profiles.gpus, nodes=nodes)
        return nodes

    def _profiled(self, profile: Profile, started: int) -> None:
        if profile not in self._profiles.running or profile.since != started:
            return
        self._stop_profile(profile)
        rows = self._profiles.jobs_of(profile)
        self.jobs.profiled[rows, profile.kind] = True
        for row in rows[self.jobs.phase[rows] == Phase.PROFILING].tolist():
            self._enqueue(row)
        self.decide_again()

    def _pass_on_profiles(self, row: int) -> None:
        """Hand the profiles of a leaving job to another job that shares them, or stop them."""
        for profile in self._profiles.made_for(row):
            others = set(self._profiles.jobs_of(profile).tolist()) - {row} - self._unseen
            here = (job for job in self._left if job in others and self.jobs.phase[job] < Phase.COMPLETED)
            heir = next(here, None)
            runs = profile in self._profiles.running
            nodes = self._stop_profile(profile) if runs else ()
            if not runs and heir is None:
                self._profiles.waiting[profile.kind].remove(profile)
            if heir is not None:
                profile.row = heir
            if runs and heir is not None:
                self._start_profile(profile, nodes)

    def _launch(
        self,
        row: int,
        kind: int,
        gpus: int,
        *,
        rescale: bool,
        on: Nodes = (),
        migrates: bool = False,
        beside: int = NO_JOB,
    ) -> None:
        """Launch a job on the nodes `on`, on those of the job `beside`, or on nodes that the placer finds.

        A running job (`rescale`) that is given nodes, or keeps its type and count (`migrates`), migrates.
        """
        jobs, scenario = self.jobs, self.scenario
        level = int(np.searchsorted(scenario.tables.counts, gpus))
        overhead = ticks(self._overhead_s(row, kind, level))
        what = self._launch_kind(row, rescale, bool(on) or migrates)
        if self._parts is not None:
            nodes: Nodes | Infeasible = place_part(self._parts, self.placer, row)
        elif self.sharing is not None and beside != NO_JOB:
            nodes = self._join(self.sharing, row, beside, overhead)
        else:
            nodes = on or self._place(kind, gpus, self._estimated_end(row, kind, level, overhead))
        if beside == NO_JOB and not isinstance(nodes, Infeasible):
            nodes = self._take(row, nodes)
        if isinstance(nodes, Infeasible):
            self._unplaced(row, kind, gpus, nodes)
            return
        locality = int(scenario.cluster.locality(nodes))
        if jobs.disturbed:
            self._plan_checkpoints(row, nodes)
        iteration_s = self._pace(row, kind, level, nodes, float(jobs.remaining[row]))
        jobs.phase[row], jobs.gpu_type[row], jobs.gpus[row] = Phase.RUNNING, kind, gpus
        jobs.iteration_s[row], jobs.ready[row] = iteration_s, self.now + overhead
        jobs.worked_until[row] = jobs.held_since[row] = self.now
        jobs.checkpointed[row] = jobs.remaining[row]
        jobs.restarts[row] += what != EventKind.START
        jobs.launched[row] = jobs.searched[row, kind, level] = True
        if self._links is not None:
            self._links.enter(row, nodes)
        self._await_completion(row)
        self._record(what, row, kind, gpus, nodes, locality, seconds(overhead), iteration_s)
        for course in self._courses:
            course.launched(row)

    def _join(self, sharing: Sharing, row: int, beside: int, overhead: int) -> Nodes | Infeasible:
        """Let a job share the GPUs of another, unless their nodes are kept for what comes before its end."""
        if on := self.allocations.holding(beside):
            kind, level = int(self.jobs.gpu_type[beside]), self._level(beside)
            kept = sharing.kept_beside(row, beside, kind, level)
            withheld = self._withheld(self._estimated_end(row, kind, level, overhead, kept))
            if kept_for := next((withheld[node] for node, _ in on if node in withheld), None):
                return Infeasible(f"nodes are kept for {kept_for}")
        return sharing.join(row, beside, self.now)

    def _take(self, holder: int, nodes: Nodes) -> Nodes | Infeasible:
        """Give nodes to a job or profile and return them, or why whoever has the nodes refuses them."""
        self.allocations.allocate(holder, nodes)
        return nodes

    def _release(self, holder: int) -> Nodes:
        """Take back the nodes of a job or profile, and return them."""
        return self.allocations.release(holder)

    def _change_speeds(self) -> None:
        """Update the speed of each running job whose partner or share of the links has changed."""
        if self.sharing is not None:
            for row in self.sharing.changed():
                self._go_on(row)
        self._share_links()

    def _plan_checkpoints(self, row: int, nodes: Nodes) -> None:
        """Set how often a job writes checkpoints on some nodes: as the disturbance that asks for most."""
        jobs, scenario = self.jobs, self.scenario
        asked = [disturbance.checkpoints(scenario.cluster, nodes) for disturbance in scenario.disturbances]
        every_s, write_s = min((plan for plan in asked if plan is not None), default=(0.0, 0.0))
        jobs.checkpoint_every[row] = ticks(every_s + write_s)
        jobs.write_share[row] = write_s / (every_s + write_s) if write_s else 0.0
        jobs.unsaved[row], jobs.restart_s[row] = 0, 0.0

    def _place(self, kind: int, gpus: int, until: float) -> Nodes | Infeasible:
        """Ask the placer for nodes that a job or profile will hold until tick `until`.

        An answer that names a failed node counts as `Infeasible`.
        """
        allocations, withheld = self.allocations, self._withheld(until)
        with allocations.hidden(withheld):
            if withheld and (short := gpus - int(allocations.free[kind])) > 0:
                kept_for = next(iter(withheld.values()))
                return Infeasible(f"nodes are kept for {kept_for}", gpus_short=short)
            nodes = self.placer.place(allocations, kind, gpus)
        if isinstance(nodes, Infeasible):
            return nodes
        failed = [node for node, _ in nodes if node in allocations.down] if allocations.down else []
        if failed:
            return Infeasible(f"node {failed[0]} has failed", nodes_short=len(failed))
        return tuple((int(node), int(count)) for node, count in nodes)

    def _withheld(self, until: float) -> dict[int, str]:
        """Return the nodes that a launch ending at tick `until` may not use, and what each is kept for."""
        if not self._courses and not self._suspect:
            return {}
        kept = {
            node: kept_for for course in self._courses for node, kept_for in course.withheld(until).items()
        }
        return {**kept, **self._suspect}

    def _unplaced(self, row: int, kind: int, gpus: int, answer: Infeasible) -> None:
        """Keep a job waiting because its launch found no nodes; a running job is preempted."""
        self._record(EventKind.UNPLACED, row, gpu_type=kind, gpus=gpus, reason=str(answer))
        if self.jobs.phase[row] == Phase.RUNNING:
            self._record(EventKind.PREEMPT, row)
            self._enqueue(row)

    def _await_completion(self, row: int) -> None:
        """Schedule the job's completion, or its next change of efficiency, from its current progress.

        A new `generation` makes what was scheduled before void.
        """
        jobs = self.jobs
        jobs.generation[row] += 1
        generation = int(jobs.generation[row])
        standstill = max(int(jobs.ready[row]) - self.now, 0)
        remaining, iteration_s = float(jobs.remaining[row]), float(jobs.iteration_s[row])
        choices = self.scenario.batch_choices
        if choices is not None and jobs.batch[row] != self.scenario.trace.global_batch[row]:
            end = choices.next_end(row, remaining)
            if end > jobs.ends_at[row]:
                work = standstill + math.ceil((remaining - end) * iteration_s * TICKS_PER_S)
                self._after(work, lambda: self._next_segment(row, generation))
                return
        work = ticks((remaining - float(jobs.ends_at[row])) * iteration_s)
        self._after(standstill + work, lambda: self._complete(row, generation))

    def _pace(
        self, row: int, kind: int, level: int, nodes: Nodes, remaining: float, slowdown: float = 1.0
    ) -> float:
        """Return the seconds a job needs now for the work of one iteration at its requested batch."""
        scenario, choices = self.scenario, self.scenario.batch_choices
        column = -1 if choices is None else choices.column(row, int(self.jobs.batch[row]))
        locality = int(scenario.cluster.locality(nodes))
        iteration_s = scenario.iteration_s(row, kind, level, locality, slowdown, column)
        if self.sharing is not None:
            iteration_s /= self.sharing.kept(row, kind, level)
        if self._slow:
            iteration_s *= max(math.prod(self._slow.get(node, ())) for node, _ in nodes)
        if self.jobs.disturbed:
            iteration_s /= 1.0 - float(self.jobs.write_share[row])
        if choices is None or column < 0:
            return iteration_s
        return iteration_s / choices.worth(row, column, remaining)

    def _next_segment(self, row: int, generation: int) -> None:
        if generation == self.jobs.generation[row]:
            self._go_on(row)

    def _change_batch(self, row: int, batch: int) -> None:
        """Change a running job's global batch, without a restart."""
        self.jobs.settle(row, self.now)
        self.jobs.batch[row] = batch
        self._go_on(row)

    def _go_on(self, row: int, event: EventKind = EventKind.RATE, **marks: Any) -> None:
        """Recompute a running job's speed from its batch, progress and share of the links; log it so."""
        jobs = self.jobs
        jobs.settle(row, self.now)
        kind, gpus = int(jobs.gpu_type[row]), int(jobs.gpus[row])
        nodes, remaining = self.allocations.holding(row), float(jobs.remaining[row])
        locality = int(self.scenario.cluster.locality(nodes))
        slowdown = 1.0 if self._links is None else self._links.slowdown(row)
        jobs.iteration_s[row] = self._pace(row, kind, self._level(row), nodes, remaining, slowdown)
        self._await_completion(row)
        standstill_s = seconds(max(int(jobs.ready[row]) - self.now, 0))
        self._record(
            event, row, kind, gpus, (), locality, standstill_s, float(jobs.iteration_s[row]), **marks
        )

    def _share_links(self) -> None:
        """Update the speed of each running job whose share of the links has changed."""
        if self._links is None:
            return
        for row, slowdown in self._links.update().items():
            kind, level, nodes = int(self.jobs.gpu_type[row]), self._level(row), self.allocations.holding(row)
            remaining = float(self.jobs.remaining_at(np.array([row]), self.now)[0])
            if self._pace(row, kind, level, nodes, remaining, slowdown) != self.jobs.iteration_s[row]:
                self._go_on(row)

    def _level(self, row: int) -> int:
        return int(np.searchsorted(self.scenario.tables.counts, self.jobs.gpus[row]))

    def _overhead_s(self, row: int, kind: int, level: int) -> float:
        search = 0.0 if self.jobs.searched[row, kind, level] else float(self._views.search_s[level])
        checkpoint = float(self._views.checkpoint_s[self._views.class_of[row]])
        pays = self.jobs.launched[row] or self.scenario.costs.first_launch
        restart = float(self.jobs.restart_s[row]) if self.jobs.disturbed else 0.0
        return search + (checkpoint if pays else 0.0) + restart

    def _launch_kind(self, row: int, rescale: bool, moved: bool) -> EventKind:
        if rescale:
            return EventKind.MIGRATE if moved else EventKind.RESCALE
        return EventKind.RESUME if self.jobs.launched[row] else EventKind.START

    def _vacate(self, row: int) -> Nodes:
        """Record a job's progress, release its GPUs and return the nodes it held."""
        self.jobs.settle(row, self.now)
        if self.sharing is not None:
            self.sharing.part(row, self.now)
        self.jobs.generation[row] += 1
        if self.jobs.disturbed:
            self.jobs.hangs[row] = False
        self.jobs.gpu_type[row], self.jobs.gpus[row] = -1, 0
        if self._links is not None:
            self._links.leave(row)
        return self._release(row)

    def _preempt(self, row: int) -> None:
        if self.jobs.hangs[row]:
            self._give_up(row)
            return
        self._vacate(row)
        self._record(EventKind.PREEMPT, row)
        self._enqueue(row)

    def _complete(self, row: int, generation: int) -> None:
        if generation != self.jobs.generation[row]:
            return
        self._vacate(row)
        self.jobs.remaining[row] = self.jobs.ends_at[row]
        self._record(EventKind.COMPLETE, row, reason=self._log_reason(row))
        self._failures_in_a_row = 0
        self._leave(row, Phase.COMPLETED)
        self.decide_again()

    def _log_reason(self, row: int) -> str:
        """Return `failed` or `killed` for a job that its log ends so, else an empty text."""
        outcome = "" if self.trace.outcome is None else self.trace.outcome[row]
        return "" if outcome == COMPLETED else outcome

    def _estimated_end(
        self, row: int, kind: int, level: int, standstill: int, kept: float | None = None
    ) -> float:
        """Return the tick at which a job is estimated to end if it works after a standstill (in ticks).

        It keeps the share `kept` of its speed, or what it keeps beside the partner that it has now.
        The estimate uses what the policy's information class knows; it is inf where that is nothing, and
        where nobody asks.
        """
        if not self._courses or self.information == InformationClass.NONE:
            return math.inf
        iteration_s = float(self._views.known[self._views.class_of[row], kind, level])
        if self.sharing is not None:
            iteration_s /= self.sharing.kept(row, kind, level) if kept is None else kept
        left_s = float(self._views.remaining_at(np.array([row]), self.now)[0]) * iteration_s
        return self.now + standstill + ticks(left_s) if math.isfinite(left_s) else math.inf

    # What disturbances see and do

    def follow(self, steps: Iterator[int]) -> None:
        """Run a generator beside the simulation; it yields the tick until which it waits."""
        self._clock.process(self._waiting(steps))

    def _waiting(self, steps: Iterator[int]) -> Generator[simpy.Event, Any, None]:
        for tick in steps:
            yield self._clock.timeout(max(tick - self.now, 0))

    def waits(self, row: int) -> bool:
        """Whether a job is in the queue."""
        return bool(self.jobs.phase[row] == Phase.QUEUED)

    def request(self, row: int) -> tuple[int, int]:
        """Return (type index, GPUs) of a job's request; "any type" becomes the job's fastest type."""
        scenario = self.scenario
        kind, gpus = int(scenario.request_type[row]), int(scenario.request_gpus[row])
        if kind < 0:
            level = int(np.searchsorted(scenario.tables.counts, gpus))
            times = scenario.known_times(InformationClass.CLAIRVOYANT)
            kind = int(np.argmin(times[scenario.class_of[row], :, level]))
        return kind, gpus

    def queued_at(self, row: int) -> int:
        """Return the tick at which a job last began to wait; it tells one run of it from the next."""
        return int(self.jobs.queued_since[row])

    def busy_at(self, tick: int) -> set[int]:
        """Return the nodes whose jobs are estimated to be still running at a tick."""
        jobs, busy = self.jobs, set[int]()
        for row in self.allocations.holders:
            if row >= 0 and row not in self._unseen:
                standstill = max(int(jobs.ready[row]) - self.now, 0)
                if self._estimated_end(row, int(jobs.gpu_type[row]), self._level(row), standstill) > tick:
                    busy.update(node for node, _ in self.allocations.holding(row))
        return busy

    def start_on(self, row: int, kind: int, gpus: int, nodes: Nodes) -> None:
        """Clear nodes of all jobs and profiles, and start a waiting job there."""
        self.clear([node for node, _ in nodes])
        self._launch(row, kind, gpus, rescale=False, on=nodes)
        self.decide_again()

    def clear(self, nodes: Collection[int]) -> None:
        """Preempt the jobs on some nodes, and put off the profiles there."""
        for holder in self._holders_on(nodes):
            if holder >= 0:
                self._preempt(holder)
            else:
                self._put_off(holder)

    def _holders_on(self, nodes: Collection[int]) -> list[int]:
        held = self.allocations
        return [holder for holder in held.holders if any(on in nodes for on, _ in held.holding(holder))]

    def _put_off(self, holder: int) -> Profile:
        """Stop a profile whose nodes are needed or have failed, and queue it first of its type."""
        profile = next(
            candidate for candidate in self._profiles.running if self._profile_holder(candidate) == holder
        )
        self._stop_profile(profile)
        self._profiles.put_off(profile)
        return profile

    def drop(self, row: int, reason: str) -> None:
        """Remove a job for good."""
        if self.jobs.gpus[row]:
            self._vacate(row)
        self._record(EventKind.DROP, row, reason=reason)
        self._leave(row, Phase.DROPPED)

    def note(self, kind: str, node: int, cause: str = "") -> None:
        """Log an event of a node."""
        cluster = self.scenario.cluster
        gpus = int(cluster.node_gpus[node])
        self._record(kind, NO_JOB, int(cluster.node_type[node]), gpus, ((node, gpus),), cause=cause)

    def _after(self, delay: int, action: Any) -> None:
        self._clock.timeout(delay).callbacks.append(lambda _: action())

    def _record(
        self,
        kind: str,
        row: int,
        gpu_type: int = -1,
        gpus: int = 0,
        nodes: Nodes = (),
        locality: int = -1,
        overhead_s: float = 0.0,
        iteration_time_s: float = 0.0,
        **marks: Any,
    ) -> None:
        if kind in PACES:
            batch = int(self.jobs.batch[row])
            if batch != self.scenario.trace.global_batch[row]:
                marks["batch"] = batch
            if self.jobs.disturbed:
                marks["write_share"] = float(self.jobs.write_share[row])
            if (partner := self.jobs.partner_of(row)) != NO_JOB:
                marks["partner"] = partner
        if self._parts is not None and nodes and row != NO_JOB:
            marks["devices"] = int(self._parts.devices_of[row])
        self.log.append(
            Event(
                self.now_s, kind, row, gpu_type, gpus, nodes, locality, overhead_s, iteration_time_s, **marks
            )
        )
