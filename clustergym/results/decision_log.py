"""Read an unchecked decision log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from clustergym.cluster.spec import Nodes
from clustergym.common.errors import InputError
from clustergym.common.reading import read_json_lines
from clustergym.results.columns import check_lines
from clustergym.scenario.scenario import Scenario
from clustergym.sim.engine import Change

DECISIONS_SCHEMA = "clustergym.decisions/1"
LARGEST_BYTES = 256_000_000
"""Limit on the unpacked size; it bounds the time to read a log, as lines are read one by one."""
LONGEST_LINE_BYTES = 4_000_000
MOST_GPUS = 2**31
MOST_SAMPLES = 2**53
MOST_CHANGES = 500_000
MOST_NAMES = 2_000_000
"""Limits on decisions and on all jobs they name; each takes a few hundred bytes of memory."""
REMEDY = "give the decision log of a finished run"
KEYS_OF_GPUS = frozenset({"time_s", "launch", "preempt", "drop"})
KEYS = KEYS_OF_GPUS | {"batch", "beside", "avoid", "notice", "move", "capacity"}


def read_decisions(
    path: Path, scenario: Scenario, packed: bytes | None = None
) -> tuple[dict[str, Any], list[Change]]:
    """Read a policy's decision log from a file, or its gzip bytes `packed`; return header and decisions.

    Parameters
    ----------
    path : Path
    scenario : Scenario
    packed : bytes, optional
        The gzip stream of the log, if the file has the logs of several runs.
    """
    if packed is None:
        check_lines(path)
    header, lines = open_log(path, "decision", DECISIONS_SCHEMA, packed)
    return header, parse_changes(path, scenario, lines)


def parse_changes(
    path: Path, scenario: Scenario, lines: Iterable[tuple[int, dict[str, Any]]]
) -> list[Change]:
    """Parse decisions from numbered lines of a decision log; raises the errors of `read_decisions`."""
    rows = {name: row for row, name in enumerate(scenario.trace.job_id)}
    gpu_types = {name: gpu_type for gpu_type, name in enumerate(scenario.cluster.gpu_types)}
    changes: list[Change] = []
    last_s, named = -math.inf, 0
    for number, entry in lines:
        try:
            change = _change(entry, rows, gpu_types, len(scenario.cluster.node_type))
            # An instant has at most one decision, so that a time identifies it.
            if change.time_s <= last_s:
                raise ValueError(f"{change.time_s} s is not after the decision before it")
            named += _count_named_jobs(change)
            if len(changes) == MOST_CHANGES or named > MOST_NAMES:
                raise ValueError(f"more than {MOST_CHANGES:,} decisions, or {MOST_NAMES:,} jobs named")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(
                f"is not a decision of this scenario: {shorten_error(error)}",
                file=path,
                line=number,
                remedy="the log is of another scenario, or was edited",
            ) from error
        changes.append(change)
        last_s = change.time_s
    return changes


def _change(
    entry: Mapping[str, Any], rows: Mapping[str, int], gpu_types: Mapping[str, int], count: int
) -> Change:
    if not entry.keys() <= KEYS:
        raise ValueError(f"unknown keys {sorted(entry.keys() - KEYS)[:3]}")
    time_s = entry["time_s"]
    # Not isinstance: True and False are whole numbers to Python.
    if type(time_s) not in (int, float) or not 0 <= time_s < math.inf:
        raise ValueError(f"{time_s!r} is not a time")
    launch = []
    for job, gpu_type, gpus in entry.get("launch", ()):
        if type(gpus) is not int or abs(gpus) > MOST_GPUS:
            raise ValueError(f"{gpus!r} is not a number of GPUs")
        launch.append((rows[job], gpu_types[gpu_type], gpus))
    preempt, drop = _parse_rows(entry, "preempt", rows), _parse_rows(entry, "drop", rows)
    change = Change(float(time_s), tuple(launch), preempt, drop)
    # Most logs have no more, and some have hundreds of thousands of decisions.
    return change if entry.keys() <= KEYS_OF_GPUS else _add_terms(change, entry, rows, count)


def _add_terms(change: Change, entry: Mapping[str, Any], rows: Mapping[str, int], count: int) -> Change:
    """Add what a decision says besides the jobs' GPUs: batches, pairs, nodes, moves and notices."""
    batches = []
    for job, batch in entry.get("batch", ()):
        if type(batch) is not int or not 0 < batch <= MOST_SAMPLES:
            raise ValueError(f"{batch!r} is not a global batch")
        batches.append((rows[job], batch))
    beside = tuple((rows[job], rows[other]) for job, other in entry.get("beside", ()))
    launched, avoid = {row for row, _, _ in change.launch}, []
    for job, nodes in entry.get("avoid", ()):
        if rows[job] not in launched or not all(type(node) is int and 0 <= node < count for node in nodes):
            raise ValueError(f"{job} is not launched, or avoids what is no node")
        avoid.append((rows[job], tuple(nodes)))
    notice = _parse_rows(entry, "notice", rows)
    move = tuple((rows[job], _parse_target(target, count)) for job, target in entry.get("move", ()))
    if any(row not in launched for row, _ in move):
        raise ValueError("moves a job that is not launched")
    targets = tuple(entry.get("capacity", ()))
    if not all(type(nodes) is int and 0 <= nodes <= MOST_GPUS for nodes in targets):
        raise ValueError(f"{targets[:3]} are no numbers of nodes")
    change = replace(change, batch=tuple(batches), partner=beside, avoid=tuple(avoid), notice=notice)
    return replace(change, move=move, capacity=targets)


def _parse_target(target: Any, count: int) -> Nodes | int:
    """Return the nodes, or the domain, to which a job moves."""
    if type(target) is int and target >= 0:
        return target
    nodes = tuple((node, gpus) for node, gpus in target)
    for node, gpus in nodes:
        if not (type(node) is type(gpus) is int and 0 <= node < count and 0 < gpus <= MOST_GPUS):
            raise ValueError(f"{[node, gpus]} are no GPUs of a node")
    return nodes


def _count_named_jobs(change: Change) -> int:
    """Return the number of jobs a decision names; raise ValueError if it names a job twice."""
    named = [job for job, _, _ in change.launch] + [*change.preempt, *change.drop]
    if change.is_of_gpus_alone and len(set(named)) == len(named):
        return len(named)
    chosen = [job for job, _ in change.batch]
    shared = [job for pair in change.partner for job in pair]
    moved = [job for job, _ in change.move]
    if any(len(set(jobs)) < len(jobs) for jobs in (named, chosen, shared, change.notice, moved)):
        raise ValueError("names a job twice")
    nodes = sum(len(nodes) for _, nodes in change.avoid)
    nodes += sum(1 if isinstance(target, int) else len(target) for _, target in change.move)
    return len(named) + len(chosen) + len(shared) + len(change.notice) + nodes


def _parse_rows(entry: Mapping[str, Any], key: str, rows: Mapping[str, int]) -> tuple[int, ...]:
    """Return the rows of the jobs in a list of a decision; empty if it has no such list."""
    if key not in entry:
        return ()
    if not isinstance(entry[key], list):
        raise TypeError("jobs are not a list")
    return tuple([rows[job] for job in entry[key]])


def shorten_error(error: Exception) -> str:
    """Return an error's message, cut to 120 characters."""
    text = f"unknown {error}" if isinstance(error, KeyError) else str(error)
    return text if len(text) <= 120 else text[:120] + "…"


def open_log(
    path: Path, name: str, schema: str, packed: bytes | None
) -> tuple[dict[str, Any], Iterator[tuple[int, dict[str, Any]]]]:
    """Open an untrusted gzip log of a schema; return its header, and an iterator of (line number, JSON).

    `name` is what the error message calls the log, such as decision; `packed` is its gzip bytes if it is
    only a part of the file.
    """
    lines = read_json_lines(
        path,
        largest_bytes=LARGEST_BYTES,
        longest_line_bytes=LONGEST_LINE_BYTES,
        remedy=REMEDY,
        packed=packed,
    )
    header = next(lines, (1, {}))[1]
    if header.get("schema") != schema:
        raise InputError(f"is not a {name} log", file=path, line=1, field="schema", remedy=f"want {schema}")
    return header, lines
