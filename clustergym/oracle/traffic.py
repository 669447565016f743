"""Splits iteration times into the time on free links and the traffic between nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.oracle.base import Oracle, OracleTables, six_digits

PROBE = 2.0
"""Least factor by which the network is slowed down to find how much of an iteration is traffic."""


def require_fabric(oracle: Oracle) -> None:
    """Raise an `InputError` if an oracle's times do not depend on the fabric's bandwidths."""
    if not oracle.sees_fabric:
        raise InputError(
            f"the {oracle.name} oracle does not know how much of an iteration is traffic between nodes",
            field="scenario.contention",
            remedy="choose oracle=roofline or oracle=grid, or leave contention off",
        )


def with_oversubscription(cluster: ClusterSpec, spine: float, core: float) -> ClusterSpec:
    """Return a cluster with other oversubscriptions above its leaves."""
    fabric = replace(cluster.fabric, spine_oversubscription=spine, core_oversubscription=core)
    return replace(cluster, fabric=fabric)


def on_free_links(
    tables_of: Callable[[ClusterSpec], OracleTables], cluster: ClusterSpec
) -> tuple[OracleTables, Floats]:
    """Return the tables of a cluster without contention between switches, and the traffic in them.

    On free links a node's network is as fast across minipods as inside a leaf. To find the traffic, the
    tables are built again with the network above the leaves slowed down by a factor: the fabric's own
    oversubscription over that of a leaf, at least `PROBE`. Traffic is the increase of the iteration time
    divided by (factor - 1). So free time + (factor - 1) x traffic is the oracle's time at that factor; at
    another factor the oracle might choose another plan.

    Parameters
    ----------
    tables_of : callable
        Builds the tables of a cluster.
    cluster : ClusterSpec

    Returns
    -------
    OracleTables, ndarray of float, shape (C, T, K, 4)
        The traffic is in seconds per iteration at execution speed; 0 inside a leaf, and where infeasible.
    """
    leaf = cluster.fabric.leaf_oversubscription
    slow = [
        max(PROBE * leaf, factor)
        for factor in (cluster.fabric.spine_oversubscription, cluster.fabric.core_oversubscription)
    ]
    free = tables_of(with_oversubscription(cluster, leaf, leaf))
    slower = tables_of(with_oversubscription(cluster, *slow)).execution
    traffic_s = np.zeros_like(free.execution)
    for tier, factor in zip((Locality.MINIPOD, Locality.CROSS), slow, strict=True):
        fits = np.isfinite(free.execution[..., tier]) & np.isfinite(slower[..., tier])
        longer = np.where(fits, slower[..., tier], 0.0) - np.where(fits, free.execution[..., tier], 0.0)
        traffic_s[..., tier] = np.maximum(longer, 0.0) / (factor / leaf - 1.0)
    return free, six_digits(traffic_s)
