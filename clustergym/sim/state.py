"""The state of all jobs as arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import Setting
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim import rules
from clustergym.sim.columns import Phase
from clustergym.sim.log import NO_JOB

__all__ = ["JobStates", "Phase", "make_rows", "make_setting"]


def make_setting(scenario: Scenario, round_s: float | None) -> Setting:
    """Return the constants of a run, such as GPU types, for a decision every `round_s` seconds."""
    return Setting(
        scenario.cluster.gpu_types,
        scenario.cluster.capacity.copy(),
        scenario.cluster.gpus_per_node.copy(),
        scenario.tables.counts.copy(),
        round_s,
        scenario.batch_models,
        None if scenario.tenants is None else scenario.tenants.tree,
    )


def make_rows(scenario: Scenario) -> tuple[Ints, Floats]:
    """Return the initial state of a scenario's jobs as two arrays, of whole numbers and of floats."""
    trace, n = scenario.trace, len(scenario.trace)
    job = np.zeros((n, c.JOB_COLUMNS), dtype=np.int64)
    job[:, c.SUBMIT] = np.rint(trace.submit_s * c.TICKS_PER_S)
    job[:, c.CLASS], job[:, c.SCORED] = scenario.class_of, scenario.scored
    job[:, c.REQUESTED_TYPE], job[:, c.REQUESTED_GPUS] = scenario.request_type, scenario.request_gpus
    job[:, c.REQUESTED_BATCH] = trace.global_batch
    job[:, (c.TYPE, c.LEVEL, c.FIRST_SHARE, c.TARGET_TYPE, c.TARGET_LEVEL)] = c.NONE
    job[:, (c.DUE, c.LEAVE)] = c.NEVER
    figures = np.full((n, c.FIGURE_COLUMNS), np.nan)
    figures[:, c.SUBMIT_S], figures[:, c.DEADLINE_S] = trace.submit_s, trace.deadline_s
    figures[:, c.ITERATIONS] = figures[:, c.REMAINING] = trace.iterations
    # Ones, not zeros: it divides before a job has ever run.
    figures[:, c.ITERATION_S], figures[:, c.ATTAINED_GPU_S] = 1.0, 0.0
    figures[:, c.LEAST_LEFT] = np.inf
    return job, figures


class JobStates:
    """The state of all jobs of a trace, in arrays with named columns; times are ticks.

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
    `generation` counts what was scheduled for a job; an event of an older one is void.
    """

    def __init__(self, scenario: Scenario) -> None:
        trace = scenario.trace
        n, shape = len(trace), (len(trace), *scenario.feasible.shape[1:])
        self.take_rows(scenario, *make_rows(scenario), np.zeros(shape, dtype=np.bool_))
        self.batch = trace.global_batch.copy()
        self.ends_at = (trace.iterations - trace.work_iterations).astype(np.float64)
        self.checkpointed = self.iterations.copy()
        self.disturbed = bool(scenario.disturbances)
        self.checkpoint_every = np.zeros(n, dtype=np.int64)
        self.write_share = np.zeros(n)
        self.unsaved = np.zeros(n, dtype=np.int64)
        self.restart_s = np.zeros(n)
        self.hangs = np.zeros(n, dtype=np.bool_)
        self.generation = np.zeros(n, dtype=np.int64)
        self.part = None if scenario.parts is None else scenario.parts.gpus / np.maximum(trace.gpus, 1)
        self.partner = None if scenario.pairs is None else np.full(n, NO_JOB, dtype=np.int64)

    def take_rows(self, scenario: Scenario, job: Ints, figures: Floats, searched: Bools) -> None:
        """Use the given arrays as the jobs' state, and compute the fixed times to save, load and search."""
        self.job, self.figures, self.searched = job, figures, searched
        of_job, of_figures = job.T, figures.T
        self.submit, self.phase, self.hidden = of_job[c.SUBMIT], of_job[c.PHASE], of_job[c.HIDDEN]
        self.gpu_type, self.level, self.gpus = of_job[c.TYPE], of_job[c.LEVEL], of_job[c.GPUS]
        self.ready, self.worked_until = of_job[c.READY], of_job[c.WORKED_UNTIL]
        self.held_since, self.queued_since = of_job[c.HELD_SINCE], of_job[c.QUEUED_SINCE]
        self.restarts, self.launched = of_job[c.RESTARTS], of_job[c.LAUNCHED]
        self.iterations, self.remaining = of_figures[c.ITERATIONS], of_figures[c.REMAINING]
        self.iteration_s, self.attained_gpu_s = of_figures[c.ITERATION_S], of_figures[c.ATTAINED_GPU_S]
        self.profiles = False
        self.unseen: set[int] = set()
        self.saving: dict[int, int] = {}
        self._first_launch = scenario.costs.first_launch
        self.stops_lose = any(disturbance.stops_lose for disturbance in scenario.disturbances)
        whole_s = scenario.checkpoint_s[scenario.class_of]
        # Half of the time to save and load is each: both move as many bytes.
        self.save_s = whole_s / 2
        self.load_s = whole_s - self.save_s if self.stops_lose else whole_s
        self._search_s = scenario.costs.search_s(scenario.tables.counts)

    def hide_types(self) -> None:
        """Mark every job as not profiled on any GPU type, before the run."""
        self.hidden[:] = 2 ** self.searched.shape[1] - 1
        self.profiles = True

    def find_profiled_types(self, rows: Ints) -> Bools:
        """Return a mask of the GPU types on which jobs' iteration times are known, shape (n, T)."""
        found: Bools = (self.hidden[rows, None] >> np.arange(self.searched.shape[1])) % 2 == 0
        return found

    def is_profiled(self, row: int) -> bool:
        """Return whether a job's iteration times are known on at least one GPU type."""
        types: int = self.searched.shape[1]
        return int(self.hidden[row]) + 1 != 1 << types

    def restart_cost_s(self, rows: Ints | int) -> Floats:
        """Return the seconds that jobs stand still if launched, by GPU type and count, shape (..., T, K).

        A job pays for saving its checkpoint as well as loading it, unless it paid before.
        """
        of_jobs = (..., None, None)
        restart_s = self.restart_s[rows][of_jobs] if self.disturbed else 0.0
        found: Floats = rules.compute_restart_s(
            self.launched[rows][of_jobs],
            self._first_launch,
            self.load_s[rows][of_jobs],
            restart_s,
            self.searched[rows],
            self._search_s,
        )
        return found

    def get_restart_s(self, row: int, gpu_type: int, level: int) -> float:
        """Return the seconds that a job stands still if launched with a GPU type and count."""
        cost_s: float = rules.compute_restart_s(
            int(self.launched[row]),
            self._first_launch,
            float(self.load_s[row]),
            float(self.restart_s[row]) if self.disturbed else 0.0,
            int(self.searched[row, gpu_type, level]),
            float(self._search_s[level]),
        )
        return cost_s

    def get_partner(self, row: int) -> int:
        """Return the row of the job that shares a job's GPUs, or `NO_JOB`."""
        return NO_JOB if self.partner is None else int(self.partner[row])

    def compute_remaining(self, rows: Ints | int, now: Ints | int) -> Floats:
        """Return the iterations each job has left at tick `now`, shape of `rows`."""
        left: Floats = rules.compute_remaining(
            self.phase[rows],
            self.remaining[rows],
            self.iteration_s[rows],
            self.worked_until[rows],
            self.ready[rows],
            now,
        )
        return left

    def _share(self, rows: Ints | int) -> Any:
        """Return the part of its GPUs that each job holds: of two jobs on the same GPUs, half."""
        share = 1.0 if self.part is None else self.part[rows]
        return share if self.partner is None else np.where(self.partner[rows] >= 0, share / 2, share)

    def compute_attained(self, rows: Ints, now: int) -> Floats:
        """Return the GPU-seconds that each job has held up to tick `now`, shape of `rows`."""
        attained: Floats = rules.compute_attained(
            self.attained_gpu_s[rows], self.gpus[rows], self._share(rows), self.held_since[rows], now
        )
        return attained

    def at_checkpoint(self, rows: Ints | int, now: int) -> tuple[Floats, Ints]:
        """Return iterations left at jobs' last checkpoints, and ticks worked since then, shape of `rows`."""
        ready, unsaved, every = self.ready[rows], self.unsaved[rows], self.checkpoint_every[rows]
        # Without checkpoints everything since the start would be lost.
        total = now - ready + unsaved
        since = np.where(every > 0, total % np.maximum(every, 1), total)
        works = (self.phase[rows] == c.RUNNING) & (now > ready)
        # The last checkpoint is older than the present speed, so its progress was worked out when that began.
        written = works & (now - since > np.maximum(self.worked_until[rows], ready))
        left = np.where(written, self.compute_remaining(rows, now - since), self.checkpointed[rows])
        return left, np.where(works, since, unsaved)

    def settle(self, row: int, now: int) -> None:
        """Record a job's progress and GPU-seconds up to tick `now`, before its GPUs change."""
        if self.disturbed:
            self.checkpointed[row] = self.at_checkpoint(row, now)[0]
        rules.settle(self.job[row], self.figures[row], self._share(row), now)
