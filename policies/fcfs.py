"""First come, first served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clustergym.errors import InputError, nearest
from clustergym.policy import QUEUED, Decision, InformationClass, Policy, View
from policies.shared.requests import request_options

QUEUES = ("cluster", "gpu_type")


@dataclass
class FirstComeFirstServed(Policy):
    """Gang scheduling in order of arrival, exactly as requested, without backfill.

    A job waits until all its GPUs are free and nothing ahead of it in its queue waits; it
    then runs to completion. The FCFS baseline of Arena (section 5.1).

    Parameters
    ----------
    queue : str
        `cluster`: one queue; a job that must wait blocks all behind it. `gpu_type`: one
        queue per requested GPU type; a job that asks for any type waits in all of them.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "fcfs"
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    queue: str = "gpu_type"
    round_s: float | None = 300.0

    def __post_init__(self) -> None:
        if self.queue not in QUEUES:
            raise InputError(
                f"unknown queue {self.queue!r}", field="policy.queue", remedy=nearest(self.queue, QUEUES)
            )

    def schedule(self, view: View) -> Decision:
        """Start jobs from the head of each queue while their request is free."""
        waiting = np.flatnonzero(view.state == QUEUED)
        asked = zip(
            view.job[waiting].tolist(),
            view.requested_gpus[waiting].tolist(),
            request_options(view)[waiting].tolist(),
            strict=True,
        )
        free, blocked, starts = view.free.tolist(), [False] * len(view.free), []
        for job, gpus, options in asked:
            kind = next(
                (t for t, may in enumerate(options) if may and not blocked[t] and free[t] >= gpus), None
            )
            if kind is not None:
                free[kind] -= gpus
                starts.append((job, kind, gpus))
            elif self.queue == "cluster":
                break
            else:
                blocked = [closed or may for closed, may in zip(blocked, options, strict=True)]
                if all(blocked):
                    break
        return Decision.keep(view).also(starts)
