"""`clustergym collect DIR…`: show results in tables, one per scenario, with a column per policy."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from clustergym.inputs.arguments import Parser
from clustergym.inputs.errors import InputError, exits_on_bad_input, nearest
from clustergym.inputs.paths import atomic_path
from clustergym.metrics.aggregates import Aggregate
from clustergym.metrics.catalogue import METRICS
from clustergym.metrics.metrics import MetricValue
from clustergym.metrics.statistics import Estimate
from clustergym.report.by_key import settings_of
from clustergym.report.groups import REFERENCE, Column, ResultGroup, group_results, listed
from clustergym.report.metric_tables import comparison_table, ratio
from clustergym.results.result_files import ResultFile, read_results
from clustergym.terminal.tables import print_table


def as_json(groups: Iterable[ResultGroup], metrics: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the figures of all tables, not rounded, as plain JSON values."""
    return {"schema": "clustergym.collect/1", "tables": [_group_json(group, metrics) for group in groups]}


def _group_json(group: ResultGroup, metrics: Sequence[str] | None) -> dict[str, Any]:
    first = group.results[0]
    figures = [group.figures(column) for column in group.columns]
    base = None if group.reference is None else figures[group.reference]
    return {
        "scenario": {"name": first.scenario.name, "version": first.scenario.version},
        "sha256": {
            str(seed): next(iter(hashes)) for seed, hashes in group.hashes.items() if len(hashes) == 1
        },
        "horizon_s": first.horizon_s,
        "seeds": group.seeds,
        "reference": None if group.reference is None else group.columns[group.reference].label,
        "notes": group.notes,
        "columns": [
            _column_json(column, of_column, base, group.ratios(column), metrics)
            for column, of_column in zip(group.columns, figures, strict=True)
        ],
    }


def _column_json(
    column: Column,
    figures: dict[str, Estimate | None],
    base: dict[str, Estimate | None] | None,
    ratios: dict[str, Aggregate],
    metrics: Sequence[str] | None,
) -> dict[str, Any]:
    names = [name for name in metrics or figures if name in figures]
    return {
        "label": column.label,
        "policy": column.any.policy.model_dump(),
        "placer": column.any.placer.model_dump(),
        "information_class": column.any.information_class,
        "by": {key: part.name for key, part in column.values.items()},
        "seeds": sorted(column.by_seed),
        "metrics": {name: None if (e := figures[name]) is None else e._asdict() for name in names},
        "ratio": {} if base is None else {name: ratio(figures[name], base.get(name)) for name in names},
        "ratio_interval": {
            name: [aggregate.low, aggregate.high] for name, aggregate in ratios.items() if name in names
        },
    }


def write_csv(
    results: Sequence[ResultFile], metrics: Sequence[str], file: TextIO, keys: Sequence[str] = ()
) -> None:
    """Write a CSV line per result: what was run, the values of `keys`, the metrics; empty: no value."""
    settings = settings_of(results, keys) if keys else ()
    writer = csv.writer(file, lineterminator="\n")
    head = ("scenario", "version", "sha256", "horizon_s", "policy", "policy_parameters", "placer")
    tail = ("placer_parameters", "information_class", "seed", "run_key")
    writer.writerow((*head, *tail, *keys, *metrics))
    for place, r in enumerate(results):
        writer.writerow(
            (
                *(r.scenario.name, r.scenario.version, r.scenario.sha256, r.horizon_s),
                *(r.policy.name, json.dumps(r.policy.parameters, sort_keys=True)),
                *(r.placer.name, json.dumps(r.placer.parameters, sort_keys=True)),
                *(r.information_class, r.seed, r.run_key),
                *(settings[place].part(key).name for key in keys),
                *(r.metrics.get(name) for name in metrics),
            )
        )


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


def _metrics(asked: Sequence[str] | None, results: Iterable[ResultFile]) -> list[str]:
    present = dict.fromkeys([*METRICS, *(name for result in results for name in result.metrics)])
    names = [name for part in asked or () for name in part.split(",")]
    for name in names:
        if name not in present:
            raise InputError(f"unknown metric {name!r}", field="--metric", remedy=nearest(name, present))
    return names or list(present)


def _write(path: Path, field_name: str, write: Callable[[TextIO], object]) -> None:
    if path.is_dir():
        raise InputError("is a folder", file=path, field=field_name, remedy="name a file")
    try:
        with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            write(file)
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise InputError(message, file=path, field=field_name, remedy="name another file") from None


def _show(groups: Iterable[ResultGroup], metrics: Sequence[str] | None) -> None:
    for group in groups:
        rows = [
            {
                "policy": column.label,
                "information_class": column.any.information_class,
                "metrics": {
                    name: _as_written(group.counted(column)[0], name, e)
                    for name, e in group.figures(column).items()
                },
                "ratios": group.ratios(column),
            }
            for column in group.columns
        ]
        print_table(comparison_table(rows, metrics, group.reference, group.title))
        seeds = "each column's own" if group.seeds is None else listed(group.seeds)
        for note in (f"seeds: {seeds}", *group.notes):
            print(f"note: {note}")


def _as_written(run: ResultFile, name: str, figure: Estimate | None) -> Estimate | MetricValue:
    """Return the figure of a single run as it stands in its file, so that a count stays whole."""
    return run.metrics[name] if figure is not None and figure.seeds == 1 else figure


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Print tables of the results in folders; write JSON and CSV where asked."""
    options = _parser().parse_args(argv)
    results = read_results(options.places)
    metrics = _metrics(options.metric, results)
    chosen = metrics if options.metric else None
    by = list(dict.fromkeys(key for part in options.by or ["policy"] for key in part.split(",")))
    groups = group_results(results, by, options.reference)
    if options.json is not None:
        text = json.dumps(as_json(groups, chosen), indent=2, allow_nan=False) + "\n"
        _write(options.json, "--json", lambda file: file.write(text))
    if options.csv is not None:
        keys = [key for key in by if key not in REFERENCE]
        _write(options.csv, "--csv", lambda file: write_csv(results, metrics, file, keys))
    _show(groups, chosen)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
