"""The GPUs that tenants' queues hold, ask for and are due."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import View
from clustergym.scenario.tenants.division import Division, DivisionRule
from clustergym.scenario.tenants.fair_share import History
from clustergym.scenario.tenants.queue_tree import QueueTree
from clustergym.scenario.tenants.rounding import Bounds

from .queue_shares import QueueLimits
from .requests import request_options


class Demand(NamedTuple):
    """The GPUs of each type that each leaf queue holds and requests, and where jobs may run.

    Attributes
    ----------
    held, asked : ndarray of float, shape (L, T)
        What its jobs hold; what they ask for, or hold if that is more.
    options : ndarray of bool, shape (n, T)
        On which types each job's request may run.
    """

    held: Floats
    asked: Floats
    options: Bools


def compute_demand(view: View, leaves: int) -> Demand:
    """Return the GPUs of each type that each leaf queue holds and requests.

    A job of any type that waits asks for each type that it can run on, in proportion to the cluster's GPUs.
    """
    shape, running, options = (leaves, len(view.available)), view.gpus > 0, request_options(view)
    cell = (view.queue * shape[1] + view.gpu_type)[running]
    held = np.bincount(cell, view.gpus[running].astype(np.float64), minlength=shape[0] * shape[1])
    weights = options * view.setting.capacity
    parts: Floats = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1)
    gpu_type = np.where(running, view.gpu_type, view.requested_type)
    parts[gpu_type >= 0] = np.eye(shape[1])[gpu_type[gpu_type >= 0]]
    asks = parts * np.maximum(view.requested_gpus, view.gpus)[:, None]
    cells = view.queue[:, None] * shape[1] + np.arange(shape[1])
    asked = np.bincount(cells.ravel(), asks.ravel(), minlength=shape[0] * shape[1])
    # Parts of jobs of any type add up to fractions; a due below the whole would leave a job without a GPU.
    whole: Floats = np.ceil(asked - 1e-9).reshape(shape)
    return Demand(held.reshape(shape).astype(np.float64), whole, options)


class _Divided(NamedTuple):
    """The last division of one type's GPUs, with the inputs for which it holds.

    Attributes
    ----------
    of : bytes
        What they were divided by, but for past use.
    own, wide : list of float
        Shares of all queues in what is asked for and, where they leave some, as if each asked for all.
    bounds : Bounds
        Within which past use leaves them as they are.
    """

    of: bytes
    own: list[float]
    wide: list[float]
    bounds: Bounds

    def still(self, of: bytes, history: History) -> bool:
        """Return whether the GPUs would still be divided as they were."""
        return self.of == of and self.bounds.hold(history.gpu_s)


class QueueEntitlements:
    """The GPUs of each type due to each leaf queue, recomputed only if demand or past use changes.

    Parameters
    ----------
    tree : QueueTree
    rule : str
        As of `Division`.
    gpu_types : sequence of str
    limits : QueueLimits
    """

    def __init__(
        self, tree: QueueTree, rule: DivisionRule, gpu_types: Sequence[str], limits: QueueLimits
    ) -> None:
        self._leaves, self._limits = tree.leaves, limits
        place = {name: at for at, name in enumerate(tree.queues)}
        self._places = np.array([place[name] for name in tree.leaves])
        self._divisions = [Division(tree, rule, gpu_type) for gpu_type in gpu_types]
        self._none, self._bounds = [0.0] * len(place), Bounds.none()
        self._divided: list[_Divided | None] = [None] * len(gpu_types)
        self._due: Floats = np.zeros((len(tree.leaves), len(gpu_types)))

    def compute_dues(self, available: Ints, asked: Floats, history: History, now_s: float) -> Floats:
        """Return the GPUs due to each leaf queue by GPU type, shape (leaves, types).

        What nobody asks for is divided too, among those that have jobs, for jobs that may grow.
        """
        told = [total.tobytes() + column.tobytes() for total, column in zip(available, asked.T, strict=True)]
        divided = enumerate(zip(self._divided, told, strict=True))
        anew = [at for at, (one, of) in divided if one is None or not one.still(of, history)]
        if anew:
            usage = history.usage(now_s).tolist()
            for at in anew:
                self._divided[at] = self._divide(at, told[at], float(available[at]), asked[:, at], usage)
            self._bounds = Bounds.together([one.bounds for one in self._divided if one is not None])
            given = [(one.own, one.wide) for one in self._divided if one is not None]
            self._sum_up(available, np.array(given).transpose(1, 0, 2))
        return self._due

    def lasts_until_s(self, history: History, held: Floats, total: float) -> float:
        """Return the time (s) until which dues stay the same if demand and held GPUs do."""
        length = self._bounds.reach(*history.growth(held, total))
        return history.until_s(length)

    def _divide(self, at: int, of: bytes, total: float, asked: Floats, usage: list[float]) -> _Divided:
        division, bounds = self._divisions[at], list[Bounds]()
        some = {name: one for name, one in zip(self._leaves, asked.tolist(), strict=True) if one > 0}
        claims = division.claims(some)
        own, wide = division.divide(total, claims, usage, bounds), self._none
        # What this division leaves is for jobs that may grow: a second one, as if each queue asked for
        # everything, says how it would go.
        if sum([own[queue] for queue in claims.at]) < total:
            wide = division.divide(total, division.claims(dict.fromkeys(some, total)), usage, bounds)
        kept = [one for one in bounds if len(one.queue) or not one.certain] or [Bounds.none()]
        return _Divided(of, own, wide, Bounds.together(kept))

    def _sum_up(self, available: Ints, given: Floats) -> None:
        """Set each leaf queue's due from the shares of all queues, shape (2, T, Q)."""
        due, wider = given[:, :, self._places].transpose(0, 2, 1)
        # What stays idle as some queue's guarantee is not there to grow into.
        left = available - self._limits.compute_idle_reserve(due) - due.sum(axis=0)
        more = np.maximum(wider - due, 0.0)
        part = np.minimum(np.maximum(left, 0.0) / np.maximum(more.sum(axis=0), 1.0), 1.0)
        found = due + self._limits.limit_shares(due, np.floor(more * part))
        if not np.array_equal(found, self._due):
            self._due = found
