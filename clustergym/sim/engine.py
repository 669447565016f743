"""The simulation: SimPy's clock, the jobs' lives, and the enactment of decisions."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import simpy

from clustergym.cluster.allocation import Allocations
from clustergym.cluster.spec import Locality, Nodes
from clustergym.policy import Decision, Infeasible, InformationClass, Placer, Setting, View
from clustergym.scenario import Scenario
from clustergym.sim.failures import Failures
from clustergym.sim.links import SharedLinks
from clustergym.sim.log import NO_JOB, Event, EventKind, EventLog
from clustergym.sim.state import JobStates, Phase, ViewMaker, seconds, ticks
from clustergym.sim.validate import check_decision

Ints = npt.NDArray[np.int64]

IDLE_ROUNDS = 1000
"""Rounds in which nothing runs and nothing can happen before a run counts as stalled."""


FRUITLESS_FAILURES = 200_000
"""Failures of nodes without a job that completes after which a run counts as stalled."""


class StalledError(RuntimeError):
    """Jobs wait, nothing runs, nothing will happen, and the policy starts nothing; or nodes only fail."""


@dataclass(frozen=True)
class Change:
    """One entry of the decision log: what a decision changed, nothing that it left alone.

    Attributes
    ----------
    time_s : float
    launch : tuple of (int, int, int)
        (job row, type index, GPUs) of every job that starts, resumes or is rescaled.
    preempt, drop : tuple of int
        Job rows.
    """

    time_s: float
    launch: tuple[tuple[int, int, int], ...]
    preempt: tuple[int, ...]
    drop: tuple[int, ...]


class Simulation:
    """One run of a scenario; whoever drives it makes the decisions.

    `advance` runs to the next decision point and returns its View, or None at the end;
    `apply` enacts a Decision there. The state is a pure function of scenario, seed,
    information class, round length and decisions.

    Parameters
    ----------
    scenario : Scenario
    placer : Placer
    information : InformationClass
        Of the policy that decides: sets what Views know, and what is profiled.
    policy_round_s : float or None
        The policy's round, used where the scenario leaves rounds to the policy.
    seed : int
    """

    def __init__(
        self,
        scenario: Scenario,
        placer: Placer,
        information: InformationClass,
        policy_round_s: float | None = None,
        seed: int = 0,
    ) -> None:
        self.scenario, self.placer, self.information = scenario, placer, information
        chosen = {"policy": policy_round_s, "event": None}.get(str(scenario.rounds), scenario.rounds)
        self.round_s = None if chosen is None else float(chosen)
        self.setting = Setting(
            scenario.cluster.gpu_types,
            scenario.cluster.capacity,
            scenario.cluster.gpus_per_node,
            scenario.tables.counts,
            self.round_s,
            scenario.costs.profile_gpus if scenario.costs.profile_s.get(information.value, 0.0) else 0,
        )
        self.log = EventLog()
        self.changes: list[Change] = []
        self.jobs = JobStates(scenario)
        self.allocations = Allocations(scenario.cluster)
        self.end_s = 0.0
        self._links = None if scenario.communication_s is None else SharedLinks(scenario.cluster)
        self._views = ViewMaker(scenario, self.jobs, information, self.setting)
        self._clock = simpy.Environment()
        self._left: dict[int, simpy.Event] = {}
        self._in_view: set[int] = set()
        self._rows: Ints | None = None
        self._profile_queue: list[deque[int]] = [deque() for _ in scenario.cluster.gpu_types]
        self._profile_held = np.zeros(len(scenario.cluster.gpu_types), dtype=np.int64)
        self._profile_due: dict[int, int] = {}
        self._failures_in_a_row = 0
        self._present = 0
        self._decision_due = False
        self._round_pending = False
        self._decided_at = -1
        self._idle_rounds = 0
        self._ahead = len(scenario.trace)
        self._defragmented_at = 0
        self._view: View | None = None
        self._horizon = None if scenario.horizon_s is None else ticks(scenario.horizon_s)
        self._round = None if self.round_s is None else ticks(self.round_s)
        self._profile = ticks(scenario.costs.profile_s.get(information.value, 0.0))
        placer.reset(scenario.cluster, np.random.default_rng([seed, 2]))
        self._clock.process(self._arrivals())
        if scenario.failures is not None:
            self._clock.process(self._failing(scenario.failures))

    @property
    def now_s(self) -> float:
        """The clock, seconds."""
        return seconds(self._now)

    @property
    def jobs_left(self) -> int:
        """Jobs that have completed or were dropped."""
        return int((self.jobs.phase >= Phase.COMPLETED).sum())

    @property
    def _now(self) -> int:
        return int(self._clock.now)

    # Driving

    def advance(self) -> View | None:
        """Run to the next decision point.

        Returns
        -------
        View or None
            None once every job has left or the horizon is reached.

        Raises
        ------
        StalledError
            If jobs wait, nothing runs and nothing more can happen.
        """
        self._view = None
        while self._present or self._ahead:
            instant = self._clock.peek()
            if instant == math.inf:
                raise self._stalled()
            if self._horizon is not None and instant > self._horizon:
                self._finish(self._horizon)
                return None
            while self._clock.peek() == instant:
                self._clock.step()
            self._start_profiling()
            if self._decision_due and not (self._horizon is not None and self._now >= self._horizon):
                self._decision_due = False
                if self._in_view:
                    return self._decision_point()
            self._share_links()
        self._finish(self._now)
        return None

    def _finish(self, end: int) -> None:
        self.end_s = seconds(end)
        self._ahead = self._present = 0

    def _decision_point(self) -> View:
        self._decided_at = self._now
        self._defragment()
        if self._rows is None:
            self._rows = np.array(sorted(self._in_view), dtype=np.int64)
        free, cluster = self.allocations.free.copy(), self.scenario.cluster
        available = self.setting.capacity - self._profile_held
        for node in self.allocations.down:
            available[cluster.node_type[node]] -= cluster.node_gpus[node]
        self._view = self._views.view(self._now, self._rows, available, free)
        return self._view

    def apply(self, decision: Decision) -> None:
        """Enact a decision at the current decision point.

        Raises
        ------
        DecisionError
            If it breaks a limit; the state is then unchanged.
        """
        view = self._view
        if view is None:
            raise RuntimeError("apply() needs a decision point: call advance() first")
        check_decision(decision, view, self.scenario)
        self._view = None
        self._enact(decision, view)
        self._decision_due = False
        self._start_profiling()
        self._share_links()
        self._watch_for_stall()
        self._plan_round()

    def _enact(self, decision: Decision, view: View) -> None:
        at = np.searchsorted(view.job, decision.job)
        changed = (view.gpu_type[at] != decision.gpu_type) | (view.gpus[at] != decision.gpus)
        leaving = view.gpus > 0
        leaving[at] = False
        drops = [int(row) for row in np.sort(decision.drop)]
        preempts = [int(row) for row in view.job[leaving] if int(row) not in set(drops)]
        launches = sorted(
            zip(
                (-decision.gpus[changed]).tolist(),
                decision.job[changed].tolist(),
                decision.gpu_type[changed].tolist(),
                strict=True,
            )
        )
        for row in drops:
            self._drop(row, "policy")
        for row in preempts:
            self._preempt(row)
        was_running = {row: self._vacate(row) for _, row, _ in launches if self.jobs.gpus[row]}
        for negative_gpus, row, kind in launches:
            self._launch(row, kind, -negative_gpus, rescale=row in was_running)
        if drops or preempts or launches:
            moved = tuple(sorted((row, kind, -gpus) for gpus, row, kind in launches))
            self.changes.append(Change(self.now_s, moved, tuple(preempts), tuple(drops)))

    # The life of a job

    def _arrivals(self) -> Generator[simpy.Event, Any, None]:
        for row, submit in enumerate(self.jobs.submit.tolist()):
            if submit > self._now:
                yield self._clock.timeout(submit - self._now)
            self._ahead -= 1
            self._clock.process(self._life(row))

    def _life(self, row: int) -> Generator[simpy.Event, Any, None]:
        self._present += 1
        self._record(EventKind.SUBMIT, row)
        left = self._left[row] = self._clock.event()
        if not self.scenario.request_gpus[row]:
            self._drop(row, "fits nowhere")
        elif self._profile:
            self.jobs.phase[row] = Phase.PROFILING
            runnable = self.scenario.feasible[self.scenario.class_of[row]].any(axis=1)
            for kind in np.flatnonzero(runnable).tolist():
                self._profile_queue[kind].append(row)
        else:
            self.jobs.profiled[row] = True
            self._enqueue(row)
        yield left
        self._present -= 1
        del self._left[row]

    def _leave(self, row: int, phase: Phase) -> None:
        self.jobs.phase[row] = phase
        self._in_view.discard(row)
        self._rows = None
        self._left[row].succeed()

    def _enqueue(self, row: int) -> None:
        self.jobs.phase[row] = Phase.QUEUED
        self.jobs.queued_since[row] = self._now
        self._in_view.add(row)
        self._rows = None
        self._request_decision()

    def _start_profiling(self) -> None:
        """Profiling has the first claim on GPUs that are free, in order of submission."""
        gpus = self.scenario.costs.profile_gpus
        for kind, queue in enumerate(self._profile_queue):
            while queue and self.allocations.free[kind] >= gpus:
                if self.jobs.phase[queue[0]] < Phase.COMPLETED and not self._profile_on(queue[0], kind, gpus):
                    break
                queue.popleft()

    def _profile_on(self, row: int, kind: int, gpus: int) -> bool:
        """Start profiling a job on a type; False: there are no nodes for it now."""
        nodes = self._place(kind, gpus)
        if isinstance(nodes, Infeasible):
            return False
        holder = self._profile_holder(row, kind)
        self.allocations.allocate(holder, nodes)
        self._profile_held[kind] += gpus
        self._record(EventKind.PROFILE_START, row, gpu_type=kind, gpus=gpus, nodes=nodes)
        self._profile_due[holder] = self._now + self._profile
        self._after(self._profile, lambda: self._profiled(row, kind))
        return True

    def _profile_holder(self, row: int, kind: int) -> int:
        return -1 - (row * len(self.setting.gpu_types) + kind)

    def _stop_profiling(self, row: int, kind: int) -> None:
        holder, gpus = self._profile_holder(row, kind), self.scenario.costs.profile_gpus
        del self._profile_due[holder]
        nodes = self.allocations.release(holder)
        self._profile_held[kind] -= gpus
        self._record(EventKind.PROFILE_END, row, gpu_type=kind, gpus=gpus, nodes=nodes)

    def _profiled(self, row: int, kind: int) -> None:
        if self._profile_due.get(self._profile_holder(row, kind)) != self._now:
            return
        self._stop_profiling(row, kind)
        self.jobs.profiled[row, kind] = True
        if self.jobs.phase[row] == Phase.PROFILING:
            self._enqueue(row)
        else:
            self._request_decision()

    def _launch(self, row: int, kind: int, gpus: int, *, rescale: bool, moved_to: Nodes = ()) -> None:
        jobs, scenario = self.jobs, self.scenario
        level = int(np.searchsorted(scenario.tables.counts, gpus))
        overhead = ticks(self._overhead_s(row, kind, level))
        what = self._launch_kind(row, rescale, bool(moved_to))
        nodes = moved_to or self._place(kind, gpus)
        if isinstance(nodes, Infeasible):
            self._unplaced(row, kind, gpus, nodes)
            return
        self.allocations.allocate(row, nodes)
        locality = int(scenario.cluster.locality(nodes))
        iteration_s = scenario.iteration_s(row, kind, level, locality)
        jobs.phase[row], jobs.gpu_type[row], jobs.gpus[row] = Phase.RUNNING, kind, gpus
        jobs.iteration_s[row], jobs.ready[row] = iteration_s, self._now + overhead
        jobs.worked_until[row] = jobs.held_since[row] = self._now
        jobs.checkpointed[row] = jobs.remaining[row]
        jobs.restarts[row] += what != EventKind.START
        jobs.launched[row] = jobs.searched[row, kind, level] = True
        if self._links is not None:
            self._links.enter(row, nodes)
        self._await_completion(row)
        self._record(what, row, kind, gpus, nodes, locality, seconds(overhead), iteration_s)

    def _place(self, kind: int, gpus: int) -> Nodes | Infeasible:
        """Ask the placer; an answer worked out before a node of it failed is none."""
        nodes = self.placer.place(self.allocations, kind, gpus)
        if isinstance(nodes, Infeasible):
            return nodes
        failed = [node for node, _ in nodes if node in self.allocations.down]
        if failed:
            return Infeasible(f"node {failed[0]} has failed", nodes_short=len(failed))
        return tuple((int(node), int(count)) for node, count in nodes)

    def _unplaced(self, row: int, kind: int, gpus: int, answer: Infeasible) -> None:
        """Let a job wait whose launch found no nodes; one that was to be rescaled is preempted by that."""
        self._record(EventKind.UNPLACED, row, gpu_type=kind, gpus=gpus, reason=str(answer))
        if self.jobs.phase[row] == Phase.RUNNING:
            self._record(EventKind.PREEMPT, row)
            self._enqueue(row)

    def _await_completion(self, row: int) -> None:
        """Set the job's completion anew from its progress, which holds as of now."""
        jobs = self.jobs
        jobs.generation[row] += 1
        generation = int(jobs.generation[row])
        standstill = max(int(jobs.ready[row]) - self._now, 0)
        work = standstill + ticks(float(jobs.remaining[row]) * float(jobs.iteration_s[row]))
        self._after(work, lambda: self._complete(row, generation))

    def _share_links(self) -> None:
        """Let jobs whose share of the links has changed go on at their new speed."""
        if self._links is None:
            return
        jobs, counts = self.jobs, self.scenario.tables.counts
        for row, slowdown in self._links.update().items():
            kind, gpus = int(jobs.gpu_type[row]), int(jobs.gpus[row])
            level = int(np.searchsorted(counts, gpus))
            locality = int(self.scenario.cluster.locality(self.allocations.holding(row)))
            iteration_s = self.scenario.iteration_s(row, kind, level, locality, slowdown)
            if iteration_s == jobs.iteration_s[row]:
                continue
            jobs.settle(row, self._now)
            jobs.iteration_s[row] = iteration_s
            self._await_completion(row)
            standstill_s = seconds(max(int(jobs.ready[row]) - self._now, 0))
            self._record(EventKind.RATE, row, kind, gpus, (), locality, standstill_s, iteration_s)

    def _overhead_s(self, row: int, kind: int, level: int) -> float:
        search = 0.0 if self.jobs.searched[row, kind, level] else float(self._views.search_s[level])
        checkpoint = float(self._views.checkpoint_s[self._views.class_of[row]])
        return search + (checkpoint if self.jobs.launched[row] else 0.0)

    def _launch_kind(self, row: int, rescale: bool, moved: bool) -> EventKind:
        if moved:
            return EventKind.MIGRATE
        if rescale:
            return EventKind.RESCALE
        return EventKind.RESUME if self.jobs.launched[row] else EventKind.START

    def _vacate(self, row: int) -> Nodes:
        """Take a job's GPUs away, with its progress written down."""
        self.jobs.settle(row, self._now)
        self.jobs.generation[row] += 1
        self.jobs.gpu_type[row], self.jobs.gpus[row] = -1, 0
        if self._links is not None:
            self._links.leave(row)
        return self.allocations.release(row)

    def _preempt(self, row: int) -> None:
        self._vacate(row)
        self._record(EventKind.PREEMPT, row)
        self._enqueue(row)

    def _drop(self, row: int, reason: str) -> None:
        if self.jobs.gpus[row]:
            self._vacate(row)
        self._record(EventKind.DROP, row, reason=reason)
        self._leave(row, Phase.DROPPED)

    def _complete(self, row: int, generation: int) -> None:
        if generation != self.jobs.generation[row]:
            return
        self._vacate(row)
        self.jobs.remaining[row] = 0.0
        self._record(EventKind.COMPLETE, row)
        self._failures_in_a_row = 0
        self._leave(row, Phase.COMPLETED)
        self._request_decision()

    # The life of a node

    def _failing(self, failures: Failures) -> Generator[simpy.Event, Any, None]:
        for time_s, node, repair_s in failures.upcoming(len(self.scenario.cluster.node_type)):
            yield self._clock.timeout(max(ticks(time_s) - self._now, 0))
            if node not in self.allocations.down:
                self._fail_node(node, max(ticks(repair_s), 1))

    def _fail_node(self, node: int, repair: int) -> None:
        self._failures_in_a_row += 1
        if self._failures_in_a_row > FRUITLESS_FAILURES:
            raise StalledError(
                f"stalled at {self.now_s:.0f} s: {FRUITLESS_FAILURES} node failures since a job completed"
            )
        self._record_node(EventKind.NODE_FAIL, node)
        hit = [
            h for h in self.allocations.holders if any(node == on for on, _ in self.allocations.holding(h))
        ]
        for holder in hit:
            if holder >= 0:
                self._fail(holder, node)
            else:
                row, kind = divmod(-1 - holder, len(self.setting.gpu_types))
                self._stop_profiling(row, kind)
                self._profile_queue[kind].appendleft(row)
        self.allocations.fail(node)
        self._after(repair, lambda: self._repair_node(node))
        self._request_decision()

    def _fail(self, row: int, node: int) -> None:
        """Take a job's GPUs, and set it back to its last checkpoint."""
        jobs = self.jobs
        kind, gpus = int(jobs.gpu_type[row]), int(jobs.gpus[row])
        left, undone = jobs.at_checkpoint(row, self._now)
        self._vacate(row)
        lost = left - float(jobs.remaining[row])
        jobs.remaining[row] = left
        failed = Event(self.now_s, EventKind.FAIL, row, kind, gpus, reason=f"node {node} failed")
        self.log.append(failed._replace(lost_s=seconds(undone), lost_iterations=lost))
        self._enqueue(row)

    def _repair_node(self, node: int) -> None:
        self.allocations.repair(node)
        self._record_node(EventKind.NODE_REPAIR, node)
        self._request_decision()

    def _record_node(self, kind: EventKind, node: int) -> None:
        cluster = self.scenario.cluster
        gpus = int(cluster.node_gpus[node])
        self._record(kind, NO_JOB, int(cluster.node_type[node]), gpus, ((node, gpus),))

    # Decision points

    def _request_decision(self) -> None:
        if self._round is None:
            self._decision_due = True
        else:
            self._plan_round()

    def _plan_round(self) -> None:
        """See to it that a round comes while jobs are in the system."""
        if self._round is None or self._round_pending or not self._in_view:
            return
        earliest = self._decided_at + 1 if self._decided_at >= self._now else self._now
        due = -(-earliest // self._round) * self._round
        self._round_pending = True
        self._after(due - self._now, self._round_due)

    def _round_due(self) -> None:
        self._round_pending = False
        self._decision_due = True

    def _after(self, delay: int, action: Any) -> None:
        self._clock.timeout(delay).callbacks.append(lambda _: action())

    def _watch_for_stall(self) -> None:
        waits = bool(self._in_view) and not (self.jobs.gpus[list(self._in_view)] > 0).any()
        if waits and self.allocations.down:
            return
        hopeless = waits and not self._ahead and not any(self._profile_queue) and not self._profile_held.any()
        self._idle_rounds = self._idle_rounds + 1 if hopeless else 0
        if self._idle_rounds > IDLE_ROUNDS:
            raise self._stalled()

    def _stalled(self) -> StalledError:
        waiting = sorted(self._in_view)
        first = self.scenario.trace.job_id[waiting[0]] if waiting else "none"
        return StalledError(
            f"stalled at {self.now_s:.0f} s: {len(waiting)} jobs wait (first: {first}), nothing runs and "
            "the policy starts nothing"
        )

    def _defragment(self) -> None:
        every = self.placer.defragment_s
        if every is None or self._now - self._defragmented_at < ticks(every):
            return
        self._defragmented_at = self._now
        for row, nodes in self.placer.defragment(self.allocations):
            if self._worth_moving(row, nodes):
                kind, gpus = int(self.jobs.gpu_type[row]), int(self.jobs.gpus[row])
                self._vacate(row)
                self._launch(row, kind, gpus, rescale=True, moved_to=nodes)

    def _worth_moving(self, row: int, nodes: Nodes) -> bool:
        """Whether a proposed move is still possible and ends the job earlier, restart included."""
        held = dict(self.allocations.holding(row))
        free = self.allocations.free_on_node
        if any(free[node] + held.get(node, 0) < gpus for node, gpus in nodes):
            return False
        scenario, jobs = self.scenario, self.jobs
        kind, level = int(jobs.gpu_type[row]), int(np.searchsorted(scenario.tables.counts, jobs.gpus[row]))
        locality = int(scenario.cluster.locality(nodes))
        # Where it would share links it is taken to be slowed down as it is now; inside a leaf it shares none.
        shared = self._links is not None and locality > Locality.LEAF
        slowdown = self._links.slowdown(row) if shared and self._links is not None else 1.0
        faster = scenario.iteration_s(row, kind, level, locality, slowdown)
        remaining = float(jobs.remaining_at(np.array([row]), self._now)[0])
        standstill = max(seconds(int(jobs.ready[row]) - self._now), 0.0)
        stay = standstill + remaining * float(jobs.iteration_s[row])
        return self._overhead_s(row, kind, level) + remaining * faster < stay

    def _record(
        self,
        kind: EventKind,
        row: int,
        gpu_type: int = -1,
        gpus: int = 0,
        nodes: Nodes = (),
        locality: int = -1,
        overhead_s: float = 0.0,
        iteration_time_s: float = 0.0,
        reason: str = "",
    ) -> None:
        self.log.append(
            Event(
                self.now_s, kind, row, gpu_type, gpus, nodes, locality, overhead_s, iteration_time_s, reason
            )
        )
