"""Morphling: a policy that gives GPUs to jobs by the slope of their throughput curves."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import Decision, InformationClass, Setting, View

from .shared.requests import find_held_level, get_requested_time_s
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
    _curves: dict[bytes, Curve] = field(default_factory=dict, init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget the curves of the last run."""
        super().reset(setting, rng)
        self._curves = {}

    def schedule(self, view: View) -> Decision:
        """Place and resize jobs in order of their slopes, then let the steepest grow on what is left."""
        if not len(view):
            return Decision.keep(view)
        curves = Curves(view, self.find_curves(view), self.find_guarded(view), self.guard)
        sign = 1.0 if self.rules == "program" else -1.0
        slopes = sign * np.array([curves.find_slope(at) for at in range(len(view))])
        order = np.lexsort((view.submit_s, slopes, view.priority <= 0)).tolist()
        shrinks = self.rules == "paper"
        if not shrinks:
            curves.suspend_large()
        for at in order:
            # Of a long queue most find neither free GPUs nor jobs that may shrink.
            if curves.gpu_type[at] >= 0 or any(curves.free) or (shrinks and any(curves.losers)):
                placed = curves.place_large(at) if curves.of[at].large else curves.place(at)
                if not placed and shrinks:
                    curves.shrink_others(at)
        curves.grow()
        # Large jobs grow last, by the slope that they have now, on what the others leave.
        large = [at for at, curve in enumerate(curves.of) if curve.large and curves.gpu_type[at] >= 0]
        for at in sorted(large, key=lambda row: sign * curves.find_slope(row)):
            curves.grow_large(at)
        return curves.decision()

    def find_curves(self, view: View) -> list[Curve]:
        """Return each job's curve, made once for all jobs of the same times and request."""
        time_s = np.where(view.feasible, view.iteration_time_s(), -1.0)
        asked = view.requested_type[:, None], view.requested_gpus[:, None], view.priority[:, None] > 0
        table = np.concatenate([time_s.reshape(len(view), -1), *asked], axis=1)
        raw, width = table.tobytes(), table.strides[0]
        keys = [raw[start : start + width] for start in range(0, len(raw), width)]
        new = {key: at for at, key in enumerate(keys) if key not in self._curves}
        request_s = get_requested_time_s(view) if new else np.empty(0)
        for key, at in new.items():
            guaranteed = bool(view.priority[at] > 0)
            self._curves[key] = Curve(time_s[at], float(request_s[at]), guaranteed, view.setting)
        return [self._curves[key] for key in keys]


class Curve:
    """The throughput of jobs that are alike over the GPU count, in lists, whose single numbers are read fast.

    Parameters
    ----------
    time_s : ndarray of float, shape (T, K)
        Seconds per iteration; negative where infeasible, inf where unknown.
    request_s : float
        Seconds per iteration at the request.
    guaranteed : bool
    setting : Setting

    Attributes
    ----------
    large : bool
        Whether one GPU of no type holds the model: only then is a job parallel over nodes, as in the program.
    most : list of int, length T
        The most GPUs that a job may hold: those of a node, or of all nodes if large.
    speed : list of list of float, shape (T, K)
        Iterations per second; 0 where infeasible or unknown.
    plateau : list of list of int, shape (T, K)
        Index of the smallest count that is as fast as any up to each one; -1: none runs.
    enough : list of list of bool, shape (T, K)
        Whether the job may hold the count and runs, and a guaranteed one about as fast as at its request.
    slopes : list of list of float, shape (T + 1, K + 1)
        What one more GPU adds to the throughput, relative to the request, by the type and count held; index
        -1 and 0: none.
    """

    def __init__(self, time_s: Floats, request_s: float, guaranteed: bool, setting: Setting) -> None:
        self.large = not bool((time_s[:, setting.counts == 1] >= 0).any())
        most = setting.capacity if self.large else setting.gpus_per_node
        counts, reference = setting.counts, 1.0 / request_s
        speed = np.divide(1.0, time_s, out=np.zeros_like(time_s), where=time_s > 0)
        as_asked = TOLERANCE * speed >= (reference if guaranteed else 0.0)
        self.most: list[int] = most.tolist()
        self.speed: list[list[float]] = speed.tolist()
        self.plateau = [find_plateaus(row) for row in self.speed]
        self.enough: list[list[bool]] = (as_asked & (speed > 0) & (counts <= most[:, None])).tolist()
        held = zip([*self.speed, speed.max(axis=0).tolist()], [*self.most, counts[-1]], strict=True)
        self.slopes = [find_slopes(counts.tolist(), row, most_gpus, reference) for row, most_gpus in held]


def find_plateaus(speed: list[float]) -> list[int]:
    """Return the index of the smallest count that is as fast as any up to each one; -1: none runs."""
    best, plateau, plateaus = 0.0, -1, []
    for level, one in enumerate(speed):
        if one > PLATEAU * best:
            best, plateau = one, level
        plateaus.append(plateau)
    return plateaus


def find_slopes(counts: list[int], speed: list[float], most: int, reference: float) -> list[float]:
    """Return what one more GPU adds where a job holds none and at each count, relative to its request."""
    slopes = []
    for held, now in zip([0, *counts], [0.0, *speed], strict=True):
        larger = (one for one in zip(counts, speed, strict=True) if held < one[0] <= most and one[1] > 0)
        gpus, faster = next(larger, (0, now))
        slopes.append(abs(faster - now) / (gpus - held) / reference if gpus else 0.0)
    return slopes


class Curves:
    """The GPUs that each job will hold, with the throughput curves that decide it.

    Parameters
    ----------
    view : View
    curves : list of Curve, length n
    kept : ndarray of bool, shape (n,)
        Running jobs that keep their GPUs.
    guard : bool
        Whether growth has to repay its restart.

    Attributes
    ----------
    gpu_type, level : list of int, length n
        Index of the GPU type and of the count; -1: none.
    free : list of int, length T
    fixed : list of bool, length n
        Whether a job neither shrinks nor has others shrink for it: kept, large, or restarted too often.
    losers : list of list of (float, int), length T
        Slopes and positions of the jobs of each type that may shrink, least slopes first.
    """

    def __init__(self, view: View, curves: list[Curve], kept: Bools, guard: bool) -> None:
        self.view, self.of, self.guard = view, curves, guard
        self.counts: list[int] = view.setting.counts.tolist()
        self.gpu_type: list[int] = view.gpu_type.tolist()
        self.level: list[int] = find_held_level(view).tolist()
        self.free: list[int] = view.free.tolist()
        self.kept: list[bool] = kept.tolist()
        self.old: list[bool] = (view.now_s - view.submit_s > OLD_S).tolist()
        often = (kept | (view.restarts >= SHRINKS)).tolist()
        self.fixed: list[bool] = [one or curve.large for one, curve in zip(often, curves, strict=True)]
        self.losers: list[list[tuple[float, int]]] = [[] for _ in self.free]
        for slope, at in sorted((self.find_slope(at), at) for at in range(len(view)) if self.may_shrink(at)):
            self.losers[self.gpu_type[at]].append((slope, at))

    def find_slope(self, at: int) -> float:
        """Return the slope of a job at the GPUs that it holds now; of a very old one infinity."""
        return np.inf if self.old[at] else self.of[at].slopes[self.gpu_type[at]][self.level[at] + 1]

    def find_level(self, at: int, gpu_type: int) -> int:
        """Return the plateau on the GPUs of a type that are free or the job's own, as a level; -1: none."""
        curve = self.of[at]
        own = self.counts[self.level[at]] if self.gpu_type[at] == gpu_type else 0
        below = bisect_right(self.counts, min(self.free[gpu_type] + own, curve.most[gpu_type])) - 1
        return curve.plateau[gpu_type][below] if below >= 0 else -1

    def may_shrink(self, at: int) -> bool:
        """Return whether a job may hold the next smaller count for the sake of another job."""
        lower = self.level[at] - 1
        return lower >= 0 and not self.fixed[at] and self.of[at].enough[self.gpu_type[at]][lower]

    def give(self, at: int, gpu_type: int, level: int) -> None:
        """Give the job at position `at` of the View a GPU type (-1: none) and a GPU count, by its index."""
        if self.may_shrink(at):
            self.losers[self.gpu_type[at]].remove((self.find_slope(at), at))
        if self.gpu_type[at] >= 0:
            self.free[self.gpu_type[at]] += self.counts[self.level[at]]
        self.gpu_type[at], self.level[at] = gpu_type, level
        if gpu_type >= 0:
            self.free[gpu_type] -= self.counts[level]
        if self.may_shrink(at):
            insort(self.losers[gpu_type], (self.find_slope(at), at))

    def place(self, at: int) -> bool:
        """Give a job that lies in one node the plateau of its type; return whether it has what it needs."""
        if self.kept[at]:
            return True
        held, curve = self.gpu_type[at], self.of[at]
        types = [held] if held >= 0 else [t for t, free in enumerate(self.free) if free > 0]
        found = [(t, level) for t in types if (level := self.find_level(at, t)) >= 0]
        if not found:
            return False
        gpu_type, level = max(found, key=lambda one: (curve.speed[one[0]][one[1]], self.free[one[0]]))
        if not curve.enough[gpu_type][level]:
            return False
        self.change(at, gpu_type, level)
        return True

    def change(self, at: int, gpu_type: int, level: int) -> None:
        """Give a job other GPUs, unless the guard finds that its restart would not be repaid."""
        held, now = int(self.view.gpu_type[at]), self.level[at]
        if (gpu_type, level) == (self.gpu_type[at], now):
            return
        if self.guard and held >= 0 and now >= 0:
            work, speed = self.view.remaining_iterations[at], self.of[at].speed
            saved_s = work / speed[held][now] - work / speed[gpu_type][level]
            if not saved_s > self.view.restart_cost_s()[at, gpu_type, level]:
                return
        self.give(at, gpu_type, level)

    def place_large(self, at: int) -> bool:
        """Give a waiting large job the fastest count that fits the free GPUs; return whether it has any."""
        if self.gpu_type[at] >= 0:
            return True
        curve = self.of[at]
        fits = [
            (speed, -t, -level)
            for t, free in enumerate(self.free)
            for level, speed in enumerate(curve.speed[t][: bisect_right(self.counts, free)])
        ]
        speed, gpu_type, level = max(fits, default=(0.0, 0, 0))
        if not speed > 0:
            return False
        self.give(at, -gpu_type, curve.plateau[-gpu_type][-level])
        return True

    def suspend_large(self) -> None:
        """Take the GPUs of wide large jobs, and of all while guaranteed jobs crowd the cluster."""
        crowded = np.count_nonzero(self.view.priority > 0) > CROWD
        wide = (self.view.gpus >= LARGE_GPUS) & (self.view.restarts < SUSPENSIONS)
        suspended = self.view.gpus > 0 if crowded else wide
        for at in np.flatnonzero(suspended).tolist():
            if self.of[at].large and not self.kept[at]:
                self.give(at, -1, -1)

    def shrink_others(self, at: int) -> None:
        """Shrink jobs of no greater slope until a job has its least count of some type, if that is enough."""
        if self.fixed[at]:
            return
        slope, held = self.find_slope(at), self.gpu_type[at]
        for gpu_type in [held] if held >= 0 else range(len(self.free)):
            enough = self.of[at].enough[gpu_type]
            if True not in enough:
                continue
            level = enough.index(True)
            own = self.counts[self.level[at]] if held == gpu_type else 0
            steps = self._find_shrinks(at, gpu_type, slope, self.counts[level] - own)
            if steps is not None:
                for loser, lower in steps.items():
                    self.give(loser, gpu_type, lower)
                self.give(at, gpu_type, level)
                return

    def _find_shrinks(self, at: int, gpu_type: int, slope: float, gpus: int) -> dict[int, int] | None:
        """Return levels of jobs of a type that free so many GPUs, least slopes first; None: they cannot."""
        missing, steps = gpus - self.free[gpu_type], dict[int, int]()
        for loser_slope, loser in self.losers[gpu_type]:
            if missing <= 0 or loser_slope > slope:
                break
            level, enough = self.level[loser], self.of[loser].enough[gpu_type]
            while loser != at and missing > 0 and level > 0 and enough[level - 1]:
                level, missing = level - 1, missing - (self.counts[level] - self.counts[level - 1])
                steps[loser] = level
        return steps if missing <= 0 else None

    def grow(self) -> None:
        """Let the steepest job of each type take its free GPUs up to its plateau, again and again."""
        for gpu_type in [t for t, free in enumerate(self.free) if free > 0]:
            # A job that does not grow now does not grow on fewer GPUs either.
            on_type = [at for at, one in enumerate(self.gpu_type) if one == gpu_type]
            larger = [at for at in on_type if not self.of[at].large and not self.kept[at]]
            larger.sort(key=self.find_slope, reverse=True)
            while self.free[gpu_type] > 0:
                larger = [at for at in larger if self.find_level(at, gpu_type) > self.level[at]]
                before = self.free[gpu_type]
                for at in larger:
                    self.change(at, gpu_type, self.find_level(at, gpu_type))
                    if self.free[gpu_type] < before:
                        break
                else:
                    break

    def grow_large(self, at: int) -> None:
        """Let a large job that runs take the fastest larger count that fits."""
        level = self.find_level(at, self.gpu_type[at])
        if not self.kept[at] and level > self.level[at]:
            self.change(at, self.gpu_type[at], level)

    def decision(self) -> Decision:
        """Build the Decision that gives the jobs these GPU types and counts."""
        gpu_type, level = np.array(self.gpu_type), np.array(self.level)
        held = np.flatnonzero(gpu_type >= 0)
        return Decision(self.view.job[held], gpu_type[held], self.view.setting.counts[level[held]])
