"""A virtual cluster on which elastic policies try changes of allotments before they decide."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import View

from .requests import Allotments, find_requested_level


class Scaling(NamedTuple):
    """A change of one job's allotment to `gpu_type` (-1: none) and count index `level`."""

    at: int
    gpu_type: int
    level: int


class Release(NamedTuple):
    """Changes of allotments that free GPUs, and the value that they lose."""

    loss: float
    steps: list[Scaling]


class VirtualCluster(Allotments):
    """Allotments with the value of each, on which changes can be tried.

    Parameters
    ----------
    view : View
    value : ndarray of float, shape (n, T, K)
        Value of each allotment; 0 where infeasible.
    time_s : ndarray of float, shape (n, T, K)
        Seconds per iteration, inf where infeasible.
    depth : int
        Most scalings of other jobs that one launch may take.
    repaid : bool
        Whether a job is scaled up only where that repays its restart.
    """

    def __init__(
        self, view: View, value: Floats, time_s: Floats, depth: int, *, repaid: bool = False
    ) -> None:
        super().__init__(view)
        self.value, self.time_s, self.depth, self.repaid = value, time_s, depth, repaid
        self.requested = find_requested_level(view)
        self._loss = np.full((len(self.free), len(self.counts)), np.nan)
        self._plans: list[dict[int, Release | None]] = [{} for _ in self.free]
        # GPUs freed and value lost by halving each job; only those of `_changed` are to be worked out anew.
        self._freed, self._lost = np.zeros(len(view), dtype=np.int64), np.zeros(len(view))
        self._changed: list[int] = np.flatnonzero(self.gpu_type >= 0).tolist()

    def enact(self, steps: list[Scaling]) -> None:
        """Apply changes of allotments, in order."""
        for at, gpu_type, level in steps:
            # The room changes on the type that is left and on the one that is taken; -1 stands for no GPUs.
            for changed in {int(self.gpu_type[at]), gpu_type} - {-1}:
                self._forget(changed)
            self.give(at, gpu_type, level)
            self._changed.append(at)

    def launch(self, at: Ints, gpu_type: Ints, level: Ints) -> None:
        """Give several jobs that hold none GPUs that are free."""
        self.gpu_type[at], self.level[at] = gpu_type, level
        self.free -= np.bincount(gpu_type, self.counts[level], len(self.free)).astype(np.int64)
        for changed in np.unique(gpu_type).tolist():
            self._forget(changed)
        self._changed += at.tolist()

    def _forget(self, gpu_type: int) -> None:
        """Forget the planned releases of a GPU type whose jobs or free GPUs have changed."""
        self._loss[gpu_type], self._plans[gpu_type] = np.nan, {}

    # Launching

    def first_launch(self, waiting: Ints) -> tuple[int, list[Scaling]] | None:
        """Return the first waiting job whose launch raises the total value, and the changes that it needs.

        Parameters
        ----------
        waiting : ndarray of int
            Positions in the View, in the order they are to be considered.

        Returns
        -------
        (int, list of Scaling) or None
            Index into `waiting`; the scalings of other jobs and the launch itself.
        """
        return Launches(self, waiting).first()

    def losses(self, gpu_type: Ints, level: Ints) -> Floats:
        """Return the least loss of value that frees counts[level] GPUs of each type; inf if impossible."""
        known = self._loss[gpu_type, level]
        new = np.isnan(known)
        if not new.any():
            return known
        for t, k in sorted(set(zip(gpu_type[new].tolist(), level[new].tolist(), strict=True))):
            plan = self.release(t, k)
            self._loss[t, k] = np.inf if plan is None else plan.loss
        return self._loss[gpu_type, level]

    def release(self, gpu_type: int, level: int) -> Release | None:
        """Return the changes of least loss that free counts[level] GPUs of a type; None if impossible."""
        plans = self._plans[gpu_type]
        if level not in plans:
            missing = int(self.counts[level]) - int(self.free[gpu_type])
            plans[level] = Release(0.0, []) if missing <= 0 else self._release(gpu_type, missing)
        return plans[level]

    def _release(self, gpu_type: int, missing: int) -> Release | None:
        self._refresh_halvings()
        victims = np.flatnonzero((self.gpu_type == gpu_type) & (self._freed > 0))
        level, freed, lost = self.level[victims], self._freed[victims], self._lost[victims]
        loss, steps = 0.0, list[Scaling]()
        for left in range(self.depth, 0, -1):
            if missing <= 0:
                break
            # With one halving left it must free all that is missing, with two half of it, and so on: a job
            # that frees less would use up the search depth.
            enough = np.flatnonzero(freed >= -(-missing // 2 ** (left - 1)))
            if not len(enough):
                return None
            # Loss for each GPU of use: what is freed beyond the missing ones does not make a victim cheaper.
            best = int(enough[np.argmin(lost[enough] / np.minimum(freed[enough], missing))])
            missing -= int(freed[best])
            loss += float(lost[best])
            lower = level[best] - 1
            steps.append(Scaling(int(victims[best]), gpu_type, int(lower)))
            # Only the halved job's next halving differs from before.
            level[best] = lower
            freed[[best]], lost[[best]] = self.halving(victims[[best]], gpu_type, level[[best]])
        return Release(loss, steps) if missing <= 0 else None

    def _refresh_halvings(self) -> None:
        """Work out what may be halved of the jobs whose allotments have changed."""
        if self._changed:
            at, self._changed = np.array(self._changed), []
            gpu_type, level = self.gpu_type[at], self.level[at]
            freed, self._lost[at] = self.halving(at, gpu_type, level)
            self._freed[at] = np.where((gpu_type >= 0) & self.worth_disturbing(at), freed, 0)

    def halving(self, victims: Ints, gpu_type: int | Ints, level: Ints) -> tuple[Ints, Floats]:
        """Return the GPUs freed and the value lost by halving each job, down to half its request at least."""
        lower = np.maximum(level - 1, 0)
        allowed = (
            (level > 0) & (lower >= self.requested[victims] - 1) & (self.value[victims, gpu_type, lower] > 0)
        )
        freed = np.where(allowed, self.counts[level] - self.counts[lower], 0)
        lost = self.value[victims, gpu_type, level] - self.value[victims, gpu_type, lower]
        return freed, np.where(allowed, lost, np.inf)

    def worth_disturbing(self, victims: Ints) -> Bools:
        """Return whether each job will still run for longer than a restart takes."""
        gpu_type, level = self.gpu_type[victims], self.level[victims]
        left_s = self.view.remaining_iterations[victims] * self.time_s[victims, gpu_type, level]
        longer: Bools = left_s > self.cost_s[victims, gpu_type, np.maximum(level - 1, 0)]
        return longer

    def preemptions(self, gpu_type: int, level: int, among: Bools) -> tuple[float, list[Scaling]] | None:
        """Return the loss and the preemptions of least loss that free counts[level] GPUs.

        Parameters
        ----------
        gpu_type, level : int
        among : ndarray of bool, shape (n,)
            Jobs that may be preempted.
        """
        missing = int(self.counts[level]) - int(self.free[gpu_type])
        victims = np.flatnonzero((self.gpu_type == gpu_type) & (self.view.gpus > 0) & among)
        loss, steps = 0.0, []
        for left in range(len(victims), 0, -1):
            if missing <= 0 or not len(victims):
                break
            freed = self.counts[self.level[victims]]
            lost = self.value[victims, gpu_type, self.level[victims]]
            share = -(-missing // 2 ** (left - 1))
            # As in `_release`, but there may be as many preemptions as there are victims.
            cost = np.where(freed >= share, lost / np.minimum(freed, missing), np.inf)
            best = int(np.argmin(cost))
            if not np.isfinite(cost[best]):
                return None
            missing -= int(freed[best])
            loss += float(lost[best])
            steps.append(Scaling(int(victims[best]), -1, -1))
            victims = np.delete(victims, best)
        return (loss, steps) if missing <= 0 else None

    # Scaling up

    def grow_all(self, most: int | None = None) -> None:
        """Give idle GPUs to running jobs, greatest gain first.

        Parameters
        ----------
        most : int, optional
            Scalings; any number by default.
        """
        if (self.free > 0).any():
            self._grow_all(most)

    def _grow_all(self, most: int | None) -> None:
        held = np.flatnonzero(self.gpu_type >= 0)
        if not len(held):
            return
        gain, gpu_type, level = self._growth(held)
        for _ in count() if most is None else range(most):
            best = int(np.argmax(gain))
            # Sums of throughputs carry rounding errors, and a gain of that size is none.
            if not gain[best] > 1e-9:
                return
            self.enact([Scaling(int(held[best]), int(gpu_type[best]), int(level[best]))])
            # A growth takes idle GPUs away and may give some of another type back; a best choice that still
            # fits is kept, so jobs are not looked at again for the GPUs that were given back.
            stale = np.flatnonzero((gain > 0) & ~self._still_fits(held, gpu_type, level))
            again = np.union1d(stale, [best])
            gain[again], gpu_type[again], level[again] = self._growth(held[again])

    def _still_fits(self, held: Ints, gpu_type: Ints, level: Ints) -> Bools:
        own = np.where(gpu_type == self.gpu_type[held], self.counts[self.level[held]], 0)
        fits: Bools = self.free[gpu_type] + own >= self.counts[level]
        return fits

    def _growth(self, held: Ints) -> tuple[Floats, Ints, Ints]:
        """Return each job's best (gain, type, level) among those that fit on the GPUs free now."""
        gain, gpu_types, level = self.growth(held)
        here = gpu_types == self.gpu_type[held][:, None, None]
        own = np.where(here, self.counts[self.level[held]][:, None, None], 0)
        room = self.free[gpu_types] + own >= self.counts[level]
        flat = np.where(room, gain, 0.0).reshape(len(held), -1)
        best = np.argmax(flat, axis=1)
        at = np.arange(len(held))
        return (
            flat[at, best],
            gpu_types.reshape(len(held), -1)[at, best],
            level.reshape(len(held), -1)[at, best],
        )

    def growth(self, held: Ints) -> tuple[Floats, Ints, Ints]:
        """Return running jobs' gains from twice their GPUs, or from half to twice as many of another type.

        Returns
        -------
        (gain, type, level)
            Each of shape (m, T, 3); gain 0 where there is none, or it must repay the restart and does not.
        """
        held_type, now_level = self.gpu_type[held], self.level[held]
        types, steps = np.arange(len(self.free)), np.array([-1, 0, 1])
        # At an end of the counts two of the three choices are the same; that is harmless for a maximum.
        level = np.clip(now_level[:, None, None] + steps, 0, len(self.counts) - 1)
        level = np.broadcast_to(level, (len(held), len(types), 3))
        rows = held[:, None, None]
        gpu_types = np.broadcast_to(types[None, :, None], level.shape)
        gain = self.value[rows, gpu_types, level] - self.value[held, held_type, now_level][:, None, None]
        if self.repaid:
            gain = np.where(self._repays(held, gpu_types, level), gain, 0.0)
        return np.maximum(gain, 0.0), gpu_types, level

    def _repays(self, held: Ints, gpu_types: Ints, level: Ints) -> Bools:
        """Return whether each allotment saves a job more time than the change to it takes."""
        now, rows = (held, self.gpu_type[held], self.level[held]), held[:, None, None]
        current_s, standing_s = self.time_s[now][:, None, None], self.cost_s[now][:, None, None]
        with np.errstate(invalid="ignore"):
            saved = current_s - self.time_s[rows, gpu_types, level]
        saved = np.where(saved > 0, saved, 0.0) * self.view.remaining_iterations[held][:, None, None]
        repays: Bools = saved > self.cost_s[rows, gpu_types, level] - standing_s
        return repays


FIRST_BLOCK = 8
"""Waiting jobs that are looked at together first; each further block is twice as long."""


class Launches:
    """The waiting jobs in the order in which their launches are considered.

    What a launch is worth does not change while others are launched, only what it costs: so that is
    looked up once, and costs are worked out only for the jobs up to the first that can be launched. Those
    before it are looked at again once a launch that they might have costs less than when they were refused.

    Parameters
    ----------
    cluster : VirtualCluster
    waiting : ndarray of int
        Positions in the View.
    """

    def __init__(self, cluster: VirtualCluster, waiting: Ints) -> None:
        levels = cluster.requested[waiting][:, None] + np.array([-1, 0, 1])
        inside = (levels >= 0) & (levels < len(cluster.counts))
        levels = np.clip(levels, 0, len(cluster.counts) - 1)
        worth = np.take_along_axis(cluster.value[waiting], levels[:, None, :], axis=2)
        self._cluster, self._level = cluster, levels
        self._worth = np.where(inside[:, None, :] & (worth > 0), worth, -np.inf)
        self._jobs, self._waits = waiting, np.ones(len(waiting), dtype=np.bool_)
        self._refused = 0
        self._refused_at = np.full((len(cluster.free), len(cluster.counts)), np.nan)

    def enact_all(self) -> None:
        """Launch every job whose launch raises the value, one after another."""
        while True:
            self._launch_into_room()
            if (found := self.first()) is None:
                return
            place, steps = found
            self._cluster.enact(steps)
            self.remove(place)

    def _launch_into_room(self) -> None:
        """Launch the next jobs at once, as long as all that they might have is free.

        Until then none is refused, and none of these launches costs any value.
        """
        cluster, length = self._cluster, FIRST_BLOCK
        while self._refused < len(self._jobs) and np.isnan(self._refused_at).all():
            block = slice(self._refused, self._refused + length)
            worth, counts = self._worth[block], cluster.counts[self._level[block]]
            rows, some = np.arange(len(worth)), (worth > 0).any(axis=(1, 2))
            gpu_type, choice = np.divmod(worth.reshape(len(worth), -1).argmax(axis=1), worth.shape[2])
            taken = np.zeros(worth.shape[:2], dtype=np.int64)
            taken[rows, gpu_type] = np.where(some, counts[rows, choice], 0)
            most = np.where(worth > 0, counts[:, None, :], 0).max(axis=2)
            lacks = np.flatnonzero((np.cumsum(taken, axis=0) - taken + most > cluster.free).any(axis=1))
            fitting = int(lacks[0]) if len(lacks) else len(worth)
            at = np.flatnonzero(some[:fitting])
            cluster.launch(self._jobs[block][at], gpu_type[at], self._level[block][at, choice[at]])
            self.remove(self._refused + at)
            self._refused += fitting
            if len(lacks):
                return
            length *= 2

    @property
    def waiting(self) -> Ints:
        """The jobs that still wait."""
        return self._jobs[self._waits]

    def first(self) -> tuple[int, list[Scaling]] | None:
        """Return the index of the first job whose launch raises the value, and the changes that it needs."""
        gpu_type, level = np.nonzero(~np.isnan(self._refused_at))
        if (
            len(gpu_type)
            and (self._cluster.losses(gpu_type, level) < self._refused_at[gpu_type, level]).any()
        ):
            # A launch, or what it scaled down, made some allotment cheaper than when it was refused: all are
            # considered again from the head, for the order of the queue comes before gain.
            self._refused, self._refused_at[:] = 0, np.nan
        length = FIRST_BLOCK
        while self._refused < len(self._jobs):
            start = self._refused
            gain = self._gains(slice(start, start + length))
            ready = np.flatnonzero((gain > 0).any(axis=(1, 2)))
            self._refuse(start, int(ready[0]) if len(ready) else len(gain))
            if len(ready):
                return self._refused, self._steps(self._refused, gain[ready[0]])
            length *= 2
        return None

    def _refuse(self, start: int, jobs: int) -> None:
        """Remember that some jobs cannot be launched, and at which losses."""
        self._refused = start + jobs
        if jobs:
            row, gpu_type, choice = np.nonzero(self._worth[start : start + jobs] > 0)
            level = self._level[start + row, choice]
            self._refused_at[gpu_type, level] = self._cluster.losses(gpu_type, level)

    def remove(self, place: int | Ints) -> None:
        """Remove jobs; the indices of the others stay the same."""
        self._waits[place], self._worth[place] = False, -np.inf

    def _gains(self, block: slice) -> Floats:
        """Return the gains of launches at half, once and twice the request, shape (m, T, 3)."""
        worth = self._worth[block]
        row, gpu_type, choice = np.nonzero(worth > 0)
        gain = np.full(worth.shape, -np.inf)
        loss = self._cluster.losses(gpu_type, self._level[block][row, choice])
        gain[row, gpu_type, choice] = worth[row, gpu_type, choice] - loss
        return gain

    def _steps(self, place: int, gain: Floats) -> list[Scaling]:
        gpu_type, choice = divmod(int(np.argmax(gain)), gain.shape[1])
        level = int(self._level[place, choice])
        plan = self._cluster.release(gpu_type, level)
        assert plan is not None, "what cannot be freed has no gain"
        return [*plan.steps, Scaling(int(self._jobs[place]), gpu_type, level)]
