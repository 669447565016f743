"""What a report shows of one run, read from the files of its result."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError
from clustergym.json_lines import read_json_lines

Floats = npt.NDArray[np.float64]
LARGEST_FILE_BYTES, LONGEST_LINE_BYTES = 2**30, 2**26
LAUNCHES = ("start", "resume", "rescale", "migrate")
LEAVES = ("preempt", "fail", "complete", "drop")
NODE_EVENTS = ("node_fail", "node_repair")
REMEDY = "run it again, or leave it out"


class Holding(NamedTuple):
    """GPUs that a job held on some nodes, from `start_s` until `end_s`.

    Attributes
    ----------
    job : str
    kind : str
        The launch that began it, or `profile`.
    gpu_type : str
    gpus : int
    start_s, end_s : float
    overhead_s : float
        Seconds at its beginning without work; never more than it lasted.
    nodes : tuple of (int, int)
        (node, GPUs on it).
    """

    job: str
    kind: str
    gpu_type: str
    gpus: int
    start_s: float
    end_s: float
    overhead_s: float
    nodes: tuple[tuple[int, int], ...]


def read_table(path: Path, needed: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a CSV file of a result.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column, or has a row of another length.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, restkey="", restval=None, strict=True)
            missing = [name for name in needed if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError("column is missing", file=path, line=1, field=missing[0], remedy=REMEDY)
            rows = []
            for row in reader:
                if "" in row or None in row.values():
                    message = "has another number of fields than the header"
                    raise InputError(message, file=path, line=reader.line_num, remedy=REMEDY)
                rows.append(row)
            return rows
    except OSError as error:
        raise InputError(error.strerror or "cannot be read", file=path, remedy=REMEDY) from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"is no CSV text: {error}", file=path, remedy=REMEDY) from None


def column(path: Path, rows: list[dict[str, str]], name: str) -> Floats:
    """Return a column as numbers, NaN where a field is empty.

    Raises
    ------
    InputError
        Names the first field that is no finite number.
    """
    values = np.full(len(rows), np.nan)
    for place, row in enumerate(rows):
        try:
            values[place] = float(row[name]) if row[name] else np.nan
        except ValueError:
            values[place] = np.inf
        if np.isinf(values[place]) or (row[name] and np.isnan(values[place])):
            message = f"{row[name][:40]!r} is no finite number"
            raise InputError(message, file=path, line=place + 2, field=name, remedy=REMEDY)
    return values


def holdings(path: Path, end_s: float) -> list[Holding]:
    """Return all that jobs held in a run, in order of when it began.

    Parameters
    ----------
    path : Path
        events.jsonl.gz.
    end_s : float
        When what is still held ends.

    Raises
    ------
    InputError
        As `read_json_lines`, or if an event lacks a value or is out of order.
    """
    open_now: dict[tuple[str, str], Holding] = {}
    closed: list[Holding] = []
    limits = {"largest_bytes": LARGEST_FILE_BYTES, "longest_line_bytes": LONGEST_LINE_BYTES}
    for number, event in read_json_lines(path, **limits, remedy=REMEDY):
        try:
            _follow(event, open_now, closed)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            message = f"is no event of a run: {error!r}"
            raise InputError(message, file=path, line=number, remedy=REMEDY) from None
    closed += [_until(held, end_s) for held in open_now.values()]
    return sorted(closed, key=lambda held: (held.start_s, held.job, held.gpu_type))


def _follow(event: dict[str, Any], open_now: dict[tuple[str, str], Holding], closed: list[Holding]) -> None:
    kind, time_s = event["kind"], float(event["time_s"])
    if kind in NODE_EVENTS:
        return
    job = event["job_id"]
    if kind in (*LAUNCHES, *LEAVES):
        key = (job, "")
    elif kind in ("profile_start", "profile_end"):
        key = (job, event["gpu_type"])
    else:
        return
    if key in open_now:
        closed.append(_until(open_now.pop(key), time_s))
    if kind in LAUNCHES or kind == "profile_start":
        nodes = tuple((int(node), int(gpus)) for node, gpus in event["nodes"])
        open_now[key] = Holding(
            str(job),
            "profile" if kind == "profile_start" else kind,
            str(event["gpu_type"]),
            int(event["gpus"]),
            time_s,
            time_s,
            float(event.get("overhead_s", 0.0)),
            nodes,
        )


def _until(held: Holding, end_s: float) -> Holding:
    if end_s < held.start_s:
        raise ValueError(f"time goes back to {end_s}")
    return held._replace(end_s=end_s, overhead_s=min(held.overhead_s, end_s - held.start_s))


def overhead_gpu_h(held: list[Holding]) -> dict[str, float]:
    """Return GPU-hours held without work, by the kind of launch."""
    found = dict.fromkeys(LAUNCHES, 0.0)
    for one in held:
        if one.kind in found:
            found[one.kind] += one.overhead_s * one.gpus / 3600
    return found


def resampled(time_s: Floats, values: Floats, end_s: float, most: int) -> tuple[Floats, Floats]:
    """Return a step function with at most so many steps and the same integral.

    Parameters
    ----------
    time_s : ndarray of float, shape (n,)
        When each step begins, ascending.
    values : ndarray of float, shape (n,) or (n, m)
    end_s : float
        End of the last step.
    most : int
        With more steps than that, each of `most` equal intervals has its mean over time.
    """
    if len(time_s) <= most or end_s <= time_s[0]:
        return time_s, values
    edges = np.linspace(time_s[0], end_s, most + 1)
    return edges[:-1], _means(time_s, values, edges)


def means(time_s: Floats, values: Floats, end_s: float, intervals: int) -> Floats:
    """Return the mean of a step function over each of so many equal intervals from 0 to `end_s`.

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
    """Return means between edges, the last of which is the end of the last step."""
    knots = np.append(time_s, edges[-1])
    lasting = np.diff(knots).clip(min=0.0)
    area = np.zeros((len(knots), *values.shape[1:]))
    np.cumsum(values * lasting.reshape(-1, *[1] * (values.ndim - 1)), axis=0, out=area[1:])
    flat = area.reshape(len(area), -1)
    at_edges = np.stack([np.interp(edges, knots, line) for line in flat.T], axis=1)
    return (np.diff(at_edges, axis=0) / np.diff(edges)[:, None]).reshape(len(edges) - 1, *values.shape[1:])


def cdf(values: Floats, most: int) -> tuple[list[float], list[float]]:
    """Return the empirical distribution function: values ascending, and the share at or below each.

    NaN is left out; with more than `most` values, evenly spaced ranks are kept, the first and last among
    them.
    """
    present = np.sort(values[np.isfinite(values)])
    share = np.arange(1, len(present) + 1) / max(len(present), 1)
    if len(present) > most:
        kept = np.unique(np.linspace(0, len(present) - 1, most).round().astype(np.int64))
        present, share = present[kept], share[kept]
    return present.tolist(), share.tolist()
