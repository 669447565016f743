"""The state of all jobs as arrays, and the View of it that a policy is shown."""

from __future__ import annotations

import enum
from dataclasses import replace
from functools import cache

import numpy as np

from clustergym.cluster.part_allocations import PartAllocations
from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.clock import TICKS_PER_S, seconds, ticks
from clustergym.scenario.part_view import PartView
from clustergym.scenario.policy import (
    BatchOptions,
    InformationClass,
    InformationError,
    PairOptions,
    Setting,
    StopCosts,
    View,
)
from clustergym.scenario.scenario import Scenario
from clustergym.sim.log import NO_JOB


def make_setting(scenario: Scenario, round_s: float | None) -> Setting:
    """Return the constants of a run with a decision point every `round_s` seconds; None: at every event."""
    return Setting(
        scenario.cluster.gpu_types,
        scenario.cluster.capacity.copy(),
        scenario.cluster.gpus_per_node.copy(),
        scenario.tables.counts.copy(),
        round_s,
        scenario.batch_models,
        None if scenario.tenants is None else scenario.tenants.tree,
    )


class Phase(enum.IntEnum):
    """Stage of a job's life in the simulation."""

    FUTURE = 0
    PROFILING = 1
    """Submitted, but no GPU type is profiled yet."""
    QUEUED = 2
    RUNNING = 3
    COMPLETED = 4
    DROPPED = 5


class JobStates:
    """State of every job as mutable columns, one row per job of the trace; times are ticks.

    Progress is integrated piecewise: `remaining` holds at tick `worked_until`, and a
    running job has worked since max(`worked_until`, `ready`) at `iteration_s` an iteration. Iterations
    are those at the requested batch; at another `batch`, `iteration_s` is the time in which the work of
    one such iteration is done.
    `ends_at` is `remaining` when the job ends: above 0 where its log says that it failed or was killed.
    `checkpointed` is `remaining` as of the last checkpoint before `worked_until`; checkpoints are
    complete every `checkpoint_every` ticks since `ready` (0: never), of which `write_share` go into writing
    them, spread evenly. `unsaved` is what was worked since the last checkpoint up to `ready`, ticks.
    `restart_s` is what the next launch stands still longer after a disturbance; `hangs`: a node of the job
    has failed, which nobody has noticed yet. `unseen`: jobs that disturbances start, and that no policy sees.
    `saving`: ticks at which jobs that were given notice have saved; no policy sees them until then.
    """

    def __init__(self, scenario: Scenario) -> None:
        trace = scenario.trace
        n, shape = len(trace), (len(trace), *scenario.feasible.shape[1:])
        self.submit = np.array([ticks(t) for t in trace.submit_s.tolist()], dtype=np.int64)
        self.iterations = trace.iterations.astype(np.float64)
        self.batch = trace.global_batch.copy()
        self.remaining = self.iterations.copy()
        self.ends_at = (trace.iterations - trace.work_iterations).astype(np.float64)
        self.checkpointed = self.iterations.copy()
        self.disturbed = bool(scenario.disturbances)
        self.checkpoint_every = np.zeros(n, dtype=np.int64)
        self.write_share = np.zeros(n)
        self.unsaved = np.zeros(n, dtype=np.int64)
        self.restart_s = np.zeros(n)
        self.hangs = np.zeros(n, dtype=np.bool_)
        self.phase = np.zeros(n, dtype=np.int64)
        self.gpu_type = np.full(n, -1, dtype=np.int64)
        self.gpus = np.zeros(n, dtype=np.int64)
        # Ones, not zeros: it divides before a job has ever run.
        self.iteration_s = np.ones(n)
        self.ready = np.zeros(n, dtype=np.int64)
        self.worked_until = np.zeros(n, dtype=np.int64)
        self.held_since = np.zeros(n, dtype=np.int64)
        self.attained_gpu_s = np.zeros(n)
        self.queued_since = np.zeros(n, dtype=np.int64)
        self.restarts = np.zeros(n, dtype=np.int64)
        # Counts what was scheduled for a job; an event of an older generation is void.
        self.generation = np.zeros(n, dtype=np.int64)
        self.launched = np.zeros(n, dtype=np.bool_)
        self.searched = np.zeros(shape, dtype=np.bool_)
        self.profiled = np.zeros(shape[:2], dtype=np.bool_)
        self.part = None if scenario.parts is None else scenario.parts.gpus / np.maximum(trace.gpus, 1)
        self.partner = None if scenario.pairs is None else np.full(n, NO_JOB, dtype=np.int64)
        self.unseen: set[int] = set()
        self.saving: dict[int, int] = {}
        self.price_restarts(scenario)

    def price_restarts(self, scenario: Scenario) -> None:
        """Keep what restarts depend on besides the state of the jobs."""
        self._counts, self._first_launch = scenario.tables.counts, scenario.costs.first_launch
        self.stops_lose = any(disturbance.stops_lose for disturbance in scenario.disturbances)
        whole_s = scenario.checkpoint_s[scenario.class_of]
        # Half of the time to save and load is each: both move as many bytes.
        self.save_s = whole_s / 2
        self.load_s = whole_s - self.save_s if self.stops_lose else whole_s
        self._search_s = scenario.costs.search_s(self._counts)

    def restart_cost_s(self, rows: Ints | int) -> Floats:
        """Return the seconds for which jobs stand still when launched on each allotment, shape (..., T, K).

        They load their checkpoints, and pay for saving them unless that was paid before, the first time only
        if that costs too; search for a plan where they have none yet; and wait for what a disturbance has
        added.
        """
        # Where the scenario charges no first launch, a job that never ran has no checkpoint to load.
        cost = (self.launched[rows] | self._first_launch) * self.load_s[rows]
        if self.disturbed:
            cost = cost + self.restart_s[rows]
        table: Floats = cost[..., None, None] + ~self.searched[rows] * self._search_s
        return table

    def count_level(self, row: int) -> int:
        """Return the index of `tables.counts` of the GPUs that a job holds."""
        return int(np.searchsorted(self._counts, self.gpus[row]))

    def get_partner(self, row: int) -> int:
        """Return the job that shares a job's GPUs; `NO_JOB`: none."""
        return NO_JOB if self.partner is None else int(self.partner[row])

    def compute_remaining(self, rows: Ints, now: int) -> Floats:
        """Return the iterations each job has left at tick `now`, shape of `rows`."""
        worked = np.maximum(now - np.maximum(self.worked_until[rows], self.ready[rows]), 0)
        done = worked / (self.iteration_s[rows] * TICKS_PER_S)
        # Only running jobs work; the formula above is meaningless for the others, and `where` discards it.
        running = self.phase[rows] == Phase.RUNNING
        return np.where(running, np.maximum(self.remaining[rows] - done, 0.0), self.remaining[rows])

    def compute_attained(self, rows: Ints, now: int) -> Floats:
        """Return the GPU-seconds each job has held up to tick `now`, shape of `rows`.

        The GPUs of a pair count half for each of its jobs.
        """
        held = self.gpus[rows] * (now - self.held_since[rows]) / TICKS_PER_S
        if self.partner is not None:
            held = np.where(self.partner[rows] >= 0, held / 2, held)
        return self.attained_gpu_s[rows] + (held if self.part is None else held * self.part[rows])

    def at_checkpoint(self, row: int, now: int) -> tuple[float, int]:
        """Return the iterations left at a job's last checkpoint, and the ticks worked since then."""
        worked, unsaved = now - int(self.ready[row]), int(self.unsaved[row])
        if self.phase[row] != Phase.RUNNING or worked <= 0:
            return float(self.checkpointed[row]), unsaved
        every = int(self.checkpoint_every[row])
        # Without checkpoints everything since the start would be lost.
        since = (worked + unsaved) % every if every else worked + unsaved
        # The last checkpoint is older than the present speed, so its progress was worked out when that began.
        if now - since <= max(self.worked_until[row], self.ready[row]):
            return float(self.checkpointed[row]), since
        return float(self.compute_remaining(np.array([row]), now - since)[0]), since

    def settle(self, row: int, now: int) -> None:
        """Record a job's progress and GPU-seconds up to tick `now`; call it before its allotment changes."""
        if self.disturbed:
            self.checkpointed[row] = self.at_checkpoint(row, now)[0]
        # As `compute_remaining` and `compute_attained`, which take ten times as long for one job.
        if self.phase[row] == Phase.RUNNING:
            worked = max(now - max(int(self.worked_until[row]), int(self.ready[row])), 0)
            done = worked / (self.iteration_s[row] * TICKS_PER_S)
            self.remaining[row] = max(self.remaining[row] - done, 0.0)
        held = float(int(self.gpus[row]) * (now - int(self.held_since[row])))
        if self.part is not None:
            held *= float(self.part[row])
        if self.get_partner(row) != NO_JOB:
            held /= 2
        self.attained_gpu_s[row] += held / TICKS_PER_S
        self.worked_until[row] = self.held_since[row] = now


class ViewMaker:
    """Builds Views for a policy's information class; computes once what does not change in a run."""

    def __init__(
        self, scenario: Scenario, jobs: JobStates, information: InformationClass, setting: Setting
    ) -> None:
        self.jobs, self.information, self.setting = jobs, information, setting
        self.class_of = scenario.class_of
        self.feasible = scenario.feasible
        self.known = scenario.known_times(information)
        self.trace = scenario.trace
        self.request_type, self.request_gpus = scenario.request_type, scenario.request_gpus
        self.counts = scenario.tables.counts
        self.batches = scenario.batch_choices
        knows_ends = information == InformationClass.CLAIRVOYANT
        self._undone = jobs.ends_at if knows_ends and jobs.ends_at.any() else None
        tenants = scenario.tenants
        self.queue = np.zeros(len(self.trace), np.int64) if tenants is None else tenants.leaf
        knows = self.batches is not None and information != InformationClass.NONE
        self.known_at_batches = scenario.get_known_batch_times(information) if knows else None
        self.pairs = scenario.pairs

    def compute_remaining(self, rows: Ints, now: int) -> Floats:
        """Return the iterations that the policy believes each job has left at tick `now`, shape of `rows`.

        Those left of what the job asked for; a clairvoyant policy knows where a log ends the job before.
        """
        left = self.jobs.compute_remaining(rows, now)
        return left if self._undone is None else left - self._undone[rows]

    def part_view(self, now: int, rows: Ints, available: Ints, allocations: PartAllocations) -> View:
        """Return the View of the jobs `rows` at tick `now` on a divisible cluster."""
        view = self.view(now, rows, available, allocations.free.copy())
        parts = PartView(
            allocations.parts.requests,
            allocations.parts.kind[rows],
            allocations.node_of[rows],
            allocations.devices_of[rows],
            allocations.nodes.copy,
        )
        # Parts of GPUs are not elastic: a job gets what it asks for or nothing.
        asked = view.setting.counts == view.requested_gpus[:, None, None]
        return replace(view, feasible=view.feasible & asked, parts=parts)

    def view(self, now: int, rows: Ints, available: Ints, free: Ints) -> View:
        """Return the View of the jobs `rows` at tick `now`."""
        jobs, trace = self.jobs, self.trace
        queued = jobs.phase[rows] == Phase.QUEUED
        # A policy must not see that a job hangs: nobody has noticed yet.
        idle = queued | jobs.hangs[rows] if jobs.disturbed else queued
        return View(
            now_s=seconds(now),
            setting=self.setting,
            available=available,
            free=free,
            job=rows.copy(),
            state=np.where(queued, 0, 1),
            gpu_type=jobs.gpu_type[rows],
            gpus=jobs.gpus[rows],
            requested_type=self.request_type[rows],
            requested_gpus=self.request_gpus[rows],
            submit_s=trace.submit_s[rows],
            deadline_s=trace.deadline_s[rows],
            queued_s=np.where(queued, jobs.queued_since[rows] / TICKS_PER_S, np.nan),
            standstill_s=np.where(idle, 0, np.maximum(jobs.ready[rows] - now, 0)) / TICKS_PER_S,
            iterations=jobs.iterations[rows] - (0.0 if self._undone is None else self._undone[rows]),
            remaining_iterations=self.compute_remaining(rows, now),
            global_batch=trace.global_batch[rows],
            priority=trace.priority[rows],
            restarts=jobs.restarts[rows],
            attained_gpu_s=jobs.compute_attained(rows, now),
            # What is not profiled cannot be launched, even where it would fit.
            feasible=self.feasible[self.class_of[rows]] & jobs.profiled[rows][:, :, None],
            batch=jobs.batch[rows],
            queue=self.queue[rows],
            times=cache(lambda: self._times(rows)),
            costs=lambda: self.costs(rows),
            batches=lambda: self.make_batch_options(rows, now),
            partner=None if jobs.partner is None else jobs.partner[rows],
            time_limit_s=None if trace.time_limit_s is None else trace.time_limit_s[rows],
            requested_nodes=None if trace.nodes is None else trace.nodes[rows],
            pairs=lambda: self._pair_options(rows),
            stops=lambda: self.stop_costs(rows, now),
        )

    def stop_costs(self, rows: Ints, now: int) -> StopCosts:
        """Return what it costs to stop the jobs `rows` at tick `now`."""
        jobs, gpus = self.jobs, self.jobs.gpus[rows]
        undone_s, lost = np.zeros(len(rows)), np.zeros(len(rows))
        left = jobs.compute_remaining(rows, now)
        for at in np.flatnonzero(gpus > 0).tolist():
            kept, undone = jobs.at_checkpoint(int(rows[at]), now)
            undone_s[at], lost[at] = seconds(undone), kept - left[at]
        loses, save_s = float(jobs.stops_lose), jobs.save_s[rows]
        return StopCosts(
            checkpoint_age_s=undone_s,
            save_s=save_s,
            lost_iterations=lost * loses,
            lost_gpu_s=gpus * undone_s * loses,
            save_gpu_s=gpus * save_s * loses,
            restart_gpu_s=gpus * jobs.load_s[rows],
            loses=jobs.stops_lose,
        )

    def _pair_options(self, rows: Ints) -> PairOptions | None:
        if self.pairs is None:
            return None
        knows = self.information != InformationClass.NONE
        return PairOptions(self.class_of[rows], self.pairs.allowed, self.pairs.kept if knows else None)

    def _times(self, rows: Ints) -> Floats:
        if self.information == InformationClass.NONE:
            raise InformationError("a policy of information class 'none' has no iteration times")
        known: Floats = np.where(
            self.jobs.profiled[rows][:, :, None], self.known[self.class_of[rows]], np.inf
        )
        known.setflags(write=False)
        return known

    def make_batch_options(self, rows: Ints, now: int) -> BatchOptions | None:
        """Return the global batches that jobs may train at; None where nobody chooses them."""
        if self.information == InformationClass.NONE:
            raise InformationError("a policy of information class 'none' has no iteration times")
        if self.batches is None or self.known_at_batches is None:
            return None
        profiled = self.jobs.profiled[rows][:, :, None, None]
        times = np.where(profiled, self.known_at_batches[self.class_of[rows]], np.inf)
        return self.batches.options(rows, self.jobs.compute_remaining(rows, now), times)

    def costs(self, rows: Ints) -> Floats:
        """Return the seconds each job would stand still for each allotment, shape (len(rows), T, K)."""
        jobs = self.jobs
        cost = jobs.restart_cost_s(rows)
        held = np.flatnonzero(jobs.gpus[rows] > 0)
        level = np.searchsorted(self.counts, jobs.gpus[rows][held])
        # Keeping what one holds is no launch.
        cost[held, jobs.gpu_type[rows][held], level] = 0.0
        return cost
