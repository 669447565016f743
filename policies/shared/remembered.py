"""Decisions of the policies in queues, remembered for as long as they hold."""

from __future__ import annotations

from collections.abc import Sequence
from operator import le
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.policy import Decision, Policy

from .parts_of_views import QueueViews

MOST = 64
"""Decisions that are remembered of a queue."""


class _CachedDecision(NamedTuple):
    """A cached decision on the jobs of a queue, and what it was based on.

    Attributes
    ----------
    available, used : list of int
        GPUs of each type that might be used, and that are.
    decision : Decision or None
        None: all jobs keep what they hold.
    """

    available: list[int]
    used: list[int]
    decision: Decision | None


class DecisionCache:
    """The last decisions of the queues' policies, reused if nothing has changed that these depend on.

    Parameters
    ----------
    policies : sequence of Policy
    steady : bool
        Whether they are steady.
    times : bool
        Whether they see iteration times.
    """

    def __init__(self, policies: Sequence[Policy], steady: bool, times: bool) -> None:
        self._policies, self._steady, self._times = policies, steady, times
        self._consistent = all(policy.consistent for policy in policies)
        self._last: QueueViews | None = None
        self._made: list[list[_CachedDecision]] = [[] for _ in policies]
        self._acted: dict[int, _CachedDecision] = {}

    def open(self, parts: QueueViews) -> None:
        """Forget the cached decisions of queues whose jobs have changed since the last View."""
        if not self._steady:
            return
        last, self._last = self._last, parts
        if last is None:
            return
        changed = parts.find_changed(last, self._times).tolist()
        for at in changed:
            self._made[at].clear()
        # A decision that was carried out changed its queue. A consistent policy would now keep all of it
        # (None); others must be asked again.
        for at, made in self._acted.items():
            self._made[at].clear()
            if self._consistent and at not in changed:
                self._made[at].append(made._replace(decision=None))
        self._acted = {}

    def decide(self, parts: QueueViews, at: int, available: Ints) -> Decision | None:
        """Return the decision of queue number `at`, new or cached; None if its jobs keep what they hold."""
        if not self._steady:
            return self._policies[at].schedule(parts.part(at, available))
        gpus: list[int] = available.tolist()
        made = self._find_decision(at, gpus)
        if made is None:
            decision = self._policies[at].schedule(parts.part(at, available))
            used = np.bincount(decision.gpu_type, decision.gpus, minlength=len(gpus)).tolist()
            made = _CachedDecision(gpus, used, parts.unless_kept(at, decision))
            if len(self._made[at]) == MOST:
                self._made[at].clear()
            self._made[at].append(made)
        self._acted.pop(at, None)
        if made.decision is not None:
            self._acted[at] = made
        return made.decision

    def _find_decision(self, at: int, gpus: list[int]) -> _CachedDecision | None:
        for made in reversed(self._made[at]):
            if made.available == gpus:
                return made
            # A consistent policy decides the same with fewer unused GPUs, as long as those it used are there.
            if self._consistent and all(map(le, made.used, gpus)) and all(map(le, gpus, made.available)):
                return made
        return None
