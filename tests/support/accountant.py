"""Keeps the books of a run from its event log alone: who holds which GPU, how far jobs are, what was paid.

Nothing of `clustergym.sim` is used; of the scenario only what it is given: jobs, tables, prices, failures.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scenarios import failures_of, planned_of

from clustergym.scenario.disturbances.checkpoints import Checkpoints
from clustergym.scenario.disturbances.failures import Failures

LAUNCHES = ("start", "resume", "rescale", "migrate")
TICK_S = 1e-6
ROUNDING = 1e-9


def tick(time_s: float) -> int:
    """Return a time as whole microseconds, which every time of a log has to be."""
    whole = round(time_s * 1e6)
    assert abs(whole / 1e6 - time_s) <= 1e-9 * max(time_s, 1.0), f"{time_s} s lies between two microseconds"
    return whole


@dataclass
class JobBooks:
    """What a log has told of one job; times are ticks."""

    left: float
    phase: str = "absent"
    launched: bool = False
    searched: set[tuple[int, int]] = field(default_factory=set)
    gpu_type: int = -1
    gpus: int = 0
    batch: int = 0
    works_from: int = 0
    paces: list[tuple[int, float, float]] = field(default_factory=list)
    """Since the last launch: tick, iterations left there, seconds an iteration from there on."""
    held_since: int = 0
    held_gpu_s: float = 0.0
    restarts: int = 0
    unplaced_at: int = -1
    saved_at: int | None = None
    """The tick at which it has saved, since it was given notice."""
    kept: tuple[float, int] | None = None
    """Iterations left at its last checkpoint, and ticks worked since then, as notice found it."""
    undone: float | None = None
    """Iterations left at the checkpoint to which an UNDO has just taken it back."""

    def left_at(self, now: int) -> float:
        """Return the iterations left at a tick of the present launch."""
        since, left, iteration_s = next(pace for pace in reversed(self.paces) if pace[0] <= now)
        return left - max(now - max(since, self.works_from), 0) * TICK_S / iteration_s

    def slack(self, now: int) -> float:
        """Return the iterations by which rounding to microseconds may shift progress."""
        fastest = min(pace[2] for pace in self.paces)
        return (len(self.paces) + 1) * TICK_S / fastest + ROUNDING * self.left + 1e-9


class Accountant:
    """Follows a log event by event; whatever does not add up is an AssertionError.

    Parameters
    ----------
    scenario : Scenario
    information : str
        Information class of who decides.
    """

    def __init__(self, scenario: Any, information: str) -> None:
        self.scenario, self.spec = scenario, scenario.cluster
        self.jobs = [JobBooks(float(n)) for n in scenario.trace.iterations]
        self.planned = {one.job: tick(one.start_s) for one in planned_of(scenario)}
        self.now = 0
        self.held: dict[tuple[str, int, int], tuple[int, tuple[tuple[int, int], ...]]] = {}
        self.down: dict[int, int] = {}
        self.price = scenario.costs.profile.get(str(information))
        self.measured: dict[tuple[int, int], int] = {}
        self.known: set[tuple[int, int]] = set()
        every_s = [one.every_s for one in scenario.disturbances if isinstance(one, Checkpoints)]
        self.stops_lose = bool(every_s)
        fails = any(isinstance(one, Failures) for one in scenario.disturbances)
        if fails or not every_s:
            every_s.append(failures_of(scenario).checkpoint_every_s)
        self.every = round(min(every_s) * 1e6)
        self.profiling_since: dict[tuple[int, int], int] = {}
        self._next_event = 0

    def follow(self, events: list[Any]) -> None:
        """Follow the events that have come since the last call."""
        for event in events[self._next_event :]:
            now = tick(event.time_s)
            assert now >= self.now, f"time goes back to {event.time_s} s"
            if now > self.now:
                self.close_instant()
            self.now = now
            getattr(self, f"_{event.event_type!s}")(event)
        self._next_event = len(events)

    def close_instant(self) -> None:
        """Check who holds what; within an instant GPUs change hands in any order."""
        used = np.zeros(len(self.spec.node_gpus), dtype=np.int64)
        for kind, nodes in self.held.values():
            for node, gpus in nodes:
                assert gpus > 0
                assert self.spec.node_type[node] == kind
                assert node not in self.down, f"GPUs held on failed node {node}"
                used[node] += gpus
        assert (used <= self.spec.node_gpus).all(), "GPUs are held twice"
        running = {row for row, job in enumerate(self.jobs) if job.phase == "running"}
        for job in self.jobs:
            assert job.undone is None, "work is undone of a job that goes on"
            assert job.saved_at is None or job.saved_at > self.now, "a job that has saved goes on"
        assert running == {row for what, row, _ in self.held if what == "job"}

    def free(self) -> list[int]:
        """Return the GPUs of each type that nobody holds on nodes in use."""
        free = self.spec.node_gpus.copy()
        free[list(self.down)] = 0
        for _, nodes in self.held.values():
            for node, gpus in nodes:
                free[node] -= gpus
        return np.bincount(self.spec.node_type, free, minlength=len(self.spec.gpu_types)).astype(int).tolist()

    def knows(self, row: int, kind: int) -> bool:
        """Whether a job may be launched on a type by what was profiled."""
        return self.price is None or (self._unit(row), kind) in self.known

    def held_gpu_s(self, row: int) -> float:
        """Return the GPU-seconds that a job has held."""
        job = self.jobs[row]
        return job.held_gpu_s + job.gpus * (self.now - job.held_since) * TICK_S

    # Jobs

    def _submit(self, event: Any) -> None:
        job = self.jobs[event.job]
        assert job.phase == "absent"
        assert self.now == round(float(self.scenario.trace.submit_s[event.job]) * 1e6)
        job.phase = "queued"

    def _start(self, event: Any) -> None:
        job = self.jobs[event.job]
        assert job.phase == "queued"
        assert not job.launched
        if event.job in self.planned:
            assert self.now >= self.planned[event.job]
        self._launch(event)

    def _resume(self, event: Any) -> None:
        job = self.jobs[event.job]
        assert job.phase == "queued"
        assert job.launched
        self._launch(event)
        job.restarts += 1

    def _rescale(self, event: Any) -> None:
        job = self.jobs[event.job]
        assert job.phase == "running"
        assert (job.gpu_type, job.gpus) != (event.gpu_type, event.gpus)
        self._launch_again(event)

    def _migrate(self, event: Any) -> None:
        job = self.jobs[event.job]
        assert job.phase == "running"
        assert (job.gpu_type, job.gpus) == (event.gpu_type, event.gpus)
        self._launch_again(event)

    def _launch_again(self, event: Any) -> None:
        """Launch a running job elsewhere; where stops lose work, it has lost it or saves first."""
        job = self.jobs[event.job]
        assert job.saved_at is None, "a job that saves is launched"
        saves = self.stops_lose and job.undone is None
        self._give_up(event.job)
        self._launch(event, self._restart_s(event.job) / 2 if saves else 0.0)
        job.restarts += 1

    def _launch(self, event: Any, save_s: float = 0.0) -> None:
        job, allotment = self.jobs[event.job], (event.gpu_type, event.gpus)
        assert sum(gpus for _, gpus in event.nodes) == event.gpus
        assert event.gpus in self.scenario.tables.counts
        assert event.job in self.planned or self.knows(event.job, event.gpu_type)
        assert event.locality == self._locality(event.nodes)
        self.held["job", event.job, 0] = event.gpu_type, event.nodes
        assert tick(event.overhead_s) == round((save_s + self._overhead_s(event.job, allotment)) * 1e6)
        job.phase, job.launched, job.gpu_type, job.gpus = "running", True, *allotment
        job.searched.add(allotment)
        job.held_since, job.works_from = self.now, self.now + tick(event.overhead_s)
        job.batch = event.batch
        assert event.iteration_time_s == self._alone_s(event, job.left)
        job.paces = [(self.now, job.left, event.iteration_time_s)]

    def _overhead_s(self, row: int, allotment: tuple[int, int]) -> float:
        costs, job = self.scenario.costs, self.jobs[row]
        search = costs.search_s_per_gpu.get(costs.search, 0.0) * allotment[1]
        search = min(search, costs.search_s_max.get(costs.search, math.inf))
        restart = self._restart_s(row) / 2 if self.stops_lose else self._restart_s(row)
        pays = job.launched or costs.first_launch
        return (0.0 if allotment in job.searched else search) + (restart if pays else 0.0)

    def _restart_s(self, row: int) -> float:
        """Return the seconds to save and to load, half of it each."""
        return float(self.scenario.checkpoint_s[self.scenario.class_of[row]])

    def _rate(self, event: Any) -> None:
        job = self.jobs[event.job]
        assert job.phase == "running"
        assert (job.gpu_type, job.gpus, event.nodes) == (event.gpu_type, event.gpus, ())
        assert event.overhead_s == standstill_s(job.works_from - self.now)
        left = job.left_at(self.now)
        job.batch = event.batch
        alone_s = self._alone_s(event, left)
        if self.scenario.communication_s is None:
            assert event.iteration_time_s == alone_s
        else:
            assert event.iteration_time_s >= alone_s * (1 - 1e-5)
        job.paces.append((self.now, left, event.iteration_time_s))

    def _preempt(self, event: Any) -> None:
        assert event.job not in self.planned
        job = self.jobs[event.job]
        if self.stops_lose:
            assert (job.undone is None) == (job.saved_at == self.now), "a stop neither saves nor loses work"
        self.jobs[event.job].left = max(self._stop(event.job), 0.0)
        self.jobs[event.job].phase = "queued"

    def _complete(self, event: Any) -> None:
        slack = self.jobs[event.job].slack(self.now)
        left = self._stop(event.job)
        assert abs(left) <= slack, f"job {event.job} completes with {left} iterations left"
        self.jobs[event.job].phase = "left"

    def _drop(self, event: Any) -> None:
        job = self.jobs[event.job]
        assert job.phase in ("queued", "running")
        if job.phase == "running":
            self._stop(event.job)
        job.phase = "left"

    def _fail(self, event: Any) -> None:
        job, nodes = self.jobs[event.job], self.held["job", event.job, 0][1]
        assert any(node in self.down and self.down[node] == self.now for node, _ in nodes)
        written, undone = self._at_checkpoint(job)
        self._check_loss(event, written, undone)
        self._stop(event.job)
        job.left, job.phase = written, "queued"

    def _at_checkpoint(self, job: JobBooks) -> tuple[float, int]:
        """Return the iterations left at a job's last checkpoint, and the ticks worked since then."""
        if job.kept is not None:
            return job.kept
        worked = max(self.now - job.works_from, 0)
        undone = worked % self.every
        return job.left_at(self.now - undone) if worked >= self.every else job.paces[0][1], undone

    def _check_loss(self, event: Any, written: float, undone: int) -> None:
        job = self.jobs[event.job]
        assert tick(event.lost_s) == undone
        assert abs(event.lost_iterations - (written - job.left_at(self.now))) <= job.slack(self.now)

    def _undo(self, event: Any) -> None:
        """Stop or move a job without notice: the event that follows at this instant does it."""
        job = self.jobs[event.job]
        assert self.stops_lose, "work is undone where jobs save when they are stopped"
        assert (job.phase, job.gpu_type, job.gpus) == ("running", event.gpu_type, event.gpus)
        assert job.saved_at is None
        written, undone = self._at_checkpoint(job)
        self._check_loss(event, written, undone)
        job.undone = written

    def _save(self, event: Any) -> None:
        """Give a running job notice: it stands still on its GPUs until it has saved."""
        job = self.jobs[event.job]
        assert self.stops_lose, "a job is given notice where jobs save when they are stopped"
        assert (job.phase, job.gpu_type, job.gpus) == ("running", event.gpu_type, event.gpus)
        assert job.saved_at is None, "notice is given twice"
        left, job.kept = job.left_at(self.now), self._at_checkpoint(job)
        job.saved_at = self.now + round(self._restart_s(event.job) / 2 * 1e6)
        job.works_from = max(job.works_from, job.saved_at)
        assert event.overhead_s == standstill_s(job.works_from - self.now)
        job.paces.append((self.now, left, job.paces[-1][2]))

    def _unplaced(self, event: Any) -> None:
        job = self.jobs[event.job]
        assert job.phase in ("queued", "running")
        assert event.reason
        job.unplaced_at = self.now

    def _stop(self, row: int) -> float:
        """Take a running job's GPUs and return the iterations it has left."""
        assert self.jobs[row].phase == "running"
        self._give_up(row)
        return self.jobs[row].left

    def _give_up(self, row: int) -> None:
        job = self.jobs[row]
        job.held_gpu_s, job.left = self.held_gpu_s(row), job.left_at(self.now)
        assert job.left >= -job.slack(self.now), f"job {row} works on after its end"
        if job.undone is not None:
            job.left = job.undone
        job.undone = job.saved_at = job.kept = None
        job.gpu_type, job.gpus = -1, 0
        del self.held["job", row, 0]

    # Speeds

    def _locality(self, nodes: tuple[tuple[int, int], ...]) -> int:
        if len(nodes) == 1:
            return 0
        leaves = {int(self.spec.node_leaf[node]) for node, _ in nodes}
        minipods = {int(self.spec.node_minipod[node]) for node, _ in nodes}
        return 1 if len(leaves) == 1 else 2 if len(minipods) == 1 else 3

    def _alone_s(self, event: Any, left: float) -> float:
        """Return the seconds that the work of a requested iteration takes on free links."""
        scenario, level = self.scenario, self.scenario.tables.counts.tolist().index(event.gpus)
        model = scenario.class_of[event.job]
        if not event.batch:
            tiers = scenario.tables.execution[model, event.gpu_type, level, : event.locality + 1]
            return float(tiers[np.isfinite(tiers)][-1])
        batches = scenario.tables.batches
        tiers = batches.execution[model, event.gpu_type, level, : event.locality + 1]
        column = int(np.flatnonzero(batches.sizes[model] == event.batch)[0])
        iterations, asked = scenario.trace.iterations[event.job], scenario.trace.global_batch[event.job]
        ends = iterations * (1 - batches.ends[model][:-1])
        near = np.abs(ends - left) < 1e-6 * iterations
        segment = int((left <= ends - 1e-6 * iterations).sum())
        options = [segment, segment + 1] if near.any() else [segment]
        alone = float(tiers[np.isfinite(tiers[:, column])][-1, column])
        worth = [event.batch / asked * batches.efficiency[model, at, column] for at in options]
        if scenario.communication_s is not None and event.event_type == "rate":
            return min(alone / one for one in worth)
        return min((alone / one for one in worth), key=lambda s: abs(s - event.iteration_time_s))

    # Profiles

    def _unit(self, row: int) -> int:
        shared = self.scenario.costs.profile_reuse == "model"
        return int(self.scenario.class_of[row]) if shared else row

    def _needed(self, row: int, kind: int) -> int:
        fits = int(self.scenario.feasible[self.scenario.class_of[row], kind].sum())
        return round(self.price.seconds * (fits if self.price.per == "configuration" else 1) * 1e6)

    def _profile_start(self, event: Any) -> None:
        key = self._unit(event.job), event.gpu_type
        assert key not in self.known, "what is known is profiled again"
        assert key not in self.profiling_since, "two profiles of one thing"
        assert self.jobs[event.job].phase in ("queued", "running")
        assert sum(gpus for _, gpus in event.nodes) == event.gpus == self.price.gpus
        self.profiling_since[key] = self.now
        self.held["profile", event.job, event.gpu_type] = event.gpu_type, event.nodes

    def _profile_end(self, event: Any) -> None:
        key = self._unit(event.job), event.gpu_type
        _, nodes = self.held.pop(("profile", event.job, event.gpu_type))
        assert nodes == event.nodes
        done = self.measured.get(key, 0) + self.now - self.profiling_since.pop(key)
        needed = self._needed(event.job, event.gpu_type)
        assert done <= needed, "a profile goes on after its end"
        self.measured[key] = done
        if done == needed:
            self.known.add(key)
        elif any(node in self.down for node, _ in nodes):
            self.measured[key] = 0

    # Nodes

    def _node_fail(self, event: Any) -> None:
        (node, gpus) = event.nodes[0]
        assert node not in self.down
        assert gpus == event.gpus == self.spec.node_gpus[node]
        times = {(round(one.time_s * 1e6), one.node) for one in failures_of(self.scenario).schedule}
        assert (self.now, node) in times
        self.down[node] = self.now

    def _node_repair(self, event: Any) -> None:
        node = event.nodes[0][0]
        failed = self.down.pop(node)
        lasted = {
            round(one.time_s * 1e6): round(one.repair_s * 1e6)
            for one in failures_of(self.scenario).schedule
            if one.node == node
        }
        assert self.now - failed == lasted[failed]


def standstill_s(ticks: int) -> float:
    """Return a standstill that may be over, in seconds."""
    return max(ticks, 0) / 1e6
