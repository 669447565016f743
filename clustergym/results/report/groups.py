"""Groups of results that may be compared, with their columns, their seeds and their figures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from clustergym.common.errors import InputError, nearest
from clustergym.results.metrics.catalogue import METRICS
from clustergym.results.metrics.statistics import (
    Aggregate,
    Estimate,
    aggregate_paired_ratio,
    estimate,
    estimate_nonnegative,
)
from clustergym.results.report.by_key import describe_differences, divide_by_keys, read_settings
from clustergym.results.result_files import NamedPart, ResultFile

REFERENCE = {"policy": "fcfs", "placer": "buddy"}
"""The policy and the placer that columns are compared with, where they are among them."""


@dataclass
class Column:
    """Results that differ only in their seeds, shown as one column of a table.

    Attributes
    ----------
    label : str
    by_seed : dict of int to ResultFile
    values : dict of str to NamedPart
        Key to value, of columns by keys of the configuration.
    """

    label: str
    by_seed: dict[int, ResultFile] = field(default_factory=dict)
    values: dict[str, NamedPart] = field(default_factory=dict)

    @property
    def any(self) -> ResultFile:
        """One of the column's results, to read what all of them have in common."""
        return next(iter(self.by_seed.values()))


@dataclass
class ResultGroup:
    """Results that may be compared in one table: equal scenario and horizon, and equal jobs at equal seeds.

    Attributes
    ----------
    results : list of ResultFile
    policy : str
        The policy of all results, if the columns are not policies.
    columns : list of Column
        In order of their labels, the reference first.
    reference : int or None
        Position of the column that ratios are to.
    seeds : list of int or None
        Seeds that figures are computed over; None: each column's own.
    notes : list of str
        What a reader must know to compare rightly.
    """

    results: list[ResultFile]
    policy: str = ""
    split: bool = False
    columns: list[Column] = field(default_factory=list)
    reference: int | None = None
    seeds: list[int] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The table's title: policy (unless columns are policies), scenario, version, end of runs, hash."""
        first = self.results[0]
        names = [result.scenario.name.split("+") for result in self.results]
        name = "+".join(part for part in names[0] if all(part in other for other in names))
        if self.policy:
            name = f"{self.policy} on {name}"
        end = "the last job" if first.horizon_s is None else f"hour {first.horizon_s / 3600:.6g}"
        if len({result.horizon_s for result in self.results}) > 1:
            end = "several horizons"
        hashes = sorted({result.scenario.sha256[:8] for result in self.results})
        alike = all(len(of_seed) == 1 for of_seed in self.hashes.values())
        several = f"the job sets of {len(hashes)} seeds" if alike else f"{len(hashes)} scenarios"
        jobs = f"scenario hash {hashes[0]}" if len(hashes) == 1 else several
        return f"{name}, version {first.scenario.version}, up to {end}; {jobs}"

    @property
    def hashes(self) -> dict[int, set[str]]:
        """Hashes of the results' scenarios, by seed."""
        return _hashes(self.results)

    def list_counted_runs(self, column: Column) -> list[ResultFile]:
        """Return a column's results that count: those of the group's seeds, equal runs only once."""
        return different(column, sorted(column.by_seed) if self.seeds is None else self.seeds)

    def figures(self, column: Column) -> dict[str, Estimate | None]:
        """Return each metric's mean over a column's runs with its interval; None without a value."""
        tables = [result.metrics for result in self.list_counted_runs(column)]
        names = dict.fromkeys(name for table in tables for name in table)
        return {name: _figure(name, [table.get(name) for table in tables]) for name in names}

    def ratios(self, column: Column) -> dict[str, Aggregate]:
        """Return each metric's ratio to the reference column, paired by seed, by the metric's name.

        Pairs of equal runs count once. Empty without a reference, and for the reference itself.
        """
        if self.reference is None or column is self.columns[self.reference] or self.seeds is None:
            return {}
        base = self.columns[self.reference]
        pairs = [(column.by_seed[seed], base.by_seed[seed]) for seed in self.seeds]
        pairs = list({(mine.digest, other.digest): (mine, other) for mine, other in reversed(pairs)}.values())
        found = {name: _ratio(name, pairs) for name in pairs[0][0].metrics}
        return {name: ratio for name, ratio in found.items() if ratio is not None}


def different(column: Column, seeds: Iterable[int]) -> list[ResultFile]:
    """Return a column's results of given seeds; of runs with equal digests only the first."""
    found: dict[str, ResultFile] = {}
    for seed in sorted(seeds):
        found.setdefault(column.by_seed[seed].digest, column.by_seed[seed])
    return list(found.values())


def _figure(name: str, values: Sequence[float | int | None]) -> Estimate | None:
    present = [float(value) for value in values if value is not None]
    if not present or len(present) < len(values):
        return None
    if min(present) < 0:
        return estimate(present)
    share = name in METRICS and METRICS[name].unit == "share" and max(present) <= 1
    return estimate_nonnegative(present, 1.0 if share else None)


def _ratio(name: str, pairs: Sequence[tuple[ResultFile, ResultFile]]) -> Aggregate | None:
    sides = [[result.metrics.get(name) for result in side] for side in zip(*pairs, strict=True)]
    if any(value is None or value < 0 for side in sides for value in side):
        return None
    mine, base = (np.array(side, dtype=np.float64) for side in sides)
    return aggregate_paired_ratio(mine, base)


def group_results(
    results: Sequence[ResultFile], by: Sequence[str] = ("policy",), reference: str | None = None
) -> list[ResultGroup]:
    """Divide results into groups that may be compared, and each group into columns of a table.

    Parameters
    ----------
    results : sequence of ResultFile
    by : sequence of str
        `policy`: a column per policy (and placer, where those differ); `placer`: a column per
        placer, and a group for each policy. Any other keys of the configuration: a column for each of
        their values together, and a group for whatever else differs; `policy` and `placer` may be among them.
    reference : str, optional
        Label or name of the column that ratios are to; by default that of `REFERENCE`, if it has one.

    Raises
    ------
    InputError
        If two results of one column, scenario and seed disagree, or no group has the reference; with keys,
        as `read_settings`.
    """
    groups = _by_part(results, by[0]) if len(by) == 1 and by[0] in REFERENCE else _by_keys(results, by)
    for group in groups:
        _choose_reference(group, reference or (REFERENCE.get(by[0]) if len(by) == 1 else None))
        _choose_seeds(group)
        _note_differences(group)
    if reference is not None and not any(group.reference is not None for group in groups):
        names = {name for group in groups for column in group.columns for name in _names(column)}
        raise InputError(
            f"no column is called {reference!r}", field="--reference", remedy=nearest(reference, names)
        )
    return groups


def make_labelled_group(columns: Sequence[Column], reference: str | None) -> ResultGroup:
    """Return a group of results with the given columns, the reference first."""
    results = [result for column in columns for result in column.by_seed.values()]
    group = ResultGroup(results, columns=list(columns))
    _choose_reference(group, reference)
    _choose_seeds(group)
    _note_differences(group)
    return group


def _names(column: Column) -> list[str]:
    """Return the words that select a column as the reference: its label, and the names in the label."""
    return [column.label, *(part.name for part in column.values.values())]


def _by_part(results: Iterable[ResultFile], by: str) -> list[ResultGroup]:
    groups = [part for family in _families(results, by) for part in _comparable(family)]
    for group in groups:
        _add_columns(group, [((r.policy.key, r.placer.key, r.information_class), r) for r in group.results])
        for column in group.columns:
            column.label = _column_label(column, group, by)
            column.values = {by: _part(column.any, by)}
        group.columns.sort(key=lambda column: column.label)
    if by == "placer":
        _name_policies(groups)
    return groups


def _by_keys(results: Sequence[ResultFile], keys: Sequence[str]) -> list[ResultGroup]:
    groups = []
    tables = divide_by_keys(read_settings(results, keys), keys)
    for table, note in zip(tables, describe_differences(tables, keys), strict=True):
        group = ResultGroup([setting.result for setting in table], notes=[note] if note else [])
        values = {id(setting.result): {key: setting.part(key) for key in keys} for setting in table}
        of_values = [tuple(part.key for part in values[id(result)].values()) for result in group.results]
        _add_columns(group, list(zip(of_values, group.results, strict=True)))
        for column in group.columns:
            column.values = values[id(column.any)]
        for column in group.columns:
            column.label = " / ".join(_value_label(column, group, key) for key in keys)
        group.columns.sort(key=lambda column: column.label)
        groups.append(group)
    if "policy" not in keys:
        _name_policies(groups)
    return groups


def _value_label(column: Column, group: ResultGroup, key: str) -> str:
    label = _part_label(column.values[key], [other.values[key] for other in group.columns])
    return label if key in REFERENCE else f"{key}={label}"


def _name_policies(groups: Iterable[ResultGroup]) -> None:
    policies = [group.results[0].policy for group in groups]
    for group in groups:
        group.policy = _part_label(group.results[0].policy, policies)


def _part(result: ResultFile, by: str) -> NamedPart:
    return result.placer if by == "placer" else result.policy


def _families(results: Iterable[ResultFile], by: str) -> list[list[ResultFile]]:
    families: dict[tuple[str, int, float, str], list[ResultFile]] = {}
    for result in results:
        horizon = float("inf") if result.horizon_s is None else result.horizon_s
        policy = result.policy.key if by == "placer" else ""
        key = (result.scenario.name, result.scenario.version, horizon, policy)
        families.setdefault(key, []).append(result)
    return [families[key] for key in sorted(families)]


def _comparable(results: list[ResultFile]) -> list[ResultGroup]:
    """Split a scenario's results into comparable lists: equal seeds must have equal jobs."""
    if all(len(of_seed) == 1 for of_seed in _hashes(results).values()):
        return [ResultGroup(results)]
    parts: dict[str, list[ResultFile]] = {}
    for result in results:
        parts.setdefault(result.scenario.sha256, []).append(result)
    return [ResultGroup(parts[sha], split=True) for sha in sorted(parts)]


def _hashes(results: Iterable[ResultFile]) -> dict[int, set[str]]:
    hashes: dict[int, set[str]] = {}
    for result in sorted(results, key=lambda result: result.seed):
        hashes.setdefault(result.seed, set()).add(result.scenario.sha256)
    return hashes


def _add_columns(group: ResultGroup, keyed: Iterable[tuple[tuple[str, ...], ResultFile]]) -> None:
    """Add a column for each key, with its results by seed."""
    columns: dict[tuple[str, ...], Column] = {}
    for key, result in keyed:
        column = columns.setdefault(key, Column(""))
        twin = column.by_seed.setdefault(result.seed, result)
        if (twin.digest, twin.metrics) != (result.digest, result.metrics):
            message = f"{result.policy.name} with seed {result.seed} differs from {twin.path}"
            raise InputError(
                message, file=result.path, field="run_key", remedy="collect the two folders apart"
            )
    group.columns = list(columns.values())


def _column_label(column: Column, group: ResultGroup, by: str) -> str:
    everyone = [other.any for other in group.columns]
    mine = column.any
    label = _part_label(_part(mine, by), [_part(result, by) for result in everyone])
    if by == "policy" and len({result.placer.key for result in everyone}) > 1:
        label += " / " + _part_label(mine.placer, [result.placer for result in everyone])
    classes = {r.information_class for r in everyone if (r.policy, r.placer) == (mine.policy, mine.placer)}
    return label + (f" ({mine.information_class})" if len(classes) > 1 else "")


def _part_label(part: NamedPart, others: Iterable[NamedPart]) -> str:
    """Return a part's name, with the parameters in which parts of that name differ."""
    namesakes = [other.parameters for other in others if other.name == part.name]
    names = sorted({name for parameters in namesakes for name in parameters})
    differing = [name for name in names if len({_format_parameters(p, name) for p in namesakes}) > 1]
    shown = ", ".join(f"{name}={_format_parameters(part.parameters, name)}" for name in differing)
    return f"{part.name}({shown})" if shown else part.name


def _format_parameters(parameters: dict[str, Any], name: str) -> str:
    return json.dumps(parameters[name], sort_keys=True) if name in parameters else "unset"


def _choose_reference(group: ResultGroup, wanted: str | None) -> None:
    labelled = [column for column in group.columns if column.label == wanted]
    named = labelled or [column for column in group.columns if wanted in _names(column)]
    if named:
        group.columns.sort(key=lambda column: column is not named[0])
        group.reference = 0


def _choose_seeds(group: ResultGroup) -> None:
    seeds = [set(column.by_seed) for column in group.columns]
    common = set.intersection(*seeds)
    if common:
        group.seeds = sorted(common)
    else:
        group.reference = None
    if all(of_column == common for of_column in seeds):
        return
    have = "; ".join(f"{c.label}: {format_seeds(c.by_seed)}" for c in group.columns)
    used = (
        f"the figures are over the common {format_seeds(common)}"
        if common
        else "none is common to all, so each column is over its own and there are no ratios"
    )
    group.notes.append(f"seeds differ ({have}); {used}")


def _note_equal_runs(group: ResultGroup) -> None:
    """Add a note on seeds of a column that gave the same run."""
    repeated = []
    for column in group.columns:
        of_digest: dict[str, list[int]] = {}
        for seed, result in sorted(column.by_seed.items()):
            of_digest.setdefault(result.digest, []).append(seed)
        repeated += [
            f"{column.label}: {format_seeds(seeds)}" for seeds in of_digest.values() if len(seeds) > 1
        ]
    if repeated:
        group.notes.append(
            f"these seeds gave one and the same run (equal digests), counted once ({'; '.join(repeated)}); "
            "for figures over seeds draw the trace by the seed, as trace=philly-like does"
        )


def format_seeds(seeds: Iterable[int]) -> str:
    """Return seeds in ascending order as a text."""
    return ", ".join(str(seed) for seed in sorted(seeds))


def _note_differences(group: ResultGroup) -> None:
    _note_equal_runs(group)
    if group.split:
        group.notes.append(
            f"results of {group.results[0].scenario.name} have different job sets or settings for one seed: "
            "each scenario hash has a table of its own, not comparable with the others"
        )
    versions = {result.versions.get("clustergym", "unknown") for result in group.results}
    if len(versions) > 1:
        group.notes.append(f"written by different versions of clustergym: {', '.join(sorted(versions))}")
