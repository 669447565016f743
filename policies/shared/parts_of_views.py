"""A View of some of the jobs, on some of the GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.interface.policy import QUEUED, BatchOptions, View


def part_of_view(view: View, rows: Ints, available: Ints, gpus: Ints) -> View:
    """Return what a policy sees that has only some jobs, and only some GPUs for them; none may be shared.

    Parameters
    ----------
    view : View
    rows : ndarray of int, shape (m,)
        The jobs, by their place in the View.
    available : ndarray of int, shape (T,)
        GPUs that a decision for these jobs may use.
    gpus : ndarray of int, shape (m,)
        GPUs that each job is to be taken to hold: as many as it does, or fewer; of none it is queued.
    """
    own: dict[str, Any] = {
        field.name: value[rows]
        for field in fields(view)
        if isinstance(value := getattr(view, field.name), np.ndarray)
        and field.name not in ("available", "free", "partner")
    }
    stopped = (gpus == 0) & (view.gpus[rows] > 0)
    own["gpus"] = gpus
    own["gpu_type"] = np.where(gpus > 0, own["gpu_type"], -1)
    own["state"] = np.where(stopped, QUEUED, own["state"])
    own["queued_s"] = np.where(stopped, view.now_s, own["queued_s"])
    own["batch"] = np.where(stopped, own["global_batch"], own["batch"])
    held = np.bincount(own["gpu_type"][gpus > 0], gpus[gpus > 0], minlength=len(available)).astype(np.int64)
    return replace(
        view,
        **own,
        partner=None,
        pairs=lambda: None,
        available=available,
        free=available - held,
        times=lambda: view.times()[rows],
        costs=_costs(view, rows, gpus),
        batches=lambda: _batches(view, rows),
    )


def _costs(view: View, rows: Ints, gpus: Ints) -> Callable[[], Floats]:
    def costs() -> Floats:
        """Return the restart costs; the allotment that a job is taken to hold costs nothing more."""
        found = view.costs()[rows].copy()
        held = np.flatnonzero(gpus > 0)
        level = np.searchsorted(view.setting.counts, gpus[held])
        found[held, view.gpu_type[rows[held]], level] = 0.0
        return found

    return costs


def _batches(view: View, rows: Ints) -> BatchOptions | None:
    options = view.batches()
    if options is None:
        return None
    return BatchOptions(options.sizes[rows], options.efficiency[rows], options.iteration_time_s[rows])
