"""Tables of large runs, in columns: Parquet files, written by pyarrow some thousands of rows at a time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError
from clustergym.common.paths import install_line
from clustergym.sim import columns as c
from clustergym.sim.compiled.event_log import NAMES, REASONS, ArrayEvents
from clustergym.sim.engine import Change
from clustergym.sim.guard import Logs
from clustergym.sim.log import NO_JOB, Event

MANY_JOBS = 100_000
"""Jobs of a run beyond which `auto` writes columns."""
TOGETHER = 65_536
"""Rows that are written at a time."""
IN_COLUMNS = {
    "jobs.csv": "jobs.parquet",
    "timeline.csv": "timeline.parquet",
    "decisions.jsonl.gz": "decisions.parquet",
    "events.jsonl.gz": "events.parquet",
}
"""File in lines -> the file that has the same in columns."""

Columns = Mapping[str, Any]


def choose_logs(logs: Logs, jobs: int) -> Literal["lines", "columns"]:
    """Choose whether a run with this many jobs writes its logs as lines of text or as columnar files."""
    there = find_spec("pyarrow") is not None
    if logs == "columns" and not there:
        remedy = install_line("columns")
        raise InputError("columns need the package pyarrow", field="run.logs", remedy=remedy)
    if logs == "auto":
        return "columns" if there and jobs > MANY_JOBS else "lines"
    return logs


def check_lines(path: Path) -> None:
    """Raise an InputError if a text file is missing since its content is in a columnar file instead."""
    other = path.with_name(IN_COLUMNS.get(path.name, path.name))
    if not path.exists() and other.exists():
        message = f"is not there: this run's tables are in columns ({other.name}), which are not read here"
        remedy = "run it again with run.logs=lines, or read them with pandas.read_parquet"
        raise InputError(message, file=path, remedy=remedy)


def write_columns(path: Path, tables: Iterable[Columns], about: Mapping[str, Any]) -> None:
    """Write tables with equal columns to one columnar file, with `about` as JSON metadata."""
    import pyarrow as arrow
    from pyarrow import parquet

    writer = None
    try:
        for columns in tables:
            table = arrow.table({name: _make_array(values) for name, values in columns.items()})
            if writer is None:
                schema = table.schema.with_metadata({"clustergym": json.dumps(about)})
                writer = parquet.ParquetWriter(path, schema, compression="zstd")
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _make_array(values: Any) -> Any:
    """Convert a column to a pyarrow array; NaN becomes a missing value."""
    import pyarrow as arrow

    if isinstance(values, np.ndarray):
        return arrow.array(np.ascontiguousarray(values), from_pandas=True)
    return values if isinstance(values, arrow.Array) else arrow.array(values)


def split_rows(columns: Columns) -> Iterator[Columns]:
    """Yield a table in blocks of a few thousand rows."""
    length = len(next(iter(columns.values())))
    for begin in range(0, max(length, 1), TOGETHER):
        yield {name: values[begin : begin + TOGETHER] for name, values in columns.items()}


def _name_codes(codes: Any, names: Sequence[str]) -> Any:
    """Return a column of texts from codes; several codes may have the same name, and -1 is missing."""
    import pyarrow as arrow

    # Parquet takes the texts of a column for different ones.
    different = list(dict.fromkeys(names))
    place = np.array([*map(different.index, names), -1], dtype=np.int32)[codes]
    return arrow.DictionaryArray.from_arrays(arrow.array(place, mask=place < 0), arrow.array(different))


def event_tables(events: Sequence[Event], gpu_types: Sequence[str]) -> Iterator[Columns]:
    """Yield the event log as tables with the columns `FIELDS`, a block of rows at a time.

    `nodes` has the nodes of each event, `node_gpus` the GPUs on each.
    """
    for begin in range(0, max(len(events), 1), TOGETHER):
        some = events[begin : begin + TOGETHER]
        columns = _array_columns(some) if isinstance(some, ArrayEvents) else _event_columns(some)
        yield columns | {"gpu_type": _name_codes(columns["gpu_type"], gpu_types)}


FIELDS = (
    *("time_s", "kind", "job", "gpu_type", "gpus", "nodes", "locality", "overhead_s", "iteration_time_s"),
    *("reason", "lost_s", "lost_iterations", "batch", "devices", "partner", "cause", "write_share"),
)
"""Columns of the event log: the fields of `Event`, in order; that of the type has its name in files."""
TEXTS = ("kind", "reason", "cause")
REAL = ("time_s", "overhead_s", "iteration_time_s", "lost_s", "lost_iterations", "write_share")


def _event_columns(events: Sequence[Event]) -> dict[str, Any]:
    import pyarrow as arrow

    found: dict[str, Any] = {}
    for at, name in enumerate(FIELDS):
        values = [event[at] for event in events]
        if name == "nodes":
            held = [event.nodes for event in events]
            found |= _nodes(np.cumsum([0, *map(len, held)]), [pair for pairs in held for pair in pairs])
        elif name in TEXTS:
            found[name] = arrow.array(map(str, values), arrow.string()).dictionary_encode()
        else:
            found[name] = np.array(values, dtype=np.float64 if name in REAL else np.int64)
    return found


def _array_columns(events: ArrayEvents) -> dict[str, Any]:
    event, size = events.event, len(events)
    code, whole, none = event[:, c.EVENT_TYPE], np.zeros(size, np.int64), np.zeros(size)
    first, count = event[:, c.FIRST_NODE], event[:, c.NODE_COUNT]
    offsets = np.append(first, first[-1:] + count[-1:]) if size else np.zeros(1, np.int64)
    return {
        "time_s": event[:, c.TIME] / c.TICKS_PER_S,
        "kind": _name_codes(code, NAMES),
        "job": event[:, c.JOB],
        "gpu_type": event[:, c.EVENT_GPU_TYPE],
        "gpus": event[:, c.EVENT_GPUS],
        **_nodes(offsets - offsets[0], events.event_node[offsets[0] : offsets[-1]]),
        "locality": event[:, c.LOCALITY],
        "overhead_s": event[:, c.OVERHEAD] / c.TICKS_PER_S,
        "iteration_time_s": events.iteration_s,
        "reason": _name_codes(code, [text.strip("'") for text in REASONS]),
        "lost_s": none,
        "lost_iterations": none,
        "batch": whole,
        "devices": whole,
        "partner": whole + NO_JOB,
        "cause": _name_codes(whole, [""]),
        "write_share": none,
    }


def _nodes(offsets: Ints, pairs: Any) -> dict[str, Any]:
    """Return the columns of nodes and of the GPUs on each; row i has pairs offsets[i] to offsets[i + 1]."""
    import pyarrow as arrow

    table, ends = np.asarray(pairs, dtype=np.int64).reshape(-1, 2), offsets.astype(np.int32)
    columns = (arrow.array(np.ascontiguousarray(table[:, at])) for at in range(2))
    return {
        name: arrow.ListArray.from_arrays(ends, values)
        for name, values in zip(("nodes", "node_gpus"), columns, strict=True)
    }


CHANGES = ("launch", "preempt", "drop", "batch", "beside", "avoid")
"""What a row of the decisions' table says of a job."""


def change_tables(changes: Iterable[Change], gpu_types: Sequence[str]) -> Iterator[Columns]:
    """Yield the decision log as tables with a row for each job that a decision changes, block by block.

    `value` is the batch of a `batch`, and the row of the other job of a `beside`; `nodes` are those of an
    `avoid`.
    """
    rows: list[tuple[float, int, int, int, int, int, tuple[int, ...]]] = []
    for change in changes:
        now_s = change.time_s
        rows += [(now_s, 0, row, gpu_type, gpus, 0, ()) for row, gpu_type, gpus in change.launch]
        rows += [(now_s, 1, row, -1, 0, 0, ()) for row in change.preempt]
        rows += [(now_s, 2, row, -1, 0, 0, ()) for row in change.drop]
        rows += [(now_s, 3, row, -1, 0, batch, ()) for row, batch in change.batch]
        rows += [(now_s, 4, row, -1, 0, other, ()) for row, other in change.partner]
        rows += [(now_s, 5, row, -1, 0, 0, nodes) for row, nodes in change.avoid]
        if len(rows) >= TOGETHER:
            yield _change_columns(rows, gpu_types)
            rows = []
    yield _change_columns(rows, gpu_types)


def _change_columns(rows: Sequence[tuple[Any, ...]], gpu_types: Sequence[str]) -> Columns:
    import pyarrow as arrow

    *numbers, nodes = zip(*rows, strict=True) if rows else [()] * 7
    table = np.array(numbers[1:], dtype=np.int64)
    return {
        "time_s": np.array(numbers[0], dtype=np.float64),
        "change": _name_codes(table[0], CHANGES),
        "job": table[1],
        "gpu_type": _name_codes(table[2], gpu_types),
        "gpus": table[3],
        "value": table[4],
        "nodes": arrow.array(nodes, arrow.list_(arrow.int64())),
    }
