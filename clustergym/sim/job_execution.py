"""The execution of jobs from launch to end: their speed, and everything that moves or ends them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from clustergym.cluster.allocation import Allocations, PartAllocations
from clustergym.cluster.spec import Locality, Nodes
from clustergym.scenario.clock import TICKS_PER_S, seconds, ticks
from clustergym.scenario.disturbance import ActiveDisturbance
from clustergym.scenario.policy import Infeasible, InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.sim import rules
from clustergym.sim.allocator import Allocator
from clustergym.sim.clock import Clock
from clustergym.sim.event_recorder import EventRecorder
from clustergym.sim.job_queue import JobQueue
from clustergym.sim.links import SharedLinks
from clustergym.sim.log import NO_JOB, EventType
from clustergym.sim.pairs import Sharing
from clustergym.sim.profiling import Profiler
from clustergym.sim.state import JobStates, Phase
from clustergym.sim.views import ViewMaker
from clustergym.trace.trace import COMPLETED


@dataclass(eq=False)
class JobProgress:
    """Sets the speed of each running job, and completes the job when its work is done.

    Attributes
    ----------
    slow : dict of int to list of float
        Factors by which jobs on a node take longer.
    complete : callable
        Called with the row of a job when its work is done.
    """

    scenario: Scenario
    clock: Clock
    jobs: JobStates
    log: EventRecorder
    allocations: Allocations
    views: ViewMaker
    sharing: Sharing | None
    links: SharedLinks | None
    courses: list[ActiveDisturbance]
    slow: dict[int, list[float]] = field(default_factory=dict)
    complete: Callable[[int], None] = field(init=False)

    def iteration_s(
        self, row: int, gpu_type: int, level: int, nodes: Nodes, remaining: float, slowdown: float = 1.0
    ) -> float:
        """Return a job's seconds per iteration now, on a GPU type, a GPU count (index `level`) and nodes.

        Iterations at another batch than the requested one are worth more or fewer, by how many remain.
        """
        scenario, choices = self.scenario, self.scenario.batch_choices
        column = -1 if choices is None else choices.column(row, int(self.jobs.batch[row]))
        locality = int(scenario.cluster.locality(nodes))
        iteration_s = scenario.iteration_s(row, gpu_type, level, locality, slowdown, column)
        if self.sharing is not None:
            iteration_s /= self.sharing.get_kept_speed(row, gpu_type, level)
        if self.slow:
            # Synchronous training: all wait for the slowest node, on which several causes multiply.
            iteration_s *= max(math.prod(self.slow.get(node, ())) for node, _ in nodes)
        if self.jobs.disturbed:
            # Writing checkpoints takes a share of the time; iterations get the rest.
            iteration_s /= 1.0 - float(self.jobs.write_share[row])
        if choices is None or column < 0:
            return iteration_s
        # Iterations are counted at the requested batch; one at another batch is worth more or fewer of them.
        return iteration_s / choices.worth(row, column, remaining)

    def plan_checkpoints(self, row: int, nodes: Nodes) -> None:
        """Set how often a job saves: at the shortest interval that a disturbance (a failure …) asks for."""
        jobs, scenario = self.jobs, self.scenario
        asked = [disturbance.checkpoints(scenario.cluster, nodes) for disturbance in scenario.disturbances]
        every_s, write_s = min((plan for plan in asked if plan is not None), default=(0.0, 0.0))
        jobs.checkpoint_every[row] = ticks(every_s + write_s)
        jobs.write_share[row] = write_s / (every_s + write_s) if write_s else 0.0
        jobs.unsaved[row], jobs.restart_s[row] = 0, 0.0

    def await_completion(self, row: int) -> None:
        """Schedule a running job's completion, or its next change of speed, from its present progress.

        A new `generation` makes what was scheduled before void.
        """
        jobs = self.jobs
        jobs.generation[row] += 1
        generation = int(jobs.generation[row])
        standstill = max(int(jobs.ready[row]) - self.clock.now, 0)
        remaining, iteration_s = float(jobs.remaining[row]), float(jobs.iteration_s[row])
        # `ends_at` is above 0 where the log says that the job ended before its work was done.
        action, work = self.complete, rules.count_work(remaining - float(jobs.ends_at[row]), iteration_s)
        choices = self.scenario.batch_choices
        if choices is not None and jobs.batch[row] != self.scenario.trace.global_batch[row]:
            end = choices.next_end(row, remaining)
            if end > jobs.ends_at[row]:
                # Rounded up: a tick too early the efficiency would be the old one, and the next change at
                # once due again.
                work = math.ceil((remaining - end) * iteration_s * TICKS_PER_S)
                action = self.update_speed

        def act() -> None:
            if generation == jobs.generation[row]:
                action(row)

        self.clock.after(standstill + work, act)

    def change_batch(self, row: int, batch: int) -> None:
        """Change a running job's global batch without a restart."""
        self.jobs.settle(row, self.clock.now)
        self.jobs.batch[row] = batch
        self.update_speed(row)

    def update_speed(self, row: int, event: EventType = EventType.RATE, **marks: Any) -> None:
        """Recompute and log a running job's speed, and reschedule its completion, after a change."""
        jobs = self.jobs
        jobs.settle(row, self.clock.now)
        gpu_type, gpus = int(jobs.gpu_type[row]), int(jobs.gpus[row])
        nodes, remaining = self.allocations.holding(row), float(jobs.remaining[row])
        locality = int(self.scenario.cluster.locality(nodes))
        slowdown = 1.0 if self.links is None else self.links.slowdown(row)
        iteration_s = self.iteration_s(row, gpu_type, int(jobs.level[row]), nodes, remaining, slowdown)
        jobs.iteration_s[row] = iteration_s
        self.await_completion(row)
        standstill_s = seconds(max(int(jobs.ready[row]) - self.clock.now, 0))
        marks |= {"locality": locality, "overhead_s": standstill_s, "iteration_time_s": iteration_s}
        self.log.record(event, row, gpu_type, gpus, **marks)

    def update_speeds(self) -> None:
        """Update the speed of each job whose partner on its GPUs, or share of network links, has changed."""
        jobs = self.jobs
        if self.sharing is not None:
            for row in self.sharing.list_changed_jobs():
                self.update_speed(row)
        if self.links is None:
            return
        for row, slowdown in self.links.update().items():
            gpu_type, level, nodes = (
                int(jobs.gpu_type[row]),
                int(jobs.level[row]),
                self.allocations.holding(row),
            )
            remaining = float(jobs.compute_remaining(row, self.clock.now))
            # A link that changes touches all its jobs, but an unchanged speed is not logged again.
            if self.iteration_s(row, gpu_type, level, nodes, remaining, slowdown) != jobs.iteration_s[row]:
                self.update_speed(row)

    def estimate_end(
        self, row: int, gpu_type: int, level: int, standstill: int, kept: float | None = None
    ) -> float:
        """Estimate when (tick) a job ends that first stands still, then runs on a GPU type and count (index).

        It keeps the share `kept` of its speed, or what it keeps beside the partner that it has now.
        The estimate uses what the policy's information class knows; it is inf where that is nothing, and
        where nobody asks.
        """
        views, now = self.views, self.clock.now
        if not self.courses or views.information == InformationClass.NONE:
            return math.inf
        iteration_s = float(views.known[views.class_of[row], gpu_type, level])
        if self.sharing is not None:
            iteration_s /= self.sharing.get_kept_speed(row, gpu_type, level) if kept is None else kept
        # What the policy believes, not what is true: reservations must not leak when jobs really end.
        left_s = float(views.compute_remaining(row, now)) * iteration_s
        return now + standstill + ticks(left_s) if math.isfinite(left_s) else math.inf


@dataclass(eq=False)
class JobExecution:
    """Launches, moves, preempts, completes and drops jobs.

    Attributes
    ----------
    completions : int
        Jobs that have completed.
    launches : int
        Launches since a job left, or was found to have come nearer to its end.
    defragmented_at : int
        Tick at which jobs were last moved so that free nodes lie together.
    """

    progress: JobProgress
    allocator: Allocator
    queue: JobQueue
    profiler: Profiler
    completions: int = 0
    launches: int = 0
    defragmented_at: int = 0

    def __post_init__(self) -> None:
        progress = self.progress
        self.scenario, self.clock, self.jobs = progress.scenario, progress.clock, progress.jobs
        self.log, self.courses = progress.log, progress.courses
        progress.complete = self._complete

    def launch(
        self,
        row: int,
        gpu_type: int,
        gpus: int,
        *,
        rescale: bool,
        on: Nodes = (),
        migrates: bool = False,
        beside: int = NO_JOB,
        avoid: tuple[int, ...] = (),
        saves: bool = False,
    ) -> None:
        """Launch a job on the nodes `on`, on those of the job `beside`, or on nodes that the placer finds.

        A running job (`rescale`) that keeps its type and count (`migrates`) migrates. Where stops lose work
        it may have saved before (`saves`), which it pays for now. A job for which there are no nodes waits;
        one that was running is preempted.
        """
        jobs, progress = self.jobs, self.progress
        level = int(self.scenario.tables.counts.searchsorted(gpus))
        # Before the job holds what it is given: the cost depends on whether this is the first launch.
        overhead = ticks(self._standstill_s(row, gpu_type, level, saves))
        what = EventType.RESUME if jobs.launched[row] else EventType.START
        if rescale:
            what = EventType.MIGRATE if migrates else EventType.RESCALE
        nodes = self._find_nodes(row, gpu_type, gpus, level, overhead, on, beside, avoid)
        if beside == NO_JOB and not isinstance(nodes, Infeasible):
            nodes = self.allocator.allocate(row, nodes)
        if isinstance(nodes, Infeasible):
            self.log.record(EventType.UNPLACED, row, gpu_type, gpus, reason=str(nodes))
            # A rescaled job has given its GPUs up already, so without new ones it waits.
            if jobs.phase[row] == Phase.RUNNING:
                self._wait_again(row)
            return
        locality, now = int(self.scenario.cluster.locality(nodes)), self.clock.now
        if jobs.disturbed:
            progress.plan_checkpoints(row, nodes)
        iteration_s = progress.iteration_s(row, gpu_type, level, nodes, float(jobs.remaining[row]))
        held = gpu_type, level, gpus
        self.launches += 1
        rules.begin_to_hold(jobs.job[row], jobs.figures[row], held, iteration_s, overhead, now)
        jobs.checkpointed[row] = jobs.remaining[row]
        jobs.searched[row, gpu_type, level] = True
        if progress.links is not None:
            progress.links.enter(row, nodes)
        progress.await_completion(row)
        pace = {"locality": locality, "overhead_s": seconds(overhead), "iteration_time_s": iteration_s}
        self.log.record(what, row, gpu_type, gpus, nodes, **pace)
        for course in self.courses:
            course.note_launch(row)

    def _find_nodes(
        self,
        row: int,
        gpu_type: int,
        gpus: int,
        level: int,
        overhead: int,
        on: Nodes,
        beside: int,
        avoid: tuple[int, ...],
    ) -> Nodes | Infeasible:
        """Return the nodes on which a job is launched, or why there are none."""
        allocations, sharing = self.allocator.allocations, self.progress.sharing
        if isinstance(allocations, PartAllocations):
            return self.allocator.place_part(allocations, row)
        if sharing is not None and beside != NO_JOB:
            return self._join(sharing, row, beside, overhead)
        until = self.progress.estimate_end(row, gpu_type, level, overhead)
        if not on:
            asked = self.allocator.asked_nodes(row, gpus)
            return self.allocator.place(gpu_type, gpus, until, asked, avoid, row)
        # Nodes of a planned job are kept for itself.
        return on if row in self.jobs.unseen else self.allocator.claim(on, until)

    def _standstill_s(self, row: int, gpu_type: int, level: int, saves: bool) -> float:
        """Return the seconds for which a launch stands still, with those of saving if the job `saves`."""
        restart_s = self.jobs.get_restart_s(row, gpu_type, level)
        return restart_s + float(self.jobs.save_s[row]) if saves and self.jobs.stops_lose else restart_s

    def _join(self, sharing: Sharing, row: int, beside: int, overhead: int) -> Nodes | Infeasible:
        """Let a job share the GPUs of another, unless their nodes are kept for what comes before its end."""
        if on := self.allocator.allocations.holding(beside):
            gpu_type, level = int(self.jobs.gpu_type[beside]), int(self.jobs.level[beside])
            kept = sharing.get_pair_speed(row, beside, gpu_type, level)
            until = self.progress.estimate_end(row, gpu_type, level, overhead, kept)
            claimed = self.allocator.claim(on, until)
            if isinstance(claimed, Infeasible):
                return claimed
        return sharing.join(row, beside, self.clock.now)

    def vacate(self, row: int) -> Nodes:
        """Record a job's progress, release its GPUs, and return its (node, GPUs) pairs."""
        jobs, progress = self.jobs, self.progress
        jobs.settle(row, self.clock.now)
        if progress.sharing is not None:
            progress.sharing.part(row, self.clock.now)
        jobs.generation[row] += 1
        jobs.saving.pop(row, None)
        if jobs.disturbed:
            jobs.hangs[row] = False
        rules.end_holding(jobs.job[row])
        if progress.links is not None:
            progress.links.leave(row)
        return self.allocator.release(row)

    def undo(self, row: int) -> tuple[float, float]:
        """Release a job's GPUs and undo its unsaved work; return that work in (seconds, iterations)."""
        jobs = self.jobs
        left, undone = jobs.at_checkpoint(row, self.clock.now)
        self.vacate(row)
        lost = float(left) - float(jobs.remaining[row])
        jobs.remaining[row] = left
        return seconds(int(undone)), lost

    def stop(self, row: int, saves: bool) -> None:
        """Release a job's GPUs; where stops lose work and it does not save first, undo its unsaved work."""
        if saves or not self.jobs.stops_lose:
            self.vacate(row)
            return
        held = int(self.jobs.gpu_type[row]), int(self.jobs.gpus[row])
        lost_s, lost = self.undo(row)
        share = float(self.jobs.write_share[row])
        self.log.record(EventType.UNDO, row, *held, lost_s=lost_s, lost_iterations=lost, write_share=share)

    def preempt(self, row: int, saves: bool = True) -> None:
        """Take the GPUs of a running job, which then waits; unless it `saves`, it may lose work."""
        self.stop(row, saves)
        self._wait_again(row)

    def _wait_again(self, row: int) -> None:
        self.log.record(EventType.PREEMPT, row)
        self.queue.enqueue(row)

    def drop(self, row: int, reason: str) -> None:
        """Remove a job from the run for good."""
        if self.jobs.gpus[row]:
            self.vacate(row)
        self.log.record(EventType.DROP, row, reason=reason)
        self._leave(row, Phase.DROPPED)

    def _complete(self, row: int) -> None:
        """Let a job leave that has done its work, or failed or was killed where its log says so."""
        self.vacate(row)
        # Ticks are whole, so the work done by now may be off by part of a tick; set what is left exactly.
        self.jobs.remaining[row] = self.jobs.ends_at[row]
        outcomes = self.scenario.trace.outcome
        outcome = COMPLETED if outcomes is None else outcomes[row]
        self.log.record(EventType.COMPLETE, row, reason="" if outcome == COMPLETED else outcome)
        self.completions += 1
        self._leave(row, Phase.COMPLETED)
        self.queue.decide_again()

    def _leave(self, row: int, phase: Phase) -> None:
        self.launches = 0
        self.profiler.hand_over_profiles(row)
        self.queue.leave(row, phase)

    def defragment(self) -> None:
        """Unless done recently, move jobs to closer nodes where the placer proposes it and a restart pays."""
        placer, now = self.allocator.placer, self.clock.now
        if placer.defragment_s is None or now - self.defragmented_at < ticks(placer.defragment_s):
            return
        # Also where nothing moves: the next attempt is a full interval away.
        self.defragmented_at = now
        for row, nodes in placer.defragment(self.allocator.allocations):
            if self._is_worth_moving(row, nodes):
                gpu_type, gpus = int(self.jobs.gpu_type[row]), int(self.jobs.gpus[row])
                self.vacate(row)
                self.launch(row, gpu_type, gpus, rescale=True, on=nodes, migrates=True, saves=True)

    def _is_worth_moving(self, row: int, nodes: Nodes) -> bool:
        """Whether a proposed move is still possible and lets the job end earlier despite its restart."""
        jobs, progress, now = self.jobs, self.progress, self.clock.now
        held = dict(self.allocator.allocations.holding(row))
        free = self.allocator.allocations.free_on_node
        if any(free[node] + held.get(node, 0) < gpus for node, gpus in nodes):
            return False
        # A job that hangs is to be interrupted, and one half of a pair cannot move alone.
        if row in jobs.unseen or row in jobs.saving or jobs.hangs[row] or jobs.get_partner(row) != NO_JOB:
            return False
        if not self.allocator.keeps_segments(row, nodes):
            return False
        gpu_type, level = int(jobs.gpu_type[row]), int(jobs.level[row])
        overhead_s = self._standstill_s(row, gpu_type, level, saves=True)
        withheld = self.allocator.withheld(progress.estimate_end(row, gpu_type, level, ticks(overhead_s)))
        if any(node in withheld for node, _ in nodes):
            return False
        # If the job would share links, assume its present slowdown; inside a leaf it shares no links.
        slowdown = 1.0
        if progress.links is not None and self.scenario.cluster.locality(nodes) > Locality.LEAF:
            slowdown = progress.links.slowdown(row)
        remaining = float(progress.views.compute_remaining(row, now))
        faster = progress.iteration_s(row, gpu_type, level, nodes, remaining, slowdown)
        speeds = float(jobs.iteration_s[row]), faster
        return rules.pays_to_move(overhead_s, remaining, *speeds, int(jobs.ready[row]), now)
