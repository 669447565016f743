"""A virtual cluster on which elastic policies try changes of allotments before they decide."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np

from clustergym.arrays import Bools, Floats, Ints
from clustergym.interface.policy import View

from .allotments import Allotments
from .requests import requested_level


class Scaling(NamedTuple):
    """Give the job at a position of the View type `kind` and count index `level`; kind -1: none."""

    at: int
    kind: int
    level: int


class VirtualCluster(Allotments):
    """A table of allotments with the value of each, on which scalings are tried.

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
        self.requested = requested_level(view)
        self._release_cache: dict[int, list[tuple[float, list[Scaling]] | None]] = {}

    def enact(self, steps: list[Scaling]) -> None:
        """Apply scalings, in order, to the virtual cluster."""
        for at, kind, level in steps:
            self.give(at, kind, level)
        self._release_cache.clear()

    # Launching

    def first_launch(self, waiting: Ints) -> tuple[int, list[Scaling]] | None:
        """Return the first waiting job whose launch raises the total value, and the scalings it takes.

        Parameters
        ----------
        waiting : ndarray of int
            Positions in the View, in the order they are to be considered.

        Returns
        -------
        (int, list of Scaling) or None
            Index into `waiting`; the scalings of other jobs and the launch itself.
        """
        levels = self.requested[waiting][:, None] + np.array([-1, 0, 1])
        inside = (levels >= 0) & (levels < len(self.counts))
        levels = np.clip(levels, 0, len(self.counts) - 1)
        worth = np.take_along_axis(self.value[waiting], levels[:, None, :], axis=2)
        worth = np.where(inside[:, None, :] & (worth > 0), worth, -np.inf)
        loss = self._release_losses()
        gain = worth - np.moveaxis(loss[:, levels], 0, 1)
        ready = np.flatnonzero((gain > 0).any(axis=(1, 2)))
        if not len(ready):
            return None
        place = int(ready[0])
        kind, choice = divmod(int(np.argmax(gain[place])), gain.shape[2])
        level = int(levels[place, choice])
        plan = self.release(kind)[level]
        steps = plan[1] if plan is not None else []
        return place, [*steps, Scaling(int(waiting[place]), kind, level)]

    def _release_losses(self) -> Floats:
        """Return the least loss of value that frees counts[k] GPUs of type t, shape (T, K); else inf."""
        table = [
            [np.inf if plan is None else plan[0] for plan in self.release(t)] for t in range(len(self.free))
        ]
        return np.array(table)

    def release(self, kind: int) -> list[tuple[float, list[Scaling]] | None]:
        """Return, for each count, the (loss, scalings) of least loss that free so many GPUs of a type."""
        if kind not in self._release_cache:
            self._release_cache[kind] = [self._release(kind, int(gpus)) for gpus in self.counts]
        return self._release_cache[kind]

    def _release(self, kind: int, gpus: int) -> tuple[float, list[Scaling]] | None:
        missing = gpus - int(self.free[kind])
        if missing <= 0:
            return 0.0, []
        victims = np.flatnonzero(self.kind == kind)
        victims = victims[self.worth_disturbing(victims)]
        level, loss, steps = self.level[victims].copy(), 0.0, []
        for left in range(self.depth, 0, -1):
            if missing <= 0 or not len(victims):
                break
            freed, lost = self.halving(victims, kind, level)
            share = -(-missing // 2 ** (left - 1))
            cost = np.where(freed >= share, lost / np.minimum(np.maximum(freed, 1), missing), np.inf)
            best = int(np.argmin(cost))
            if not np.isfinite(cost[best]):
                return None
            missing -= int(freed[best])
            loss += float(lost[best])
            level[best] -= 1
            steps.append(Scaling(int(victims[best]), kind, int(level[best])))
        return (loss, steps) if missing <= 0 else None

    def halving(self, victims: Ints, kind: int | Ints, level: Ints) -> tuple[Ints, Floats]:
        """Return the GPUs freed and the value lost by halving each job; none goes below half its request."""
        lower = np.maximum(level - 1, 0)
        allowed = (
            (level > 0) & (lower >= self.requested[victims] - 1) & (self.value[victims, kind, lower] > 0)
        )
        freed = np.where(allowed, self.counts[level] - self.counts[lower], 0)
        lost = self.value[victims, kind, level] - self.value[victims, kind, lower]
        return freed, np.where(allowed, lost, np.inf)

    def worth_disturbing(self, victims: Ints) -> Bools:
        """Return whether each job will still run for longer than its restart takes."""
        kind, level = self.kind[victims], self.level[victims]
        left_s = self.view.remaining_iterations[victims] * self.time_s[victims, kind, level]
        longer: Bools = left_s > self.cost_s[victims, kind, np.maximum(level - 1, 0)]
        return longer

    def preemptions(self, kind: int, level: int, among: Bools) -> tuple[float, list[Scaling]] | None:
        """Return the (loss, preemptions) of least loss that free counts[level] GPUs.

        Parameters
        ----------
        kind, level : int
        among : ndarray of bool, shape (n,)
            Jobs that may be preempted.
        """
        missing = int(self.counts[level]) - int(self.free[kind])
        victims = np.flatnonzero((self.kind == kind) & (self.view.gpus > 0) & among)
        loss, steps = 0.0, []
        for left in range(len(victims), 0, -1):
            if missing <= 0 or not len(victims):
                break
            freed = self.counts[self.level[victims]]
            lost = self.value[victims, kind, self.level[victims]]
            share = -(-missing // 2 ** (left - 1))
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
        held = np.flatnonzero(self.kind >= 0)
        if not len(held):
            return
        gain, kind, level = self._growth(held)
        for _ in count() if most is None else range(most):
            best = int(np.argmax(gain))
            if not gain[best] > 1e-9:
                return
            self.enact([Scaling(int(held[best]), int(kind[best]), int(level[best]))])
            stale = np.flatnonzero((gain > 0) & ~self._still_fits(held, kind, level))
            again = np.union1d(stale, [best])
            gain[again], kind[again], level[again] = self._growth(held[again])

    def _still_fits(self, held: Ints, kind: Ints, level: Ints) -> Bools:
        own = np.where(kind == self.kind[held], self.counts[self.level[held]], 0)
        fits: Bools = self.free[kind] + own >= self.counts[level]
        return fits

    def _growth(self, held: Ints) -> tuple[Floats, Ints, Ints]:
        """Return each job's best (gain, type, level) among those that fit on the GPUs free now."""
        gain, kinds, level = self.growth(held)
        here = kinds == self.kind[held][:, None, None]
        own = np.where(here, self.counts[self.level[held]][:, None, None], 0)
        room = self.free[kinds] + own >= self.counts[level]
        flat = np.where(room, gain, 0.0).reshape(len(held), -1)
        best = np.argmax(flat, axis=1)
        at = np.arange(len(held))
        return flat[at, best], kinds.reshape(len(held), -1)[at, best], level.reshape(len(held), -1)[at, best]

    def growth(self, held: Ints) -> tuple[Floats, Ints, Ints]:
        """Return what running jobs gain by twice their GPUs, or by half to twice as many of another type.

        Returns
        -------
        (gain, type, level)
            Each of shape (m, T, 3); gain 0 where there is none, or it must repay the restart and does not.
        """
        now_kind, now_level = self.kind[held], self.level[held]
        types, steps = np.arange(len(self.free)), np.array([-1, 0, 1])
        level = np.clip(now_level[:, None, None] + steps, 0, len(self.counts) - 1)
        level = np.broadcast_to(level, (len(held), len(types), 3))
        rows = held[:, None, None]
        kinds = np.broadcast_to(types[None, :, None], level.shape)
        gain = self.value[rows, kinds, level] - self.value[held, now_kind, now_level][:, None, None]
        if self.repaid:
            gain = np.where(self._repays(held, kinds, level), gain, 0.0)
        return np.maximum(gain, 0.0), kinds, level

    def _repays(self, held: Ints, kinds: Ints, level: Ints) -> Bools:
        """Return whether each allotment saves a job more time than the change to it takes."""
        now, rows = (held, self.kind[held], self.level[held]), held[:, None, None]
        current_s, standing_s = self.time_s[now][:, None, None], self.cost_s[now][:, None, None]
        with np.errstate(invalid="ignore"):
            saved = current_s - self.time_s[rows, kinds, level]
        saved = np.where(saved > 0, saved, 0.0) * self.view.remaining_iterations[held][:, None, None]
        repays: Bools = saved > self.cost_s[rows, kinds, level] - standing_s
        return repays
