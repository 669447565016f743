"""Morphling: a policy that gives GPUs to jobs by the slope of their throughput curves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Decision, InformationClass, View

from .shared.requests import Allotments, get_requested_time_s
from .shared.restart_guard import GuardedPolicy

PLATEAU = 1.01
"""A larger count that is not faster by more than this is not worth its GPUs (the program's constant)."""
TOLERANCE = 1.5
"""A guaranteed job may run slower than its request by this factor (the program's constant)."""
OLD_S = 200_000.0
SHRINKS, SUSPENSIONS, CROWD, LARGE_GPUS = 5, 7, 12, 32
"""Restarts below which a job may shrink, and a large one be suspended; guaranteed jobs that make a crowd."""


@dataclass
class Morphling(GuardedPolicy):
    """The policy Morphling (MLSys '25; its preprint is Rubick), which chooses GPUs by throughput curves.

    A job's curve is its throughput, at its best plan, over the GPU count; a count is on a plateau where a
    smaller one is as fast within 1 %. The slope at a count is what one more GPU adds, relative to the
    throughput at the request. Each round jobs are placed, or resized, in order of their slopes, guaranteed
    ones first: each takes all free GPUs up to its plateau; then the steepest jobs grow on what is left. A job
    lies in one node, unless its model does not fit one GPU; such a large job takes the fastest count that has
    room, wherever that is.

    The paper's text was not in reach: the rules are those of its published program
    (AlibabaPAI/reconfigurable-dl-scheduler), which departs from what the paper is known to say. There the
    least slope comes first, the search that shrinks one job for another never runs, and large jobs are
    suspended each round until they have restarted often.

    Differences from the program: counts grow to the next allowed one, not by one GPU; jobs are compared over
    a whole GPU type, as the placer chooses the nodes; where there are several types a job is placed on the
    one where it is fastest, and stays there; a running large job only grows, where the program moves it to
    the first shape of its table that fits what is free; a curve is the oracle's estimate in place of the
    program's fitted model and its fixed table of large models. Jobs of positive priority are guaranteed.

    Parameters
    ----------
    rules : str
        `program`: those of the published program. `paper`: as meant: the steepest first; where a job finds no
        GPUs (or a guaranteed one too few) others of no greater slope shrink for it, none below its smallest
        count, nor a guaranteed one below its request's throughput by more than the tolerance; nobody is
        suspended.
    guard : bool
        Whether changes of running jobs have to repay their restarts (`GuardedPolicy`).
    round_s : float or None
        Seconds between decision points.
    """

    name: ClassVar[str] = "morphling"
    information_class: ClassVar[InformationClass] = InformationClass.PROFILED
    rules: Literal["paper", "program"] = "paper"
    round_s: Period | None = 60.0

    def schedule(self, view: View) -> Decision:
        """Place and resize jobs in order of their slopes, then let the steepest grow on what is left."""
        if not len(view):
            return Decision.keep(view)
        curves = Curves(view, self.find_guarded(view), self.guard)
        sign = 1.0 if self.rules == "program" else -1.0
        order = np.lexsort((view.submit_s, sign * curves.find_slopes(), ~curves.guaranteed)).tolist()
        if self.rules == "program":
            curves.suspend_large()
        for at in order:
            placed = curves.place_large(at) if curves.large[at] else curves.place(at)
            if not placed and self.rules == "paper":
                curves.shrink_others(at)
        curves.grow()
        # Large jobs grow last, by the slope that they have now, on what the others leave.
        slopes = sign * curves.find_slopes()
        for at in sorted(np.flatnonzero(curves.large).tolist(), key=lambda row: float(slopes[row])):
            curves.grow_large(at)
        return curves.decision()


class Curves(Allotments):
    """The GPUs that each job will hold, with the throughput curves that decide it.

    Parameters
    ----------
    view : View
    kept : ndarray of bool, shape (n,)
        Running jobs that keep their GPUs.
    guard : bool
        Whether growth has to repay its restart.

    Attributes
    ----------
    speed : ndarray of float, shape (n, T, K)
        Iterations per second; 0 where infeasible or unknown.
    plateau : ndarray of int, shape (n, T, K)
        Index of the smallest count that is as fast as any up to each one.
    reference : ndarray of float, shape (n,)
        Iterations per second at the request.
    guaranteed, large : ndarray of bool, shape (n,)
    """

    def __init__(self, view: View, kept: Bools, guard: bool) -> None:
        super().__init__(view)
        self.kept, self.guard = kept, guard
        self.speed = np.where(view.feasible, 1.0 / view.iteration_time_s(), 0.0)
        self.reference = 1.0 / get_requested_time_s(view)
        self.guaranteed: Bools = view.priority > 0
        # Only a model that one GPU of no type holds is parallel over nodes, as the program's large ones are.
        self.large: Bools = ~np.asarray(view.feasible[:, :, self.counts == 1].any(axis=(1, 2)))
        best = self.speed[:, :, 0].copy()
        self.plateau = np.zeros(self.speed.shape, dtype=np.int64)
        for level in range(1, len(self.counts)):
            faster = self.speed[:, :, level] > PLATEAU * best
            best = np.where(faster, self.speed[:, :, level], best)
            self.plateau[:, :, level] = np.where(faster, level, self.plateau[:, :, level - 1])

    def find_slopes(self) -> Floats:
        """Return what one more GPU adds to each job's throughput, relative to its request, shape (n,)."""
        slopes = [self.find_slope(at) for at in range(len(self.view))]
        return np.array(slopes, dtype=np.float64)

    def find_slope(self, at: int) -> float:
        """Return the slope of a job at the GPUs that it holds now; of a very old one infinity."""
        if self.view.now_s - self.view.submit_s[at] > OLD_S:
            return np.inf
        held = int(self.gpu_type[at])
        curve = self.speed[at, held] if held >= 0 else self.speed[at].max(axis=0)
        gpus, speed = (int(self.counts[self.level[at]]), curve[self.level[at]]) if held >= 0 else (0, 0.0)
        most = self.find_most(at, held) if held >= 0 else int(self.counts[-1])
        larger = np.flatnonzero((self.counts > gpus) & (self.counts <= most) & (curve > 0))
        if not len(larger):
            return 0.0
        gain = abs(curve[larger[0]] - speed) / (self.counts[larger[0]] - gpus)
        return float(gain / self.reference[at]) if np.isfinite(self.reference[at]) else 0.0

    def find_most(self, at: int, gpu_type: int) -> int:
        """Return the most GPUs of a type that a job may hold: those of a node, or of all nodes if large."""
        setting = self.view.setting
        return int((setting.capacity if self.large[at] else setting.gpus_per_node)[gpu_type])

    def find_level(self, at: int, gpu_type: int) -> int:
        """Return the plateau on the GPUs of a type that are free or the job's own, as a level; -1: none."""
        own = int(self.counts[self.level[at]]) if self.gpu_type[at] == gpu_type else 0
        room = min(int(self.free[gpu_type]) + own, self.find_most(at, gpu_type))
        below = int(np.searchsorted(self.counts, room, side="right")) - 1
        level = int(self.plateau[at, gpu_type, below]) if below >= 0 else -1
        return level if level >= 0 and self.speed[at, gpu_type, level] > 0 else -1

    def place(self, at: int) -> bool:
        """Give a job that lies in one node the plateau of its type; return whether it has what it needs."""
        if self.kept[at]:
            return True
        held = int(self.gpu_type[at])
        types = [held] if held >= 0 else np.flatnonzero(self.free > 0).tolist()
        found = [(t, level) for t in types if (level := self.find_level(at, t)) >= 0]
        if not found:
            return False
        gpu_type, level = max(found, key=lambda one: (self.speed[at, *one], self.free[one[0]]))
        if not self.is_enough(at, gpu_type, level):
            return False
        self.change(at, gpu_type, level)
        return True

    def is_enough(self, at: int, gpu_type: int, level: int) -> bool:
        """Return whether an allotment gives a guaranteed job about the throughput of its request."""
        speed = TOLERANCE * self.speed[at, gpu_type, level]
        return bool(not self.guaranteed[at] or speed >= self.reference[at])

    def change(self, at: int, gpu_type: int, level: int) -> None:
        """Give a job other GPUs, unless the guard finds that its restart would not be repaid."""
        held = int(self.view.gpu_type[at])
        if self.guard and held >= 0 and self.level[at] >= 0:
            work = self.view.remaining_iterations[at]
            saved_s = work / self.speed[at, held, self.level[at]] - work / self.speed[at, gpu_type, level]
            if not saved_s > self.cost_s[at, gpu_type, level]:
                return
        self.give(at, gpu_type, level)

    def place_large(self, at: int) -> bool:
        """Give a waiting large job the fastest count that fits the free GPUs; return whether it has any."""
        if self.gpu_type[at] >= 0:
            return True
        levels = np.where(self.counts <= self.free[:, None], self.speed[at], 0.0)
        gpu_type, level = np.unravel_index(int(np.argmax(levels)), levels.shape)
        if not levels[gpu_type, level] > 0:
            return False
        self.give(at, int(gpu_type), int(self.plateau[at, gpu_type, level]))
        return True

    def suspend_large(self) -> None:
        """Take the GPUs of wide large jobs, and of all while guaranteed jobs crowd the cluster."""
        crowded = np.count_nonzero(self.guaranteed) > CROWD
        wide = self.large & (self.view.gpus >= LARGE_GPUS) & (self.view.restarts < SUSPENSIONS)
        suspended = self.large & (self.view.gpus > 0) if crowded else wide
        for at in np.flatnonzero(suspended & ~self.kept).tolist():
            self.give(at, -1, -1)

    def shrink_others(self, at: int) -> None:
        """Shrink jobs of no greater slope until a job has its least count of some type, if that is enough."""
        if self.large[at] or self.view.restarts[at] >= SHRINKS:
            return
        slope = self.find_slope(at)
        types = [int(self.gpu_type[at])] if self.gpu_type[at] >= 0 else range(len(self.free))
        for gpu_type in types:
            usable = np.flatnonzero(self.speed[at, gpu_type] > 0).tolist()
            enough = [level for level in usable if self.is_enough(at, gpu_type, level)]
            if not enough or self.counts[enough[0]] > self.find_most(at, gpu_type):
                continue
            own = int(self.counts[self.level[at]]) if self.gpu_type[at] == gpu_type else 0
            steps = self._find_shrinks(at, gpu_type, slope, int(self.counts[enough[0]]) - own)
            if steps is not None:
                for loser, level in steps.items():
                    self.give(loser, gpu_type, level)
                self.give(at, gpu_type, enough[0])
                return

    def _find_shrinks(self, at: int, gpu_type: int, slope: float, gpus: int) -> dict[int, int] | None:
        """Return levels of jobs of a type that free so many GPUs, least slopes first; None: they cannot."""
        missing, steps = gpus - int(self.free[gpu_type]), dict[int, int]()
        may = (self.gpu_type == gpu_type) & ~self.large & ~self.kept & (self.view.restarts < SHRINKS)
        may[at] = False
        losers = [(self.find_slope(loser), loser) for loser in np.flatnonzero(may).tolist()]
        for loser_slope, loser in sorted(losers):
            if missing <= 0 or loser_slope > slope:
                break
            level = int(self.level[loser])
            for lower in range(level - 1, -1, -1):
                if missing <= 0 or not self.speed[loser, gpu_type, lower] > 0:
                    break
                if not self.is_enough(loser, gpu_type, lower):
                    break
                missing -= int(self.counts[steps.get(loser, level)] - self.counts[lower])
                steps[loser] = lower
        return steps if missing <= 0 else None

    def grow(self) -> None:
        """Let the steepest job of each type take its free GPUs up to its plateau, again and again."""
        for gpu_type in range(len(self.free)):
            while self.free[gpu_type] > 0:
                on_type = np.flatnonzero((self.gpu_type == gpu_type) & ~self.large & ~self.kept).tolist()
                larger = [at for at in on_type if self.find_level(at, gpu_type) > self.level[at]]
                before = int(self.free[gpu_type])
                for at in sorted(larger, key=self.find_slope, reverse=True):
                    self.change(at, gpu_type, self.find_level(at, gpu_type))
                    if self.free[gpu_type] < before:
                        break
                else:
                    break

    def grow_large(self, at: int) -> None:
        """Let a large job that runs take the fastest larger count that fits."""
        gpu_type = int(self.gpu_type[at])
        if gpu_type >= 0 and not self.kept[at]:
            level = self.find_level(at, gpu_type)
            if level > self.level[at]:
                self.change(at, gpu_type, level)
