"""Views of a compiled episode, whose columns are worked out when a policy first reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import Any
from weakref import ref

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.clock import TICKS_PER_S, seconds
from clustergym.scenario.policy import InformationClass, InformationError, Setting, View
from clustergym.scenario.scenario import Scenario
from clustergym.sim.compiled import columns as c
from clustergym.sim.compiled.coverage import UncoveredError
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.state import JobStates, ViewMaker


class EpisodeJobs(JobStates):
    """The state of the jobs of an episode; its columns share their memory with the episode's arrays."""

    def __init__(self, scenario: Scenario, episode: Episode) -> None:
        n, trace = len(scenario.trace), scenario.trace
        job, figures = episode.job[:n].T, episode.figures[:n].T
        self.phase, self.gpu_type, self.gpus = job[c.PHASE], job[c.TYPE], job[c.GPUS]
        self.ready, self.worked_until = job[c.READY], job[c.WORKED_UNTIL]
        self.held_since, self.queued_since = job[c.HELD_SINCE], job[c.QUEUED_SINCE]
        self.restarts, self.launched, self.hidden = job[c.RESTARTS], job[c.LAUNCHED], job[c.HIDDEN]
        self.remaining, self.iteration_s = figures[c.REMAINING], figures[c.ITERATION_S]
        self.attained_gpu_s, self.iterations = figures[c.ATTAINED_GPU_S], figures[c.ITERATIONS]
        self.searched, self.batch = episode.searched[:n], trace.global_batch
        self.unsaved = self.checkpoint_every = np.zeros(n, dtype=np.int64)
        self.checkpointed = self.iterations
        self.ends_at, self.disturbed, self.partner, self.part = np.zeros(1), False, None, None
        self.price_restarts(scenario)

    def find_profiled_types(self, rows: Ints) -> Bools:
        """Return on which types jobs are profiled, shape (n, T)."""
        types = np.arange(self.searched.shape[1])
        found: Bools = (self.hidden[rows, None] >> types) % 2 == 0
        return found


def refuse_places() -> None:
    """Raise an UncoveredError: these Views do not say where jobs are."""
    message, remedy = "a compiled run does not say where jobs are", "declare Policy.needs_places = True"
    raise UncoveredError(message, field="run.engine", remedy=remedy)


class Shown:
    """The jobs of a View at a decision point, and those of its columns that were read.

    Parameters
    ----------
    rows : ndarray of int, shape (n,)
    now : int
        Tick.
    makers : mapping of str to callable
        What makes each column.
    find_fitting_types : callable
        Returns for rows of the trace what `View.find_fitting_types` does for positions.
    jobs : JobStates
    """

    def __init__(
        self,
        rows: Ints,
        now: int,
        makers: Mapping[str, Callable[[Shown], Any]],
        find_fitting_types: Callable[[Ints, Ints], Bools],
        jobs: JobStates,
    ) -> None:
        self.rows, self.now, self.makers, self._jobs = rows, now, makers, jobs
        self.find_fitting_types = find_fitting_types
        self.columns: dict[str, Any] = {}

    @cached_property
    def queued(self) -> Bools:
        """Whether each job waits, shape (n,)."""
        found: Bools = self._jobs.phase[self.rows] == c.QUEUED
        return found

    def column(self, name: str) -> Any:
        """Return a column, read-only."""
        if name not in self.columns:
            self.columns[name] = value = self.makers[name](self)
            value.setflags(write=False)
        return self.columns[name]

    def complete(self) -> None:
        """Make all columns, before the state of the jobs changes."""
        for name in self.makers:
            self.column(name)


class LazyView(View):
    """A View that makes its columns when they are first read."""

    _shown: Shown

    @classmethod
    def of(cls, shown: Shown, given: Mapping[str, Any]) -> LazyView:
        """Return the View of some jobs; `given` are the fields that are no columns."""
        view = object.__new__(cls)
        view.__dict__.update(given)
        view.__dict__["_shown"] = shown
        return view

    def __getattr__(self, name: str) -> Any:
        """Make a column."""
        shown = self.__dict__.get("_shown")
        if shown is None or name not in shown.makers:
            raise AttributeError(name)
        value = self.__dict__[name] = shown.column(name)
        return value

    def find_fitting_types(self, at: Ints | slice, level: Ints) -> Bools:
        """Return on which types jobs fit with a count of their own, as `View.find_fitting_types`."""
        shown = self.__dict__.get("_shown")
        if shown is None or "feasible" in shown.columns:
            return super().find_fitting_types(at, level)
        return shown.find_fitting_types(shown.rows[at], level)

    def with_columns(self, columns: Mapping[str, object]) -> View:
        """Return a View with other values of some fields, as `View.with_columns`."""
        for name in self._shown.makers:
            getattr(self, name)
        return super().with_columns(columns)


class LazyViews(ViewMaker):
    """Builds the Views of a compiled episode.

    Parameters
    ----------
    scenario : Scenario
    episode : Episode
    information : InformationClass
    setting : Setting
    """

    def __init__(
        self, scenario: Scenario, episode: Episode, information: InformationClass, setting: Setting
    ) -> None:
        self.states, self._episode = EpisodeJobs(scenario, episode), episode
        super().__init__(scenario, self.states, information, setting)
        self._profiles = episode.clock[c.PROFILE_GPUS] > 0
        self._capacity, self._makers = scenario.cluster.capacity, self._columns()
        self._shown: ref[Shown] | None = None

    def _columns(self) -> dict[str, Callable[[Shown], Any]]:
        """Return what makes each column, as `ViewMaker.view` does."""
        jobs, trace = self.states, self.trace

        def of(values: Any) -> Callable[[Shown], Any]:
            return lambda shown: values[shown.rows]

        makers = {
            "job": lambda shown: shown.rows,
            "state": lambda shown: np.where(shown.queued, 0, 1),
            "gpu_type": of(jobs.gpu_type),
            "gpus": of(jobs.gpus),
            "requested_type": of(self.request_type),
            "requested_gpus": of(self.request_gpus),
            "submit_s": of(trace.submit_s),
            "deadline_s": of(trace.deadline_s),
            "queued_s": self._queued_s,
            "standstill_s": self._standstill_s,
            "iterations": of(jobs.iterations),
            "remaining_iterations": lambda shown: jobs.compute_remaining(shown.rows, shown.now),
            "global_batch": of(trace.global_batch),
            "priority": of(trace.priority),
            "restarts": of(jobs.restarts),
            "attained_gpu_s": lambda shown: jobs.compute_attained(shown.rows, shown.now),
            "feasible": self._feasible,
            "batch": of(trace.global_batch),
            "queue": of(self.queue),
        }
        return makers if trace.time_limit_s is None else makers | {"time_limit_s": of(trace.time_limit_s)}

    def _queued_s(self, shown: Shown) -> Floats:
        since_s = self.states.queued_since[shown.rows] / TICKS_PER_S
        return np.where(shown.queued, since_s, np.nan)

    def _standstill_s(self, shown: Shown) -> Floats:
        left = np.maximum(self.states.ready[shown.rows] - shown.now, 0)
        found: Floats = np.where(shown.queued, 0, left) / TICKS_PER_S
        return found

    def _feasible(self, shown: Shown) -> Bools:
        feasible = self.feasible[self.class_of[shown.rows]]
        return (
            feasible & self.states.find_profiled_types(shown.rows)[:, :, None] if self._profiles else feasible
        )

    def _find_fitting_types(self, rows: Ints, level: Ints) -> Bools:
        found: Bools = self.feasible[self.class_of[rows], :, level]
        return found & self.states.find_profiled_types(rows) if self._profiles else found

    def lazy(self) -> View:
        """Return the View of now."""
        clock, rows = self._episode.clock, self._episode.in_view[: self._episode.clock[c.IN_VIEW]].copy()
        now, free = int(clock[c.NOW]), self._episode.free.copy()
        shown = Shown(rows, now, self._makers, self._find_fitting_types, self.states)
        self._shown = ref(shown)
        available = self._capacity.copy()
        if self._profiles:
            running = self._episode.profile[: clock[c.RUNNING_PROFILES], c.NTH_RUNNING]
            np.subtract.at(available, running % len(available), clock[c.PROFILE_GPUS])
        for array in (free, available):
            array.setflags(write=False)
        given = {
            "now_s": seconds(now),
            "setting": self.setting,
            "available": available,
            "free": free,
            "times": cache(lambda: self._times(rows)),
            "costs": lambda: self.costs(rows),
            "where": refuse_places,
            "stops": lambda: self.stop_costs(rows, now),
            "batches": lambda: self.make_batch_options(rows, now),
        }
        if "time_limit_s" in self._makers:
            given["time_limit_s"] = shown.column("time_limit_s")
        return LazyView.of(shown, given)

    def complete(self) -> None:
        """Complete the last View where somebody still has it, before the state of the jobs changes."""
        shown = self._shown() if self._shown else None
        if shown is not None:
            shown.complete()

    def _times(self, rows: Ints) -> Floats:
        if self.information == InformationClass.NONE:
            raise InformationError("a policy of information class 'none' has no iteration times")
        known: Floats = self.known[self.class_of[rows]]
        if self._profiles:
            known = np.where(self.states.find_profiled_types(rows)[:, :, None], known, np.inf)
        known.setflags(write=False)
        return known
