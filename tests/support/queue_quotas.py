"""Scenarios with queues, of tenants and with quotas."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from clustergym.scenario.scenario import Scenario
from clustergym.scenario.tenants.queue_tree import Queue, QueueTree, Settings, Tenants


def with_tenants(
    scenario: Scenario, queues: str = "virtual_cluster", tenants: Sequence[str] | None = None
) -> Scenario:
    """Return the scenario with its tenants' queues; by default a job is its first letter's."""
    names = tenants or [name[0] for name in scenario.trace.job_id]
    trace = replace(scenario.trace, virtual_cluster=tuple(names))
    divided = Tenants.from_queues(queues, trace, scenario.cluster.gpu_types)
    return replace(scenario, trace=trace, tenants=divided)


def with_quotas(scenario: Scenario, quotas: Mapping[str, float], names: Sequence[str]) -> Scenario:
    """Return a scenario with queues of such quotas, and the name of each job's queue."""
    tree = QueueTree({name: Queue(quota=quota) for name, quota in quotas.items()}, Settings())
    leaf = np.array([tree.leaves.index(name) for name in names], dtype=np.int64)
    return replace(scenario, tenants=Tenants(tree, leaf))
