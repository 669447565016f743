"""A policy's runs with several seeds as one line: their mean, and the band from least to greatest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.results.metrics.statistics import Estimate
from clustergym.results.report.series import means, round_series

OVER_TIME = ("throughput", "queued_jobs")
"""Series of a run's timeline that are drawn for several runs together."""


def band_over_time(
    series: Sequence[tuple[Sequence[float], Sequence[float], float]], end_s: float, intervals: int
) -> tuple[Floats, Floats]:
    """Return equal intervals' starts, and mean, least and greatest of curves (times, values, end) in each.

    Parameters
    ----------
    series : sequence of (sequence of float, sequence of float, float)
        When each step of a run begins, its value, and the end of the run, after which it is 0.
    end_s : float
        End of the longest run; above 0.
    intervals : int

    Returns
    -------
    time_s : ndarray of float, shape (intervals,)
    values : ndarray of float, shape (3, intervals)
    """
    ended = [(np.append(times, end), np.append(values, 0.0)) for times, values, end in series]
    table = np.stack([means(times, values, end_s, intervals) for times, values in ended])
    return np.linspace(0.0, end_s, intervals, endpoint=False), _mean_and_range(table)


def band_of_distributions(
    functions: Sequence[tuple[Sequence[float], Sequence[float]]], most: int
) -> tuple[Floats, Floats]:
    """Return up to `most` values, and the mean, least and greatest share of distributions at or below each.

    Parameters
    ----------
    functions : sequence of (sequence of float, sequence of float)
        Values ascending, and the share at or below each; one without values is left out.
    most : int
        Values at most, of evenly spaced ranks.

    Returns
    -------
    values : ndarray of float, shape (m,)
    shares : ndarray of float, shape (3, m)
    """
    known = [(values, shares) for values, shares in functions if len(values)]
    if not known:
        return np.zeros(0), np.zeros((3, 0))
    grid = np.unique(np.concatenate([values for values, _ in known]))
    if len(grid) > most:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, most).round().astype(np.int64))]
    table = np.stack(
        [np.append(0.0, shares)[np.searchsorted(values, grid, side="right")] for values, shares in known]
    )
    return grid, _mean_and_range(table)


def _mean_and_range(table: Floats) -> Floats:
    return np.stack([table.mean(axis=0), table.min(axis=0), table.max(axis=0)])


def make_line(
    label: str,
    runs: Sequence[Mapping[str, Any]],
    figures: Mapping[str, Estimate | None],
    steps: int,
    points: int,
) -> dict[str, Any]:
    """Merge several runs of a policy into the data of one line of a plot: the mean with its range.

    Parameters
    ----------
    label : str
        Label of the policy.
    runs : sequence of mapping
        The page's data of each run; at least two.
    figures : mapping of str to Estimate or None
        The metrics over these runs.
    steps, points : int
        Most steps of a line over time, and most points of a distribution.
    """
    known = {name: figure for name, figure in figures.items() if figure is not None}
    launch_types = runs[0]["overhead_gpu_h"]
    return {
        **{key: runs[0][key] for key in ("colour", "dash", "knows")},
        "label": f"{label}, mean of {len(runs)} seeds",
        "metrics": {name: figure.mean for name, figure in known.items()},
        "intervals": {
            name: [figure.low, figure.high] for name, figure in known.items() if figure.low < figure.high
        },
        "wall_s": _mean([run["wall_s"] for run in runs]),
        "decisions": {"seconds_p99": _mean([(run["decisions"] or {}).get("seconds_p99") for run in runs])},
        "overhead_gpu_h": {
            launch_type: _mean([run["overhead_gpu_h"][launch_type] for run in runs])
            for launch_type in launch_types
        },
        "lost_gpu_h": {
            cause: _mean([run["lost_gpu_h"].get(cause, 0.0) for run in runs])
            for cause in sorted({cause for run in runs for cause in run["lost_gpu_h"]})
        },
        **_curves(runs, steps, points),
    }


def _curves(runs: Sequence[Mapping[str, Any]], steps: int, points: int) -> dict[str, Any]:
    end_s = max(run["end_s"] for run in runs)
    tables: dict[str, list[Any]] = {
        name: [(run["timeline"]["time_s"], run["timeline"][name], run["end_s"]) for run in runs]
        for name in OVER_TIME
    }
    if any(run["slowed"] for run in runs):
        never = {"time_s": [0.0], "share": [0.0]}
        slowed = [(run["slowed"] or never, run["end_s"]) for run in runs]
        tables["slowed"] = [(curve["time_s"], curve["share"], end) for curve, end in slowed]
    times, mean = np.zeros(0), dict.fromkeys(tables, np.zeros(0))
    bands: dict[str, Any] = {name: [[], []] for name in tables}
    if end_s > 0:
        for name, table in tables.items():
            times, (mean[name], *band) = band_over_time(table, end_s, steps)
            bands[name] = [round_series(edge) for edge in band]
    distributions: dict[str, Any] = {}
    for name in ("jct", "fairness"):
        values, (share, *band) = band_of_distributions([run[name] or ([], []) for run in runs], points)
        distributions[name] = [values.tolist(), share.tolist()]
        bands[name] = [edge.tolist() for edge in band]
    time_s = round_series(times)
    return {
        "end_s": end_s,
        "timeline": {"time_s": time_s, **{name: round_series(mean[name]) for name in OVER_TIME}},
        "slowed": {"time_s": time_s, "share": round_series(mean["slowed"])} if "slowed" in tables else None,
        **distributions,
        "bands": bands,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None
