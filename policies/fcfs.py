"""FCFS: a policy that serves jobs first come, first served, with or without backfill."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from clustergym.arrays import Bools, Floats, Ints
from clustergym.inputs.errors import InputError
from clustergym.inputs.parameter_types import Period
from clustergym.interface.policy import QUEUED, Decision, InformationClass, Policy, Setting, View

from .shared.backfill import FreeTimeline
from .shared.finish_times import remaining_at_request_s, request_times
from .shared.queues import Blocks, fill, first_type
from .shared.requests import request_options

QUEUES: dict[str, Blocks] = {"cluster": "cluster", "gpu_type": "types"}
SOONEST_S = 1e-3
"""A running job's GPUs are not free now, however little it has left."""


@dataclass
class FirstComeFirstServed(Policy):
    """First come, first served: gang scheduling at the request, with or without backfill.

    Without backfill a job waits until all its GPUs are free and no job ahead of it in its queue waits; it
    then runs to completion. The FCFS baseline of Arena (section 5.1).

    With `easy` backfill (Lifka, JSSPP '95: the Argonne scheduler) the head of each queue has a reservation
    for the earliest time by which enough jobs will have ended, and later jobs start if they do not put it
    off; with `conservative` backfill every waiting job has a reservation (Mu'alem and Feitelson, TPDS 2001).
    A head of any type has its reservation on the type where it would end first. Both use the true run times,
    so they raise the information class to `clairvoyant`. A reservation can still be missed, by the wait for
    the next round and by placements that turn out less compact than estimated. `aggressive` backfill knows no
    run times and makes no reservations: every job that fits starts, in order of arrival, so that narrow jobs
    can delay a wide one ahead of them for as long as they keep coming.

    Parameters
    ----------
    queue : str
        `cluster`: one queue; a job that must wait blocks all behind it. `gpu_type`: one
        queue per requested GPU type; a job that asks for any type waits in all of them.
    any_type : str
        Which type a job that requests any type gets. `first`: the cluster's first type with room. `random`: a
        type with room, drawn without regard to speed (the FIFO of Gavel, section 7.1). `last`: as that FIFO
        in Gavel's simulator, whose policies/fifo.py draws a type but does not assign it, so that the job gets
        the last type, by name, that had a free GPU when the decision began. More jobs may be sent to that
        type than fit; they wait for it, in order, while other types idle. `easy` and `conservative` backfill
        do not use this parameter.
    backfill : str
        `none`, `aggressive`, `easy` or `conservative`.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "fcfs"
    serves_parts: ClassVar[bool] = True
    queue: Literal["cluster", "gpu_type"] = "gpu_type"
    any_type: Literal["first", "random", "last"] = "first"
    backfill: Literal["none", "aggressive", "easy", "conservative"] = "none"
    round_s: Period | None = 300.0
    _rng: np.random.Generator = field(
        default_factory=lambda: np.random.default_rng(0), init=False, repr=False
    )
    _promised: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Keep the run's random stream, and forget all jobs."""
        self._rng = rng
        self._promised = {}

    @property
    def information_class(self) -> InformationClass:
        """Return `none`, or `clairvoyant` where backfill reserves by run times."""
        reserves = self.backfill in ("easy", "conservative")
        return InformationClass.CLAIRVOYANT if reserves else InformationClass.NONE

    @property
    def steady(self) -> bool:
        """Whether it neither makes reservations nor draws types."""
        return self.any_type == "first" and self.backfill in ("none", "aggressive")

    def schedule(self, view: View) -> Decision:
        """Start jobs from the head of each queue, and later jobs where backfill allows."""
        waiting = np.flatnonzero(view.state == QUEUED)
        if self.backfill in ("easy", "conservative"):
            if view.parts is not None:
                message, remedy = (
                    f"{self.backfill} makes no reservations of parts of GPUs",
                    "give none or aggressive",
                )
                raise InputError(message, field="policy.backfill", remedy=remedy)
            return Decision.keep(view).also(self._reserving(view, waiting))
        blocks = QUEUES[self.queue] if self.backfill == "none" else "nothing"
        return Decision.keep(view).also(fill(view, waiting, self._preference(view), view.free, blocks))

    def _preference(self, view: View) -> Floats:
        """Return how much each job prefers each type, shape (n, T); the least value is preferred."""
        options = request_options(view)
        if self.any_type == "first":
            return first_type(options)
        if self.any_type == "last":
            return np.where(self._promise(view, options), 0.0, np.inf)
        return np.where(options, self._rng.random(options.shape), np.inf)

    def _promise(self, view: View, options: Bools) -> Bools:
        """Return which type each request waits for, at most one, shape (n, T)."""
        rows, gpus = view.job.tolist(), view.requested_gpus
        self._promised = {row: self._promised[row] for row in rows if row in self._promised}
        kind = np.array([self._promised.get(row, -1) for row in rows], dtype=np.int64)
        types = np.arange(options.shape[1])
        room = view.available - (gpus[:, None] * (kind[:, None] == types)).sum(axis=0)
        by_name = np.argsort(view.setting.gpu_types)
        listed = by_name[room[by_name] > 0]
        for at in np.flatnonzero(kind < 0).tolist():
            likes = listed[options[at, listed]]
            if not (room[likes] >= gpus[at]).any():
                break
            kind[at] = self._promised[rows[at]] = int(likes[-1])
            room[kind[at]] -= gpus[at]
        promised: Bools = kind[:, None] == types
        return promised

    def _reserving(self, view: View, waiting: Ints) -> list[tuple[int, int, int]]:
        """Return the starts (job, type index, GPUs) that delay no reservation."""
        left_s = remaining_at_request_s(view, request_times(view))
        left_s = np.where(request_options(view), left_s, np.inf)
        timelines = _timelines(view)
        headed = [False] * len(timelines)
        starts = []
        for at in waiting.tolist():
            gpus = int(view.requested_gpus[at])
            options = _possible_starts(timelines, gpus, left_s[at])
            if self.backfill == "easy":
                options = [o for o in options if o.begin_s <= view.now_s or not headed[o.kind]]
            if not options:
                continue
            end_s, kind, begin_s = min(options)
            if begin_s <= view.now_s:
                starts.append((int(view.job[at]), kind, gpus))
            else:
                headed = [was or t == kind or self.queue == "cluster" for t, was in enumerate(headed)]
            timelines[kind].reserve(begin_s, gpus, end_s - begin_s)
        return starts


class _Start(NamedTuple):
    """A possible start of a job; the start that compares least ends the job first."""

    end_s: float
    kind: int
    begin_s: float


def _possible_starts(timelines: list[FreeTimeline], gpus: int, left_s: Floats) -> list[_Start]:
    """Return the earliest possible start on each type that can run the request."""
    lasting = [(kind, float(s)) for kind, s in enumerate(left_s) if np.isfinite(s)]
    begins = [(kind, s, timelines[kind].earliest(gpus, s)) for kind, s in lasting]
    return [_Start(begin_s + s, kind, begin_s) for kind, s, begin_s in begins if np.isfinite(begin_s)]


def _timelines(view: View) -> list[FreeTimeline]:
    """Return, for each type, the GPUs that become free over time as running jobs end."""
    level = np.searchsorted(view.setting.counts, view.gpus)
    time_s, out = view.iteration_time_s(), []
    for kind in range(len(view.setting.gpu_types)):
        on = np.flatnonzero(view.gpu_type == kind)
        left_s = view.remaining_iterations[on] * time_s[on, kind, level[on]] + view.standstill_s[on]
        ends_s = view.now_s + np.maximum(left_s, SOONEST_S)
        out.append(FreeTimeline(view.now_s, int(view.free[kind]), ends_s, view.gpus[on]))
    return out
