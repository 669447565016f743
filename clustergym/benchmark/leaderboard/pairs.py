"""Comparison of policies on the same traces: ratios of the metric to the board's reference policy.

Of each row: the geometric mean over seeds by family of traces, and over families with equal weight. Intervals
are Student's t on the logarithms; where the metric may be 0, differences stand in place of ratios, and the
mean in place of the geometric mean; over families with the degrees of freedom of Welch and Satterthwaite.
None is given for fewer than `LEAST_SEEDS` seeds a family.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from clustergym.benchmark.leaderboard.cells import BOUND, LEAST_SEEDS, FigureTable, Place
from clustergym.common.arrays import Floats

BEST = "best"
"""The row of the best figure of any policy in each cell."""


class Ratio(NamedTuple):
    """A geometric mean of paired ratios, or the mean of paired differences.

    Attributes
    ----------
    value : float
    low, high : float or None
        The 95 % interval; None with fewer than `LEAST_SEEDS` seeds in a family.
    seeds : int
        Pairs; over families, the fewest of a family.
    compare : str
        `ratio` or `difference`.
    """

    value: float
    low: float | None
    high: float | None
    seeds: int
    compare: str = "ratio"

    @property
    def width(self) -> float:
        """Upper end of the interval over its lower one, less one; of a difference, their distance."""
        if self.low is None or self.high is None:
            return 0.0
        return self.high / self.low - 1.0 if self.compare == "ratio" else self.high - self.low


class Comparison(NamedTuple):
    """A policy's ratios to the reference.

    Attributes
    ----------
    families : dict of str to Ratio or None
        None where nothing was run, or where a run did not end.
    overall : Ratio or None
        Over families; None where one is missing.
    stopped : str
        Why a run did not end, with its place; empty where all did.
    """

    families: Mapping[str, Ratio | None]
    overall: Ratio | None
    stopped: str


def aggregate_ratios(families: Sequence[Floats], compare: str = "ratio") -> Ratio:
    """Return the geometric mean of paired ratios within families and then over families, with its interval.

    Parameters
    ----------
    families : sequence of ndarray of float
        Logarithms of the ratios of each family, or the differences, one per seed; at least one each.
    compare : str
    """
    from scipy.special import stdtrit  # Slow to import, and most commands need no interval.

    shown = math.exp if compare == "ratio" else float
    count, seeds = len(families), min(len(logs) for logs in families)
    mean = float(np.mean([logs.mean() for logs in families]))
    if seeds < LEAST_SEEDS:
        return Ratio(shown(mean), None, None, seeds, compare)
    parts = [float(logs.var(ddof=1)) / len(logs) / count**2 for logs in families]
    variance = sum(parts)
    if variance == 0.0:
        return Ratio(shown(mean), shown(mean), shown(mean), seeds, compare)
    # Satterthwaite's degrees of freedom: families differ in their spread, of which each is estimated apart.
    freedom = variance**2 / sum(part**2 / (len(logs) - 1) for part, logs in zip(parts, families, strict=True))
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(variance)
    return Ratio(shown(mean), shown(mean - half), shown(mean + half), seeds, compare)


def compare_with_reference(
    table: FigureTable, name: str, condition: str | None = None, reference: str | None = None
) -> Comparison:
    """Return the ratios of a policy, of the bound or of the `BEST` in each cell to a reference.

    Without a condition it is that of the row's main figures.
    """
    of = table.keys.reference if reference is None else reference
    under = table.condition_of(name) if condition is None else condition
    compare, logs, stopped = table.keys.compare, dict[str, Floats](), ""
    for family in table.keys.scenarios:
        mine, other = (_values(table, one, family, under) for one in (name, of))
        both = [(mine[seed], other[seed]) for seed in mine if seed in other]
        ratios = [math.log(one / two) for one, two in both if one > 0 < two] if compare == "ratio" else []
        logs[family] = np.array(ratios if compare == "ratio" else [one - two for one, two in both])
    for place, row in sorted(table.rows.items()):
        if (place.policy, place.condition) == (name, under) and row.stopped and not stopped:
            stopped = f"{place.scenario}-{place.seed}: {row.stopped}"
            logs[place.scenario] = np.array([])
    found = {
        family: aggregate_ratios([values], compare) if len(values) else None
        for family, values in logs.items()
    }
    whole = all(len(values) for values in logs.values())
    return Comparison(found, aggregate_ratios([*logs.values()], compare) if whole else None, stopped)


def _values(table: FigureTable, name: str, family: str, condition: str) -> dict[int, float]:
    """Return the metric by seed of a policy, the bound, or the best of all policies, in runs that ended."""
    found: dict[int, float] = {}
    sign = table.board.sign
    for place, row in table.rows.items():
        value = row.metrics[table.board.metric]
        if (place.scenario, place.condition) != (family, condition) or value is None:
            continue
        if place.policy == name or (name == BEST and _is_of_all(table, place)):
            found[place.seed] = sign * min(sign * value, sign * found.get(place.seed, sign * math.inf))
    return dict(sorted(found.items()))


def _is_of_all(table: FigureTable, place: Place) -> bool:
    """Return whether a row counts for the best: more seeds than the least are run of a row or two alone."""
    return place.policy != BOUND and place.seed < table.keys.first_seed + table.keys.least


def mean_metric(table: FigureTable, name: str) -> float | None:
    """Return a policy's mean of the board's metric, over seeds and then families; None with too few seeds.

    Unlike ratios, means of different seeds cannot be compared.
    """
    under = table.condition_of(name)
    means = [[*_values(table, name, family, under).values()] for family in table.keys.scenarios]
    if any(len(values) < LEAST_SEEDS for values in means):
        return None
    return float(np.mean([np.mean(values) for values in means]))


def mean_hours(table: FigureTable, name: str) -> float | None:
    """Return the same in hours, of a board whose metric is a mean JCT."""
    mean = mean_metric(table, name)
    return None if mean is None else mean / 3600


def correlate_halves(table: FigureTable, names: Sequence[str], tied: float = 1.05) -> float | None:
    """Return Kendall's tau-b between the orders of rows in even and odd seeds.

    Ratios closer than `tied` to the next lower one are ties.

    None where fewer than two rows have both halves.
    """
    from scipy.stats import kendalltau

    halves = []
    for odd in (0, 1):
        half = {place: row for place, row in table.rows.items() if place.seed % 2 == odd}
        part = table._replace(rows=half)
        found = {name: compare_with_reference(part, name).overall for name in names}
        halves.append({name: one.value for name, one in found.items() if one is not None})
    both = [name for name in names if all(name in half for half in halves)]
    if len(both) < 2:
        return None
    tau = float(kendalltau(*([_level(half, name, tied) for name in both] for half in halves)).statistic)
    return None if math.isnan(tau) else tau  # All rows of a half are ties.


def _level(values: Mapping[str, float], name: str, tied: float) -> int:
    """Return the rank of a row, where a row within `tied` of the one before it shares that one's rank."""
    ordered = sorted(values.values())
    starts = [1] + [1 + at for at, (one, two) in enumerate(pairwise(ordered), start=1) if two > one * tied]
    return max(start for start in starts if ordered[start - 1] <= values[name])
