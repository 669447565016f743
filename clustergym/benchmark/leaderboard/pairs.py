"""Comparison of policies on the same traces: ratios of mean JCT to the board's reference policy.

Of each row: the geometric mean over seeds by family of traces, and over families with equal weight. Intervals
are Student's t on the logarithms; over families with the degrees of freedom of Welch and Satterthwaite. None
is given for fewer than `LEAST_SEEDS` seeds a family.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from clustergym.benchmark.leaderboard.cells import BOUND, LEAST_SEEDS, FigureTable
from clustergym.common.arrays import Floats

METRIC = "jct_mean"
BEST = "best"
"""The row of the lowest mean JCT of any policy in each cell."""


class Ratio(NamedTuple):
    """A geometric mean of paired ratios.

    Attributes
    ----------
    value : float
    low, high : float or None
        The 95 % interval; None with fewer than `LEAST_SEEDS` seeds in a family.
    seeds : int
        Pairs; over families, the fewest of a family.
    """

    value: float
    low: float | None
    high: float | None
    seeds: int


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


def aggregate_ratios(families: Sequence[Floats]) -> Ratio:
    """Return the geometric mean of paired ratios within families and then over families, with its interval.

    Parameters
    ----------
    families : sequence of ndarray of float
        Logarithms of the ratios of each family, one per seed; at least one each.
    """
    from scipy.special import stdtrit  # Slow to import, and most commands need no interval.

    count, seeds = len(families), min(len(logs) for logs in families)
    mean = float(np.mean([logs.mean() for logs in families]))
    if seeds < LEAST_SEEDS:
        return Ratio(math.exp(mean), None, None, seeds)
    parts = [float(logs.var(ddof=1)) / len(logs) / count**2 for logs in families]
    variance = sum(parts)
    if variance == 0.0:
        return Ratio(math.exp(mean), math.exp(mean), math.exp(mean), seeds)
    # Satterthwaite's degrees of freedom: families differ in their spread, of which each is estimated apart.
    freedom = variance**2 / sum(part**2 / (len(logs) - 1) for part, logs in zip(parts, families, strict=True))
    half = float(stdtrit(freedom, 0.975)) * math.sqrt(variance)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), seeds)


def compare_with_reference(
    table: FigureTable, name: str, condition: str = "", reference: str | None = None
) -> Comparison:
    """Return the ratios of a policy, of the bound or of the `BEST` in each cell to a reference."""
    of = table.keys.reference if reference is None else reference
    logs, stopped = dict[str, Floats](), ""
    for family in table.keys.scenarios:
        mine, other = (_values(table, one, family, condition) for one in (name, of))
        ended = [math.log(mine[seed] / other[seed]) for seed in mine if other.get(seed)]
        logs[family] = np.array(ended)
    for place, row in sorted(table.rows.items()):
        if (place.policy, place.condition) == (name, condition) and row.stopped and not stopped:
            stopped = f"{place.scenario}-{place.seed}: {row.stopped}"
            logs[place.scenario] = np.array([])
    found = {family: aggregate_ratios([values]) if len(values) else None for family, values in logs.items()}
    whole = all(len(values) for values in logs.values())
    return Comparison(found, aggregate_ratios([*logs.values()]) if whole else None, stopped)


def _values(table: FigureTable, name: str, family: str, condition: str) -> dict[int, float]:
    """Return the metric by seed of a policy, the bound, or the best of all policies, in runs that ended."""
    found: dict[int, float] = {}
    for place, row in table.rows.items():
        value = row.metrics[METRIC]
        if (place.scenario, place.condition) != (family, condition) or value is None:
            continue
        if place.policy == name or (name == BEST and place.policy != BOUND):
            found[place.seed] = min(value, found.get(place.seed, math.inf))
    return dict(sorted(found.items()))


def mean_hours(table: FigureTable, name: str) -> float | None:
    """Return a policy's mean JCT in hours, of seeds and then of families; None with too few seeds in one.

    Unlike ratios, means of different seeds cannot be compared.
    """
    means = [[*_values(table, name, family, "").values()] for family in table.keys.scenarios]
    if any(len(values) < LEAST_SEEDS for values in means):
        return None
    return float(np.mean([np.mean(values) for values in means])) / 3600


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
    return float(kendalltau(*([_level(half, name, tied) for name in both] for half in halves)).statistic)


def _level(values: Mapping[str, float], name: str, tied: float) -> int:
    """Return the rank of a row, where a row within `tied` of the one before it shares that one's rank."""
    ordered = sorted(values.values())
    starts = [1] + [1 + at for at, (one, two) in enumerate(pairwise(ordered), start=1) if two / one > tied]
    return max(start for start in starts if ordered[start - 1] <= values[name])
