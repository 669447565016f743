"""Profiling of jobs before a policy may start them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Ints
from clustergym.scenario.clock import TICKS_PER_S
from clustergym.scenario.costs import ProfilePrice
from clustergym.scenario.policy import Infeasible, InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.sim import rules
from clustergym.sim.allocator import Allocator
from clustergym.sim.event_recorder import EventRecorder
from clustergym.sim.job_queue import JobQueue
from clustergym.sim.log import EventType
from clustergym.sim.state import Phase


@dataclass(eq=False)
class Profile:
    """A profiling run, which measures a job's speed on one GPU type, that is not finished yet.

    Attributes
    ----------
    unit : int
        What is profiled: a job, or with `costs.profile_reuse=model` a row of `scenario.tables.classes`.
    gpu_type : int
        Index of the GPU type.
    row : int
        The job in whose name the profile holds GPUs.
    left : int
        Ticks still to measure, counted from its last start.
    since : int
        Tick of its last start.
    """

    unit: int
    gpu_type: int
    row: int
    left: int
    since: int = -1

    def settle(self, now: int) -> None:
        """Subtract the ticks run up to tick `now` from the ticks that are left to run."""
        self.left, self.since = self.left - (now - self.since), now


def compute_profile_ticks(scenario: Scenario, price: ProfilePrice) -> Ints:
    """Return the ticks for which each class of model is profiled on each GPU type, shape (C, T)."""
    parts = scenario.feasible.sum(axis=2)
    if price.per == "job":
        parts = np.ones_like(parts)
    found: Ints = np.rint(price.seconds * parts * TICKS_PER_S).astype(np.int64)
    return found


class Profiler:
    """Queues and starts the profiling runs that measure jobs' speeds before a policy may start the jobs.

    Attributes
    ----------
    gpus : int
        GPUs that a profile holds; 0: nothing is profiled.
    waiting : list of deque of Profile
        One queue per GPU type, first in, first out; a profile that was put off goes first.
    running : list of Profile
        Running profiles, in order of start.
    held : ndarray of int, shape (T,)
        GPUs that running profiles hold.
    """

    def __init__(
        self, information: InformationClass, log: EventRecorder, allocator: Allocator, queue: JobQueue
    ) -> None:
        scenario = self._scenario = allocator.scenario
        types, self._price = len(scenario.cluster.gpu_types), scenario.costs.profile.get(information.value)
        self._clock, self._jobs, self._log = queue.clock, queue.jobs, log
        self._allocator, self._queue = allocator, queue
        shared = scenario.costs.profile_reuse == "model"
        self._unit_of: Ints = scenario.class_of if shared else np.arange(len(scenario.trace))
        self._begun: dict[tuple[int, int], Profile] = {}
        self.gpus = 0
        if self._price:
            self.gpus, self._takes = self._price.gpus, compute_profile_ticks(scenario, self._price)
            self._jobs.hide_types()
        self.waiting: list[deque[Profile]] = [deque() for _ in range(types)]
        self.running: list[Profile] = []
        self.held: Ints = np.zeros(types, dtype=np.int64)

    @property
    def active(self) -> bool:
        """Return whether any profiling run waits or runs."""
        return bool(self.running) or any(self.waiting)

    def ask(self, row: int) -> None:
        """Queue the profiling runs that a job needs, except on types that are known or queued already."""
        assert self._price is not None
        scenario, hidden, unit = self._scenario, int(self._jobs.hidden[row]), int(self._unit_of[row])
        asked, asked_only = int(scenario.request_type[row]), self._price.types == "requested"
        for gpu_type, fits in enumerate(scenario.feasible[scenario.class_of[row]].any(axis=1).tolist()):
            if not rules.needs_profile(fits, hidden, gpu_type, asked, asked_only):
                continue
            profile = self._begun.get((unit, gpu_type))
            if profile is None:
                left = self._find_ticks(row, gpu_type)
                profile = self._begun[unit, gpu_type] = Profile(unit, gpu_type, row, left)
            elif profile in self.running or profile in self.waiting[gpu_type]:
                continue
            profile.row = row
            self.waiting[gpu_type].append(profile)

    def _find_ticks(self, row: int, gpu_type: int) -> int:
        return int(self._takes[self._scenario.class_of[row], gpu_type])

    def start_waiting(self) -> None:
        """Start waiting profiling runs on free GPUs, first come first served on each GPU type."""
        free = self._allocator.allocations.free
        for gpu_type, waiting in enumerate(self.waiting):
            while waiting and free[gpu_type] >= self.gpus:
                nodes = self._allocator.place(gpu_type, self.gpus, self._clock.now + waiting[0].left)
                if isinstance(nodes, Infeasible) or not self._start(waiting.popleft(), nodes):
                    break

    def _start(self, profile: Profile, nodes: Nodes) -> bool:
        """Start a profiling run on nodes; if refused, queue it first of its GPU type and return False."""
        if isinstance(self._allocator.allocate(self._holder(profile), nodes), Infeasible):
            self.waiting[profile.gpu_type].appendleft(profile)
            return False
        profile.since = started = self._clock.now
        self.running.append(profile)
        self.held[profile.gpu_type] += self.gpus
        self._log.record(EventType.PROFILE_START, profile.row, profile.gpu_type, self.gpus, nodes)
        self._clock.after(profile.left, lambda: self._end(profile, started))
        return True

    def _holder(self, profile: Profile) -> int:
        # Negative, so that holders of profiles and of jobs never meet; unique by job and type.
        return -1 - (profile.row * len(self.waiting) + profile.gpu_type)

    def _stop(self, profile: Profile) -> Nodes:
        """Stop a profiling run, keep what it has measured, and return the nodes it held."""
        nodes = self._allocator.release(self._holder(profile))
        profile.settle(self._clock.now)
        self.running.remove(profile)
        self.held[profile.gpu_type] -= self.gpus
        self._log.record(EventType.PROFILE_END, profile.row, profile.gpu_type, self.gpus, nodes)
        return nodes

    def _end(self, profile: Profile, started: int) -> None:
        # It was put off and started again meanwhile: this end belongs to the earlier start.
        if profile not in self.running or profile.since != started:
            return
        self._stop(profile)
        jobs, rows = self._jobs, self._jobs_of(profile)
        jobs.hidden[rows] &= ~(1 << profile.gpu_type)
        for row in rows[jobs.phase[rows] == Phase.PROFILING].tolist():
            self._queue.enqueue(row)
        self._queue.decide_again()

    def _jobs_of(self, profile: Profile) -> Ints:
        """Return the jobs (rows of the trace) that share the result of a profiling run."""
        return np.flatnonzero(self._unit_of == profile.unit)

    def hand_over_profiles(self, row: int) -> None:
        """Give the profiling runs of a leaving job to another job that shares them, or stop them."""
        there = [*self.running, *(profile for waiting in self.waiting for profile in waiting)]
        for profile in [profile for profile in there if profile.row == row]:
            others = set(self._jobs_of(profile).tolist()) - {row} - self._jobs.unseen
            phase = self._jobs.phase
            here = (job for job in self._queue.present if job in others and phase[job] < Phase.COMPLETED)
            # The job that has been in the system longest, as `present` is in the order of submission.
            heir = next(here, None)
            runs = profile in self.running
            nodes = self._stop(profile) if runs else ()
            if not runs and heir is None:
                self.waiting[profile.gpu_type].remove(profile)
            if heir is not None:
                profile.row = heir
            if runs and heir is not None:
                self._start(profile, nodes)

    def postpone(self, holder: int, forget: bool = False) -> None:
        """Stop profiling run `holder` and put it first in its queue; with `forget` it measures all anew.

        Parameters
        ----------
        holder : int
            Under which it holds GPUs.
        forget : bool
            Whether it loses what it has measured.
        """
        profile = next(profile for profile in self.running if self._holder(profile) == holder)
        self._stop(profile)
        self.waiting[profile.gpu_type].appendleft(profile)
        if forget:
            profile.left = self._find_ticks(profile.row, profile.gpu_type)
