"""How far queues of tenants fall short of their quotas: a cost that a reward can weigh."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.results.metrics.tenants import list_quotas, whole_tree
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.tenants.queue_tree import QueueTree
from clustergym.sim.log import ENDS, LAUNCHES, NO_JOB, Event, EventType

LEAVES = (EventType.COMPLETE, EventType.DROP)


@dataclass(frozen=True, eq=False)
class QueueRules:
    """Quotas and limits of L tenants' queues, and the queue of each of n jobs; all GPU types count equally.

    Attributes
    ----------
    tree : QueueTree
    leaf, asked : ndarray of int, shape (n,)
        The leaf of each job, and the GPUs that it asks for.
    quota : ndarray of float, shape (L,)
    total : float
        GPUs of the cluster.
    """

    tree: QueueTree
    leaf: Ints
    asked: Ints
    quota: Floats
    total: float

    @staticmethod
    def from_scenario(scenario: Scenario) -> QueueRules | None:
        """Return the queues of a scenario's tenants, or None if it has no tenants."""
        tenants, cluster = scenario.tenants, scenario.cluster
        if tenants is None:
            return None
        tree = whole_tree(tenants.tree, cluster)
        asked = scenario.request_gpus.astype(np.int64)
        return QueueRules(tree, tenants.leaf, asked, list_quotas(tree), float(cluster.capacity.sum()))


# What queues hold and want, and what that costs; compiled episodes compile these functions.

HELD, WANTED = range(2)
"""Rows of the GPUs of queues: held, and wanted, which is what a job asks for, or holds if that is more."""
SINCE_S, OWED, OWED_RATE, COLUMNS = range(4)
"""Columns of what queues have missed up to a time, and miss in each hour from then on."""


def count_job(queues: Ints, job: Ints, leaf: Any, gpus: Any, asked: Any) -> None:
    """Update what a leaf queue holds and wants, as one of its jobs now holds `gpus` and asks for `asked`.

    `queues` has that of all leaves, shape (2, L), and `job` that of the job, before and then after.
    """
    # An elastic job may hold more than it asks for: what it holds it also wants.
    wanted = max(gpus, asked)
    queues[HELD, leaf] += gpus - job[HELD]
    queues[WANTED, leaf] += wanted - job[WANTED]
    job[HELD], job[WANTED] = gpus, wanted


def compute_owed_rate(queues: Ints, quota: Floats, total: Any) -> Any:
    """Return the GPUs of quota that queues want but lack, divided by all GPUs."""
    lacked = 0.0
    for leaf in range(len(quota)):
        lacked += max(min(quota[leaf], queues[WANTED, leaf]) - queues[HELD, leaf], 0.0)
    return lacked / total


def add_up(missed: Any, now_s: Any) -> Any:
    """Return what queues have missed so far, at a time until which the rate holds."""
    # S(t) = S(t0) + rate (t - t0) / 3600 s.
    return missed[OWED] + missed[OWED_RATE] * ((now_s - missed[SINCE_S]) / 3600.0)


OF_IMBALANCE = (count_job, compute_owed_rate, add_up)


class QueueImbalance:
    """Measures over an episode by how many GPU-hours queues missed their quotas.

    Parameters
    ----------
    rules : QueueRules
    """

    def __init__(self, rules: QueueRules) -> None:
        self.rules = rules
        self._jobs = np.zeros((len(rules.leaf), 2), dtype=np.int64)
        self._queues = np.zeros((2, len(rules.quota)), dtype=np.int64)
        self._missed: list[list[float]] = [[0.0] * COLUMNS]

    def read(self, event: Event) -> None:
        """Update the sums, and the GPUs that queues hold, by the next event of the log."""
        if event.job == NO_JOB or event.event_type not in (*LAUNCHES, *ENDS, EventType.SUBMIT):
            return
        # Several events at one time change the queues, and make one new row.
        if event.time_s > self._missed[-1][SINCE_S]:
            self._missed.append([event.time_s, add_up(self._missed[-1], event.time_s), 0.0])
        job, rules = event.job, self.rules
        gpus = event.gpus if event.event_type in LAUNCHES else 0
        asked = 0 if event.event_type in LEAVES else rules.asked[job]
        count_job(self._queues, self._jobs[job], rules.leaf[job], gpus, asked)
        self._missed[-1][OWED_RATE] = float(compute_owed_rate(self._queues, rules.quota, rules.total))

    def compute_owed(self, now_s: float) -> float:
        """Return the GPU-hours of quota that queues asked for but lacked so far, divided by all GPUs."""
        at = bisect_right(self._missed, now_s, key=lambda row: row[SINCE_S])
        return float(add_up(self._missed[at - 1], now_s))

    def list_missed(self) -> Floats:
        """Return what queues have missed at each change, and from then on, shape (changes, COLUMNS)."""
        return np.array(self._missed)
