"""Build the Views that policies get; their columns are computed when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property
from typing import Any
from weakref import ref

import numpy as np

from clustergym.cluster.allocation import PartAllocations
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.clock import TICKS_PER_S, seconds
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
from clustergym.sim.columns import NONE
from clustergym.sim.state import JobStates, Phase

MANY = 4096
"""Jobs of a View whose columns do not stay in the processor's cache while it is made."""


class Shown:
    """The jobs of a View (what a policy sees), with the columns that were computed so far.

    Parameters
    ----------
    rows : ndarray of int, shape (n,)
    now : int
        Tick.
    views : ViewMaker
        Makes the columns.
    """

    def __init__(self, rows: Ints, now: int, views: ViewMaker) -> None:
        self.rows, self.now, self.views = rows, now, views
        self.columns: dict[str, Any] = {}

    @cached_property
    def queued(self) -> Bools:
        """Return a mask of the jobs that wait, shape (n,)."""
        return self.views.find_queued(self.rows)

    def of_running(self, values: Ints, otherwise: int) -> Ints:
        """Return values of the jobs that hold GPUs, and `otherwise` of those that wait, shape (n,).

        Where a long queue waits this is much faster than to read the values of all, which lie far apart.
        """
        if len(self.rows) < MANY:
            return values[self.rows]
        found, held = np.full(len(self.rows), otherwise), np.flatnonzero(~self.queued)
        found[held] = values[self.rows[held]]
        return found

    def column(self, name: str) -> Any:
        """Return a column of the View by name, read-only, and compute it at the first call."""
        if name not in self.columns:
            self.columns[name] = value = self.views.makers[name](self)
            value.setflags(write=False)
        return self.columns[name]

    def complete(self) -> None:
        """Compute all columns that are missing, before the state of the jobs changes."""
        for name in self.views.makers:
            self.column(name)


class LazyView(View):
    """A View (what a policy sees) whose columns are computed when they are first read."""

    _shown: Shown

    @classmethod
    def of(cls, shown: Shown, given: Mapping[str, Any]) -> LazyView:
        """Make a View (what a policy sees) of some jobs; `given` are its fields other than columns."""
        view = object.__new__(cls)
        view.__dict__.update(given)
        view.__dict__["_shown"] = shown
        return view

    def __getattr__(self, name: str) -> Any:
        """Make a column."""
        shown = self.__dict__.get("_shown")
        if shown is None or name not in shown.views.makers:
            raise AttributeError(name)
        value = self.__dict__[name] = shown.column(name)
        return value

    def find_fitting_types(self, at: Ints | slice, level: Ints) -> Bools:
        """Return a mask (m, T) of GPU types where jobs `at` fit, with the GPU counts of index `level`."""
        shown = self.__dict__.get("_shown")
        if shown is None or "feasible" in self.__dict__:
            return super().find_fitting_types(at, level)
        found: Bools = shown.views.find_fitting_types(shown.rows[at], level)
        return found

    def with_columns(self, columns: Mapping[str, object]) -> View:
        """Return a copy of the View with some columns replaced."""
        for name in self._shown.views.makers:
            getattr(self, name)
        return super().with_columns(columns)


class ViewMaker:
    """Builds Views: what a policy may see at a decision point, by what it may know (information class).

    Attributes
    ----------
    makers : dict of str to callable
        What makes each column of a View.
    """

    def __init__(
        self, scenario: Scenario, jobs: JobStates, information: InformationClass, setting: Setting
    ) -> None:
        self.jobs, self.information, self.setting = jobs, information, setting
        self.class_of, self.feasible = scenario.class_of, scenario.feasible
        self.known = scenario.known_times(information)
        self.batches, self.pairs = scenario.batch_choices, scenario.pairs
        knows_ends = information == InformationClass.CLAIRVOYANT
        self._undone = jobs.ends_at if knows_ends and jobs.ends_at.any() else None
        knows = self.batches is not None and information != InformationClass.NONE
        self.known_at_batches = scenario.get_known_batch_times(information) if knows else None
        self.makers, self._plain = self._make_columns(scenario)
        self._last: ref[Shown] | None = None

    def _make_columns(
        self, scenario: Scenario
    ) -> tuple[dict[str, Callable[[Shown], Any]], dict[str, Ints | Floats]]:
        """Return the function that makes each column, and the further columns that some scenarios have."""
        jobs, trace, tenants = self.jobs, scenario.trace, scenario.tenants
        queue = np.zeros(len(trace), np.int64) if tenants is None else tenants.leaf

        def of(values: Any) -> Callable[[Shown], Any]:
            return lambda shown: values[shown.rows]

        undone = 0.0 if self._undone is None else self._undone
        makers = {
            "job": lambda shown: shown.rows,
            "state": lambda shown: np.where(shown.queued, 0, 1),
            "gpu_type": lambda shown: shown.of_running(jobs.gpu_type, NONE),
            "gpus": lambda shown: shown.of_running(jobs.gpus, 0),
            "requested_type": of(scenario.request_type),
            "requested_gpus": of(scenario.request_gpus),
            "submit_s": of(trace.submit_s),
            "deadline_s": of(trace.deadline_s),
            "queued_s": self._queued_s,
            "standstill_s": self._standstill_s,
            "iterations": of(jobs.iterations - undone),
            "remaining_iterations": lambda shown: self.compute_remaining(shown.rows, shown.now),
            "global_batch": of(trace.global_batch),
            "priority": of(trace.priority),
            "restarts": of(jobs.restarts),
            "attained_gpu_s": lambda shown: jobs.compute_attained(shown.rows, shown.now),
            # What is not profiled cannot be launched, even where it would fit.
            "feasible": lambda shown: self._of_profiled(self.feasible[self.class_of[shown.rows]], shown.rows),
            "batch": of(jobs.batch),
            "queue": of(queue),
        }
        some = {"partner": jobs.partner, "time_limit_s": trace.time_limit_s, "requested_nodes": trace.nodes}
        return makers, {name: values for name, values in some.items() if values is not None}

    def find_queued(self, rows: Ints) -> Bools:
        """Return a mask of those jobs in view that wait, shape (n,)."""
        found: Bools = self.jobs.phase[rows] == Phase.QUEUED
        return found

    def compute_remaining(self, rows: Ints | int, now: int) -> Floats:
        """Return the iterations that the policy believes each job has left, in the shape of `rows`.

        Those left of what the job asked for; a clairvoyant policy knows where a log ends the job before.
        """
        left = self.jobs.compute_remaining(rows, now)
        return left if self._undone is None else left - self._undone[rows]

    def _queued_s(self, shown: Shown) -> Floats:
        since_s = self.jobs.queued_since[shown.rows] / TICKS_PER_S
        return np.where(shown.queued, since_s, np.nan)

    def _standstill_s(self, shown: Shown) -> Floats:
        jobs, rows = self.jobs, shown.rows
        # A policy must not see that a job hangs: nobody has noticed yet.
        idle = shown.queued | jobs.hangs[rows] if jobs.disturbed else shown.queued
        found: Floats = np.where(idle, 0, np.maximum(jobs.ready[rows] - shown.now, 0)) / TICKS_PER_S
        return found

    def _of_profiled(self, known: Any, rows: Ints, otherwise: Any = False) -> Any:
        """Return known values where jobs are profiled, `otherwise` elsewhere, shape (n, T, ...)."""
        if not self.jobs.profiles:
            return known
        profiled = self.jobs.find_profiled_types(rows)
        return np.where(profiled.reshape(*profiled.shape, *(1,) * (known.ndim - 2)), known, otherwise)

    def find_fitting_types(self, rows: Ints, level: Ints) -> Bools:
        """Return a mask (m, T) of profiled GPU types where jobs `rows` fit at GPU counts of index `level`."""
        found: Bools = self._of_profiled(self.feasible[self.class_of[rows], :, level], rows)
        return found

    def view(self, now: int, rows: Ints, available: Ints, free: Ints, **more: Any) -> View:
        """Make the View (what a policy sees) of the jobs `rows` at tick `now`; set the arrays read-only."""
        shown = Shown(rows, now, self)
        self._last = ref(shown)
        for array in (rows, available, free):
            array.setflags(write=False)
        given = {
            "now_s": seconds(now),
            "setting": self.setting,
            "available": available,
            "free": free,
            "times": cache(lambda: self._times(rows)),
            "costs": lambda: self.costs(rows),
            "batches": lambda: self.make_batch_options(rows, now),
            "pairs": lambda: self._pair_options(rows),
            "stops": lambda: self.stop_costs(rows, now),
        }
        for name, values in self._plain.items():
            given[name] = own = values[rows]
            own.setflags(write=False)
        return LazyView.of(shown, given | more)

    def complete(self) -> None:
        """Compute all columns of the last View, if it is still in use, before the jobs' state changes."""
        shown = self._last() if self._last else None
        if shown is not None:
            shown.complete()

    def part_view(self, now: int, rows: Ints, available: Ints, allocations: PartAllocations) -> View:
        """Make the View (what a policy sees) of the jobs `rows` where GPUs can be divided."""
        view = self.view(now, rows, available, allocations.free.copy())
        parts = PartView(
            allocations.parts.requests,
            allocations.parts.request[rows],
            allocations.node_of[rows],
            allocations.devices_of[rows],
            allocations.nodes.copy,
        )
        # Parts of GPUs are not elastic: a job gets what it asks for or nothing.
        feasible = view.feasible & (view.setting.counts == view.requested_gpus[:, None, None])
        feasible.setflags(write=False)
        return view.with_columns({"feasible": feasible, "parts": parts})

    def stop_costs(self, rows: Ints, now: int) -> StopCosts:
        """Return what it costs to stop the jobs `rows` at tick `now`: work lost, and seconds to save."""
        jobs, gpus = self.jobs, self.jobs.gpus[rows]
        undone_s, lost = np.zeros(len(rows)), np.zeros(len(rows))
        # Where a long queue waits, few hold GPUs.
        held = np.flatnonzero(gpus > 0)
        kept, undone = jobs.at_checkpoint(rows[held], now)
        undone_s[held] = undone / TICKS_PER_S
        lost[held] = kept - jobs.compute_remaining(rows[held], now)
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
        known: Floats = self._of_profiled(self.known[self.class_of[rows]], rows, np.inf)
        known.setflags(write=False)
        return known

    def make_batch_options(self, rows: Ints, now: int) -> BatchOptions | None:
        """Return the global batches at which jobs may train, with their speeds, or None without a choice."""
        if self.information == InformationClass.NONE:
            raise InformationError("a policy of information class 'none' has no iteration times")
        if self.batches is None or self.known_at_batches is None:
            return None
        times = self._of_profiled(self.known_at_batches[self.class_of[rows]], rows, np.inf)
        return self.batches.options(rows, self.jobs.compute_remaining(rows, now), times)

    def costs(self, rows: Ints) -> Floats:
        """Return the seconds jobs would stand still if launched, 0 for what they hold, (len(rows), T, K)."""
        jobs = self.jobs
        cost = jobs.restart_cost_s(rows)
        held = np.flatnonzero(jobs.gpus[rows] > 0)
        # Keeping what one holds is no launch.
        cost[held, jobs.gpu_type[rows[held]], jobs.level[rows[held]]] = 0.0
        return cost
