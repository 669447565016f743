"""FCFS with backfill and other options: the class of `policy=fcfs` where one of them is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import QUEUED, Decision, InformationClass, Setting, View

from .finish_times import remaining_at_request_s, request_times
from .making_room import MovingPolicy
from .queues import Blocks, fill, first_type
from .requests import request_options
from .reservations import starts_between_reservations

QUEUES: dict[str, Blocks] = {"cluster": "cluster", "gpu_type": "types"}


@dataclass
class FcfsWithOptions(MovingPolicy):
    """The policy first come, first served, with backfill; jobs start with all GPUs that they request.

    With `backfill=none` and the other defaults it decides as `FirstComeFirstServed` does.

    With `easy` backfill (Lifka, JSSPP '95: the Argonne scheduler) the head of each queue has a
    reservation for the earliest time by which enough jobs will have ended, and later jobs start if they
    do not delay it; with `conservative` backfill every waiting job has a reservation (Mu'alem and
    Feitelson, TPDS 2001). A head that accepts any GPU type has its reservation on the type where it would
    end first. Both use the true run times, so they raise the information class to `clairvoyant`. A
    reservation can still be missed, by the wait for the next round and by placements that turn out less
    compact than estimated. `aggressive` backfill knows no run times and makes no reservations: every job
    that fits starts, in order of arrival, so that narrow jobs can delay a wide one ahead of them for as
    long as they keep coming.

    Parameters
    ----------
    queue : str
        As of `FirstComeFirstServed`.
    any_type : str
        Which type a job that requests any type gets. `first`: the cluster's first type with room. `random`: a
        type with room, drawn without regard to speed (the FIFO of Gavel, section 7.1). `last`: as that FIFO
        in Gavel's simulator, whose policies/fifo.py draws a type but does not assign it, so that the job gets
        the last type, by name, that had a free GPU when the decision began. More jobs may be sent to that
        type than fit; they wait for it, in order, while other types idle. `easy` and `conservative` backfill
        do not use this parameter.
    backfill : str
        `none`, `aggressive`, `easy` or `conservative`.
    moves_per_hour : float
        Running jobs that it may move in an hour, saved up for an hour at most, so that a gang which it starts
        has its NVLink domains; 0: it moves none.
    notice : str
        Who saves before it is moved, where stops lose work: `never` anybody; `cheaper`: who has worked for
        longer since its last checkpoint than saving takes; `always`.
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
        default_factory=lambda: random_streams.POLICY.generator(0), init=False, repr=False
    )
    _promised: dict[int, int] = field(default_factory=dict, init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget all jobs of the last run, and store the new run's random generator."""
        super().reset(setting, rng)
        self._rng = rng
        self._promised = {}

    @property
    def information_class(self) -> InformationClass:
        """What the policy knows of iteration times: nothing, or all if backfill plans with true run times."""
        reserves = self.backfill in ("easy", "conservative")
        return InformationClass.CLAIRVOYANT if reserves else InformationClass.NONE

    @property
    def steady(self) -> bool:
        """Whether decisions repeat while nothing changes: with neither reservations nor random GPU types."""
        return self.any_type == "first" and self.backfill in ("none", "aggressive")

    @property
    def consistent(self) -> bool:
        """Whether fewer idle GPUs never make the policy start another job: True if it is `steady`."""
        return self.steady

    @property
    def only_starts(self) -> bool:
        """Whether the policy makes no reservations, and so does nothing but start jobs."""
        return self.steady

    def decide(self, view: View) -> Decision:
        """Start jobs from the head of each queue, and later jobs where backfill allows it."""
        waiting = np.flatnonzero(view.state == QUEUED)
        if self.backfill in ("easy", "conservative"):
            if view.parts is not None:
                message, remedy = (
                    f"{self.backfill} makes no reservations of parts of GPUs",
                    "give none or aggressive",
                )
                raise InputError(message, field="policy.backfill", remedy=remedy)
            return Decision.keep(view).also(self._reserving(view, waiting))
        # Aggressive backfill is the same pass in which a job without room blocks nothing behind it.
        blocks = QUEUES[self.queue] if self.backfill == "none" else "nothing"
        return Decision.keep(view).also(fill(view, waiting, self._preference(view), view.free, blocks))

    def _preference(self, view: View) -> Floats | Callable[[Ints], Floats]:
        """Return each job's preference for each GPU type, shape (n, T), in the form that `fill` needs."""
        if self.any_type == "first":
            return lambda rows: first_type(request_options(view, rows))
        options = request_options(view)
        if self.any_type == "last":
            # Only the promised type stays open (infinity: never), so that the job waits for it while others
            # idle.
            return np.where(self._promise(view, options), 0.0, np.inf)
        return np.where(options, self._rng.random(options.shape), np.inf)

    def _promise(self, view: View, options: Bools) -> Bools:
        """Return which type each request waits for, at most one, shape (n, T)."""
        rows, gpus = view.job.tolist(), view.requested_gpus
        # A job that has left the View must not hold room back any longer.
        self._promised = {row: self._promised[row] for row in rows if row in self._promised}
        gpu_type = np.array([self._promised.get(row, -1) for row in rows], dtype=np.int64)
        types = np.arange(options.shape[1])
        room = view.available - (gpus[:, None] * (gpu_type[:, None] == types)).sum(axis=0)
        # By name: which type is "last" in Gavel's list does not depend on the order of types in the cluster's
        # file.
        by_name = np.argsort(view.setting.gpu_types)
        listed = by_name[room[by_name] > 0]
        for at in np.flatnonzero(gpu_type < 0).tolist():
            likes = listed[options[at, listed]]
            # As in policies/fifo.py, the first job without room ends the assignment, not only its own turn.
            if not (room[likes] >= gpus[at]).any():
                break
            gpu_type[at] = self._promised[rows[at]] = int(likes[-1])
            room[gpu_type[at]] -= gpus[at]
        promised: Bools = gpu_type[:, None] == types
        return promised

    def _reserving(self, view: View, waiting: Ints) -> list[tuple[int, int, int]]:
        """Return the starts (job, type index, GPUs) that delay no reservation."""
        left_s = remaining_at_request_s(view, request_times(view))
        left_s = np.where(request_options(view), left_s, np.inf)
        running_s, on = np.zeros(len(view)), np.flatnonzero(view.gpus > 0)
        level = np.searchsorted(view.setting.counts, view.gpus[on])
        time_s = view.iteration_time_s()[on, view.gpu_type[on], level]
        # A job that still stands still works its remaining iterations only after that.
        running_s[on] = view.remaining_iterations[on] * time_s + view.standstill_s[on]
        found = starts_between_reservations(
            view,
            waiting,
            running_s,
            left_s,
            heads_only=self.backfill == "easy",
            one_queue=self.queue == "cluster",
        )
        return [(int(view.job[at]), gpu_type, int(view.requested_gpus[at])) for at, gpu_type in found]
