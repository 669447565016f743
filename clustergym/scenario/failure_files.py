"""Schedules of failures: CSV files of nodes and of switches."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.errors import InputError, nearest

COLUMNS = ("time_s", "node", "repair_s")
"""Columns of a schedule: when a node fails, which (counted from 0), and how long its repair takes."""

SWITCH_COLUMNS = ("time_s", "tier", "number", "repair_s")
"""Columns of a schedule of switches: `tier` is `leaf` or `minipod`, switches count from 0 in each."""


class NodeFailure(NamedTuple):
    """One failure of a node and the duration of its repair."""

    time_s: float
    node: int
    repair_s: float


class SwitchFailure(NamedTuple):
    """One failure of a leaf, or of a minipod's spine, and the duration of its repair."""

    time_s: float
    tier: str
    number: int
    repair_s: float


def read_schedule(path: str | Path, nodes: int) -> tuple[NodeFailure, ...]:
    """Read a CSV of failures with the columns `COLUMNS`, rows in any order.

    Raises
    ------
    InputError
        If the file is malformed, names a node that the cluster does not have, or lets a node fail while
        it is being repaired. Names file, line and column.
    """
    from clustergym.common.columns import integers, numbers
    from clustergym.common.text_files import read_csv

    table = read_csv(Path(path), COLUMNS)
    rows = zip(
        numbers(table, "time_s", low=0.0).tolist(),
        integers(table, "node", low=0, high=nodes - 1).tolist(),
        numbers(table, "repair_s", low=1e-6).tolist(),
        table.line,
        strict=True,
    )
    ordered = sorted((NodeFailure(time_s, node, repair_s), line) for time_s, node, repair_s, line in rows)
    back_s: dict[int, float] = {}
    for failure, line in ordered:
        if failure.time_s < back_s.get(failure.node, 0.0):
            raise InputError(
                f"node {failure.node} fails at {failure.time_s:g} s, but its repair lasts until "
                f"{back_s[failure.node]:g} s",
                file=path,
                line=line,
                field="time_s",
                remedy="let it fail later, or merge both rows",
            )
        back_s[failure.node] = failure.time_s + failure.repair_s
    return tuple(failure for failure, _ in ordered)


def read_switches(path: str | Path, cluster: ClusterSpec) -> tuple[SwitchFailure, ...]:
    """Read a CSV of failures of switches with the columns `SWITCH_COLUMNS`, rows in any order.

    Raises
    ------
    InputError
        If the file is malformed or names a switch that the cluster does not have. Names line and column.
    """
    from clustergym.common.columns import integers, numbers
    from clustergym.common.text_files import read_csv

    table = read_csv(Path(path), SWITCH_COLUMNS)
    most = {"leaf": int(cluster.node_leaf.max()), "minipod": int(cluster.node_minipod.max())}
    times, repairs = numbers(table, "time_s", low=0.0), numbers(table, "repair_s", low=1e-6)
    found = []
    rows = zip(
        times.tolist(),
        table.columns["tier"],
        integers(table, "number", low=0).tolist(),
        repairs.tolist(),
        table.line,
        strict=True,
    )
    for time_s, tier, number, repair_s, line in rows:
        if tier not in most:
            message, remedy = f"unknown tier {tier!r}", nearest(tier, most)
            raise InputError(message, file=path, line=line, field="tier", remedy=remedy)
        if number > most[tier]:
            raise InputError(
                f"cluster {cluster.name} has no {tier} {number}",
                file=path,
                line=line,
                field="number",
                remedy=f"give 0 to {most[tier]}",
            )
        found.append(SwitchFailure(time_s, tier, number, repair_s))
    return tuple(sorted(found))
