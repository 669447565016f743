"""Failures of jobs by themselves, early in their lives: errors of their users or their code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clustergym.common import random_streams
from clustergym.common.parameter_types import Duration, FractionBelowOne, PositiveInt, Seed
from clustergym.common.parameters import Parameters
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbance import ActiveDisturbance, Disturbance, DisturbedRun

CAUSE = "job"


@dataclass(frozen=True)
class JobFailures(Parameters, Disturbance):
    """Failures of jobs by themselves, such as bugs, after which the jobs are tried again.

    Whether and when depends on the job and the seed, not on the policy.

    Attributes
    ----------
    share : float
        Share of jobs that fail; of those, the same share fails again, and so on.
    after_s : float
        Mean seconds from a job's first launch, or from its failure before, to its failure, exponentially
        distributed. A job that does not run then fails when it next begins to work.
    most : int
        Most failures of a job.
    seed : int or None
        Seed of the draw; null: the run's seed.
    """

    config_key: ClassVar[str] = "scenario.job_failures"
    key = "job_failures"
    switch = "share"

    share: FractionBelowOne = 0.0
    after_s: Duration = 300.0
    most: PositiveInt = 3
    seed: Seed | None = None

    def start(self, run: DisturbedRun) -> ActiveDisturbance:
        """Start to watch the launches of a run's jobs, some of which are to fail."""
        return PendingJobFailures(self, run)

    def delays_s(self, row: int) -> list[float]:
        """Return the seconds from one random failure of a job to the next, at first from its first launch."""
        # A stream for each job, so that a job's failures do not depend on what a policy does with others.
        rng = random_streams.JOB_FAILURES.generator(self.seed or 0, row)
        # All draws are made, whatever the luck: a larger share adds failures and moves none.
        draws = [(rng.random(), float(rng.exponential(self.after_s))) for _ in range(self.most)]
        fails = next((at for at, (luck, _) in enumerate(draws) if luck >= self.share), self.most)
        return [delay_s for _, delay_s in draws[:fails]]


class PendingJobFailures(ActiveDisturbance):
    """The failures of a run's jobs that are still to happen."""

    def __init__(self, plan: JobFailures, run: DisturbedRun) -> None:
        self._plan, self._run = plan, run
        self._left: dict[int, list[float]] = {}
        self._pending: set[int] = set()

    def note_launch(self, row: int) -> None:
        """Plan a job's failures at its first launch; let it fail at a later one if a failure is due."""
        # A failure that came due while the job waited comes before the next one is planned.
        if row in self._pending:
            self._pending.remove(row)
            self._run.follow(self._fail(row, self._run.now))
        elif row not in self._left:
            self._left[row] = self._plan.delays_s(row)
            self._plan_next(row)

    def _plan_next(self, row: int) -> None:
        if self._left[row]:
            self._run.follow(self._fail(row, self._run.now + ticks(self._left[row].pop(0))))

    def _fail(self, row: int, tick: int) -> Iterator[int]:
        yield tick
        begins = self._run.find_work_tick(row)
        if begins is not None and begins > self._run.now:
            yield begins
            begins = self._run.find_work_tick(row)
        if begins is None or begins > self._run.now:
            # It waits, or stands still once more: it fails when it next begins to work.
            self._pending.add(row)
            return
        self._run.interrupt(row, "job failed", CAUSE)
        self._plan_next(row)
