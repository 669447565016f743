"""Results of several runs: as tables in the terminal, as JSON and as CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from clustergym.common.errors import require_known
from clustergym.common.tables import print_table
from clustergym.results.metrics.catalogue import METRICS
from clustergym.results.metrics.statistics import Aggregate, Estimate
from clustergym.results.report.by_key import read_settings
from clustergym.results.report.groups import Column, ResultGroup, format_seeds
from clustergym.results.report.metric_tables import comparison_table, ratio
from clustergym.results.result_files import ResultFile


def choose_metrics(results: Iterable[ResultFile], asked: Iterable[str] | None = None) -> list[str]:
    """Return the requested metrics, split at commas and checked; by default all metrics of the results.

    Raises an `InputError` if a metric is unknown.
    """
    present = dict.fromkeys([*METRICS, *(name for result in results for name in result.metrics)])
    names = [name for part in asked or () for name in part.split(",")]
    for name in names:
        require_known(name, present, "metric", "--metric")
    return names or list(present)


def as_json(groups: Iterable[ResultGroup], metrics: Sequence[str] | None = None) -> dict[str, Any]:
    """Return tables of compared results as JSON values, unrounded."""
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
        "ratio_interval": {name: [r.low, r.high] for name, r in ratios.items() if name in names},
    }


def write_csv(
    results: Sequence[ResultFile], metrics: Sequence[str], file: TextIO, keys: Sequence[str] = ()
) -> None:
    """Write a CSV file with a row for each result: its labels, configuration `keys` and metrics."""
    settings = read_settings(results, keys) if keys else ()
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


def print_tables(groups: Iterable[ResultGroup], metrics: Sequence[str] | None) -> None:
    """Print a table of metrics for each group of results, with notes on it."""
    for group in groups:
        rows = [
            {
                "policy": column.label,
                "information_class": column.any.information_class,
                "metrics": {
                    # Of a single run as in its file: a count stays a whole number.
                    name: group.list_counted_runs(column)[0].metrics[name] if e and e.seeds == 1 else e
                    for name, e in group.figures(column).items()
                },
                "ratios": group.ratios(column),
            }
            for column in group.columns
        ]
        print_table(comparison_table(rows, metrics, group.reference, group.title))
        seeds = "each column's own" if group.seeds is None else format_seeds(group.seeds)
        for note in (f"seeds: {seeds}", *group.notes):
            print(f"note: {note}")
