"""Views of some of the jobs, on some of the GPUs."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.interface.policy import QUEUED, BatchOptions, View


class PartsOfView:
    """A View divided by queue, for policies each of which has only the jobs of one; none may be shared.

    Parameters
    ----------
    view : View
    gpus : ndarray of int, shape (n,)
        GPUs that each job is to be taken to hold: as many as it does, or fewer; of none it is queued.
    leaves : int
        Number of queues.
    """

    def __init__(self, view: View, gpus: Ints, leaves: int) -> None:
        self.view = view
        self.order = np.argsort(view.queue, kind="stable")
        """The jobs' places in the View, queue by queue."""
        jobs = np.bincount(view.queue, minlength=leaves)
        self._end: list[int] = jobs.cumsum().tolist()
        self.queues: list[int] = np.flatnonzero(jobs).tolist()
        """The queues that have jobs."""
        own: dict[str, Any] = {
            name: value[self.order]
            for name, value in vars(view).items()
            if isinstance(value, np.ndarray) and name not in ("available", "free", "partner")
        }
        own["gpus"] = gpus[self.order]
        stopped = (own["gpus"] == 0) & (view.gpus[self.order] > 0)
        if stopped.any():
            own["gpu_type"] = np.where(stopped, -1, own["gpu_type"])
            own["state"] = np.where(stopped, QUEUED, own["state"])
            own["queued_s"] = np.where(stopped, view.now_s, own["queued_s"])
        own["batch"] = np.where(own["gpus"] < view.gpus[self.order], own["global_batch"], own["batch"])
        self.columns = own
        """The View's arrays of jobs, in order."""
        given = {one.name: getattr(view, one.name) for one in fields(view)}
        self._others = given | {"partner": None, "pairs": lambda: None}

    def rows(self, queue: int) -> slice:
        """Return where a queue's jobs are in the order."""
        return slice(self._end[queue - 1] if queue else 0, self._end[queue])

    def part(self, queue: int, available: Ints) -> View:
        """Return what a queue's policy sees; `available` are the GPUs, shape (T,), that it may use."""
        rows = self.rows(queue)
        own = {name: column[rows] for name, column in self.columns.items()}
        some = own["gpus"] > 0
        held = np.bincount(own["gpu_type"][some], own["gpus"][some], minlength=len(available))
        return View(
            **self._others
            | own
            | {
                "available": available,
                "free": available - held.astype(np.int64),
                "times": lambda: self.times[rows],
                "costs": lambda: self._costs[rows],
                "batches": lambda: self._batches(rows),
            }
        )

    def seen(self, queue: int, times: bool) -> bytes:
        """Return what tells apart what a queue's policy sees that does not change by itself."""
        rows = self.rows(queue)
        names = ("job", "gpus", "gpu_type", "state", "feasible")
        told = [self.columns[name][rows].tobytes() for name in names]
        return b"".join([*told, self.times[rows].tobytes()] if times else told)

    @cached_property
    def times(self) -> Floats:
        """Seconds per iteration of all jobs, in order."""
        return self.view.times()[self.order]

    @cached_property
    def _costs(self) -> Floats:
        """Restart costs of all jobs, in order; what a job is taken to hold costs nothing more."""
        found = self.view.costs()[self.order]
        gpus, gpu_type = self.columns["gpus"], self.columns["gpu_type"]
        held = np.flatnonzero(gpus > 0)
        found[held, gpu_type[held], np.searchsorted(self.view.setting.counts, gpus[held])] = 0.0
        return found

    @cached_property
    def _options(self) -> BatchOptions | None:
        options = self.view.batches()
        if options is None:
            return None
        return replace(
            options,
            sizes=options.sizes[self.order],
            efficiency=options.efficiency[self.order],
            iteration_time_s=options.iteration_time_s[self.order],
        )

    def _batches(self, rows: slice) -> BatchOptions | None:
        options = self._options
        if options is None:
            return None
        return BatchOptions(options.sizes[rows], options.efficiency[rows], options.iteration_time_s[rows])
