"""`clustergym collect DIR…`: show results in tables, one per scenario, with a column per policy."""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from clustergym.common.errors import Parser, exits_on_bad_input
from clustergym.common.writing import write_json, write_text
from clustergym.results.report.collection import as_json, choose_metrics, print_tables, write_csv
from clustergym.results.report.groups import REFERENCE, group_results
from clustergym.results.result_files import read_results


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="clustergym collect", description="Tabulate the results in and below folders.")
    parser.add_argument(
        "places", metavar="DIR", nargs="+", type=Path, help="folder of runs, or a result.json"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the same figures, unrounded")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write one line per result")
    parser.add_argument("--metric", metavar="NAME", action="append", help="show this metric only; repeatable")
    words = "what the columns are: policy (the default), placer, or any key of the configuration, such as "
    words += "cluster or trace.load; repeatable, for each combination of values"
    parser.add_argument("--by", metavar="KEY", action="append", help=words)
    words = "column that ratios are to (by policy fcfs, by placer buddy, by any other key none)"
    parser.add_argument("--reference", metavar="NAME", help=words)
    return parser


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym collect`: print tables of the results in folders, and write files where asked."""
    options = _parser().parse_args(argv)
    results = read_results(options.places)
    metrics = choose_metrics(results, options.metric)
    chosen = metrics if options.metric else None
    by = list(dict.fromkeys(key for part in options.by or ["policy"] for key in part.split(",")))
    groups = group_results(results, by, options.reference)
    write_json(options.json, as_json(groups, chosen))
    if options.csv is not None:
        keys = [key for key in by if key not in REFERENCE]
        text = io.StringIO(newline="")
        write_csv(results, metrics, text, keys)
        write_text(options.csv, text.getvalue(), "--csv")
    print_tables(groups, chosen)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
