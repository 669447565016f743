"""Views of some of the jobs, on some of the GPUs; decisions on them, for as long as they hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property
from operator import le
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import QUEUED, BatchOptions, Decision, Policy, StopCosts, View

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
        self.view, self.gpus = view, gpus
        self._stopped: Bools = (gpus == 0) & (view.gpus > 0)
        self.gpu_type: Ints = np.where(self._stopped, -1, view.gpu_type)
        # A job that loses GPUs falls back to its requested batch, as the engine has it when it is launched
        # anew.
        self.batch: Ints = np.where(gpus < view.gpus, view.global_batch, view.batch)
        self.decided = self.gpus, self.gpu_type, self.batch
        self._end: list[int] = np.bincount(view.queue, minlength=leaves).cumsum().tolist()
        """Where each queue's jobs end in the order."""

    @cached_property
    def _order(self) -> Ints:
        """The jobs' places in the View, queue by queue."""
        return np.argsort(self.view.queue, kind="stable")

    @cached_property
    def _columns(self) -> dict[str, Any]:
        """The View's arrays of jobs, in order."""
        view, order = self.view, self._order
        own: dict[str, Any] = {
            name: value[order] for name in COLUMNS if isinstance(value := getattr(view, name), np.ndarray)
        }
        own |= {"gpus": self.gpus[order], "gpu_type": self.gpu_type[order], "batch": self.batch[order]}
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
                "batches": lambda: None if self._options is None else self._options.select(rows),
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
        decided = np.zeros(len(self._end), dtype=np.bool_)
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
        return None if options is None else options.select(self._order)


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
