"""Draw run times of jobs from the past jobs of their users in a log."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.trace.readers.sacct import SlurmJob
from clustergym.trace.trace import Trace

PRIOR_RUNS = 5.0
"""Runs of one's own beside which those of more jobs count as much."""
MOST_RUNS = 2000
"""Past runs that count of a pool: the last ones."""
LEAST_LEFT_S = 60.0
"""What is left of a job that has run for longer than any before it."""


class Pool(NamedTuple):
    """Run times of similar past jobs in ascending order, and the positions of those jobs among all."""

    values: Floats
    rows: Ints


class PastRuns:
    """Run times of past jobs, from which the run times of present jobs are estimated.

    Parameters
    ----------
    trace : Trace
        A log whose jobs do an iteration a second; only jobs that had ended by `until_s` count.
    until_s : float
    """

    def __init__(self, trace: Trace, until_s: float = np.inf) -> None:
        run_s = trace.work_iterations.astype(np.float64)
        begun = trace.submit_s if trace.start_s is None else trace.start_s
        ended = begun + run_s <= until_s
        self._run_s, self._users = run_s[ended], np.array(trace.user, dtype=object)[ended]
        limits = np.full(len(trace), np.nan) if trace.time_limit_s is None else trace.time_limit_s
        self._limits = limits[ended]
        self._pools: dict[tuple[str, float | None], list[Pool]] = {}

    def __len__(self) -> int:
        return len(self._run_s)

    def draw(self, generator: np.random.Generator) -> DrawnRunTimes:
        """Sample random distributions of run times that are consistent with the past runs."""
        return DrawnRunTimes(self, generator)

    def find_limit(self, job: SlurmJob) -> float | None:
        """Return a job's time limit, s; None if run times are not estimated relative to time limits."""
        return job.limit_s if job.limit_s > 0 and bool(np.isfinite(self._limits).any()) else None

    def pools(self, user: str, limit_s: float | None) -> list[Pool]:
        """Return groups of past runs, from those most similar to a job of this user and limit to all runs.

        They are the user's with a limit that is neither twice nor half as long, all of the user's, all with
        such limits, all; without limits the user's and all.
        """
        if (user, limit_s) not in self._pools:
            mine = self._users == user
            if limit_s is None:
                pools, values = [mine, np.ones_like(mine)], self._run_s
            else:
                known = np.isfinite(self._limits)
                near = known & (self._limits < 2 * limit_s) & (self._limits > limit_s / 2)
                pools, values = [mine & near, mine & known, near, known], self._run_s / self._limits
            self._pools[user, limit_s] = [
                _sort(values, np.flatnonzero(alike)[-MOST_RUNS:]) for alike in pools
            ]
        return self._pools[user, limit_s]


def _sort(values: Floats, rows: Ints) -> Pool:
    rows = rows[np.lexsort((rows, values[rows]))]
    return Pool(values[rows], rows)


class DrawnRunTimes:
    """A sampler of jobs' run times from past runs, each of which has a random weight.

    Of n past runs each has a weight drawn as in the Bayesian bootstrap (Rubin, The Annals of Statistics
    1981), the same for all jobs: what is not known of a user's run times is common to all of his jobs. The
    next larger pool has a weight of about `PRIOR_RUNS` runs (the posterior of a Dirichlet process whose base
    is that pool; Ferguson, The Annals of Statistics 1973), so that few runs of one's own count little.
    """

    def __init__(self, past: PastRuns, generator: np.random.Generator) -> None:
        self._past, self._generator = past, generator
        self._weights = generator.exponential(size=len(past))
        self._drawn: dict[tuple[str, float | None], list[tuple[Floats, float]]] = {}

    def run_s(self, job: SlurmJob, elapsed_s: float) -> float:
        """Sample the total run time in seconds of a job that has already run for `elapsed_s` seconds.

        Where none was longer, what is left is `LEAST_LEFT_S`.
        """
        limit_s = self._past.find_limit(job)
        unit, pools = limit_s or 1.0, self._past.pools(job.user, limit_s)
        # From all runs to those most like the job's: what share of a pool and its base is longer.
        longer, owns, rests = 0.0, list[float](), list[float]()
        firsts = [int(np.searchsorted(pool.values, elapsed_s / unit, side="right")) for pool in pools]
        weights = self._weigh(job.user, limit_s)
        for first, (sums, base) in zip(reversed(firsts), reversed(weights), strict=True):
            owns.append(float(sums[-1] - sums[first]))
            rests.append(base * longer)
            total = float(sums[-1]) + base
            longer = (owns[-1] + rests[-1]) / total if total else 0.0
        for pool, first, (sums, _), own, rest in zip(
            pools, firsts, weights, reversed(owns), reversed(rests), strict=True
        ):
            at = self._generator.random() * (own + rest)
            if at < own:
                row = int(np.searchsorted(sums, sums[first] + at, side="right")) - 1
                return float(pool.values[min(max(row, first), len(pool.values) - 1)] * unit)
        return elapsed_s + LEAST_LEFT_S

    def _weigh(self, user: str, limit_s: float | None) -> list[tuple[Floats, float]]:
        """Return, for each pool, the sums of its runs' weights, shape (runs + 1,), and its base's weight."""
        if (user, limit_s) not in self._drawn:
            pools = self._past.pools(user, limit_s)
            bases = [float(self._generator.gamma(PRIOR_RUNS)) for _ in pools[1:]] + [0.0]
            sums = [np.append(0.0, np.cumsum(self._weights[pool.rows])) for pool in pools]
            self._drawn[user, limit_s] = list(zip(sums, bases, strict=True))
        return self._drawn[user, limit_s]
