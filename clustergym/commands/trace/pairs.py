"""`clustergym trace pairs TABLE`: print statistics of a table of jobs that share GPUs in pairs."""

from __future__ import annotations

import argparse
from pathlib import Path

from clustergym.common.tables import print_table, text_table
from clustergym.common.writing import write_json
from clustergym.trace.pair_tables import pair_statistics, read_pair_table

SHOWN = {
    "pairs": "{:,}",
    "sum_min": "{:.3f}",
    "sum_p5": "{:.3f}",
    "sum_p25": "{:.3f}",
    "sum_median": "{:.3f}",
    "sum_p75": "{:.3f}",
    "sum_p95": "{:.3f}",
    "sum_max": "{:.3f}",
    "sum_mean": "{:.3f}",
    "losing_share": "{:.1%}",
    "gaining_share": "{:.1%}",
    "kept_p5": "{:.3f}",
    "kept_median": "{:.3f}",
    "kept_p95": "{:.3f}",
    "impossible_pairs": "{:,}",
    "entries": "{:,}",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clustergym trace pairs` to a parser."""
    parser.add_argument("file", type=Path, metavar="TABLE", help="a CSV, or a JSON file or folder of Gavel's")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same figures, unrounded")


def run(args: argparse.Namespace) -> int:
    """Print statistics of a table of pairs of jobs that share GPUs; return the exit status."""
    table = read_pair_table(args.file)
    rows = [statistics.plain() for statistics in pair_statistics(table)]
    cells = [
        [name, *("-" if row[name] is None else form.format(row[name]) for row in rows)]
        for name, form in SHOWN.items()
    ]
    columns = ("of both jobs of a pair", *(row["gpu_type"] for row in rows))
    print_table(text_table(f"pairs of {table.path}", columns, cells))
    write_json(args.json, {"file": str(table.path), "sha256": table.sha256, "types": rows})
    return 0
