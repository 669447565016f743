"""Curves of a result's CSV files, reduced to the points that a page needs; errors name the line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.columns import numbers
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable, read_csv
from clustergym.results.columns import check_lines


def resample_steps(time_s: Floats, values: Floats, end_s: float, most: int) -> tuple[Floats, Floats]:
    """Reduce a step function to at most `most` steps with the same integral; return times and values.

    Parameters
    ----------
    time_s : ndarray of float, shape (n,)
        When each step begins, ascending.
    values : ndarray of float, shape (n,) or (n, m)
    end_s : float
        End of the last step.
    most : int
        A function with more steps is replaced by its means over `most` equal intervals.
    """
    if len(time_s) <= most or end_s <= time_s[0]:
        return time_s, values
    edges = np.linspace(time_s[0], end_s, most + 1)
    return edges[:-1], _means(time_s, values, edges)


def means(time_s: Floats, values: Floats, end_s: float, intervals: int) -> Floats:
    """Return the means of a step function over equal intervals from 0 to `end_s`.

    Parameters
    ----------
    time_s : ndarray of float, shape (n,)
        When each step begins, ascending; before the first the function is 0.
    values : ndarray of float, shape (n,) or (n, m)
    end_s : float
        End of the last step; above 0.
    intervals : int

    Returns
    -------
    ndarray of float, shape (intervals,) or (intervals, m)
    """
    return _means(time_s, values, np.linspace(0.0, end_s, intervals + 1))


def _means(time_s: Floats, values: Floats, edges: Floats) -> Floats:
    """Return the means between consecutive edges; the last edge is the end of the last step."""
    knots = np.append(time_s, edges[-1])
    lasting = np.diff(knots).clip(min=0.0)
    area = np.zeros((len(knots), *values.shape[1:]))
    np.cumsum(values * lasting.reshape(-1, *[1] * (values.ndim - 1)), axis=0, out=area[1:])
    flat = area.reshape(len(area), -1)
    at_edges = np.stack([np.interp(edges, knots, line) for line in flat.T], axis=1)
    return (np.diff(at_edges, axis=0) / np.diff(edges)[:, None]).reshape(len(edges) - 1, *values.shape[1:])


def cdf(values: Floats, most: int) -> tuple[list[float], list[float]]:
    """Return the empirical distribution: up to `most` values ascending, and the share at or below each.

    NaN is left out; with more than `most` values, evenly spaced ranks are kept, the first and last among
    them.
    """
    present = np.sort(values[np.isfinite(values)])
    share = np.arange(1, len(present) + 1) / max(len(present), 1)
    if len(present) > most:
        kept = np.unique(np.linspace(0, len(present) - 1, most).round().astype(np.int64))
        present, share = present[kept], share[kept]
    return present.tolist(), share.tolist()


def round_series(values: Floats) -> list[float]:
    """Return numbers rounded to six significant digits, which suffices for a picture."""
    return [float(f"{value:.6g}") for value in values.tolist()]


REMEDY = "run it again, or leave it out"
LARGEST_BYTES = 2**27


def read_table(path: Path, needed: Sequence[str]) -> TextTable:
    """Read a CSV file of a result, which must have the needed columns."""
    check_lines(path)
    if path.exists() and path.stat().st_size > LARGEST_BYTES:
        raise InputError(f"is larger than {LARGEST_BYTES:,} bytes", file=path, remedy=REMEDY)
    return read_csv(path, needed, optional=None)


def column(table: TextTable, name: str) -> Floats:
    """Return a column of a result's table as numbers of 0 or more; NaN for empty cells."""
    return numbers(table, name, low=0, default=np.nan)
