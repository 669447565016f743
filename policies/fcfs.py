"""FCFS: a policy that serves jobs first come, first served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from clustergym.common.parameter_types import Period
from clustergym.scenario.policy import QUEUED, Decision, InformationClass, Policy, View


@dataclass
class FirstComeFirstServed(Policy):
    """The policy first come, first served: jobs start with all requested GPUs, and keep them to their end.

    A job waits until all its GPUs are free and no job ahead of it in its queue waits. The policy takes no GPU
    from a job; the placer may move it to closer nodes, as `buddy` does each hour; `placer.defragment_s=null`
    turns this off. The FCFS baseline of Arena (section 5.1). Backfill and other options: `fcfs-backfill`.

    Parameters
    ----------
    queue : str
        `cluster`: one queue; a job that must wait blocks all behind it. `gpu_type`: one queue per requested
        GPU type; a job that asks for any type waits in all of them.
    round_s : float or None
        Seconds between decision points where the scenario leaves them to the policy.
    """

    name: ClassVar[str] = "fcfs"
    information_class: ClassVar[InformationClass] = InformationClass.NONE
    serves_parts: ClassVar[bool] = True
    # Only what waits and what is free decides: the engine need not ask again while neither changes.
    steady: ClassVar[bool] = True
    consistent: ClassVar[bool] = True
    only_starts: ClassVar[bool] = True
    with_options: ClassVar[str] = "clustergym.policies.shared.fcfs_backfill"
    queue: Literal["cluster", "gpu_type"] = "gpu_type"
    round_s: Period | None = 300.0

    def schedule(self, view: View) -> Decision:
        """Start jobs in order of submission, which is that of the View; a job that does not fit blocks."""
        waiting = np.flatnonzero(view.state == QUEUED)
        if view.parts is not None:  # A cluster whose GPUs can be divided.
            from .shared.part_queues import fill_parts

            return Decision.keep(view).also(fill_parts(view, waiting, blocks=True))
        job, gpus = view.job[waiting], view.requested_gpus[waiting]
        wanted = view.requested_type[waiting, None]
        allowed = view.find_fitting_types(waiting, np.searchsorted(view.setting.counts, gpus))
        allowed &= (wanted < 0) | (wanted == np.arange(allowed.shape[1]))
        free, starts, turns = view.free.copy(), [], np.arange(len(waiting))
        while len(turns):
            turn, turns = int(turns[0]), turns[1:]
            room = allowed[turn] & (free >= gpus[turn])
            if room.any():
                gpu_type = int(room.argmax())
                free[gpu_type] -= gpus[turn]
                starts.append((int(job[turn]), gpu_type, int(gpus[turn])))
            elif self.queue == "cluster":
                break
            else:
                # Jobs behind it that could only run on these types have no turn any more.
                free[allowed[turn]] = 0
                turns = turns[(allowed[turns] & (free > 0)).any(axis=1)]
        return Decision.keep(view).also(starts)
