"""One run of a scenario on the compiled clock; a policy in Python makes the decisions.

Decisions have the rules of `clustergym.sim.decision_checks`, which says what is wrong with one, and
what happens has the order of `Simulation.apply`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.clock import seconds, ticks
from clustergym.scenario.disturbances.capacity import Capacity
from clustergym.scenario.policy import Decision, InformationClass, Placer, Policy, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled import clock as clocks
from clustergym.sim.compiled import first_come, jobs
from clustergym.sim.compiled.batch import Batch
from clustergym.sim.compiled.buddy import sort_many
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.episode_views import EpisodeViews
from clustergym.sim.compiled.event_log import LazyLog
from clustergym.sim.compiled.numba_cache import (
    Direct,
    announce_compilation,
    compile_entry,
    compile_in_place,
    compile_part,
)
from clustergym.sim.compiled.rented import RentedNodes
from clustergym.sim.compiled.scenario_arrays import ClusterArrays, cluster_arrays, scenario_arrays
from clustergym.sim.decision_checks import (
    DecisionError,
    Limits,
    check_capacity,
    check_decision,
    coerce_decision,
)
from clustergym.sim.engine import UNCHANGED, Change, Steps
from clustergym.sim.log import EventLog
from clustergym.sim.stalls import make_endless_error, make_stalled_error
from clustergym.sim.state import make_setting
from clustergym.trace.trace import Trace

ILLEGAL = 3
"""What `decide` comes to besides DECISION, OVER and STALLED: nothing has been done."""


@compile_in_place
def _name(episode: Episode, row: int) -> bool:
    """Record that the decision names a job; return False if it may not, or names it twice."""
    if row < 0 or row >= episode.clock[c.JOBS]:
        return False
    job, number = episode.job[row], episode.clock[c.DECISIONS]
    if (job[c.PHASE] != c.QUEUED and job[c.PHASE] != c.RUNNING) or job[c.NAMED_BY] == number:
        return False
    job[c.NAMED_BY] = number
    return True


@compile_part
def _legal(episode: Episode, cluster: ClusterArrays, decided: Ints, drops: Ints) -> bool:
    """Write a decision into the jobs' targets; return whether it breaks no rule."""
    clock, available = episode.clock, cluster.capacity.copy()
    # Also for a decision that turns out illegal: its number is then never used again, so that what it has
    # named (NAMED_BY) needs no undoing.
    clock[c.DECISIONS] += 1
    # Profiles keep their GPUs; all others may be given away, those included that jobs hold now.
    for nth in range(clock[c.RUNNING_PROFILES]):
        available[episode.profile[nth, c.NTH_RUNNING] % len(available)] -= clock[c.PROFILE_GPUS]
    for row in drops:
        if not _name(episode, row):
            return False
    for at in range(len(decided)):
        row, gpu_type, gpus, batch = decided[at]
        if not _name(episode, row) or gpu_type < 0 or gpu_type >= len(available):
            return False
        level = jobs.find_level(cluster.counts, gpus)
        if level == len(cluster.counts) or cluster.counts[level] != gpus:
            return False
        if batch != 0 and batch != episode.job[row, c.REQUESTED_BATCH]:
            return False
        if not episode.feasible[episode.job[row, c.CLASS], gpu_type, level] or not jobs.is_profiled(
            episode, row, gpu_type
        ):
            return False
        available[gpu_type] -= gpus
        episode.job[row, c.TARGET_TYPE], episode.job[row, c.TARGET_LEVEL] = gpu_type, level
    return bool(min(available) >= 0)  # Not NumPy's: see `_gather` in `buddy.py`.


@compile_part
def _take_away(episode: Episode, cluster: ClusterArrays, drops: Ints) -> None:
    """Drop jobs, then preempt those that run and are not named."""
    leaving, count = np.empty(episode.clock[c.RUNNING_JOBS], np.int64), 0
    for row in episode.running[: len(leaving)]:
        if episode.job[row, c.NAMED_BY] != episode.clock[c.DECISIONS]:
            leaving[count] = row
            count += 1
    # `running` is a heap; the engine preempts in order of rows.
    sort_many(leaving[:count])
    for row in drops:
        jobs.drop(episode, cluster, row)
    for row in leaving[:count]:
        jobs.preempt(episode, cluster, row)


@compile_part
def _launch(episode: Episode, cluster: ClusterArrays, decided: Ints) -> None:
    """Launch the jobs whose allotment the decision changes: the largest first, then by row."""
    launches, count, total = np.empty(len(decided), np.int64), 0, episode.clock[c.JOBS]
    for row in decided[:, 0]:
        job = episode.job[row]
        if job[c.TARGET_TYPE] != job[c.TYPE] or job[c.TARGET_LEVEL] != job[c.LEVEL] or job[c.MOVES]:
            # One number for (higher level first, then row): sorting it sorts both, and the row is its
            # remainder.
            launches[count] = row - job[c.TARGET_LEVEL] * total
            count += 1
    sort_many(launches[:count])
    for at in range(count):
        launches[at] %= total
    clocks.launch(episode, cluster, launches[:count], np.zeros(count, np.bool_))


@compile_entry
def decide(
    episode: Episode,
    cluster: ClusterArrays,
    decided: Ints,
    count: int,
    drops: Ints,
    until: tuple[int, int, int],
    pauses: bool,
    starts: bool,
) -> int:
    """Check and carry out a decision (`count` allotments, and `drops`); simulate to the next decision point.

    Parameters
    ----------
    episode : Episode
    cluster : ClusterArrays
    decided : ndarray of int, shape (…, 4)
        Row, type, GPUs and batch (0: the requested one) of each of the first `count` allotments.
    count : int
        -1: there is no decision, as the episode begins, or goes on; -2: it goes on after a pause.
    drops : ndarray of int
        Rows of jobs to drop, ascending.
    until : (int, int, int)
        At decision points before the first number, in ticks, all jobs keep what they hold, and the
        simulation goes on, unless the log is then longer than the others: numbers of events and their nodes.
    pauses : bool
        Whether it returns DECISION as soon as the decision is carried out.
    starts : bool
        Whether the decision is that of `first_come.find_starts`: others keep what they hold.

    Returns
    -------
    int
        DECISION, OVER, STALLED, WAKEUP or ILLEGAL.
    """
    if count >= 0:
        if not starts:
            if not _legal(episode, cluster, decided[:count], drops):
                return ILLEGAL
            _take_away(episode, cluster, drops)
        _launch(episode, cluster, decided[:count])
        if pauses:
            return c.DECISION
    clock, deciding = episode.clock, count != -1
    # One loop, as everything that is called in two places is compiled twice.
    while True:
        if deciding and clocks.end_decision(episode, cluster) == c.STALLED:
            return c.STALLED
        outcome, deciding = clocks.advance(episode, cluster), True
        full = clock[c.EVENTS] > until[1] or clock[c.EVENT_NODES] > until[2]
        if outcome != c.DECISION or clock[c.NOW] >= until[0] or full:
            return outcome


TOGETHER = 16384
"""Events that are read at a time."""
LAUNCHED = (c.START, c.RESUME, c.RESCALE, c.MOVED)
NO_CHANGE = Change(0.0, (), (), ())
UNSEEN: Any = ()
"""In place of a View, for a policy that decides without one."""


class CompiledSimulation:
    """One run of a scenario on the compiled engine; the caller makes the decisions.

    The events are those of a `Simulation`, to the bit. `apply` moves the clock, too, as the constructor does:
    what the attributes say is then of the next decision point.

    Parameters
    ----------
    scenario, placer, information, policy_round_s
        As of `Simulation`; `coverage.check_runnable` says which scenarios are covered.

    Attributes
    ----------
    setting : Setting
    """

    engine = "compiled"
    sharing = None

    def __init__(
        self,
        scenario: Scenario,
        placer: Placer,
        information: InformationClass,
        policy_round_s: float | None = None,
    ) -> None:
        self.scenario, self.placer, self.information = scenario, placer, information
        self.round_s = scenario.round_s(policy_round_s)
        self.setting = make_setting(scenario, self.round_s)
        self._cluster = cluster_arrays(scenario.cluster, scenario.tables.counts)
        self._batch = Batch(self._cluster, 1, logged=True)
        arrays = scenario_arrays(scenario, information, policy_round_s, placer.defragment_s)
        self._batch.load(0, arrays)
        self._find_episode()
        self._views = EpisodeViews(scenario, self._episode, information, self.setting, self._cluster.capacity)
        self._decide = Direct(decide)
        self._decided, self._drops = np.zeros((64, 4), np.int64), np.empty(0, np.int64)
        self._changed = np.zeros(len(scenario.trace), np.bool_)
        self._log: tuple[int, LazyLog] | None = None
        # Here, as the time that compilation takes is no part of any step.
        announce_compilation(decide)
        rented = next((one for one in scenario.disturbances if isinstance(one, Capacity)), None)
        self._rented: RentedNodes | None = None
        self._ordered: dict[float, tuple[int, ...]] = {}
        if rented is not None:
            self._episode.clock[c.ALWAYS] = 1
            self._batch.full_at = -1, -1
            self._batch.make_room()
            self._find_episode()
            self._rented = RentedNodes(rented, scenario, self._cluster, lambda: self._episode)
        self._outcome, self._await_answer = self._go(-1), False

    def _find_episode(self) -> None:
        """Find the episode in the arrays of the batch, which are replaced when they grow."""
        self._arrays = self._batch.episodes
        self._episode = Episode._make(array[0] for array in self._arrays)

    @property
    def known_trace(self) -> Trace:
        """The jobs as the policy may know them, which here is the whole trace."""
        return self.scenario.trace

    def _clock(self, column: int) -> int:
        return int(self._episode.clock[column])

    @property
    def now_s(self) -> float:
        """The present simulated time, in seconds."""
        return seconds(self._clock(c.NOW))

    @property
    def end_s(self) -> float:
        """The simulated second at which the run ended; 0 before the end."""
        return seconds(self._clock(c.END))

    @property
    def decision_points(self) -> int:
        """Number of decision points so far."""
        return self._clock(c.DECISION_POINTS)

    @property
    def jobs_left(self) -> int:
        """Number of jobs that have left the system, because they completed or were dropped."""
        return self._clock(c.LEFT)

    @property
    def jobs_in_view(self) -> int:
        """Number of jobs that the policy sees at this decision point."""
        return self._clock(c.IN_VIEW)

    @property
    def log(self) -> EventLog:
        """All events of the run so far."""
        episode, events = self._episode, self._clock(c.EVENTS)
        if self._log is None or self._log[0] != events:
            nodes = episode.event_node[: self._clock(c.EVENT_NODES)]
            self._log = events, LazyLog(episode.event[:events], episode.event_iteration_s[:events], nodes)
        return self._log[1]

    @property
    def changes(self) -> list[Change]:
        """The decision log: what each decision so far has changed."""
        return list(self.iterate_changes())

    def iterate_changes(self) -> Iterator[Change]:
        """Yield what each decision so far has changed."""
        if not self._ordered:
            return _changes(self._episode)
        found = {change.time_s: change for change in _changes(self._episode)}
        for time_s, targets in self._ordered.items():
            found[time_s] = replace(found.get(time_s, Change(time_s, (), (), ())), capacity=targets)
        return iter([found[time_s] for time_s in sorted(found)])

    def steps(self, policy: Policy) -> Steps:
        """Return what leads to a decision point, decides there, and goes on; FCFS decides without a View."""
        if not first_come.is_compiled(policy, self.scenario):
            return self.advance, policy.schedule, self.apply
        find_starts, one_queue = Direct(first_come.find_starts), vars(policy)["queue"] == "cluster"
        free, passed, starts = np.zeros_like(self._episode.free), np.zeros_like(self._episode.free), 0
        self._make_space(int(self._cluster.capacity.sum()))
        # Once in advance (nothing is free yet), as the time that compilation takes is no part of any step.
        find_starts(self._episode, self._cluster, self._decided, free, passed, one_queue)

        def schedule(view: View) -> Decision:
            nonlocal starts
            np.copyto(free, self._episode.free)
            starts = find_starts(self._episode, self._cluster, self._decided, free, passed, one_queue)
            return UNCHANGED

        def apply(decision: Decision) -> None:
            self._outcome = self._go(starts, starts=True)

        return lambda: UNSEEN if self._is_at_decision() else None, schedule, apply

    def advance(self) -> View | None:
        """Return what the policy sees at the decision point that `apply` moved on to; None at the end."""
        if not self._is_at_decision():
            return None
        self._await_answer = True
        return self._view()

    def _is_at_decision(self) -> bool:
        """Return whether there is a decision to make, not the end; raise the error of a run that stalls."""
        if self._outcome == c.STALLED:
            rows = self._episode.in_view[: self.jobs_in_view].copy()
            if self._clock(c.LAUNCHES) == c.ENDLESS:
                raise make_endless_error(self.scenario, rows, self.now_s)
            profiled = self._views.jobs.find_profiled_types(rows)
            raise make_stalled_error(self.scenario, self.information, rows, profiled, self.now_s)
        return self._outcome != c.OVER

    def _view(self) -> View:
        view = self._views.view_of_now()
        return view if self._rented is None else view.with_columns({"capacity": self._rented.active.view()})

    def apply(self, decision: Decision) -> None:
        """Check and carry out a decision, and simulate to the next decision point; `advance` shows it.

        Raises the errors of `Simulation.apply`.
        """
        if not self._await_answer:
            raise RuntimeError("apply() needs a decision point: call advance() first")
        # The last View reads the job's columns lazily; it must be complete before the decision changes
        # them.
        self._views.complete()
        decision = coerce_decision(decision)
        columns = [decision.job, decision.gpu_type, decision.gpus]
        if decision.batch is not None:
            columns.append(decision.batch)
        count = len(decision.job)
        if decision.again_s is not None:
            message = "asks for a decision point of its own, which the compiled engine has none of"
            raise DecisionError(message, remedy="give run.engine=simpy")
        beyond = decision.partner is not None or decision.move or len(decision.notice)
        # The compiled engine checks the rest itself. What its arrays cannot hold is checked here, in
        # Python.
        if beyond or any(len(column) != count for column in columns):
            self._check(decision)
        self._make_space(count)
        self._decided[:count, 3] = 0
        for at, column in enumerate(columns):
            self._decided[:count, at] = column
        self._drops = np.sort(decision.drop)
        going = self._order(decision)
        outcome = self._go(count, pauses=going)
        if going and outcome != ILLEGAL and self._rented is not None:
            self._rented.active.release()
            outcome = self._go(-2)
        # It changes nothing if it refuses, so the checks in Python see the same state and name the rule.
        if outcome == ILLEGAL:
            self._check(decision)
            raise RuntimeError("the engine refuses a decision that is legal")
        self._outcome, self._await_answer = outcome, False

    def _order(self, decision: Decision) -> bool:
        """Order nodes, and let jobs leave those that are given back; return whether there are such nodes."""
        rented = self._rented
        targets = check_capacity(decision, None if rented is None else len(rented.active.view().products))
        if targets is None or rented is None:
            return False
        plan, cluster = rented.active.plan(targets), self.scenario.cluster
        if not (plan.order or plan.give_back):
            return False
        shown = self._views.view_of_now()
        available = shown.available.copy()
        for node in rented.active.list_gained(plan):
            available[cluster.node_type[node]] += cluster.node_gpus[node]
        for node in rented.active.list_going(plan, {}):
            available[cluster.node_type[node]] -= cluster.node_gpus[node]
        # Before anything changes: a refused decision leaves the state as it was.
        check_decision(decision, Limits(shown.job, available, self._views.jobs.hidden), self.scenario)
        job, level = self._episode.job[decision.job], np.searchsorted(self._cluster.counts, decision.gpus)
        kept = decision.job[(job[:, c.TYPE] == decision.gpu_type) & (job[:, c.LEVEL] == level)].tolist()
        on = Counter[int]()
        for row in kept:
            on.update(rented.holding(row))
        going = rented.active.order(plan, on)
        rented.move_jobs(kept, set(going))
        self._ordered[self.now_s] = targets
        return bool(going)

    def _go(self, count: int, keep_until_s: float = 0.0, pauses: bool = False, starts: bool = False) -> int:
        found = self._step(count, keep_until_s, pauses, starts)
        while found == c.WAKEUP and self._rented is not None:
            self._rented.serve()
            found = self._step(-1, keep_until_s)
        return found

    def _step(self, count: int, keep_until_s: float, pauses: bool = False, starts: bool = False) -> int:
        clock, full = self._episode.clock, self._batch.full_at
        # Compiled code cannot grow arrays, so there must be room for all events up to the next decision
        # point.
        if clock[c.EVENTS] > full[0] or clock[c.EVENT_NODES] > full[1]:
            self._batch.make_room()
            self._find_episode()
        tick = int(c.NEVER) if math.isinf(keep_until_s) else ticks(keep_until_s)
        until = tick, *self._batch.full_at
        arrays = self._episode, self._cluster, self._decided
        found: int = self._decide(*arrays, count, self._drops, until, pauses, starts)
        return found

    def follow(self, changes: Sequence[Change]) -> bool:
        """Carry out the decisions of a decision log in a new simulation, up to the end of the run.

        It makes no View, which takes most of the time of a run whose decisions are known.

        Parameters
        ----------
        changes : sequence of Change
            In order of time; `Change.is_of_gpus_alone` holds for each.

        Returns
        -------
        bool
            False if a decision is not legal or not at a decision point, or if the run stalls. The simulation
            is then useless; that of SimPy says why.
        """
        times_s = [*(change.time_s for change in changes), math.inf]
        self._change_nothing_until(times_s[0])
        for change, next_s in zip(changes, times_s[1:], strict=True):
            if self._outcome != c.DECISION or self.now_s != change.time_s:
                return False
            self._carry_out(change, next_s)
            self._change_nothing_until(next_s)
        return self._outcome == c.OVER

    def _change_nothing_until(self, time_s: float) -> None:
        while self._outcome == c.DECISION and self.now_s < time_s:
            self._carry_out(NO_CHANGE, time_s)

    def _carry_out(self, change: Change, keep_until_s: float) -> None:
        """Check and carry out a logged decision, and simulate to the next one at `keep_until_s` or later."""
        job, running = self._episode.job, self._episode.running[: self._clock(c.RUNNING_JOBS)]
        changed = [row for row, _, _ in change.launch] + [*change.preempt, *change.drop]
        self._changed[changed] = True
        kept = running[~self._changed[running]]
        self._changed[changed] = False
        count = len(kept) + len(change.launch)
        self._make_space(count)
        held = self._decided[: len(kept)]
        held[:, 0], held[:, 1] = kept, job[kept, c.TYPE]
        held[:, 2] = self._cluster.counts[job[kept, c.LEVEL]]
        if change.launch:
            self._decided[len(kept) : count, :3] = change.launch
        self._decided[:count, 3] = 0
        self._drops = np.array(sorted(change.drop), dtype=np.int64)
        self._outcome = self._go(count, keep_until_s)

    def _make_space(self, count: int) -> None:
        if count > len(self._decided):
            self._decided = np.zeros((2 * count, 4), np.int64)

    def _check(self, decision: Decision) -> None:
        """Raise a `DecisionError` if a decision is not legal."""
        shown = self._views.view_of_now()
        limits = Limits(shown.job, shown.available, self._views.jobs.hidden)
        check_decision(decision, limits, self.scenario)


def _changes(episode: Episode) -> Iterator[Change]:
    """Yield what each decision of a run changed: launches, preemptions and drops."""
    event = episode.event[: episode.clock[c.EVENTS]]
    chosen = np.isin(event[:, c.EVENT_TYPE], (*LAUNCHED, c.PREEMPT, c.DROP_BY_POLICY))
    columns = (c.TIME, c.EVENT_TYPE, c.JOB, c.EVENT_GPU_TYPE, c.EVENT_GPUS)
    places, some = np.flatnonzero(chosen), range(0, int(chosen.sum()), TOGETHER)
    lines = (event[places[at : at + TOGETHER, None], columns].tolist() for at in some)
    for tick, rows in groupby(chain.from_iterable(lines), key=lambda row: row[0]):
        launch: list[tuple[int, int, int]] = []
        gone: dict[int, list[int]] = {c.PREEMPT: [], c.DROP_BY_POLICY: []}
        for _, what, row, gpu_type, gpus in rows:
            if what in gone:
                gone[what].append(row)
            else:
                launch.append((row, gpu_type, gpus))
        left = tuple(gone[c.PREEMPT]), tuple(gone[c.DROP_BY_POLICY])
        yield Change(seconds(tick), tuple(sorted(launch)), *left)
