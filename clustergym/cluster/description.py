"""Describe a cluster as figures and as a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from clustergym.cluster.divisible import DivisibleCluster
from clustergym.cluster.spec import ClusterSpec, Locality

if TYPE_CHECKING:
    from rich.table import Table


def figures(spec: ClusterSpec) -> dict[str, Any]:
    """Return the size of a cluster and of each of its GPU types, as plain JSON values.

    Bandwidths in GB/s, one direction: `node` per GPU, the wider localities per node.
    """
    if isinstance(spec, DivisibleCluster):
        return _divisible(spec)
    return {
        "name": spec.name,
        "gpus": int(spec.capacity.sum()),
        "nodes": len(spec.node_type),
        "leaves": int(spec.node_leaf[-1]) + 1,
        "minipods": int(spec.node_minipod[-1]) + 1,
        "gpu_types": [_type_figures(spec, row) for row in range(len(spec.groups))],
    }


def _divisible(spec: DivisibleCluster) -> dict[str, Any]:
    """Return the figures of a cluster whose GPUs can be divided; equal nodes are one row."""
    counts: Counter[tuple[str, int, int, int]] = Counter()
    for shape in spec.shapes:
        counts[shape[:4]] += shape.nodes
    names = ("model", "gpus_per_node", "cpu_milli", "memory_mib")
    nodes = spec.empty_nodes()
    return {
        "name": spec.name,
        "gpus": int(spec.node_gpus.sum()),
        "nodes": len(spec.node_gpus),
        "cpu_milli": int(nodes.cpu_milli.sum()),
        "memory_mib": int(nodes.memory_mib.sum()),
        "shapes": [
            {**dict(zip(names, shape, strict=True)), "nodes": number, "gpus": number * shape[1]}
            for shape, number in sorted(counts.items(), key=lambda row: -row[1])
        ],
    }


def _type_figures(spec: ClusterSpec, row: int) -> dict[str, Any]:
    group, mine = spec.groups[row], spec.node_type == row
    return {
        "gpu_type": group.gpu_type.name,
        "nodes": group.nodes,
        "gpus_per_node": group.gpus_per_node,
        "gpus": int(spec.capacity[row]),
        "leaves": len(np.unique(spec.node_leaf[mine])),
        "minipods": len(np.unique(spec.node_minipod[mine])),
        "memory_gb": group.gpu_type.memory_gb,
        "link_kind": group.gpu_type.link_kind,
        "bandwidth_gbs": {tier.name.lower(): spec.bandwidth_gbs(row, tier) for tier in Locality},
    }


def table(shown: dict[str, Any]) -> Table:
    """Return the figures of a cluster as a table with one row per GPU type, or shape of divisible nodes."""
    from rich.markup import escape
    from rich.table import Table

    if "shapes" in shown:
        return _shapes(shown)

    title = "{name}: {gpus:,} GPUs, {nodes:,} nodes, {leaves:,} leaves, {minipods:,} minipods".format(**shown)
    caption = "GB/s in one direction: in a node per GPU, across nodes per node"
    drawn = Table(title=escape(title), caption=caption)
    drawn.add_column("GPU type", no_wrap=True)
    for heading in ("nodes", "each", "GPUs", "leaves", "minipods", "GB", "node", "leaf", "minipod", "cross"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    for row in shown["gpu_types"]:
        counts = ("nodes", "gpus_per_node", "gpus", "leaves", "minipods")
        cells = [f"{row[key]:,}" for key in counts] + [f"{row['memory_gb']:g}"]
        cells += [f"{value:,.4g}" for value in row["bandwidth_gbs"].values()]
        drawn.add_row(escape(row["gpu_type"]), *cells)
    return drawn


def _shapes(shown: dict[str, Any]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    title = "{name}: {gpus:,} GPUs that can be divided, {nodes:,} nodes".format(**shown)
    cores, gib = shown["cpu_milli"] / 1000, shown["memory_mib"] / 1024
    drawn = Table(title=escape(title), caption=f"in all {cores:,.0f} cores, {gib:,.0f} GiB of memory")
    drawn.add_column("GPU model", no_wrap=True)
    for heading in ("nodes", "GPUs each", "GPUs", "cores each", "GiB each"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    for row in shown["shapes"]:
        counts = [f"{row[key]:,}" for key in ("nodes", "gpus_per_node", "gpus")]
        each = [f"{row['cpu_milli'] / 1000:,g}", f"{row['memory_mib'] / 1024:,g}"]
        drawn.add_row(escape(row["model"]), *counts, *each)
    return drawn
