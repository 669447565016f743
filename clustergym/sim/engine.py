"""The simulation engine: finds decision points and carries out decisions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import simpy

from clustergym.cluster.allocation import PartAllocations
from clustergym.cluster.spec import Nodes
from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Ints
from clustergym.scenario.clock import seconds, ticks
from clustergym.scenario.disturbance import ActiveDisturbance
from clustergym.scenario.disturbances.capacity import CapacityPlan
from clustergym.scenario.policy import Decision, InformationClass, Placer, Places, Policy, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.allocator import Allocator, make_allocations
from clustergym.sim.clock import Clock
from clustergym.sim.decision_checks import Limits, check_capacity, check_decision, coerce_decision
from clustergym.sim.disturbances import Disturbances
from clustergym.sim.event_recorder import EventRecorder
from clustergym.sim.job_execution import JobExecution, JobProgress
from clustergym.sim.job_queue import JobQueue
from clustergym.sim.links import SharedLinks
from clustergym.sim.log import NO_JOB, Event, EventType
from clustergym.sim.moves import list_moves, list_nodes_outside, list_stops
from clustergym.sim.notices import Notices
from clustergym.sim.pairs import Sharing, list_paired_launches
from clustergym.sim.profiling import Profiler
from clustergym.sim.stalls import IDLE_ROUNDS, StalledError, StallWatch
from clustergym.sim.state import JobStates, Phase, make_setting
from clustergym.sim.views import ViewMaker
from clustergym.trace.trace import Trace

__all__ = ["IDLE_ROUNDS", "Change", "Simulation", "StalledError"]


@dataclass(frozen=True)
class Change:
    """An entry of the decision log: what one decision changed.

    Attributes
    ----------
    time_s : float
    launch : tuple of (int, int, int)
        (job row, type index, GPUs) of every job that starts, resumes or is rescaled; on a divisible cluster
        in the order of the decision, in which they are placed.
    preempt, drop : tuple of int
        Job rows.
    batch : tuple of (int, int)
        (job row, samples) of every job that is launched at another global batch than the requested one,
        or goes on at another one than before.
    partner : tuple of (int, int)
        (job row, row) of every job that is launched beside another, which holds the GPUs already or is
        launched too.
    avoid : tuple of (int, tuple of int)
        (job row, nodes) of every job that is launched and may not use some nodes.
    notice : tuple of int
        Rows of jobs that save before they stop, or before they are launched with other GPUs or elsewhere.
    move : tuple of (int, Nodes or int)
        (job row, nodes or domain) of every job that is launched there.
    capacity : tuple of int
        Targets of the products that are rented; empty: as before.
    """

    time_s: float
    launch: tuple[tuple[int, int, int], ...]
    preempt: tuple[int, ...]
    drop: tuple[int, ...]
    batch: tuple[tuple[int, int], ...] = ()
    partner: tuple[tuple[int, int], ...] = ()
    avoid: tuple[tuple[int, tuple[int, ...]], ...] = ()
    notice: tuple[int, ...] = ()
    move: tuple[tuple[int, Nodes | int], ...] = ()
    capacity: tuple[int, ...] = ()

    @property
    def is_of_gpus_alone(self) -> bool:
        """Whether nothing but the types and numbers of jobs' GPUs was decided."""
        return not (self.batch or self.partner or self.avoid or self.notice or self.move or self.capacity)


Steps = tuple[Callable[[], View | None], Callable[[View], Decision], Callable[[Decision], None]]
UNCHANGED = Decision.of(())
"""This very object stands for the decision by which all jobs keep what they hold, which takes no check."""


class Terms(NamedTuple):
    """Conditions of launches and stops: nodes to avoid or move to, and jobs that save before they stop."""

    avoid: Mapping[int, tuple[int, ...]]
    moves: Mapping[int, Nodes | int]
    notices: set[int]


class Simulation:
    """One run of a scenario on the SimPy engine; the caller makes the decisions.

    `advance` runs to the next decision point and returns its View, or None at the end;
    `apply` carries out a Decision there. The state is a pure function of scenario, seed,
    information class, round length and decisions.

    Parameters
    ----------
    scenario : Scenario
    placer : Placer
    information : InformationClass
        Information class of the policy: it sets what Views know and what is profiled.
    policy_round_s : float or None
        The policy's round, used where the scenario leaves rounds to the policy.
    seed : int

    Attributes
    ----------
    round_s : float or None
        Seconds between decision points; None: they are at every event.
    changes : list of Change
        What each decision has changed.
    decision_points : int
    end_s : float
        When the run ended.
    clock, jobs, allocations, log, queue, sharing, views, allocator, profiler, progress, execution, ...
        The parts of the run, of which each says what it does. `sharing` is None where no jobs share GPUs.
    """

    engine: ClassVar[str] = "simpy"
    clock_type: ClassVar[type[Clock]] = Clock
    allocator_type: ClassVar[type[Allocator]] = Allocator
    execution_type: ClassVar[type[JobExecution]] = JobExecution
    disturbances_type: ClassVar[type[Disturbances]] = Disturbances

    def __init__(
        self,
        scenario: Scenario,
        placer: Placer,
        information: InformationClass,
        policy_round_s: float | None = None,
        seed: int = 0,
    ) -> None:
        self.scenario, self.placer, self.information = scenario, placer, information
        self.round_s = scenario.round_s(policy_round_s)
        self.horizon = None if scenario.horizon_s is None else ticks(scenario.horizon_s)
        self.setting = make_setting(scenario, self.round_s)
        self.changes: list[Change] = []
        self.decision_points, self.end_s = 0, 0.0
        self._limits: Limits | None = None
        courses: list[ActiveDisturbance] = []
        clock = self.clock = self.clock_type()
        jobs = self.jobs = JobStates(scenario)
        held = self.allocations = make_allocations(scenario, placer)
        log = self.log = EventRecorder(scenario, clock, jobs, held)
        queue = self.queue = JobQueue(scenario, clock, jobs, self.round_s)
        self.sharing = None if scenario.pairs is None else Sharing(scenario, jobs, held)
        links = None if scenario.communication_s is None else SharedLinks(scenario.cluster)
        views = self.views = ViewMaker(scenario, jobs, information, self.setting)
        allocator = self.allocator = self.allocator_type(scenario, placer, jobs, held, courses)
        profiler = self.profiler = Profiler(information, log, allocator, queue)
        self.progress = JobProgress(scenario, clock, jobs, log, held, views, self.sharing, links, courses)
        self.execution = self.execution_type(self.progress, allocator, queue, profiler)
        # The order of construction is part of a run's result: of what is due at one tick, SimPy calls first
        # what was scheduled first.
        clock.process(self._submit_all())
        self.disturbances = self.disturbances_type(self.execution)
        self.notices = Notices(self.disturbances)
        self.stalls = StallWatch(self.execution, self.disturbances.capacity)
        # A stream of its own: a placer's draws do not depend on the policy's.
        placer.reset(scenario.cluster, random_streams.PLACER.generator(seed))

    @property
    def known_trace(self) -> Trace:
        """The jobs as the policy may know them: only a clairvoyant one knows which jobs will end early."""
        trace = self.scenario.trace
        return trace if self.information == InformationClass.CLAIRVOYANT else trace.as_asked()

    @property
    def now_s(self) -> float:
        """The present simulated time, in seconds."""
        return self.clock.now_s

    @property
    def jobs_in_view(self) -> int:
        """Number of jobs that the policy sees at the next decision point."""
        return len(self.queue.in_view)

    @property
    def jobs_left(self) -> int:
        """Number of jobs that have left the system, because they completed or were dropped."""
        return int((self.jobs.phase >= Phase.COMPLETED).sum())

    # Submissions

    def _submit_all(self) -> Generator[simpy.Event, Any, None]:
        clock, together = self.clock, list[int]()
        for row, submit in enumerate(self.jobs.submit.tolist()):
            if submit > clock.now:
                # Scheduled before anything that the submissions schedule for the same tick.
                next_submission = clock.timeout(submit - clock.now)
                self._submit(together)
                together = []
                yield next_submission
            together.append(row)
        self._submit(together)

    def _submit(self, rows: Sequence[int]) -> None:
        """Log jobs' submissions, and let the jobs be profiled or wait."""
        jobs, queue = self.jobs, self.queue
        queue.ahead -= len(rows)
        for row in rows:
            # A live run may notice a submission late.
            self.log.append(Event(seconds(int(jobs.submit[row])), EventType.SUBMIT, row))
            queue.present[row] = None
            # A request of 0 GPUs marks a job that no allotment of the cluster can hold.
            if not self.scenario.request_gpus[row]:
                self.execution.drop(row, "fits nowhere")
                continue
            # A job that a disturbance starts itself is neither profiled nor shown to the policy.
            if row not in jobs.unseen and self.profiler.gpus:
                self.profiler.ask(row)
                # With profile_reuse=model another job of the class may have been profiled already.
                if not jobs.is_profiled(row):
                    jobs.phase[row] = Phase.PROFILING
                    continue
            queue.enqueue(row)

    # Driving

    def steps(self, policy: Policy) -> Steps:
        """Return what leads to a decision point, decides there, and goes on."""
        return self.advance, policy.schedule, self.apply

    def advance(self) -> View | None:
        """Simulate up to the next decision point, and return what the policy sees there; None at the end.

        The end is when every job that is scored has left, or at the horizon.

        Raises
        ------
        StalledError
            If jobs wait, nothing runs and nothing more can happen.
        """
        self._limits = None
        clock, queue = self.clock, self.queue
        while queue.scored_left and (queue.present or queue.ahead):
            self.allocator.stop_released()
            instant = self.next_instant()
            if instant == math.inf:
                raise self.stalls.error()
            if self.horizon is not None and instant > self.horizon:
                self._end(self.horizon)
                return None
            # All events of a tick come before its decision, in whatever order they were scheduled: a decision
            # sees the state after all of them, and two jobs that end together are one decision point.
            while clock.peek() == instant:
                clock.step()
            for course in self.disturbances.courses:
                course.serve()
            # Profiles have the first claim on free GPUs, except at a decision point with jobs in the queue:
            # there `apply` starts them after the launches.
            if not (queue.due and self._decides_first()):
                self.profiler.start_waiting()
            # Nothing is decided at the horizon itself: what was launched there would have no time to run.
            if queue.due and not (self.horizon is not None and clock.now >= self.horizon):
                queue.due = False
                if queue.decided_at == clock.now:
                    # The decision log identifies decisions by their times, so an instant has at most one.
                    queue.ask_later()
                elif queue.in_view or (queue.always and (queue.present or queue.ahead)):
                    return self._begin_decision()
            self.progress.update_speeds()
        self._end(clock.now)
        return None

    def iterate_changes(self) -> Iterator[Change]:
        """Yield what each decision so far has changed."""
        return iter(self.changes)

    def next_instant(self) -> float:
        """Return the time of the next event, in ticks; inf if there is none."""
        return float(self.clock.peek())

    def _decides_first(self) -> bool:
        """Return whether a decision comes before profiling runs start: there are such, and a job waits."""
        phase = self.jobs.phase
        return self.profiler.active and any(phase[row] == Phase.QUEUED for row in self.queue.in_view)

    def _end(self, tick: int) -> None:
        self.allocator.stop_released()
        self.end_s = seconds(tick)
        self.queue.ahead = 0
        self.queue.present.clear()

    def _begin_decision(self) -> View:
        self.allocator.stop_released()
        self.queue.decided_at = self.clock.now
        self.decision_points += 1
        # Before the View is made, so that the policy sees where jobs are now, not where they were.
        self.execution.defragment()
        return self.make_view()

    def make_view(self, tick: int | None = None) -> View:
        """Return what a policy sees now, and note the jobs and GPUs against which its decision is checked.

        A later `tick`, before which nothing happens, is that of the horizon.
        """
        rows, held = self.queue.rows, self.allocations
        now = self.clock.now if tick is None else tick
        available = self.allocator.available(self.profiler.held)
        # Copies, for the View hands its arrays to a policy that may write into them.
        self._limits = Limits(rows, available.copy(), self.jobs.hidden, self.jobs, held)
        if isinstance(held, PartAllocations):
            return self.views.part_view(now, rows.copy(), available, held)
        where, coming = self._places, self.notices.coming_gpus()
        view = self.views.view(now, rows.copy(), available, held.free.copy(), where=where, coming=coming)
        rented = self.disturbances.capacity
        return view if rented is None else view.with_columns({"capacity": rented.view()})

    def _places(self) -> Places:
        """Return on which nodes the jobs in the View are, and what is free there."""
        held, rows = self.allocations, set(self.queue.in_view)
        nodes = {row: held.holding(row) for row in held.holders if row in rows}
        cluster, free = self.scenario.cluster, held.free_on_node.copy()
        segment = self.scenario.request_segments(self.queue.rows)
        domains = cluster.node_domain, cluster.domain_gpus
        return Places(cluster.node_type, free, nodes, *domains, segment)

    def apply(self, decision: Decision, again_s: float | None = None) -> None:
        """Check and carry out a decision at the present decision point; `UNCHANGED` keeps all as it is.

        `again_s` asks for a decision point at that time (s), instead of `decision.again_s`.

        Raises
        ------
        DecisionError
            If the decision breaks a limit; the state is then unchanged.
        """
        limits = self._limits
        if limits is None:
            raise RuntimeError("apply() needs a decision point: call advance() first")
        self.views.complete()
        if decision is not UNCHANGED:
            decision = coerce_decision(decision)
            # All is checked before anything changes: a refused decision leaves the state as it was.
            plan, limits = self._plan_capacity(decision, limits)
            check_decision(decision, limits, self.scenario)
            self._limits, again_s = None, decision.again_s if again_s is None else again_s
            self._enact(decision, limits.job, plan)
        self._limits, self.queue.due = None, False
        self.profiler.start_waiting()
        self.progress.update_speeds()
        self.stalls.check()
        self.queue.plan_round()
        if again_s is not None:
            self.queue.ask_at(ticks(again_s))

    def _plan_capacity(self, decision: Decision, limits: Limits) -> tuple[CapacityPlan | None, Limits]:
        """Return what a decision orders and gives back, and the limits with the GPUs that change at once."""
        rented = self.disturbances.capacity
        targets = check_capacity(decision, None if rented is None else len(rented.view().products))
        if targets is None or rented is None:
            return None, limits
        plan, available, cluster = rented.plan(targets), limits.available.copy(), self.scenario.cluster
        down = self.disturbances.out
        for node in rented.list_gained(plan):
            # A node that has failed while nobody rented it comes, and is of no use yet.
            available[cluster.node_type[node]] += cluster.node_gpus[node] * (down[node] == 1)
        for node in rented.list_going(plan, {}):
            available[cluster.node_type[node]] -= cluster.node_gpus[node] * (down[node] == 0)
        return plan, replace(limits, available=available)

    def _enact(self, decision: Decision, rows: Ints, plan: CapacityPlan | None = None) -> None:
        """Preempt, drop and launch the jobs `rows` of the View so that they hold what was decided."""
        decided_s = self.clock.now_s
        joins: Mapping[int, int] = {}
        if self.jobs.partner is None:
            held_type, held = self.jobs.gpu_type[decision.job], self.jobs.gpus[decision.job]
            changed = (held_type != decision.gpu_type) | (held != decision.gpus)
        else:
            changed, joins = list_paired_launches(decision, self.jobs)
        moves = list_moves(decision, self.allocations)
        if moves:
            changed |= np.isin(decision.job, list(moves))
        rented = self.disturbances.capacity
        if plan is not None and rented is not None:
            kept = {row: self.allocations.holding(row) for row in decision.job[~changed].tolist()}
            on = Counter[int]()
            for nodes in kept.values():
                on.update(dict(nodes))
            going = set(rented.order(plan, on))
            leave = [row for row, nodes in kept.items() if any(node in going for node, _ in nodes)]
            changed |= np.isin(decision.job, leave)
        drops, notices = sorted(decision.drop.tolist()), set(decision.notice.tolist())
        preempts, saves = list_stops(decision, rows, self.jobs)
        # Negative counts sort the widest jobs first: they are the hardest to place while free nodes are
        # scattered.
        gpus, gpu_types = (-decision.gpus[changed]).tolist(), decision.gpu_type[changed].tolist()
        launches = list(zip(gpus, decision.job[changed].tolist(), gpu_types, strict=True))
        batches = self._new_batches(decision, changed)
        ordered = plan is not None and bool(plan.order or plan.give_back)
        if not (drops or preempts or saves or launches or batches or ordered):
            return
        if self.scenario.parts is None:
            launches.sort()
        # First everything that gives GPUs back (drops, preemptions, moves), then every launch: a decision is
        # legal as a whole, and no order of its launches may run out of GPUs.
        self.notices.stop_all(drops, preempts, saves)
        told = decision.avoid or {}
        avoid = {row: tuple(told[row]) for _, row, _ in launches if row in told}
        self._launch_all(launches, batches, joins, Terms(avoid, moves, notices))
        if rented is not None:
            rented.release()
        moved = tuple((row, gpu_type, -gpus) for gpus, row, gpu_type in launches)
        if self.scenario.parts is None:
            moved = tuple(sorted(moved))
        for row in sorted(batches.keys() - {row for row, _, _ in moved}):
            self.progress.change_batch(row, batches[row])
        logged, avoided = tuple(sorted(batches.items())), tuple(sorted(avoid.items()))
        gone, pairs = (tuple(preempts), tuple(drops)), tuple(sorted(joins.items()))
        named = tuple(sorted(notices)), tuple(sorted(moves.items()))
        targets = plan.targets if plan is not None and ordered else ()
        self.changes.append(Change(decided_s, moved, *gone, logged, pairs, avoided, *named, targets))

    def _launch_all(
        self,
        launches: Sequence[tuple[int, int, int]],
        batches: Mapping[int, int],
        joins: Mapping[int, int],
        terms: Terms,
    ) -> None:
        """Launch jobs, given as (-GPUs, row, type); `joins` has the jobs whose GPUs they share."""
        for _, row, _ in launches if self.jobs.disturbed else ():
            self.disturbances.give_up(row)
        types, gpus = self.jobs.gpu_type, self.jobs.gpus
        was_running = {row: (int(types[row]), int(gpus[row])) for _, row, _ in launches if gpus[row]}
        for row in was_running:
            self.execution.stop(row, saves=row in terms.notices)
        # Jobs that are given nodes come first, and one that joins another after all with GPUs of their own.
        in_order = sorted(launches, key=lambda of: (of[1] in joins, of[1] not in terms.moves))
        for negative_gpus, row, gpu_type in in_order:
            self.jobs.batch[row] = batches.get(row, self.scenario.trace.global_batch[row])
            target, avoid = terms.moves.get(row, ()), terms.avoid.get(row, ())
            if isinstance(target, int):
                avoid, target = (*avoid, *list_nodes_outside(self.scenario.cluster, target)), ()
            self.execution.launch(
                row,
                gpu_type,
                -negative_gpus,
                rescale=row in was_running,
                on=target,
                migrates=was_running.get(row) == (gpu_type, -negative_gpus),
                beside=joins.get(row, NO_JOB),
                avoid=avoid,
                saves=row in terms.notices and row in was_running,
            )

    def _new_batches(self, decision: Decision, launched: Bools) -> dict[int, int]:
        """Return the global batch of each job whose batch a decision changes, by row.

        Contains jobs that are launched at another batch than the requested one, and running jobs whose
        batch changes.
        """
        if self.scenario.batch_choices is None:
            return {}
        requested = self.scenario.trace.global_batch[decision.job]
        given = np.zeros_like(requested) if decision.batch is None else decision.batch
        batch = np.where(given == 0, requested, given)
        # A launch begins at the requested batch unless told otherwise, so only another batch is worth a line
        # of the decision log.
        new = batch != np.where(launched, requested, self.jobs.batch[decision.job])
        return dict(zip(decision.job[new].tolist(), batch[new].tolist(), strict=True))
