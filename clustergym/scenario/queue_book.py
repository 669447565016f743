"""Account of the GPUs that tenants' queues hold and may hold, and of jobs that are to give some back."""

from __future__ import annotations

import numpy as np

from clustergym.common.errors import InputError
from clustergym.scenario.policy import Setting, View
from clustergym.scenario.tenants.queue_tree import QueueTree, of_type


def get_queues(policy: str, setting: Setting) -> QueueTree:
    """Return the tree of queues of a run; raise an `InputError` if there is none."""
    # Without queues a policy that divides GPUs among them would do so without effect.
    if setting.queues is None:
        message = f"is null, and {policy} divides GPUs among queues"
        remedy = "name their queues, as scenario.queues=virtual_cluster or a file, or choose another policy"
        raise InputError(message, field="scenario.queues", remedy=remedy)
    return setting.queues


class QueueHoldings:
    """The GPUs that the jobs of each queue hold at a decision point, and the free GPUs.

    Parameters
    ----------
    policy : str
        The policy's name, for errors.
    setting : Setting

    Attributes
    ----------
    tree : QueueTree
    paths : dict of str to list of str
        Queues from the top down to each leaf.
    quota, limit, guarantee : dict of str to list of float
        Amounts of each queue by GPU type; a quota without limit is its parent's.
    held : dict of str to list of float
        GPUs that the jobs of each queue hold, by type.
    free : list of int
    """

    def __init__(self, policy: str, setting: Setting) -> None:
        self.tree = get_queues(policy, setting)
        self.types = setting.gpu_types
        self.paths = {leaf: self.tree.path(leaf) for leaf in self.tree.leaves}
        self.index = {name: at for at, name in enumerate(self.tree.queues)}
        self.quota: dict[str, list[float]] = {}
        self.limit: dict[str, list[float]] = {}
        self.guarantee: dict[str, list[float]] = {}
        for name, queue in self.tree.queues.items():
            above = setting.capacity.tolist() if queue.parent is None else self.quota[queue.parent]
            own = [of_type(queue.quota, gpu_type) for gpu_type in self.types]
            self.quota[name] = [most if np.isinf(q) else q for q, most in zip(own, above, strict=True)]
            self.limit[name] = [of_type(queue.limit, gpu_type, np.inf) for gpu_type in self.types]
            self.guarantee[name] = [of_type(queue.guarantee, gpu_type) for gpu_type in self.types]
        self.held: dict[str, list[float]] = {}
        self.free: list[int] = []

    def open(self, view: View) -> None:
        """Read from a View the GPUs that the jobs of each queue hold."""
        self.free = view.free.tolist()
        self.held = {name: [0.0] * len(self.types) for name in self.tree.queues}
        held = np.zeros((len(self.tree.leaves), len(self.types)))
        runs = np.flatnonzero(view.gpus > 0)
        np.add.at(held, (view.queue[runs], view.gpu_type[runs]), view.gpus[runs])
        for at, gpu_type in np.argwhere(held).tolist():
            for name in self.paths[self.tree.leaves[at]]:
                self.held[name][gpu_type] += float(held[at, gpu_type])

    def take(self, leaf: str, gpu_type: int, gpus: int) -> None:
        """Count `gpus` free GPUs as held by a leaf queue, or as free again if negative."""
        self.free[gpu_type] -= gpus
        for name in self.paths[leaf]:
            self.held[name][gpu_type] += gpus

    def within_limits(self, leaf: str, gpu_type: int, gpus: int) -> bool:
        """Return whether a leaf queue may have `gpus` more GPUs by its own and its parents' limits."""
        return all(
            self.held[name][gpu_type] + gpus <= self.limit[name][gpu_type] for name in self.paths[leaf]
        )

    def within_quota(self, queue: str, gpu_type: int, gpus: int) -> bool:
        """Return whether a queue with `gpus` more GPUs of a type would stay within its quota."""
        return self.held[queue][gpu_type] + gpus <= self.quota[queue][gpu_type]

    def sides(self, one: str, other: str) -> tuple[list[str], list[str]]:
        """Return the paths of queues down to two leaf queues, without the queues that are above both."""
        first, second = self.paths[one], self.paths[other]
        depth = next(at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        return first[depth:], second[depth:]


class Evictions:
    """Records since when each job has been asked to give up GPUs, which it may keep for a while.

    Parameters
    ----------
    takes_s : float
        For how long a job keeps its GPUs after it was first to give them.
    """

    def __init__(self, takes_s: float) -> None:
        self._takes_s = takes_s
        self._before_s: dict[int, float] = {}
        self._first_s: dict[int, float] = {}

    def open(self) -> None:
        """Start a new decision point; keep in mind who was asked to give up GPUs at the last one."""
        self._before_s, self._first_s = self._first_s, {}

    def note_eviction(self, job: int, now_s: float) -> bool:
        """Record that a job (trace row) is to give up GPUs; return whether its time to do so is over."""
        self._first_s[job] = self._before_s.get(job, now_s)
        return now_s - self._first_s[job] >= self._takes_s

    def is_leaving(self, job: int) -> bool:
        """Return whether a job was asked to give up GPUs at the previous decision point."""
        return job in self._before_s
