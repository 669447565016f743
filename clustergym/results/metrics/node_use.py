"""How fully the nodes of a cluster are used."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.results.metrics.parts import ENDS
from clustergym.sim.log import LAUNCHES, NO_JOB, Event, EventKind


def partly_used_nodes(
    events: Sequence[Event], cluster: ClusterSpec, since_s: float, until_s: float
) -> float | None:
    """Return the share of nodes of which some GPUs are held and some are not, averaged over time.

    Nodes that have failed count as idle.
    """
    if not until_s > since_s:
        return None
    size, used = cluster.node_gpus.tolist(), np.zeros(len(cluster.node_gpus), dtype=np.int64).tolist()
    held: dict[tuple[int, int], tuple[tuple[int, int], ...]] = {}
    partly, node_s, now_s = 0, 0.0, since_s

    def change(nodes: tuple[tuple[int, int], ...], sign: int) -> int:
        more = 0
        for node, gpus in nodes:
            before = 0 < used[node] < size[node]
            used[node] += sign * gpus
            more += (0 < used[node] < size[node]) - before
        return more

    for event in events:
        profiles = event.kind in (EventKind.PROFILE_START, EventKind.PROFILE_END)
        if event.job == NO_JOB or not (profiles or event.kind in LAUNCHES or event.kind in ENDS):
            continue
        node_s += partly * (event.time_s - now_s)
        now_s = event.time_s
        key = (event.job, event.gpu_type if profiles else -1)
        partly += change(held.pop(key, ()), -1)
        if event.kind in LAUNCHES or event.kind == EventKind.PROFILE_START:
            held[key] = event.nodes
            partly += change(event.nodes, 1)
    node_s += partly * (until_s - now_s)
    return node_s / (len(size) * (until_s - since_s))
