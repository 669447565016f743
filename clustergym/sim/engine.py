"""The simulation engine: finds decision points and carries out decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clustergym.cluster.spec import Locality, Nodes
from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Ints
from clustergym.scenario.clock import seconds, ticks
from clustergym.scenario.policy import Decision, InformationClass, Placer, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.decision_checks import Limits, check_decision, coerced
from clustergym.sim.disturbed_world import DisturbedWorld, StalledError
from clustergym.sim.log import NO_JOB
from clustergym.sim.pairs import moves_of

__all__ = ["IDLE_ROUNDS", "Change", "Simulation", "StalledError"]

IDLE_ROUNDS = 1000
"""A run counts as stalled after this many rounds in which nothing runs and nothing can happen."""


@dataclass(frozen=True)
class Change:
    """One entry of the decision log: only what a decision changed.

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
    """

    time_s: float
    launch: tuple[tuple[int, int, int], ...]
    preempt: tuple[int, ...]
    drop: tuple[int, ...]
    batch: tuple[tuple[int, int], ...] = ()
    partner: tuple[tuple[int, int], ...] = ()


class Simulation(DisturbedWorld):
    """One run of a scenario; the caller makes the decisions.

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
    """

    def __init__(
        self,
        scenario: Scenario,
        placer: Placer,
        information: InformationClass,
        policy_round_s: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(scenario, placer, information, scenario.round_s(policy_round_s))
        self.changes: list[Change] = []
        self.decision_points = 0
        self.end_s = 0.0
        self._decision_due = False
        self._round_pending = False
        self._decided_at = -1
        self._idle_rounds = 0
        self._defragmented_at = 0
        self._limits: Limits | None = None
        self._horizon = None if scenario.horizon_s is None else ticks(scenario.horizon_s)
        self._round = None if self.round_s is None else ticks(self.round_s)
        placer.reset(scenario.cluster, random_streams.PLACER.generator(seed))

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
        self._limits = None
        while self._present or self._ahead:
            instant = self._next_instant()
            if instant == math.inf:
                raise self._stalled()
            if self._horizon is not None and instant > self._horizon:
                self._finish(self._horizon)
                return None
            while self._clock.peek() == instant:
                self._clock.step()
            for course in self._courses:
                course.serve()
            if not (self._decision_due and self._decision_comes_first):
                self._start_profiling()
            if self._decision_due and not (self._horizon is not None and self.now >= self._horizon):
                self._decision_due = False
                if self._decided_at == self.now:
                    # The decision log identifies decisions by their times, so an instant has at most one.
                    self._after(1, self._round_due)
                elif self._in_view:
                    return self._decision_point()
            self._change_speeds()
        self._finish(self.now)
        return None

    def _next_instant(self) -> float:
        """Return the tick of the next instant at which anything happens; inf: never."""
        instant: float = self._clock.peek()
        return instant

    def _finish(self, end: int) -> None:
        self.end_s = seconds(end)
        self._ahead = self._present = 0

    def _decision_point(self) -> View:
        self._decided_at = self.now
        self.decision_points += 1
        self._defragment()
        return self._view()

    def _view(self) -> View:
        """Return the View of now, and remember what a decision on it may do."""
        if self._rows is None:
            self._rows = np.array(sorted(self._in_view), dtype=np.int64)
        free = self.allocations.free.copy()
        available = self.scenario.cluster.capacity - self._gpus_out_of_use()
        self._limits = Limits(self._rows, available.copy(), self.jobs.profiled)
        if self._parts is not None:
            return self._views.part_view(self.now, self._rows, available, self._parts)
        return self._views.view(self.now, self._rows, available, free)

    def apply(self, decision: Decision) -> None:
        """Carry out a decision at the current decision point.

        Raises
        ------
        DecisionError
            If the decision breaks a limit; the state is then unchanged.
        """
        limits = self._limits
        if limits is None:
            raise RuntimeError("apply() needs a decision point: call advance() first")
        decision = coerced(decision)
        check_decision(decision, limits, self.scenario)
        self._limits = None
        self._enact(decision, limits.job)
        self._decision_due = False
        self._start_profiling()
        self._change_speeds()
        self._watch_for_stall()
        self._plan_round()

    def _enact(self, decision: Decision, rows: Ints) -> None:
        """Preempt, drop and launch the jobs `rows` of the View so that they hold what was decided."""
        decided_s = self.now_s
        joins: Mapping[int, int] = {}
        if self.jobs.partner is None:
            held_type, held = self.jobs.gpu_type[decision.job], self.jobs.gpus[decision.job]
            changed = (held_type != decision.gpu_type) | (held != decision.gpus)
        else:
            changed, joins = moves_of(decision, self.jobs)
        leaving = self.jobs.gpus[rows] > 0
        leaving[np.searchsorted(rows, decision.job)] = False
        drops = [int(row) for row in np.sort(decision.drop)]
        preempts = [int(row) for row in rows[leaving] if int(row) not in set(drops)]
        launches = list(
            zip(
                (-decision.gpus[changed]).tolist(),
                decision.job[changed].tolist(),
                decision.gpu_type[changed].tolist(),
                strict=True,
            )
        )
        if self._parts is None:
            launches.sort()
        for row in drops:
            self.drop(row, "policy")
        for row in preempts:
            self._preempt(row)
        batches = self._new_batches(decision, changed)
        self._launch_all(launches, batches, joins)
        moved = tuple((row, kind, -gpus) for gpus, row, kind in launches)
        if self._parts is None:
            moved = tuple(sorted(moved))
        for row in sorted(batches.keys() - {row for row, _, _ in moved}):
            self._change_batch(row, batches[row])
        if drops or preempts or launches or batches:
            logged = tuple(sorted(batches.items()))
            gone, pairs = (tuple(preempts), tuple(drops)), tuple(sorted(joins.items()))
            self.changes.append(Change(decided_s, moved, *gone, logged, pairs))

    def _launch_all(
        self, launches: Sequence[tuple[int, int, int]], batches: Mapping[int, int], joins: Mapping[int, int]
    ) -> None:
        """Launch jobs, given as (-GPUs, row, type), that have a new batch or join another where told."""
        for _, row, _ in launches if self.jobs.disturbed else ():
            if self.jobs.hangs[row]:
                self._give_up(row)
        was_running = {row: self._held(row) for _, row, _ in launches if self.jobs.gpus[row]}
        for row in was_running:
            self._vacate(row)
        # A job that joins another comes after all that hold GPUs of their own.
        in_order = sorted(launches, key=lambda of: of[1] in joins) if joins else launches
        for negative_gpus, row, kind in in_order:
            self.jobs.batch[row] = batches.get(row, self.scenario.trace.global_batch[row])
            self._launch(
                row,
                kind,
                -negative_gpus,
                rescale=row in was_running,
                migrates=was_running.get(row) == (kind, -negative_gpus),
                beside=joins.get(row, NO_JOB),
            )

    def _held(self, row: int) -> tuple[int, int]:
        return int(self.jobs.gpu_type[row]), int(self.jobs.gpus[row])

    def _new_batches(self, decision: Decision, launched: Bools) -> dict[int, int]:
        """Return the new batch of each job, by row.

        Contains jobs that are launched at another batch than the requested one, and running jobs whose
        batch changes.
        """
        if self.scenario.batch_choices is None:
            return {}
        requested = self.scenario.trace.global_batch[decision.job]
        given = np.zeros_like(requested) if decision.batch is None else decision.batch
        batch = np.where(given == 0, requested, given)
        new = batch != np.where(launched, requested, self.jobs.batch[decision.job])
        return dict(zip(decision.job[new].tolist(), batch[new].tolist(), strict=True))

    # Decision points

    def decide_again(self) -> None:
        """Ask for a decision at the next possible time."""
        if self._round is None:
            self._decision_due = True
        else:
            self._plan_round()

    def _plan_round(self) -> None:
        """Schedule the next round, if rounds are used and jobs are in the system."""
        if self._round is None or self._round_pending or not self._in_view:
            return
        comes_now = self._decision_due or self._decided_at >= self.now
        earliest = self.now + 1 if comes_now else self.now
        due = -(-earliest // self._round) * self._round
        self._round_pending = True
        self._after(due - self.now, self._round_due)

    def _round_due(self) -> None:
        self._round_pending = False
        self._decision_due = True

    def _watch_for_stall(self) -> None:
        rows = list(self._in_view) if self._rows is None else self._rows
        waits = bool(self._in_view) and not (self.jobs.gpus[rows] > 0).any()
        if waits and self.allocations.down:
            return
        hopeless = waits and not self._ahead and not self._profiles.active
        hopeless &= not any(course.active for course in self._courses)
        self._idle_rounds = self._idle_rounds + 1 if hopeless else 0
        if self._idle_rounds > IDLE_ROUNDS:
            raise self._stalled()

    def _stalled(self) -> StalledError:
        waiting = sorted(self._in_view)
        first = self.scenario.trace.job_id[waiting[0]] if waiting else "none"
        return StalledError(
            f"stalled at {self.now_s:.0f} s: {len(waiting)} jobs wait (first: {first}), nothing runs and "
            f"the policy starts nothing{self._untimed(np.array(waiting, dtype=np.int64))}"
        )

    def _untimed(self, rows: Ints) -> str:
        """Return a clause on waiting jobs whose iteration time at the request the policy does not know."""
        if self.information == InformationClass.NONE or not len(rows):
            return ""
        scenario, kinds = self.scenario, np.arange(len(self.setting.gpu_types))
        level = np.searchsorted(scenario.tables.counts, scenario.request_gpus[rows])
        wanted = scenario.request_type[rows, None]
        asked = (wanted < 0) | (wanted == kinds)
        fits = scenario.feasible[scenario.class_of[rows], :, level] & self.jobs.profiled[rows] & asked
        known = np.isfinite(self._views.known[scenario.class_of[rows], :, level])
        untimed = np.flatnonzero(fits.any(axis=1) & ~(known & fits).any(axis=1))
        if not len(untimed):
            return ""
        first = int(untimed[0])
        row, kind = int(rows[first]), self.setting.gpu_types[int(np.argmax(fits[first]))]
        return (
            f"; information class {self.information.value} knows no finite time of {len(untimed)} of them "
            f"where their requests fit (first: {scenario.trace.job_id[row]}, {scenario.request_gpus[row]} "
            f"{kind}): start such jobs by View.feasible, or declare another class"
        )

    def _defragment(self) -> None:
        every = self.placer.defragment_s
        if every is None or self.now - self._defragmented_at < ticks(every):
            return
        self._defragmented_at = self.now
        for row, nodes in self.placer.defragment(self.allocations):
            if self._worth_moving(row, nodes):
                kind, gpus = int(self.jobs.gpu_type[row]), int(self.jobs.gpus[row])
                self._vacate(row)
                self._launch(row, kind, gpus, rescale=True, on=nodes)

    def _worth_moving(self, row: int, nodes: Nodes) -> bool:
        """Whether a proposed move is still possible and lets the job end earlier despite its restart."""
        held = dict(self.allocations.holding(row))
        free = self.allocations.free_on_node
        if any(free[node] + held.get(node, 0) < gpus for node, gpus in nodes):
            return False
        scenario, jobs = self.scenario, self.jobs
        if row in self._unseen or jobs.hangs[row] or jobs.partner_of(row) != NO_JOB:
            return False
        kind, level = int(jobs.gpu_type[row]), int(np.searchsorted(scenario.tables.counts, jobs.gpus[row]))
        overhead_s = self._overhead_s(row, kind, level)
        withheld = self._withheld(self._estimated_end(row, kind, level, ticks(overhead_s)))
        if any(node in withheld for node, _ in nodes):
            return False
        locality = int(scenario.cluster.locality(nodes))
        # If the job would share links, assume its present slowdown; inside a leaf it shares no links.
        shared = self._links is not None and locality > Locality.LEAF
        slowdown = self._links.slowdown(row) if shared and self._links is not None else 1.0
        remaining = float(self._views.remaining_at(np.array([row]), self.now)[0])
        faster = self._pace(row, kind, level, nodes, remaining, slowdown)
        standstill = max(seconds(int(jobs.ready[row]) - self.now), 0.0)
        stay = standstill + remaining * float(jobs.iteration_s[row])
        return overhead_s + remaining * faster < stay
