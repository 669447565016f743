"""Measured tables of collectives: reading them, and interpolating in volume."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.cluster.config import canonical_gpu_type
from clustergym.errors import InputError, nearest
from clustergym.oracle.communication.primitives import Primitive
from clustergym.workload.fields import MAX_GPUS, integers, numbers, shown, texts
from clustergym.workload.files import Table, read_csv

Floats = npt.NDArray[np.float64]

COLUMNS = (
    "gpu_type",
    "num_nodes",
    "gpus_per_node",
    "primitive",
    "group_size",
    "nodes_per_group",
    "num_groups",
    "bytes",
    "latency_s",
)
"""Columns that must be there; `network` and `degenerate` are read where they are, others are ignored."""

NETWORKS = ("ib", "default")
"""Values of `network`, the preferred one first: of a GPU type only the rows of one network are read."""

IGNORED = frozenset({"send_proxy_allgather"})
"""Primitives that stand for others: sends imitated by an all-gather."""


class Group(NamedTuple):
    """One kind of group: its members, their nodes, and how many such groups a node takes part in."""

    gpu_type: str
    primitive: Primitive
    ranks: int
    nodes: int
    sharing: int


@dataclass(frozen=True)
class Curve:
    """Seconds by volume, of one group on one machine or of several machines together.

    Attributes
    ----------
    volume_bytes, seconds : ndarray of float, shape (n,)
        Volumes ascending.
    """

    volume_bytes: Floats
    seconds: Floats

    @cached_property
    def _logs(self) -> tuple[Floats, Floats]:
        return np.log(self.volume_bytes), np.log(self.seconds)

    def at(self, volume_bytes: Floats) -> Floats:
        """Return seconds at positive volumes.

        Interpolated in logarithms; below the least volume those of the least, above the greatest
        in proportion to the volume.
        """
        volumes, seconds = self._logs
        wanted = np.log(volume_bytes)
        inside = np.interp(wanted, volumes, seconds)
        return np.asarray(np.exp(inside + np.maximum(wanted - volumes[-1], 0.0)))

    def without(self, volume_bytes: float) -> Curve:
        """Return the curve less one volume."""
        keep = self.volume_bytes != volume_bytes
        return Curve(self.volume_bytes[keep], self.seconds[keep])


def pooled(curves: Sequence[Curve]) -> Curve:
    """Return the geometric mean of curves, made to rise with volume (isotonic regression)."""
    from scipy.optimize import isotonic_regression

    volumes = np.unique(np.concatenate([curve.volume_bytes for curve in curves]))
    mean = np.mean([np.log(curve.at(volumes)) for curve in curves], axis=0)
    return Curve(volumes, np.exp(np.asarray(isotonic_regression(mean).x)))


@dataclass(frozen=True)
class CollectiveTable:
    """Measured latencies of collectives.

    Attributes
    ----------
    path : Path
    sha256 : str
        Of the file.
    rows : int
        Rows that count.
    machines : dict of Group to list of Curve
        One curve for each machine the group was measured on.
    """

    path: Path
    sha256: str
    rows: int
    machines: Mapping[Group, Sequence[Curve]]

    @cached_property
    def curves(self) -> dict[Group, Curve]:
        """One curve for each group."""
        return {group: pooled(curves) for group, curves in self.machines.items()}


def read_collectives(path: str | Path) -> CollectiveTable:
    """Read a CSV of measured collectives.

    Groups are even: every node of a group holds as many of its ranks, and every node of the
    machine takes part in as many groups.

    Raises
    ------
    InputError
        Names file, line and column.
    """
    table = read_csv(Path(path), COLUMNS)
    kept = _kept(table)
    if not kept:
        raise InputError(
            "no row to read: all are degenerate or of primitives that stand for others", file=table.path
        )
    chosen = table.select(kept)
    volume = numbers(chosen, "bytes", low=1)
    seconds = numbers(chosen, "latency_s", low=1e-12)
    found: dict[tuple[Group, tuple[int, int]], dict[float, float]] = {}
    for row, key in enumerate(_groups(chosen)):
        curve = found.setdefault(key, {})
        if curve.setdefault(float(volume[row]), float(seconds[row])) != seconds[row]:
            message = f"{volume[row]:.0f} bytes of this group stand twice, with another latency"
            raise InputError(
                message, file=table.path, line=chosen.line[row], field="latency_s", remedy="keep one"
            )
    machines: dict[Group, list[Curve]] = {}
    for (group, _), curve in found.items():
        sizes = np.array(sorted(curve))
        machines.setdefault(group, []).append(Curve(sizes, np.array([curve[size] for size in sizes])))
    return CollectiveTable(table.path, table.sha256, len(kept), machines)


def _kept(table: Table) -> list[int]:
    """Return the rows that are measurements, of the preferred network of each GPU type."""
    degenerate = integers(table, "degenerate", low=0, high=1, default=0).tolist()
    gpu_types = table.columns["gpu_type"]
    networks = [name or NETWORKS[-1] for name in texts(table, "network")]
    _check_names(table, "network", networks, NETWORKS)
    _check_names(table, "primitive", table.columns["primitive"], [*(p.value for p in Primitive), *IGNORED])
    order = {name: rank for rank, name in enumerate(NETWORKS)}
    best: dict[str, int] = {}
    for gpu, network in zip(gpu_types, networks, strict=True):
        best[gpu] = min(best.get(gpu, len(NETWORKS)), order[network])
    return [
        row
        for row, (gpu, network, primitive) in enumerate(
            zip(gpu_types, networks, table.columns["primitive"], strict=True)
        )
        if not degenerate[row] and primitive not in IGNORED and order[network] == best[gpu]
    ]


def _check_names(table: Table, column: str, cells: Iterable[str], valid: Sequence[str]) -> None:
    for cell, line in zip(cells, table.line, strict=True):
        if cell not in valid:
            message = f"unknown {column} {shown(cell)}"
            raise InputError(message, file=table.path, line=line, field=column, remedy=nearest(cell, valid))


def _groups(table: Table) -> list[tuple[Group, tuple[int, int]]]:
    """Return for each row its group, and the nodes and GPUs per node of the machine."""
    columns = ("num_nodes", "gpus_per_node", "group_size", "nodes_per_group", "num_groups")
    values = [integers(table, name, low=1, high=MAX_GPUS).tolist() for name in columns]
    names = {name: _name(name, table) for name in dict.fromkeys(table.columns["gpu_type"])}
    out = []
    for row, (nodes, per_node, ranks, spans, groups) in enumerate(zip(*values, strict=True)):
        _check_group(table, row, nodes, per_node, ranks, spans, groups)
        primitive = Primitive(table.columns["primitive"][row])
        sharing = groups * spans // nodes
        key = Group(names[table.columns["gpu_type"][row]], primitive, ranks, spans, max(sharing, 1))
        out.append((key, (nodes, per_node)))
    return out


def _check_group(
    table: Table, row: int, nodes: int, per_node: int, ranks: int, spans: int, groups: int
) -> None:
    problems = (
        (ranks < 2, "group_size", "a group of one communicates nothing"),
        (ranks * groups > nodes * per_node, "num_groups", "more ranks than the machine has GPUs"),
        (spans > min(ranks, nodes), "nodes_per_group", "more nodes than ranks, or than the machine has"),
    )
    for wrong, field, message in problems:
        if wrong:
            remedy = "correct the row, or set `degenerate` to 1"
            raise InputError(message, file=table.path, line=table.line[row], field=field, remedy=remedy)


def _name(name: str, table: Table) -> str:
    """Return the catalogue's name of a GPU type; one it does not know stays as it is."""
    if not name:
        line = table.line[table.columns["gpu_type"].index(name)]
        raise InputError("is empty", file=table.path, line=line, field="gpu_type", remedy="give a name")
    try:
        return canonical_gpu_type(name)
    except InputError:
        return name
