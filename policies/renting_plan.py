"""A plan of renting: nodes are rented by a rule, and another policy gives the GPUs to jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Period
from clustergym.scenario.clock import TICKS_PER_S
from clustergym.scenario.policy import CapacityView, Decision, InformationClass, Policy, Setting, View
from clustergym.scenario.registry import parse_policy
from clustergym.trace.trace import Trace

from .renting import Renting


@dataclass
class RentingPlan(Policy):
    """Rents nodes by a rule, and leaves the jobs to another policy, which sees the nodes that are there.

    The rule `all` rents what is offered, as soon as it is offered. `reactive` orders by the rule of
    `renting`, linear in the load, for a cluster of one type of GPU; of several products that come at once, or
    later, it takes the cheapest first. What it knows of the work that is left are time limits: jobs without
    count none. It gives back no more nodes than are free of jobs.

    Without products to rent the other policy decides alone.

    Parameters
    ----------
    within : str
        The policy that decides on jobs, with its parameters: `slurm-multifactor backfill=easy`.
    rule : str
        `all` or `reactive`.
    ahead, at_once : tuple of float
        As of `renting`, for `reactive`.
    every_s : float
        Seconds between its orders.
    """

    name: ClassVar[str] = "renting-plan"
    needs_places: ClassVar[bool] = True
    """It reads which nodes are free, to give back none on which jobs are."""
    within: str = "fcfs"
    rule: Literal["all", "reactive"] = "all"
    ahead: tuple[float, ...] = (0.0, 0.1, 0.3)
    at_once: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5)
    every_s: Period = 3600.0
    _policy: Policy = field(init=False, repr=False)
    _rule: Renting = field(init=False, repr=False)
    _next_s: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._policy = parse_policy(self.within, "policy.within")
        if isinstance(self._policy, RentingPlan):
            raise InputError("rents itself", field="policy.within", remedy="give another policy")
        self._rule = Renting(self.ahead, self.at_once, self.every_s)
        self.round_s = self._policy.round_s

    @property
    def information_class(self) -> InformationClass:
        """What the other policy knows of iteration times."""
        return self._policy.information_class

    def fingerprint(self) -> str:
        """Return a digest of the files that the other policy reads."""
        return self._policy.fingerprint()

    def counters(self) -> Mapping[str, int]:
        """Return what the other policy counted."""
        return self._policy.counters()

    def check(self, trace: Trace, setting: Setting) -> None:
        """Let the other policy check the trace, and the reactive rule its numbers and the cluster."""
        self._policy.check(trace, setting)
        if self.rule == "reactive":
            self._rule.check(trace, setting)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Begin a run, in which the first decision orders."""
        self._policy.reset(setting, rng)
        self._next_s = 0.0

    def schedule(self, view: View) -> Decision:
        """Decide as the other policy does, and order and give back nodes if it is time to."""
        decision, rented = self._policy.schedule(view), view.capacity
        if rented is None:
            return decision
        there, again_s = rented.held + rented.ordered, [decision.again_s]
        targets = there + rented.offered if self.rule == "all" else there
        if self.rule == "reactive":
            if view.now_s >= self._next_s:
                self._next_s = view.now_s + self.every_s
                targets = self._keep_used(view, rented, decision, self._find_targets(view, rented))
            again_s.append(self._next_s)
        if (rented.at_once & (targets > there)).any():
            # The other policy has not seen these nodes: it decides again, a tick later.
            again_s.append(view.now_s + 1 / TICKS_PER_S)
        asked_s = min((at for at in again_s if at is not None), default=None)
        return replace(decision, capacity=tuple(targets.tolist()), again_s=asked_s)

    def _find_targets(self, view: View, rented: CapacityView) -> Ints:
        """Return how many nodes of each product the reactive rule wants: of the cheapest first."""
        limit_s = np.full(len(view), math.nan) if view.time_limit_s is None else view.time_limit_s
        ran_s = view.attained_gpu_s / np.maximum(view.requested_gpus, 1)
        wanted = self._rule.find_targets(view, rented, np.nan_to_num(np.maximum(limit_s - ran_s, 0.0)))
        most, targets = rented.held + rented.ordered + rented.offered, np.zeros(len(wanted), dtype=np.int64)
        for alike in (np.flatnonzero(rented.at_once), np.flatnonzero(~rented.at_once)):
            left = wanted[alike[0]] if len(alike) else 0
            for at in alike[np.argsort(rented.price[alike], kind="stable")].tolist():
                targets[at] = min(left, most[at])
                left -= targets[at]
        return targets

    @staticmethod
    def _keep_used(view: View, rented: CapacityView, decision: Decision, targets: Ints) -> Ints:
        """Return the targets, raised so that no more nodes are given back than are free after a decision."""
        places, per_node = view.places(), int(view.setting.gpus_per_node[0])
        free = 0 if places is None else int((places.free_on_node == per_node).sum())
        free = min(free, int(view.available[0] - decision.gpus.sum()) // per_node)
        there = rented.held + rented.ordered
        for at in np.flatnonzero(rented.returnable & (targets < there)).tolist():
            back = max(min(int(there[at] - targets[at]), int(rented.held[at]), free), 0)
            targets[at], free = there[at] - back, free - back
        return targets
