"""Views of some of the jobs, on some of the GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import QUEUED, BatchOptions, Decision, StopCosts, View

COLUMNS = [
    field.name for field in fields(View) if field.name not in ("available", "free", "partner", "coming")
]

STOPS = ("checkpoint_age_s", "lost_iterations", "lost_gpu_s", "save_gpu_s", "restart_gpu_s")
"""Costs of stops that jobs which wait do not have."""


class QueueViews:
    """A View divided by queue, such that each queue's policy sees only its own jobs.

    Parameters
    ----------
    view : View
    gpus : ndarray of int, shape (n,)
        GPUs that each job is to be taken to hold: as many as it does, or fewer; of none it is queued.
    leaves : int
        Number of queues.

    Attributes
    ----------
    gpu_type, batch : ndarray of int, shape (n,)
        What each job is to be taken to hold besides.
    """

    def __init__(self, view: View, gpus: Ints, leaves: int) -> None:
        self.view, self.gpus, self.gpu_type, self.batch = view, gpus, view.gpu_type, view.batch
        self._stopped: Bools = (gpus == 0) & (view.gpus > 0)
        self._stops = bool(self._stopped.any())
        if self._stops:
            self.gpu_type = np.where(self._stopped, -1, view.gpu_type)
        # A job that loses GPUs falls back to its requested batch, as the engine has it when it is launched
        # anew.
        if gpus is not view.gpus:
            self.batch = np.where(gpus < view.gpus, view.global_batch, view.batch)
        self.decided = self.gpus, self.gpu_type, self.batch
        self.jobs: Ints = np.bincount(view.queue, minlength=leaves)
        """How many jobs each queue has."""

    @cached_property
    def queues(self) -> list[int]:
        """Indices of the queues that have at least one job."""
        found: list[int] = np.flatnonzero(self.jobs).tolist()
        return found

    @cached_property
    def _order(self) -> Ints:
        """The jobs' places in the View, queue by queue."""
        return np.argsort(self.view.queue, kind="stable")

    @cached_property
    def _end(self) -> list[int]:
        ends: list[int] = self.jobs.cumsum().tolist()
        return ends

    @cached_property
    def _columns(self) -> dict[str, Any]:
        """The View's arrays of jobs, in order."""
        view, order = self.view, self._order
        own: dict[str, Any] = {
            name: value[order] for name in COLUMNS if isinstance(value := getattr(view, name), np.ndarray)
        }
        own |= {"gpus": self.gpus[order], "batch": self.batch[order]}
        if self._stops:
            own["gpu_type"] = self.gpu_type[order]
            own["state"] = np.where(self._stopped[order], QUEUED, own["state"])
            # Stopped at this decision point, it begins to wait now.
            own["queued_s"] = np.where(self._stopped[order], view.now_s, own["queued_s"])
        for column in own.values():
            column.setflags(write=False)
        return own

    def _rows(self, queue: int) -> slice:
        """Return the slice of a queue's jobs in the order."""
        return slice(self._end[queue - 1] if queue else 0, self._end[queue])

    def part(self, queue: int, available: Ints) -> View:
        """Return the View that a queue's policy sees, with `available` GPUs of each type, shape (T,)."""
        rows = self._rows(queue)
        own = {name: column[rows] for name, column in self._columns.items()}
        some = own["gpus"] > 0
        held = np.bincount(own["gpu_type"][some], own["gpus"][some], minlength=len(available))
        free = available - held.astype(np.int64)
        available.setflags(write=False)
        free.setflags(write=False)
        return self.view.with_columns(
            own
            | {
                "available": available,
                "free": free,
                "partner": None,
                "coming": None,
                "stops": lambda: self._stops_of.select(rows),
                "times": lambda: self._times[rows],
                "costs": lambda: self._costs[rows],
                "batches": lambda: self._batches(rows),
                "pairs": lambda: None,
                "where": lambda: None,
            }
        )

    def find_changed(self, last: QueueViews, times: bool) -> Ints:
        """Return queues whose decision may be out of date: jobs, held GPUs or (if `times`) speeds changed.

        Parameters
        ----------
        last : QueueViews
            Of an earlier View of the same run.
        times : bool
            Whether iteration times count as well as what is feasible.
        """
        view, before = self.view, last.view
        if not len(before):
            return np.unique(view.queue)
        at = np.minimum(np.searchsorted(before.job, view.job), len(before) - 1)
        other = before.job[at] != view.job
        gone = np.ones(len(before), dtype=np.bool_)
        gone[at[~other]] = False
        for now, then in zip((self.gpus, self.gpu_type, self.batch), last.decided, strict=True):
            other |= now != then[at]
        if view.feasible is not before.feasible:
            other |= (view.feasible != before.feasible[at]).any(axis=(1, 2))
        if times and view.times() is not before.times():
            other |= (view.times() != before.times()[at]).any(axis=(1, 2))
        return np.union1d(view.queue[other], before.queue[gone])

    def unless_kept(self, queue: int, decision: Decision) -> Decision | None:
        """Return a queue's decision, or None if it lets all jobs keep what they hold."""
        rows = self._order[self._rows(queue)]
        rows = rows[self.gpus[rows] > 0]
        job, gpu_type, gpus = decision.job, decision.gpu_type, decision.gpus
        batch = np.zeros_like(job) if decision.batch is None else decision.batch
        if len(decision.drop) or any(len(column) != len(rows) for column in (job, gpu_type, gpus, batch)):
            return decision
        # Decisions may name jobs in any order; compared are equal jobs.
        at = rows if (job == self.view.job[rows]).all() else rows[np.argsort(np.argsort(job))]
        requested = self.view.global_batch[at]
        keeps = (
            (job == self.view.job[at])
            & (gpu_type == self.gpu_type[at])
            & (gpus == self.gpus[at])
            & (np.where(batch == 0, requested, batch) == self.batch[at])
        )
        return None if keeps.all() else decision

    def together(self, decisions: Mapping[int, Decision]) -> Decision:
        """Join the queues' decisions into one; jobs of queues without a decision keep what they hold."""
        decided = np.zeros(len(self.jobs), dtype=np.bool_)
        decided[list(decisions)] = True
        kept = (self.gpus > 0) & ~decided[self.view.queue]
        table = self.view.job[kept], self.gpu_type[kept], self.gpus[kept]
        every = [Decision(*table, batch=self.batch[kept]), *decisions.values()]
        job, gpu_type, gpus, drop = (
            np.concatenate([getattr(one, key) for one in every])
            for key in ("job", "gpu_type", "gpus", "drop")
        )
        batch = np.concatenate([np.zeros_like(one.gpus) if one.batch is None else one.batch for one in every])
        at = np.searchsorted(self.view.job, job)
        self.decided = np.zeros_like(self.gpus), np.full_like(self.gpus, -1), self.view.global_batch.copy()
        self.decided[0][at], self.decided[1][at] = gpus, gpu_type
        self.decided[2][at] = np.where(batch == 0, self.decided[2][at], batch)
        return Decision(job, gpu_type, gpus, drop, batch)

    @cached_property
    def _times(self) -> Floats:
        """Seconds per iteration of all jobs, in order."""
        return self.view.times()[self._order]

    @cached_property
    def _costs(self) -> Floats:
        """Restart costs of all jobs, in order; what a job is taken to hold costs nothing more."""
        found = self.view.costs()[self._order]
        gpus, gpu_type = self._columns["gpus"], self._columns["gpu_type"]
        held = np.flatnonzero(gpus > 0)
        found[held, gpu_type[held], np.searchsorted(self.view.setting.counts, gpus[held])] = 0.0
        return found

    @cached_property
    def _stops_of(self) -> StopCosts:
        """Return the costs of stopping each job; 0 for jobs that this View shows as waiting."""
        found = self.view.stop_costs().select(self._order)
        return replace(found, **{name: getattr(found, name) * (self._columns["gpus"] > 0) for name in STOPS})

    @cached_property
    def _options(self) -> BatchOptions | None:
        options = self.view.batches()
        if options is None:
            return None
        return replace(
            options,
            sizes=options.sizes[self._order],
            efficiency=options.efficiency[self._order],
            iteration_time_s=options.iteration_time_s[self._order],
        )

    def _batches(self, rows: slice) -> BatchOptions | None:
        options = self._options
        if options is None:
            return None
        return BatchOptions(options.sizes[rows], options.efficiency[rows], options.iteration_time_s[rows])
