"""A learned priority auction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.policy import Decision, InformationClass, Policy, View
from policies.shared.marginal import times_or_guess
from policies.shared.requests import held_level


@dataclass
class Learned(Policy):
    """A trained agent of `python -m clustergym.train`, as a policy.

    At a decision point all GPUs are put up for auction: again and again the move of greatest learned score is
    made, a job's start with its least count on a type or the doubling of what it has, until no start has
    room and no doubling scores above 0. An enlargement of a running job that does not repay its restart
    is reverted. `clustergym.learn.features` defines what the score is made of.

    Parameters
    ----------
    checkpoint : str
        A `.safetensors` file with its YAML beside it, or the name of a checkpoint of the package.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "learned"
    checkpoint: str = "elastic"
    round_s: float | None = None

    def __post_init__(self) -> None:
        from clustergym.learn.checkpoints import load

        self._loaded = load(self.checkpoint)

    @property
    def information_class(self) -> InformationClass:
        """That of the training."""
        return self._loaded.information_class

    def fingerprint(self) -> str:
        """Return the digest of the weights."""
        return self._loaded.sha256

    def schedule(self, view: View) -> Decision:
        """Hold the auction."""
        if not len(view):
            return Decision.keep(view)
        from clustergym.learn.auction import decide

        held = np.where(view.gpus > 0, held_level(view), -1).astype(np.int64)
        kind, level = decide(
            self._loaded.weights,
            view.available.astype(np.int64),
            view.setting.counts.astype(np.int64),
            view.remaining_iterations,
            np.where(view.feasible, times_or_guess(view), np.inf),
            view.restart_cost_s(),
            view.gpu_type.astype(np.int64),
            held,
            view.standstill_s,
            view.now_s - view.submit_s,
            view.attained_gpu_s,
            view.deadline_s - view.now_s,
        )
        runs = np.flatnonzero(kind >= 0)
        return Decision(view.job[runs], kind[runs], view.setting.counts[level[runs]])
