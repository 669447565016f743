"""Tabulates results: `python -m clustergym.collect DIR…`, one table per scenario, a column per policy."""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from clustergym.arguments import Parser
from clustergym.errors import InputError, exits_on_bad_input, nearest
from clustergym.metrics.catalogue import METRICS
from clustergym.metrics.metrics import MetricValue
from clustergym.metrics.statistics import Estimate, estimate
from clustergym.paths import atomic_path
from clustergym.results import Part, Result, read_results
from clustergym.tables import comparison_table, print_table, ratio

REFERENCE = {"policy": "fcfs", "placer": "buddy"}
"""What columns of either kind are compared with, where it is among them."""


@dataclass
class Column:
    """The results of one policy with one placer in one group, by seed."""

    label: str
    by_seed: dict[int, Result] = field(default_factory=dict)

    @property
    def any(self) -> Result:
        """One of its results, for what they all share."""
        return next(iter(self.by_seed.values()))


@dataclass
class Group:
    """Results that may be compared: one scenario, one horizon, the same jobs for each seed.

    Attributes
    ----------
    results : list of Result
    columns : list of Column
        In order of their labels, the reference first.
    reference : int or None
        Position of the column that ratios are to.
    seeds : list of int or None
        Seeds the figures are over; None: each column is over its own.
    notes : list of str
        What a reader must know to compare rightly.
    """

    results: list[Result]
    split: bool = False
    columns: list[Column] = field(default_factory=list)
    reference: int | None = None
    seeds: list[int] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Scenario, version, horizon and, for one that does not depend on the seed, its hash."""
        first = self.results[0]
        horizon = "to the last job" if first.horizon_s is None else f"horizon {first.horizon_s / 3600:.6g} h"
        hashes = sorted({result.scenario.sha256[:8] for result in self.results})
        sha = hashes[0] if len(hashes) == 1 else f"{len(hashes)} seeds' job sets"
        return f"{first.scenario.name} v{first.scenario.version}, {horizon}, {sha}"

    def figures(self, column: Column) -> dict[str, Estimate | None]:
        """Return each metric over the group's seeds; None where a seed has no value."""
        seeds = sorted(column.by_seed) if self.seeds is None else self.seeds
        tables = [column.by_seed[seed].metrics for seed in seeds]
        names = dict.fromkeys(name for table in tables for name in table)
        return {name: _figure([table.get(name) for table in tables]) for name in names}


def _figure(values: Sequence[float | int | None]) -> Estimate | None:
    present = [float(value) for value in values if value is not None]
    return estimate(present) if present and len(present) == len(values) else None


def group_results(results: Iterable[Result], by: str = "policy", reference: str | None = None) -> list[Group]:
    """Sort results into groups that may be compared, with columns.

    Parameters
    ----------
    results : iterable of Result
    by : str
        `policy`: a column per policy (and placer, where those differ); `placer`: a column per
        placer, and a group for each policy.
    reference : str, optional
        Label or name of the column that ratios are to; by default that of `REFERENCE`.

    Raises
    ------
    InputError
        If two results of one column, scenario and seed disagree, or no group has the reference.
    """
    groups = [part for family in _families(results, by) for part in _comparable(family)]
    for group in groups:
        _add_columns(group, by)
        _choose_reference(group, by, reference)
        _choose_seeds(group)
        _note_differences(group)
    if reference is not None and not any(group.reference is not None for group in groups):
        names = {name for g in groups for c in g.columns for name in (c.label, _part(c.any, by).name)}
        raise InputError(
            f"no column is called {reference!r}", field="--reference", remedy=nearest(reference, names)
        )
    return groups


def _part(result: Result, by: str) -> Part:
    return result.placer if by == "placer" else result.policy


def _families(results: Iterable[Result], by: str) -> list[list[Result]]:
    families: dict[tuple[str, int, float, str], list[Result]] = {}
    for result in results:
        horizon = float("inf") if result.horizon_s is None else result.horizon_s
        policy = result.policy.key if by == "placer" else ""
        key = (result.scenario.name, result.scenario.version, horizon, policy)
        families.setdefault(key, []).append(result)
    return [families[key] for key in sorted(families)]


def _comparable(results: list[Result]) -> list[Group]:
    """Split a scenario's results where one seed stands for more than one job set."""
    hashes: dict[int, set[str]] = {}
    for result in results:
        hashes.setdefault(result.seed, set()).add(result.scenario.sha256)
    if all(len(of_seed) == 1 for of_seed in hashes.values()):
        return [Group(results)]
    parts: dict[str, list[Result]] = {}
    for result in results:
        parts.setdefault(result.scenario.sha256, []).append(result)
    return [Group(parts[sha], split=True) for sha in sorted(parts)]


def _add_columns(group: Group, by: str) -> None:
    columns: dict[tuple[str, str, str], Column] = {}
    for result in group.results:
        key = (result.policy.key, result.placer.key, result.information_class)
        column = columns.setdefault(key, Column(""))
        twin = column.by_seed.setdefault(result.seed, result)
        if (twin.digest, twin.metrics) != (result.digest, result.metrics):
            message = f"{result.policy.name} with seed {result.seed} differs from {twin.path}"
            raise InputError(
                message, file=result.path, field="run_key", remedy="collect the two folders apart"
            )
    group.columns = list(columns.values())
    for column in group.columns:
        column.label = _column_label(column, group, by)
    group.columns.sort(key=lambda column: column.label)


def _column_label(column: Column, group: Group, by: str) -> str:
    everyone = [other.any for other in group.columns]
    mine = column.any
    label = _part_label(_part(mine, by), [_part(result, by) for result in everyone])
    if by == "policy" and len({result.placer.key for result in everyone}) > 1:
        label += " / " + _part_label(mine.placer, [result.placer for result in everyone])
    classes = {r.information_class for r in everyone if (r.policy, r.placer) == (mine.policy, mine.placer)}
    return label + (f" ({mine.information_class})" if len(classes) > 1 else "")


def _part_label(part: Part, others: Iterable[Part]) -> str:
    """Return the name, with those parameters in which parts of that name differ."""
    namesakes = [other.parameters for other in others if other.name == part.name]
    names = sorted({name for parameters in namesakes for name in parameters})
    differing = [name for name in names if len({_shown(p, name) for p in namesakes}) > 1]
    shown = ", ".join(f"{name}={_shown(part.parameters, name)}" for name in differing)
    return f"{part.name}({shown})" if shown else part.name


def _shown(parameters: dict[str, Any], name: str) -> str:
    return json.dumps(parameters[name], sort_keys=True) if name in parameters else "unset"


def _choose_reference(group: Group, by: str, reference: str | None) -> None:
    wanted = reference or REFERENCE[by]
    named = [c for c in group.columns if c.label == wanted] or [
        c for c in group.columns if _part(c.any, by).name == wanted
    ]
    if named:
        group.columns.sort(key=lambda column: column is not named[0])
        group.reference = 0


def _choose_seeds(group: Group) -> None:
    seeds = [set(column.by_seed) for column in group.columns]
    common = set.intersection(*seeds)
    if common:
        group.seeds = sorted(common)
    else:
        group.reference = None
    if all(of_column == common for of_column in seeds):
        return
    have = "; ".join(f"{c.label}: {_listed(c.by_seed)}" for c in group.columns)
    used = (
        f"the figures are over the common {_listed(common)}"
        if common
        else "none is common to all, so each column is over its own and there are no ratios"
    )
    group.notes.append(f"seeds differ ({have}); {used}")


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(str(seed) for seed in sorted(seeds))


def _note_differences(group: Group) -> None:
    if group.split:
        group.notes.append(
            f"results of {group.results[0].scenario.name} have different job sets or settings for one seed: "
            "each scenario hash has a table of its own, not comparable with the others"
        )
    versions = {result.versions.get("clustergym", "unknown") for result in group.results}
    if len(versions) > 1:
        group.notes.append(f"written by different versions of clustergym: {', '.join(sorted(versions))}")


def as_json(groups: Iterable[Group], metrics: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the tables' figures, unrounded, as plain JSON values."""
    return {"schema": "clustergym.collect/1", "tables": [_group_json(group, metrics) for group in groups]}


def _group_json(group: Group, metrics: Sequence[str] | None) -> dict[str, Any]:
    first = group.results[0]
    figures = [group.figures(column) for column in group.columns]
    base = None if group.reference is None else figures[group.reference]
    return {
        "scenario": {"name": first.scenario.name, "version": first.scenario.version},
        "sha256": {str(r.seed): r.scenario.sha256 for r in sorted(group.results, key=lambda r: r.seed)},
        "horizon_s": first.horizon_s,
        "seeds": group.seeds,
        "reference": None if group.reference is None else group.columns[group.reference].label,
        "notes": group.notes,
        "columns": [
            _column_json(column, of_column, base, metrics)
            for column, of_column in zip(group.columns, figures, strict=True)
        ],
    }


def _column_json(
    column: Column,
    figures: dict[str, Estimate | None],
    base: dict[str, Estimate | None] | None,
    metrics: Sequence[str] | None,
) -> dict[str, Any]:
    names = [name for name in metrics or figures if name in figures]
    return {
        "label": column.label,
        "policy": column.any.policy.model_dump(),
        "placer": column.any.placer.model_dump(),
        "information_class": column.any.information_class,
        "seeds": sorted(column.by_seed),
        "metrics": {name: None if (e := figures[name]) is None else e._asdict() for name in names},
        "ratio": {} if base is None else {name: ratio(figures[name], base.get(name)) for name in names},
    }


def write_csv(results: Sequence[Result], metrics: Sequence[str], file: TextIO) -> None:
    """Write one line per result: what it is a result of, then its metrics; empty where there is none."""
    writer = csv.writer(file, lineterminator="\n")
    head = ("scenario", "version", "sha256", "horizon_s", "policy", "policy_parameters", "placer")
    tail = ("placer_parameters", "information_class", "seed", "run_key")
    writer.writerow((*head, *tail, *metrics))
    for r in results:
        writer.writerow(
            (
                *(r.scenario.name, r.scenario.version, r.scenario.sha256, r.horizon_s),
                *(r.policy.name, json.dumps(r.policy.parameters, sort_keys=True)),
                *(r.placer.name, json.dumps(r.placer.parameters, sort_keys=True)),
                *(r.information_class, r.seed, r.run_key),
                *(r.metrics.get(name) for name in metrics),
            )
        )


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m clustergym.collect", description="Tabulate the results in folders.")
    parser.add_argument(
        "places", metavar="DIR", nargs="+", type=Path, help="folder of runs, or a result.json"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the same figures, unrounded")
    parser.add_argument("--csv", metavar="FILE", type=Path, help="write one line per result")
    parser.add_argument("--metric", metavar="NAME", action="append", help="show this metric only; repeatable")
    parser.add_argument("--by", metavar="policy|placer", default="policy", help="what the columns are")
    parser.add_argument("--reference", metavar="NAME", help="column that ratios are to (fcfs, or buddy)")
    return parser


def _metrics(asked: Sequence[str] | None, results: Iterable[Result]) -> list[str]:
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


def _show(groups: Iterable[Group], metrics: Sequence[str] | None) -> None:
    for group in groups:
        rows = [
            {
                "policy": column.label,
                "information_class": column.any.information_class,
                "metrics": {name: _as_written(column, name, e) for name, e in group.figures(column).items()},
            }
            for column in group.columns
        ]
        print_table(comparison_table(rows, metrics, group.reference, group.title))
        seeds = "each column's own" if group.seeds is None else _listed(group.seeds)
        for note in (f"seeds: {seeds}", *group.notes):
            print(f"note: {note}")


def _as_written(column: Column, name: str, figure: Estimate | None) -> Estimate | MetricValue:
    """Return the figure of a single seed as its file has it: a count stays a whole number."""
    one = figure is not None and figure.seeds == 1
    return column.any.metrics[name] if one and len(column.by_seed) == 1 else figure


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Tabulate the results in folders; print the tables, write JSON and CSV where asked."""
    options = _parser().parse_args(argv)
    if options.by not in REFERENCE:
        raise InputError(
            f"unknown choice {options.by!r}", field="--by", remedy=nearest(options.by, REFERENCE)
        )
    results = read_results(options.places)
    metrics = _metrics(options.metric, results)
    chosen = metrics if options.metric else None
    groups = group_results(results, options.by, options.reference)
    if options.json is not None:
        text = json.dumps(as_json(groups, chosen), indent=2, allow_nan=False) + "\n"
        _write(options.json, "--json", lambda file: file.write(text))
    if options.csv is not None:
        _write(options.csv, "--csv", lambda file: write_csv(results, metrics, file))
    _show(groups, chosen)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
