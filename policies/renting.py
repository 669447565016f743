"""Renting: shortest remaining time first on nodes that a reactive rule rents, hour by hour."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import CapacityView, Decision, InformationClass, Policy, Setting, View
from clustergym.trace.trace import Trace

from .shared.finish_times import remaining_at_request_s, request_times


@dataclass
class Renting(Policy):
    """Rents nodes by a rule that is linear in the load, and runs the jobs with the shortest time left.

    A job gets the most GPUs that are left, up to its request; restarts are not weighed. Targets are GPUs:
    of products with a lead time a + b work + c asked, of those that come at once d + e work + f asked - g
    held, where work is GPU-hours left at the requests, asked the GPUs that jobs in the system ask for, and
    held those of products with a lead time. Without products to rent it only schedules.

    Parameters
    ----------
    ahead : tuple of float
        a, b and c.
    at_once : tuple of float
        d, e, f and g.
    every_s : float
        Seconds between orders.
    """

    name: ClassVar[str] = "renting"
    information_class: ClassVar[InformationClass] = InformationClass.CLAIRVOYANT
    ahead: tuple[float, ...] = (0.0, 0.1, 0.3)
    at_once: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5)
    every_s: Period = 3600.0

    def check(self, trace: Trace, setting: Setting) -> None:
        """Raise an `InputError` where the cluster has GPUs of several types, or a rule another length."""
        if len(setting.gpu_types) > 1:
            message = f"renting gives GPUs of one type, and the cluster has {len(setting.gpu_types)}"
            raise InputError(message, field="policy", remedy="choose a cluster of one type")
        for field, number in (("ahead", 3), ("at_once", 4)):
            if len(getattr(self, field)) != number:
                message = f"has {len(getattr(self, field))} numbers"
                raise InputError(message, field=f"policy.{field}", remedy=f"give {number}")

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Begin a run, in which the first decision orders."""
        self._next_s = 0.0

    def schedule(self, view: View) -> Decision:
        """Order nodes if it is time to, and give GPUs to jobs by ascending time left at their requests."""
        left_s = remaining_at_request_s(view, request_times(view)).min(axis=1, initial=math.inf)
        free, rented, targets = int(view.available[0]), view.capacity, None
        if rented is not None and view.now_s >= self._next_s:
            self._next_s = view.now_s + self.every_s
            targets = self.find_targets(view, rented, left_s)
            free += self._find_change(view, rented, targets)
        allotments = []
        for at in np.lexsort((view.job, left_s)).tolist():
            fits = view.setting.counts[view.feasible[at, 0]]
            fits = fits[fits <= min(int(view.requested_gpus[at]), free)]
            if len(fits):
                allotments.append((int(view.job[at]), 0, int(fits[-1])))
                free -= int(fits[-1])
        again_s = self._next_s if rented is not None else None
        return replace(Decision.of(allotments), capacity=targets, again_s=again_s)

    def find_targets(self, view: View, rented: CapacityView, left_s: Floats) -> tuple[int, ...]:
        """Return the nodes of each product to be held or ordered."""
        per_node = int(view.setting.gpus_per_node[0])
        asked = float(view.requested_gpus.sum())
        work = float((left_s * view.requested_gpus).sum()) / 3600.0
        held = float(rented.held[~rented.at_once].sum()) * per_node
        ahead = float(np.dot(self.ahead, (1.0, work, asked)))
        at_once = float(np.dot(self.at_once, (1.0, work, asked, -held)))
        return tuple(
            max(math.ceil((at_once if now else ahead) / per_node), 0) for now in rented.at_once.tolist()
        )

    def _find_change(self, view: View, rented: CapacityView, targets: Sequence[int]) -> int:
        """Return by how many GPUs the targets change at once what jobs can have."""
        more = np.array(targets) - rented.held - rented.ordered
        gained = np.where(rented.at_once, np.clip(more, 0, rented.offered), 0)
        given = np.where(rented.returnable, np.clip(-more, 0, rented.held), 0)
        return int((gained - given).sum()) * int(view.setting.gpus_per_node[0])
