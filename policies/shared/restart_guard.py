"""One guard against restarts, for all policies whose papers preempt or resize jobs without counting them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from clustergym.common.arrays import Bools
from clustergym.scenario.policy import Policy, Setting, View

LEAST_TURN_RESTARTS = 20.0
"""Least time for which a job holds its GPUs, in restarts, so that these take 5 % of its time at most."""


@dataclass
class GuardedPolicy(Policy):
    """Base class of policies that do not count restarts; with `guard` all do so by one rule, which is ours.

    A running job keeps its GPUs until it has held them for 20 times as long as its checkpoint takes to save
    and load. After that a policy that estimates iteration times changes them for the job's own sake only
    where the job then ends earlier by that estimate, its restart included.

    Parameters
    ----------
    guard : bool
        Whether changes of running jobs have to repay their restarts; False: as published.
    """

    guard: bool = field(default=False, kw_only=True)
    _launched: dict[int, tuple[list[int], float]] = field(default_factory=dict, init=False, repr=False)
    _decided_s: float = field(default=0.0, init=False, repr=False)

    def reset(self, setting: Setting, rng: np.random.Generator) -> None:
        """Forget when the jobs of the last run were launched."""
        self._launched, self._decided_s = {}, 0.0

    def find_guarded(self, view: View) -> Bools:
        """Return which running jobs keep their GPUs, shape (n,); to be called once at each decision."""
        guarded, held = np.zeros(len(view), dtype=np.bool_), np.flatnonzero(view.gpus > 0)
        if not self.guard:
            return guarded
        held_as = np.stack([view.gpu_type, view.gpus, view.restarts], axis=1)[held].tolist()
        launched: dict[int, tuple[list[int], float]] = {}
        for row, now in zip(view.job[held].tolist(), held_as, strict=True):
            # Another type or count, or one restart more, is a new launch, which the last decision made.
            known = self._launched.get(row)
            launched[row] = known if known is not None and known[0] == now else (now, self._decided_s)
        self._launched, self._decided_s = launched, view.now_s
        held_s = view.now_s - np.array([since_s for _, since_s in launched.values()])
        restart_s = view.stop_costs().restart_gpu_s[held] / view.gpus[held]
        guarded[held] = held_s < LEAST_TURN_RESTARTS * restart_s
        return guarded
