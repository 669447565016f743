"""RandomLegal: a policy that draws legal decisions at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.parameter_types import Period, PositiveFraction
from clustergym.scenario.policy import Decision, InformationClass, Policy, Setting, View


@dataclass
class RandomLegal(Policy):
    """A policy of random legal decisions, a baseline that any other policy should surpass.

    The jobs take turns in a random order. Each draws uniformly from what is still legal for it: every (type,
    count) with memory and room, and no GPUs at all. A running job is redrawn only with probability `redraw`,
    and not before its restart is over. All randomness is the policy's own stream of the run's seed.

    No job starves. At every decision any job can come first in the order, and then draws each of its
    allotments with positive probability, whatever the others do. Only running jobs that were not redrawn can
    be in the way, and each of them is redrawn with positive probability. A launched job works before it is
    redrawn, so jobs make progress. If no job would run at all, the first in the order that can run is
    launched, so that a run always goes on.

    Parameters
    ----------
    redraw : float
        Probability that a running job's allotment is drawn anew, above 0, up to 1.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "random"
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    redraw: PositiveFraction = 0.1
    round_s: Period | None = 300.0

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Store the new run's random generator."""
        self._rng = rng

    def schedule(self, view: View) -> Decision:
        """Choose random GPUs for each waiting job, and for running jobs that are chosen at random."""
        order = self._rng.permutation(len(view))
        redrawn = self._rng.random(len(view)) < self.redraw
        # A job that still restarts is left alone, so every launch does some work.
        alone = (view.gpus > 0) & (~redrawn | (view.standstill_s > 0))
        free, counts = view.available.copy(), view.setting.counts
        held = np.flatnonzero(alone)
        chosen = [(int(view.job[at]), int(view.gpu_type[at]), int(view.gpus[at])) for at in held]
        np.subtract.at(free, view.gpu_type[held], view.gpus[held])
        for at in order[~alone[order]].tolist():
            options = np.argwhere(view.feasible[at] & (counts <= free[:, None]))
            # One more than there are options: the last draw is no GPUs at all.
            draw = int(self._rng.integers(len(options) + 1))
            if draw < len(options):
                gpu_type, level = options[draw].tolist()
                free[gpu_type] -= counts[level]
                chosen.append((int(view.job[at]), gpu_type, int(counts[level])))
        return Decision.of(chosen or self._first(view, order))

    def _first(self, view: View, order: Ints) -> list[tuple[int, int, int]]:
        """Return a random GPU type and count of the first job in the order that can run."""
        counts = view.setting.counts
        for at in order.tolist():
            options = np.argwhere(view.feasible[at] & (counts <= view.available[:, None]))
            if len(options):
                gpu_type, level = options[int(self._rng.integers(len(options)))].tolist()
                return [(int(view.job[at]), gpu_type, int(counts[level]))]
        return []
