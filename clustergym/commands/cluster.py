"""`clustergym cluster describe NAME` and `… draw NAME`: print or draw a cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from clustergym.cluster.cluster_files import cluster_names, load_cluster
from clustergym.cluster.description import figures, table
from clustergym.cluster.divisible import DivisibleCluster
from clustergym.common.arguments import Parser
from clustergym.common.errors import InputError, exits_on_bad_input
from clustergym.common.writing import write_json

if TYPE_CHECKING:
    from rich.table import Table
    from rich.tree import Tree


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="clustergym cluster", description="Look at clusters.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    describe = commands.add_parser("describe", help="print GPU types, sizes, switches and bandwidths")
    draw = commands.add_parser("draw", help="draw the switches: a tree here, or a picture in a file")
    for command in (describe, draw):
        command.add_argument(
            "cluster", metavar="NAME", help=f"a YAML file, or one of {', '.join(cluster_names())}"
        )
    draw.add_argument("-o", "--output", type=Path, metavar="FILE", help="write a picture (SVG, PNG or PDF)")
    describe.add_argument("--json", type=Path, metavar="FILE", help="write the same figures, unrounded")
    return parser


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym cluster`: describe or draw a cluster; return the exit status."""
    options = _parser().parse_args(argv)
    if options.command == "draw":
        return _draw(options)
    shown = figures(load_cluster(options.cluster))
    write_json(options.json, shown)
    _print(table(shown))
    return 0


def _draw(options: argparse.Namespace) -> int:
    spec, path = load_cluster(options.cluster), options.output
    if isinstance(spec, DivisibleCluster):
        remedy = "its GPUs can be divided, and no job is on several nodes: see cluster describe"
        raise InputError(f"{spec.name} has no switches to draw", field="cluster", remedy=remedy)
    if path is None:
        from clustergym.cluster.fabric_tree import text_tree

        _print(text_tree(spec))
        return 0
    from clustergym.cluster.fabric_plot import draw

    draw(spec, path)
    print(f"wrote {path}")
    return 0


def _print(shown: Table | Tree) -> None:
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 110).print(shown)


if __name__ == "__main__":
    sys.exit(main())
