"""A virtual cluster on which elastic policies try changes of allotments before they decide."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import View

from .requests import Allotments, find_requested_level


class Scaling(NamedTuple):
    """A change of the GPUs of the View's job `at`: its new GPU type (-1: none) and GPU count's index."""

    at: int
    gpu_type: int
    level: int


class Release(NamedTuple):
    """Changes of jobs' GPUs that free some GPUs, and the value that is lost by them."""

    loss: float
    steps: list[Scaling]


class VirtualCluster(Allotments):
    """A plan of which GPUs each job holds, and their value to it, on which changes can be tried.

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
        self._may_gain: bool | None = None
        self._changed: list[int] = np.flatnonzero(self.gpu_type >= 0).tolist()

    def enact(self, steps: list[Scaling]) -> None:
        """Apply changes of jobs' GPUs to the plan, in order."""
        for at, gpu_type, level in steps:
            held = int(self.gpu_type[at])
            self.give(at, gpu_type, level)
            self._note_changed([at])
            # The room changes on the type that is left and on the one that is taken; -1 stands for no GPUs.
            for changed in {held, gpu_type} - {-1}:
                self._forget(changed)

    def launch(self, at: Ints, gpu_type: Ints, level: Ints) -> None:
        """Launch waiting jobs in this plan, each on `counts[level]` free GPUs of its given type."""
        self.gpu_type[at], self.level[at] = gpu_type, level
        self.free -= np.bincount(gpu_type, self.counts[level], len(self.free)).astype(np.int64)
        self._note_changed(at.tolist())
        for changed in set(gpu_type.tolist()):
            self._forget(changed)

    def _forget(self, gpu_type: int) -> None:
        """Forget the planned releases of a GPU type whose jobs or free GPUs have changed."""
        self._loss[gpu_type], self._plans[gpu_type] = np.nan, {}

    def _note_changed(self, at: list[int]) -> None:
        self._changed += at
        if at and self._may_gain is False:
            self._may_gain = self._gain_by_halving(np.array(at))

    # Launching

    def first_launch(self, waiting: Ints) -> tuple[int, list[Scaling]] | None:
        """Return the first index in `waiting` whose job's launch raises the plan's value, and the changes.

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
        """Return for each (type, level) the least loss that frees `counts[level]` GPUs; inf: impossible."""
        known = self._loss[gpu_type, level]
        new = np.isnan(known)
        if not new.any():
            return known
        for t, k in sorted(set(zip(gpu_type[new].tolist(), level[new].tolist(), strict=True))):
            plan = self.release(t, k)
            self._loss[t, k] = np.inf if plan is None else plan.loss
        return self._loss[gpu_type, level]

    def release(self, gpu_type: int, level: int) -> Release | None:
        """Return changes of least loss that free `counts[level]` GPUs of a type; None if impossible."""
        plans = self._plans[gpu_type]
        if level not in plans:
            missing = int(self.counts[level]) - int(self.free[gpu_type])
            plans[level] = Release(0.0, []) if missing <= 0 else self._release(gpu_type, missing)
        return plans[level]

    def _release(self, gpu_type: int, missing: int) -> Release | None:
        self._refresh_halvings()
        victims = np.flatnonzero((self.gpu_type == gpu_type) & (self._freed > 0))
        freed, lost = self._freed[victims], self._lost[victims]
        loss, steps, level = 0.0, list[Scaling](), dict[int, int]()
        for left in range(self.depth, 0, -1):
            if missing <= 0:
                break
            # With one halving left it must free all that is missing, with two half of it, and so on: a job
            # that frees less would use up the search depth. Loss is for each GPU of use: what is freed beyond
            # the missing ones does not make a victim cheaper.
            enough = freed >= -(-missing // 2 ** (left - 1))
            each = np.where(enough, lost / np.minimum(freed, missing), np.inf)
            best = int(each.argmin()) if len(each) else -1
            if best < 0 or not enough[best]:
                return None
            missing -= int(freed[best])
            loss += float(lost[best])
            at = int(victims[best])
            level[at] = level.get(at, int(self.level[at])) - 1
            steps.append(Scaling(at, gpu_type, level[at]))
            if missing > 0:
                # Only the halved job's next halving differs from before.
                freed[[best]], lost[[best]] = self.halving(victims[[best]], gpu_type, np.array([level[at]]))
        return Release(loss, steps) if missing <= 0 else None

    def _refresh_halvings(self) -> None:
        """Work out what may be halved of the jobs whose allotments have changed."""
        if self._changed:
            at, self._changed = np.array(self._changed), []
            gpu_type, level = self.gpu_type[at], self.level[at]
            freed, lost = self.halving(at, gpu_type, level)
            may = (freed > 0) & (gpu_type >= 0) & self.worth_disturbing(at)
            self._freed[at], self._lost[at] = np.where(may, freed, 0), np.where(may, lost, np.inf)

    def halvings_may_gain(self) -> bool:
        """Return whether halving some job's GPUs may raise the total value; once True, it stays True."""
        if self._may_gain is None:
            self._may_gain = self._gain_by_halving(np.flatnonzero(self.gpu_type >= 0))
        return self._may_gain

    def _gain_by_halving(self, at: Ints) -> bool:
        """Return whether some of these jobs would be worth more after a halving, now or later."""
        value, level = self.value[at, self.gpu_type[at]], np.arange(1, len(self.counts))
        may = (level >= self.requested[at, None]) & (level <= self.level[at, None])
        return bool((may & (value[:, :-1] > value[:, 1:])).any())

    def halving(self, victims: Ints, gpu_type: int | Ints, level: Ints) -> tuple[Ints, Floats]:
        """Return GPUs freed and value lost if jobs halve their `counts[level]` GPUs; 0, inf: not allowed."""
        lower = np.maximum(level - 1, 0)
        allowed = (
            (level > 0) & (lower >= self.requested[victims] - 1) & (self.value[victims, gpu_type, lower] > 0)
        )
        freed = np.where(allowed, self.counts[level] - self.counts[lower], 0)
        lost = self.value[victims, gpu_type, level] - self.value[victims, gpu_type, lower]
        return freed, np.where(allowed, lost, np.inf)

    def worth_disturbing(self, victims: Ints) -> Bools:
        """Return whether each job will run for longer than its restart would take."""
        gpu_type, level = self.gpu_type[victims], self.level[victims]
        left_s = self.view.remaining_iterations[victims] * self.time_s[victims, gpu_type, level]
        longer: Bools = left_s > self.cost_s[victims, gpu_type, np.maximum(level - 1, 0)]
        return longer

    def preemptions(self, gpu_type: int, level: int, among: Bools) -> tuple[float, list[Scaling]] | None:
        """Return the least loss of preempting jobs until `counts[level]` GPUs are free, and which.

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
        """Give idle GPUs to running jobs, those that gain most first.

        Parameters
        ----------
        most : int, optional
            Scalings; any number by default.
        """
        held = np.flatnonzero(self.gpu_type >= 0)
        if not len(held) or not (self.free > 0).any():
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
            own = np.where(gpu_type == self.gpu_type[held], self.counts[self.level[held]], 0)
            stale = np.flatnonzero((gain > 0) & (self.free[gpu_type] + own < self.counts[level]))
            again = np.union1d(stale, [best])
            gain[again], gpu_type[again], level[again] = self._growth(held[again])

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
        """Return gains, types and levels for jobs at positions `held`: any type, count one step less to more.

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
"""Waiting jobs that are looked at together after the first; each further block is twice as long."""


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
        # What each job would like most if all were free, and whether halving it could then gain.
        rows = np.arange(len(waiting))
        best = self._worth.reshape(len(waiting), worth[:1].size or 1).argmax(axis=1)
        self._liked_type, choice = np.divmod(best, levels.shape[1])
        self._liked_level, of_type = levels[rows, choice], self._worth[rows, self._liked_type]
        self._liked_gpus = np.where(of_type[rows, choice] > 0, cluster.counts[self._liked_level], 0)
        self._may_gain = (choice == 2) & (of_type[:, 0] > of_type[:, 1])
        self._refused, self._some_refused = 0, False
        self._refused_at = np.full((len(cluster.free), len(cluster.counts)), np.nan)

    def enact_all(self) -> None:
        """Launch every job whose launch raises the plan's total value, one after another."""
        while True:
            self._launch_into_room()
            if (found := self.first()) is None:
                return
            place, steps = found
            self._cluster.enact(steps)
            self.remove(place)

    def _launch_into_room(self) -> None:
        """Launch the next jobs at once, as long as what each of them would like most is free.

        No launch that takes GPUs from others is better, unless fewer GPUs can be worth more.
        """
        cluster, length = self._cluster, FIRST_BLOCK
        while self._refused < len(self._jobs) and not self._some_refused:
            start, block = self._refused, slice(self._refused, self._refused + length)
            if self._liked_gpus[start] > cluster.free[self._liked_type[start]] or cluster.halvings_may_gain():
                return
            gpus = self._liked_gpus[block]
            taken = np.zeros((len(gpus), len(cluster.free)), dtype=np.int64)
            taken[np.arange(len(gpus)), self._liked_type[block]] = gpus
            stops = np.any(taken.cumsum(axis=0) > cluster.free, axis=1)
            stops[1:] |= self._may_gain[block][:-1]
            fitting = int(stops.argmax()) if stops.any() else len(stops)
            at = start + np.flatnonzero(gpus[:fitting])
            cluster.launch(self._jobs[at], self._liked_type[at], self._liked_level[at])
            self.remove(at)
            self._refused, length = start + fitting, 2 * length

    @property
    def waiting(self) -> Ints:
        """Positions in the View of the jobs that still wait."""
        return self._jobs[self._waits]

    def first(self) -> tuple[int, list[Scaling]] | None:
        """Return the index of the first job whose launch raises the plan's value, and the changes for it."""
        if self._some_refused:
            gpu_type, level = np.nonzero(~np.isnan(self._refused_at))
            if (self._cluster.losses(gpu_type, level) < self._refused_at[gpu_type, level]).any():
                # A launch, or what it scaled down, made some allotment cheaper than when it was refused: all
                # are considered again from the head, for the order of the queue comes before gain.
                self._refused, self._some_refused, self._refused_at[:] = 0, False, np.nan
        length = 1
        while self._refused < len(self._jobs):
            start = self._refused
            gain = self._gains(slice(start, start + length))
            ready = np.flatnonzero((gain > 0).any(axis=(1, 2)))
            self._refuse(start, int(ready[0]) if len(ready) else len(gain))
            if len(ready):
                return self._refused, self._steps(self._refused, gain[ready[0]])
            length = max(2 * length, FIRST_BLOCK)
        return None

    def _refuse(self, start: int, jobs: int) -> None:
        """Remember that some jobs cannot be launched, and at which losses."""
        self._refused = start + jobs
        if jobs:
            row, gpu_type, choice = np.nonzero(self._worth[start : start + jobs] > 0)
            level = self._level[start + row, choice]
            self._some_refused |= len(row) > 0
            self._refused_at[gpu_type, level] = self._cluster.losses(gpu_type, level)

    def remove(self, place: int | Ints) -> None:
        """Remove the jobs at these indices of the order; the indices of the others stay the same."""
        self._waits[place], self._worth[place], self._liked_gpus[place] = False, -np.inf, 0

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
