"""Fluid fair sharing, computed event by event; the fairness metrics and fair queuing use it.

At every instant M GPUs are divided, without remainder, max-min fairly over the jobs not yet
served in full: job j has min(c_j, lambda) GPUs, its cap c_j at most, where the water level
lambda makes the shares add up to min(M, sum of caps). Jobs of one cap have the same share all
along, so one virtual clock a cap, V_c(t) = integral of min(c, lambda) dt, says what any of them
has received; job j ends when its clock reaches V_c(a_j) + L_j, its arrival's reading plus its
work. With every cap at M this is generalised processor sharing: lambda = M / N(t), one clock.
"""

from __future__ import annotations

import heapq
import math

SLACK = 1e-12
"""Relative tolerance for the rounding of a clock that should have reached a finish."""


class FluidSharing:
    """The jobs in the system under fluid fair sharing; time only moves forward.

    An event costs O(log n + D), with n jobs in the system of D distinct caps.

    Parameters
    ----------
    gpus : float
        GPUs to share.

    Attributes
    ----------
    now_s : float
    """

    def __init__(self, gpus: float) -> None:
        self.gpus, self.now_s = gpus, 0.0
        self._clock: dict[float, float] = {}
        self._active: dict[float, list[tuple[float, int]]] = {}
        self._caps: list[float] = []

    def __len__(self) -> int:
        return sum(len(jobs) for jobs in self._active.values())

    def arrive(self, job: int, work_gpu_s: float, cap: float = math.inf) -> float:
        """Add a job now; return its virtual finish V_c + work in GPU-seconds on its cap's clock."""
        cap = min(cap, self.gpus)
        if cap not in self._clock:
            self._clock[cap], self._active[cap] = 0.0, []
            self._caps = sorted(self._clock)
        finish = self._clock[cap] + work_gpu_s
        heapq.heappush(self._active[cap], (finish, job))
        return finish

    def advance(self, until_s: float) -> list[tuple[int, float]]:
        """Advance to a time (inf: until no job is left); return (job, finish time) of the jobs that ended."""
        ended: list[tuple[int, float]] = []
        while True:
            level = self._level()
            step_s, cap = self._next_finish(level)
            if cap is None or self.now_s + step_s > until_s:
                break
            self._pass(step_s, level)
            self._clock[cap] = max(self._clock[cap], self._active[cap][0][0])
            self._end(ended)
        if math.isfinite(until_s):
            self._pass(until_s - self.now_s, level)
            self.now_s = until_s
        return ended

    def _level(self) -> float:
        """Return the water level, GPUs per job; inf if every job has its cap."""
        left, jobs = self.gpus, len(self)
        for cap in self._caps:
            count = len(self._active[cap])
            if cap * jobs >= left:
                return left / jobs if jobs else math.inf
            left -= cap * count
            jobs -= count
        return math.inf

    def _next_finish(self, level: float) -> tuple[float, float | None]:
        best_s, best = math.inf, None
        for cap, jobs in self._active.items():
            if jobs:
                step_s = max(jobs[0][0] - self._clock[cap], 0.0) / min(cap, level)
                if step_s < best_s:
                    best_s, best = step_s, cap
        return best_s, best

    def _pass(self, step_s: float, level: float) -> None:
        self.now_s += step_s
        for cap, jobs in self._active.items():
            if jobs:
                self._clock[cap] += step_s * min(cap, level)

    def _end(self, ended: list[tuple[int, float]]) -> None:
        for cap, jobs in self._active.items():
            reached = self._clock[cap] * (1 + SLACK)
            while jobs and jobs[0][0] <= reached:
                ended.append((heapq.heappop(jobs)[1], self.now_s))
