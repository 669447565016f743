"""Measure how far queues of tenants fell short of their quotas and fair shares in an episode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.results.metrics.tenants import compute_fair_shares, list_quotas, whole_tree
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.tenants.queue_tree import QueueTree
from clustergym.sim.log import LAUNCHES, NO_JOB, Event, EventType

ENDS = (EventType.PREEMPT, EventType.COMPLETE, EventType.FAIL, EventType.DROP)
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

    def by_leaf(self, gpus: Ints) -> Ints:
        """Sum the jobs' GPUs by queue, shape (number of queues,)."""
        return np.bincount(self.leaf, gpus, len(self.quota)).astype(np.int64)


class QueueImbalance:
    """Measures over an episode by how many GPU-hours queues missed their quotas and fair shares.

    Parameters
    ----------
    rules : QueueRules
    """

    def __init__(self, rules: QueueRules) -> None:
        self.rules = rules
        self._gpus = np.zeros(len(rules.leaf), dtype=np.int64)
        self._asked = np.zeros(len(rules.leaf), dtype=np.int64)
        self._time_s: list[float] = [0.0]
        self._so_far: list[tuple[float, float]] = [(0.0, 0.0)]
        self._rate: tuple[float, float] | None = (0.0, 0.0)
        self._shares: dict[bytes, Floats] = {}

    def read(self, event: Event) -> None:
        """Update the sums, and the GPUs that queues hold, by the next event of the log."""
        if event.job == NO_JOB or event.event_type not in (*LAUNCHES, *ENDS, EventType.SUBMIT):
            return
        if event.time_s > self._time_s[-1]:
            self._so_far.append(self._at(event.time_s))
            self._time_s.append(event.time_s)
        self._gpus[event.job] = event.gpus if event.event_type in LAUNCHES else 0
        self._asked[event.job] = 0 if event.event_type in LEAVES else self.rules.asked[event.job]
        self._rate = None

    def compute_owed(self, now_s: float) -> float:
        """Return the GPU-hours of quota that queues asked for but lacked so far, divided by all GPUs."""
        return self._until(now_s)[0]

    def share_error(self, now_s: float) -> float:
        """Return the GPU-hours by which queues missed or exceeded fair shares so far, divided by all GPUs."""
        return self._until(now_s)[1]

    def _until(self, now_s: float) -> tuple[float, float]:
        if now_s >= self._time_s[-1]:
            return self._at(now_s)
        owed, error = (np.interp(now_s, self._time_s, part) for part in zip(*self._so_far, strict=True))
        return float(owed), float(error)

    def _at(self, now_s: float) -> tuple[float, float]:
        """Return both sums, of missed quota and missed fair share, at a time after the last event."""
        if self._rate is None:
            self._rate = self._rates()
        hours = (now_s - self._time_s[-1]) / 3600.0
        owed, error = (last + rate * hours for last, rate in zip(self._so_far[-1], self._rate, strict=True))
        return owed, error

    def _rates(self) -> tuple[float, float]:
        rules = self.rules
        held, wanted = rules.by_leaf(self._gpus), rules.by_leaf(np.maximum(self._gpus, self._asked))
        key = wanted.tobytes()
        if key not in self._shares:
            self._shares[key] = compute_fair_shares(rules.tree, wanted[None], rules.total)[0]
        owed = np.maximum(np.minimum(rules.quota, wanted) - held, 0.0).sum()
        return float(owed) / rules.total, float(np.abs(held - self._shares[key]).sum()) / rules.total
