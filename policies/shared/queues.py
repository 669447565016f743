"""Queues of jobs with rigid requests: serve them in order, and divide jobs by service received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import View

from .requests import request_options

Blocks = Literal["nothing", "types", "cluster"]
"""What later jobs may not use while a job waits: see `fill`."""


def fill(
    view: View, order: Ints, preference: Floats, free: Ints, blocks: Blocks = "nothing"
) -> list[tuple[int, int, int]]:
    """Give jobs their requested GPUs, in order, while GPUs are free.

    Parameters
    ----------
    view : View
    order : ndarray of int
        Positions in the View, the first to be served first.
    preference : ndarray of float, shape (n, T)
        A job takes the type with room of the least value; inf: not on this type.
    free : ndarray of int, shape (T,)
        GPUs to hand out; on a cluster whose GPUs can be divided the View says what is free.
    blocks : str
        What later jobs may not use while a job does not fit: `nothing`, the `types` that job could run on, or
        the whole `cluster`.

    Returns
    -------
    list of (job, type index, GPUs)
    """
    if view.parts is not None:
        from .part_queues import fill_parts

        return fill_parts(view, order, blocks=blocks != "nothing")
    room, closed, chosen = free.tolist(), [False] * len(free), []
    rows, gpus, liked = view.job.tolist(), view.requested_gpus.tolist(), preference[order].tolist()
    for at, likes in zip(order.tolist(), liked, strict=True):
        options = [(like, kind) for kind, like in enumerate(likes) if like < np.inf]
        fits = [option for option in options if room[option[1]] >= gpus[at] and not closed[option[1]]]
        if fits:
            kind = min(fits)[1]
            room[kind] -= gpus[at]
            chosen.append((rows[at], kind, gpus[at]))
        elif blocks != "nothing":
            for _, kind in options:
                closed[kind] = True
            if blocks == "cluster" or all(closed):
                break
        if not any(room):
            break
    return chosen


def staying_options(view: View) -> Bools:
    """Return on which types each request may run if running jobs keep their type, shape (n, T).

    A running job that holds another count than its request returns to the request on the same type.
    """
    options = request_options(view)
    here = view.gpu_type[:, None] == np.arange(options.shape[1])
    stays: Bools = np.where((view.gpus > 0)[:, None], here, options)
    return stays


def first_type(options: Bools) -> Floats:
    """Return the preference for the first type of the cluster that fits, shape (n, T); inf: not allowed."""
    preference: Floats = np.where(options, np.arange(options.shape[1], dtype=np.float64), np.inf)
    return preference


def restart_gpu_s(view: View) -> Floats:
    """Return the GPU-seconds that a start of each job at its request wastes, shape (n,).

    The least over the types it may run on; 0 for a job that holds GPUs.
    """
    level = np.searchsorted(view.setting.counts, view.requested_gpus)[:, None, None]
    cost = np.take_along_axis(view.restart_cost_s(), level, 2)[..., 0]
    least = np.where(staying_options(view), cost, np.inf).min(axis=1)
    wasted: Floats = np.where((view.gpus > 0) | np.isinf(least), 0.0, least * view.requested_gpus)
    return wasted


def queue_of(service: Floats, thresholds: Sequence[float]) -> Ints:
    """Return each job's queue, the number of thresholds that its service has reached; 0 is served first."""
    queue: Ints = np.searchsorted(np.asarray(thresholds, dtype=np.float64), service, side="right")
    return queue
