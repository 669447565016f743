"""Options of policies for cheap stops: which jobs are stopped, and which save before."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import Decision, Policy, View

Notice = Literal["never", "cheaper", "always"]
Victims = Literal["recent", "cheapest"]


@dataclass
class NoticePolicy(Policy):
    """Base of policies that may let jobs save a checkpoint before they are stopped.

    Parameters
    ----------
    notice : str
        Who saves before it stops or its GPUs change, where stops lose work: `never` anybody; `cheaper`: who
        has worked for longer since its last checkpoint than saving takes; `always`.
    """

    notice: Notice = "never"

    @property
    def needs_places(self) -> bool:
        """Whether the policy needs the engine with job locations (SimPy), to let jobs save before a stop."""
        return self.notice != "never"

    def schedule(self, view: View) -> Decision:
        """Return the decision of `decide`, changed such that jobs save before they stop where that pays."""
        return decide_with_notice(view, self.notice, self.decide)

    @abstractmethod
    def decide(self, view: View) -> Decision:
        """Decide which jobs hold which GPUs from now on, as if every stop were instantaneous."""


def losses_per_gpu(view: View, notice: Notice) -> Floats:
    """Return the GPU-seconds lost by stopping each running job, per GPU that it releases, shape (n,).

    Work that is undone, or saving where that is what happens, and standing still at the next launch.
    """
    costs = view.stop_costs()
    undone = np.where(choose_notices(view, notice), costs.save_gpu_s, costs.lost_gpu_s)
    loss: Floats = (undone + costs.restart_gpu_s) / np.maximum(view.gpus, 1)
    return loss


def choose_notices(view: View, notice: Notice) -> Bools:
    """Return which jobs should save a checkpoint first if they are stopped now, shape (n,)."""
    costs = view.stop_costs()
    if notice == "never" or not costs.loses:
        return np.zeros(len(view), dtype=np.bool_)
    worth: Bools = costs.lost_gpu_s > costs.save_gpu_s
    return (view.gpus > 0) & (worth | (notice == "always"))


def decide_with_notice(view: View, notice: Notice, decide: Callable[[View], Decision]) -> Decision:
    """Return a policy's decision, changed such that jobs save before their GPUs go to others.

    The policy decides as if the GPUs of jobs that save were free already. What it decides is then carried out
    as far as it fits in the GPUs that are free, in its order: first what running jobs are to hold, of which
    those for which there is no room yet keep what they have, then the starts, of which the rest wait.

    Parameters
    ----------
    view : View
    notice : str
        As of `NoticePolicy`.
    decide : callable
        Returns the decision of a policy.
    """
    if notice == "never":
        return decide(view)
    shown = view
    if view.coming is not None:
        more = {"available": view.available + view.coming, "free": view.free + view.coming}
        for column in more.values():
            column.setflags(write=False)
        shown = view.with_columns(more | {"coming": None})
    decision = decide(shown)
    saves = choose_notices(view, notice)
    if decision.partner is not None or not (saves.any() or view.coming is not None):
        return decision
    return _carry_out(view, decision, saves)


def _carry_out(view: View, decision: Decision, saves: Bools) -> Decision:
    """Return a decision as far as it fits, with notice to those that `saves` names."""
    at = np.searchsorted(view.job, decision.job)
    stops = view.gpus > 0
    stops[at] = False
    stops[np.searchsorted(view.job, decision.drop)] = False
    saving = stops & saves
    # GPUs of jobs that save are not free before they have saved; those of jobs that stop at once are.
    room = view.available - _count(view, (view.gpus > 0) & ~stops) - _count(view, saving)
    gpu_type, gpus = decision.gpu_type.copy(), decision.gpus.copy()
    batch = None if decision.batch is None else decision.batch.copy()
    runs, fits = view.gpus[at] > 0, np.ones(len(at), dtype=np.bool_)
    # Those that shrink come first: they make room for the others.
    order = sorted(range(len(at)), key=lambda one: (not runs[one], gpus[one] > view.gpus[at[one]]))
    for one in order:
        own_type, had = int(gpu_type[one]), int(view.gpus[at[one]])
        own = had if had and view.gpu_type[at[one]] == own_type else 0
        if gpus[one] <= room[own_type] + own:
            room[own_type] -= gpus[one]
            room[view.gpu_type[at[one]]] += had
        elif runs[one]:
            gpu_type[one], gpus[one] = view.gpu_type[at[one]], had
            if batch is not None:
                batch[one] = view.batch[at[one]]
        else:
            fits[one] = False
    changed = runs & ((gpus != view.gpus[at]) | (gpu_type != view.gpu_type[at]))
    told = np.concatenate([view.job[saving], decision.job[changed & saves[at]]])
    return replace(
        decision,
        job=decision.job[fits],
        gpu_type=gpu_type[fits],
        gpus=gpus[fits],
        batch=None if batch is None else batch[fits],
        notice=np.sort(told),
    )


def _count(view: View, rows: Bools) -> Ints:
    """Return the GPUs of each type that some jobs hold."""
    held = np.bincount(view.gpu_type[rows], view.gpus[rows], minlength=len(view.available))
    return held.astype(np.int64)
