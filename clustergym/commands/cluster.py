"""`clustergym cluster describe NAME`, `… draw NAME` and `… import SRC`: print, draw or write a cluster."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clustergym.cluster.cluster_files import cluster_names, load_cluster
from clustergym.cluster.parts import DivisibleCluster
from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.errors import InputError, Parser, exits_on_bad_input
from clustergym.common.tables import text_table
from clustergym.common.writing import refuse_overwrite, write_json, write_text

if TYPE_CHECKING:
    from rich.table import Table
    from rich.tree import Tree


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="clustergym cluster", description="Look at clusters.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    describe = commands.add_parser("describe", help="print GPU types, sizes, switches and bandwidths")
    draw = commands.add_parser("draw", help="draw the switches as a tree")
    imported = commands.add_parser(
        "import", help="write the nodes that Slurm or Kubernetes lists as a cluster"
    )
    words = "what scontrol show node, sinfo -N -o '%%N|%%P|%%G|%%T' or kubectl get nodes -o json prints"
    imported.add_argument("source", type=Path, metavar="SRC", help=words)
    imported.add_argument(
        "-o", "--output", type=Path, required=True, metavar="OUT.yaml", help="file to write"
    )
    imported.add_argument("--name", help="of the cluster (default: the file's)")
    words = "the data sheet of a GPU type that the catalogue lacks: that of another"
    imported.add_argument("--like", action="append", default=[], metavar="NAME=TYPE", help=words)
    imported.add_argument("--force", action="store_true", help="overwrite OUT.yaml")
    imported.add_argument("--json", type=Path, metavar="FILE", help="write what was read and guessed")
    for command in (describe, draw):
        command.add_argument(
            "cluster", metavar="NAME", help=f"a YAML file, or one of {', '.join(cluster_names())}"
        )
    describe.add_argument("--json", type=Path, metavar="FILE", help="write the same figures, unrounded")
    return parser


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym cluster`: describe, draw or import a cluster; return the exit status."""
    options = _parser().parse_args(argv)
    if options.command == "draw":
        return _draw(options)
    if options.command == "import":
        return _import(options)
    shown = figures(load_cluster(options.cluster))
    write_json(options.json, shown)
    _print(table(shown))
    return 0


def _import(options: argparse.Namespace) -> int:
    from clustergym.cluster.node_lists import cluster_keys, cluster_text, read_nodes

    source, out = options.source, options.output
    refuse_overwrite([out], options.force)
    like = dict(given.partition("=")[::2] for given in options.like)
    nodes, left_out = read_nodes(source)
    keys, guessed = cluster_keys(nodes, options.name or out.stem, like, source)
    write_text(out, cluster_text(keys, source.name, guessed), "--output")
    load_cluster(str(out.absolute()))
    gpus = {group["gpu_type"]: group["count"] * group["gpus_per_node"] for group in keys["nodes"]}
    count = len({node.name for node in nodes})
    report = {"source": str(source), "output": str(out), "nodes": count, "gpus": gpus}
    write_json(options.json, report | {"left_out": dict(left_out), "guessed": dict(guessed)})
    print(f"wrote    {out}")
    print(f"read     {count:,} nodes: {', '.join(f'{gpus[name]} {name}' for name in gpus)}")
    for what, counts in (("left out", left_out), ("guessed", guessed)):
        for reason, count in counts.items():
            print(f"{what:<9}{count:,} {reason}")
    return 0


def _draw(options: argparse.Namespace) -> int:
    from clustergym.cluster.fabric_tree import text_tree

    spec = load_cluster(options.cluster)
    if isinstance(spec, DivisibleCluster):
        remedy = "its GPUs can be divided, and no job is on several nodes: see cluster describe"
        raise InputError(f"{spec.name} has no switches to draw", field="cluster", remedy=remedy)
    _print(text_tree(spec))
    return 0


def _print(shown: Table | Tree) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 110).print(shown)


def figures(spec: ClusterSpec) -> dict[str, Any]:
    """Return the sizes, bandwidths and GPU types of a cluster as JSON values.

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
        "domain_gpus": group.nodes_per_domain * group.gpus_per_node,
        "gpus": int(spec.capacity[row]),
        "leaves": len(np.unique(spec.node_leaf[mine])),
        "minipods": len(np.unique(spec.node_minipod[mine])),
        "memory_gb": group.gpu_type.memory_gb,
        "link_kind": group.gpu_type.link_kind,
        "bandwidth_gbs": {tier.name.lower(): spec.bandwidth_gbs(row, tier) for tier in Locality},
    }


def table(shown: dict[str, Any]) -> Table:
    """Arrange the figures of a cluster in a table with a row for each GPU type or shape of node."""
    if "shapes" in shown:
        return _shapes(shown)
    title = "{name}: {gpus:,} GPUs, {nodes:,} nodes, {leaves:,} leaves, {minipods:,} minipods".format(**shown)
    caption = "GB/s in one direction: in a node or NVLink domain per GPU, across them per node"
    columns = (
        "GPU type",
        "nodes",
        "each",
        "GPUs",
        "domain",
        "leaves",
        "minipods",
        "GB",
        "node",
        "leaf",
        "minipod",
        "cross",
    )
    rows = []
    for row in shown["gpu_types"]:
        counts = ("nodes", "gpus_per_node", "gpus", "domain_gpus", "leaves", "minipods")
        cells = [f"{row[key]:,}" for key in counts] + [f"{row['memory_gb']:g}"]
        cells += [f"{value:,.4g}" for value in row["bandwidth_gbs"].values()]
        rows.append([row["gpu_type"], *cells])
    return text_table(title, columns, rows, caption)


def _shapes(shown: dict[str, Any]) -> Table:
    title = "{name}: {gpus:,} GPUs that can be divided, {nodes:,} nodes".format(**shown)
    cores, gib = shown["cpu_milli"] / 1000, shown["memory_mib"] / 1024
    columns = ("GPU model", "nodes", "GPUs each", "GPUs", "cores each", "GiB each")
    rows = []
    for row in shown["shapes"]:
        counts = [f"{row[key]:,}" for key in ("nodes", "gpus_per_node", "gpus")]
        each = [f"{row['cpu_milli'] / 1000:,g}", f"{row['memory_mib'] / 1024:,g}"]
        rows.append([row["model"], *counts, *each])
    return text_table(title, columns, rows, f"in all {cores:,.0f} cores, {gib:,.0f} GiB of memory")


if __name__ == "__main__":
    sys.exit(main())
