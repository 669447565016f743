"""Gandiva: a policy that measures jobs as they run, and scales, migrates and time-slices them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Decision, InformationClass, Setting, View

from .shared.requests import Allotments, find_held_level, find_requested_level, request_options
from .shared.restart_guard import GuardedPolicy

Allotment = tuple[int, int]
"""(Type index, count index)."""


@dataclass
class MeasuredSpeeds:
    """The speeds of one job, which the policy measured while the job ran.

    Attributes
    ----------
    since_s, works_from_s : float
        When its present allotment began, and when the job began to work on it.
    remaining : float
        Iterations left when the allotment began.
    came_from : tuple or None
        The previous allotment, while the present one is on trial.
    speed : dict
        Iterations per second, measured alone, by allotment.
    partner : int
        Row of the job that shared its GPUs since `since_s`; -1: none.
    kept : dict
        Share of its speed alone that it kept beside another job, measured, by that job's row.
    """

    since_s: float = 0.0
    works_from_s: float = np.inf
    remaining: float = 0.0
    came_from: Allotment | None = None
    speed: dict[Allotment, float] = field(default_factory=dict)
    partner: int = -1
    kept: dict[int, float] = field(default_factory=dict)


class PackingTable(Allotments):
    """The GPUs that each job will hold after the decision, and which jobs will share theirs in pairs."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self.requested, self.options = find_requested_level(view), request_options(view)
        rows = view.job.tolist()
        held = [] if view.partner is None else view.partner.tolist()
        self.partner = {at: rows.index(row) for at, row in enumerate(held) if row >= 0}

    def give(self, at: int, gpu_type: int, level: int) -> None:
        """Give a job `counts[level]` GPUs of a type; a partner with which it shared GPUs keeps them."""
        other = self.partner.pop(at, None)
        if other is not None:
            del self.partner[other]
            self.gpu_type[at] = self.level[at] = -1
        super().give(at, gpu_type, level)

    def join(self, at: int, other: int) -> None:
        """Let job `at`, which holds no GPUs, share those of job `other`."""
        self.gpu_type[at], self.level[at] = self.gpu_type[other], self.level[other]
        self.partner[at], self.partner[other] = other, at

    def decision(self) -> Decision:
        """Build the Decision that gives the jobs these GPUs, in these pairs."""
        if not self.partner:
            return super().decision()
        rows = self.view.job.tolist()
        return super().decision().paired((rows[at], rows[other]) for at, other in self.partner.items())

    def fits(self, at: int, gpu_type: int, level: int) -> bool:
        """Return whether `counts[level]` GPUs of a type are free for a job if it releases those it holds."""
        own = int(self.counts[self.level[at]]) if self.gpu_type[at] == gpu_type else 0
        return bool(
            self.view.feasible[at, gpu_type, level] and self.free[gpu_type] + own >= self.counts[level]
        )

    def list_changed(self) -> list[int]:
        """Return the positions of the jobs whose GPUs the decision changes."""
        view, now = self.view, find_held_level(self.view)
        changed = (self.gpu_type != view.gpu_type) | (self.level != now)
        if view.partner is not None:
            rows = np.full(len(view), -1, dtype=np.int64)
            for at, other in self.partner.items():
                rows[at] = view.job[other]
            changed |= rows != view.partner
        return [int(at) for at in np.flatnonzero(changed)]


@dataclass
class Gandiva(GuardedPolicy):
    """The policy Gandiva (OSDI '18), which scales, moves and time-slices jobs by speeds that it measures.

    It knows no speeds beforehand: it measures each job's progress on the GPUs that the job holds. Jobs
    start at their request, the longest waiting first; a job that fits may pass a blocked one.
    Grow-shrink: if no job waits for idle GPUs, running jobs are doubled, and shrunk to their request
    again when a waiting job needs the GPUs. Migration: a job moves to an idle type if no job waits for
    that type or for the job's own. Time slicing: when a job has waited for a slice, the jobs that have
    run longest give way, each only after a slice of its own.

    Growth and migration are trials: a job that measures slower there goes back, and is not tried there
    again. It is a baseline of Crius.

    Packing, where the scenario has speeds of pairs: a job that still waits shares the GPUs of a running
    job of equal count, drawn at random as Gavel's simulator does. A pair whose measured total is less
    than that of one job alone is ended and not tried again, and the later job waits again; a job that has
    not run alone counts as half. A slice of a pair ends for both.

    Differences from the paper: at most two jobs share, and not those of the least utilisation first, which is
    not known here; migration for locality is left to the placer; a slice is long, because a suspension saves
    and loads a checkpoint here and takes about a second in the paper.

    Parameters
    ----------
    slice_s : float
        Least seconds that a job runs before it gives way to one that has waited as long.
    grow, migrate : bool
        Whether jobs are doubled, and moved to other types, where GPUs are idle.
    pack : bool
        Whether jobs that wait share GPUs; without effect where the scenario has no pairs.
    guard : bool
        Whether a job gives way, or tries other GPUs, only once it has held its own for 20 restarts
        (`GuardedPolicy`).
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "gandiva"
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    slice_s: Period = 3600.0
    grow: bool = True
    migrate: bool = True
    pack: bool = False
    round_s: Period | None = 300.0
    _watch: dict[int, MeasuredSpeeds] = field(default_factory=dict, init=False, repr=False)
    _counts: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _apart: set[frozenset[int]] = field(default_factory=set, init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all jobs and speeds of the last run."""
        super().reset(setting, rng)
        self._watch, self._counts = {}, {}
        self._rng, self._apart = rng, set()

    def counters(self) -> Mapping[str, int]:
        """Return how many trials of other GPUs began and were undone, and how many time slices ended."""
        names = ("trials", "taken_back", "slices_ended", *(("pairs", "pairs_undone") if self.pack else ()))
        return {name: self._counts.get(name, 0) for name in names}

    def schedule(self, view: View) -> Decision:
        """Measure speeds, make room for waiting jobs, undo trials that slowed a job, and begin new trials."""
        self._measure(view)
        table = PackingTable(view)
        self._guarded = self.find_guarded(view)
        waiting = [int(at) for at in np.flatnonzero(view.gpus == 0)]
        waiting.sort(key=lambda at: (float(view.queued_s[at]), int(view.job[at])))
        # From the cheapest way to the dearest: all jobs are tried with idle GPUs before anybody shrinks, and
        # all with shrinking (grow-shrink) before a slice ends (suspend-resume).
        for make_room in (None, self._shrink, self._end_slices):
            waiting = [at for at in waiting if not self._start(table, at, make_room)]
        if self.pack and view.partner is not None:
            self._part_losers(table)
            waiting = [at for at in waiting if not self._share(table, at)]
        # After room was made: a job whose trial was slow goes back only to GPUs that no waiting job has
        # taken.
        self._judge(table)
        self._try_more(table, waiting)
        self._note(table)
        return table.decision()

    # Measurements

    def _measure(self, view: View) -> None:
        """Measure each running job's speed on its allotment, from the iterations done there."""
        level, known = find_held_level(view), self._watch
        self._watch = {job: known.get(job, MeasuredSpeeds()) for job in view.job.tolist()}
        for at in np.flatnonzero(view.gpus > 0):
            watch = self._watch[int(view.job[at])]
            worked_s = view.now_s - watch.works_from_s
            # Profiling: the rate is work done since the allotment began over the time it could work.
            done = watch.remaining - float(view.remaining_iterations[at])
            allotment = int(view.gpu_type[at]), int(level[at])
            partner = -1 if view.partner is None else int(view.partner[at])
            if partner != watch.partner:
                # The partner has left meanwhile: the progress was partly beside it.
                watch.partner, watch.remaining = partner, float(view.remaining_iterations[at])
                watch.works_from_s = view.now_s + float(view.standstill_s[at])
            elif worked_s > 0 and done > 0 and partner < 0:
                watch.speed[allotment] = done / worked_s
            # Beside another job only the ratio to its own speed alone is kept, the speed itself would be no
            # speed of this allotment.
            elif worked_s > 0 and done > 0 and allotment in watch.speed:
                watch.kept[partner] = done / worked_s / watch.speed[allotment]

    def _note(self, table: PackingTable) -> None:
        """Record when and where each job launched now begins to work."""
        view = table.view
        for at in table.list_changed():
            watch, gpu_type, level = (
                self._watch[int(view.job[at])],
                int(table.gpu_type[at]),
                int(table.level[at]),
            )
            watch.partner = int(view.job[table.partner[at]]) if at in table.partner else -1
            if gpu_type < 0:
                watch.came_from = None
                continue
            watch.since_s, watch.remaining = view.now_s, float(view.remaining_iterations[at])
            # The standstill of the launch is no work, and must not count as slowness of the allotment.
            watch.works_from_s = view.now_s + float(table.cost_s[at, gpu_type, level])

    # Waiting jobs

    def _start(
        self, table: PackingTable, at: int, make_room: Callable[[PackingTable, int, int, int], bool] | None
    ) -> bool:
        """Start a job at its request, on the first type where enough GPUs are free or can be freed."""
        for gpu_type in np.flatnonzero(table.options[at]).tolist():
            missing = int(table.counts[table.requested[at]] - table.free[gpu_type])
            if missing <= 0 or (make_room is not None and make_room(table, at, gpu_type, missing)):
                table.give(at, gpu_type, int(table.requested[at]))
                return True
        return False

    def _shrink(self, table: PackingTable, at: int, gpu_type: int, missing: int) -> bool:
        """Shrink grown jobs of a type to their requests if that frees enough GPUs."""
        above = (table.gpu_type == gpu_type) & (table.level > table.requested)
        grown = np.flatnonzero(above & ~self._guarded)
        grown = grown[table.view.feasible[grown, gpu_type, table.requested[grown]]]
        freed = table.counts[table.level[grown]] - table.counts[table.requested[grown]]
        chosen = self._oldest(table, grown, freed, missing)
        for position in chosen:
            table.give(position, gpu_type, int(table.requested[position]))
            # Shrunk for others: where it came from is no trial any more that could be taken back.
            self._watch[int(table.view.job[position])].came_from = None
        return bool(chosen)

    def _end_slices(self, table: PackingTable, at: int, gpu_type: int, missing: int) -> bool:
        """Suspend jobs whose time slice is over, if a job that waited for a slice then fits."""
        view = table.view
        if view.now_s - view.queued_s[at] < self.slice_s:
            return False
        running = np.flatnonzero((table.gpu_type == gpu_type) & (view.gpus > 0) & ~self._guarded)
        # A pair counts once, and ends its slice together: both jobs stop, and free their GPUs once.
        running = running[
            [table.partner.get(position, position) >= position for position in running.tolist()]
        ]
        ran_s = [view.now_s - self._watch[row].works_from_s for row in view.job[running].tolist()]
        running = running[np.array(ran_s) >= self.slice_s]
        chosen = self._oldest(table, running, table.counts[table.level[running]], missing)
        for position in chosen:
            other = table.partner.get(position)
            for one in (position,) if other is None else (position, other):
                table.give(one, -1, -1)
        self._count("slices_ended", len(chosen))
        return bool(chosen)

    def _oldest(self, table: PackingTable, jobs: Ints, freed: Ints, missing: int) -> list[int]:
        """Return the jobs that changed least recently and together free enough; empty if even all do not."""
        since = [(self._watch[int(table.view.job[position])].since_s, int(position)) for position in jobs]
        # Round robin: who has held its allotment longest gives way first.
        order = sorted(range(len(jobs)), key=lambda place: since[place])
        total = np.cumsum(freed[order]) if order else np.zeros(0)
        enough = np.flatnonzero(total >= missing)
        return [int(jobs[place]) for place in order[: int(enough[0]) + 1]] if len(enough) else []

    # Pairs

    def _share(self, table: PackingTable, at: int) -> bool:
        """Let a waiting job share the GPUs of a random running job with which it may share."""
        options, view, level = table.view.pair_options(), table.view, int(table.requested[at])
        alone = [int(host) for host in np.flatnonzero(table.level == level) if int(host) not in table.partner]
        hosts = [
            host
            for host in alone
            if options is not None
            and table.options[at, table.gpu_type[host]]
            and options.allowed[options.job_class[at], options.job_class[host], table.gpu_type[host], level]
            and frozenset((int(view.job[at]), int(view.job[host]))) not in self._apart
        ]
        if hosts:
            table.join(at, hosts[int(self._rng.integers(len(hosts)))])
            self._count("pairs")
        return bool(hosts)

    def _part_losers(self, table: PackingTable) -> None:
        """Part pairs that measure less than one job alone; the later job waits again."""
        rows = table.view.job.tolist()
        for at, other in sorted(table.partner.items()):
            if at < other:
                kept = [
                    self._watch[rows[one]].kept.get(rows[two], 0.5) for one, two in ((at, other), (other, at))
                ]
                # Packing is kept only where the pair together does more than one job alone would.
                if sum(kept) < 1.0:
                    self._apart.add(frozenset((rows[at], rows[other])))
                    table.give(other, -1, -1)
                    self._count("pairs_undone")

    # Trials

    def _judge(self, table: PackingTable) -> None:
        """Undo each trial that made its job slower."""
        view = table.view
        for at in np.flatnonzero((table.gpu_type >= 0) & ~self._guarded):
            watch = self._watch[int(view.job[at])]
            now = (int(table.gpu_type[at]), int(table.level[at]))
            before = None if int(at) in table.partner else watch.came_from
            if before is None or now not in watch.speed or before not in watch.speed:
                continue
            watch.came_from = None
            if watch.speed[now] < watch.speed[before] and table.fits(int(at), *before):
                table.give(int(at), *before)
                self._count("taken_back")

    def _try_more(self, table: PackingTable, waiting: list[int]) -> None:
        """Double or migrate running jobs onto idle GPUs that no job waits for."""
        asked = table.options[np.array(waiting, dtype=np.int64)]
        wanted = np.asarray(asked.any(axis=0), dtype=np.bool_)
        running = np.flatnonzero((table.gpu_type >= 0) & (table.view.gpus > 0) & ~self._guarded).tolist()
        running.sort(key=lambda at: (self._watch[int(table.view.job[at])].since_s, at))
        for at in (one for one in running if one not in table.partner):
            gpu_type, level = int(table.gpu_type[at]), int(table.level[at])
            if wanted[gpu_type] or not (table.free[~wanted] > 0).any():
                continue
            grown = [(gpu_type, level + 1)] if self.grow and level + 1 < len(table.counts) else []
            others = np.flatnonzero(~wanted & (np.arange(len(wanted)) != gpu_type)).tolist()
            for there in grown + [(other, level) for other in others if self.migrate]:
                if self._worth_trying(table, at, there):
                    self._watch[int(table.view.job[at])].came_from = (gpu_type, level)
                    table.give(at, *there)
                    self._count("trials")
                    break

    def _worth_trying(self, table: PackingTable, at: int, there: Allotment) -> bool:
        """Return whether a trial allotment has room, and was not slower before."""
        watch = self._watch[int(table.view.job[at])]
        now = (int(table.gpu_type[at]), int(table.level[at]))
        if now not in watch.speed or watch.came_from is not None or not table.fits(at, *there):
            return False
        # An allotment that was never tried is credited with the best case.
        return watch.speed.get(there, np.inf) > watch.speed[now]

    def _count(self, what: str, by: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + by
