"""Fitting the alpha-beta constants to a measured table, and writing them with their provenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.cluster.config import load_gpu_types
from clustergym.cluster.spec import GpuType, Locality
from clustergym.errors import InputError, nearest
from clustergym.oracle.communication.constants import LINK_FAMILIES, NETWORK, Constants, Medium, link_family
from clustergym.oracle.communication.hardware import Bandwidth, Hardware
from clustergym.oracle.communication.measured import CollectiveTable, Curve, Group, read_collectives
from clustergym.oracle.communication.primitives import Primitive, steps
from clustergym.paths import atomic_path

Floats = npt.NDArray[np.float64]

FLAT = Medium({p: 0.0 for p in Primitive}, 0.0, {p: 1.0 for p in Primitive})
"""Stands for the medium that a fit leaves out."""

PAIR_IS_ALL = 0.99
"""Above it, a pair of GPUs counts as reaching all of the bandwidth."""

LARGE_OCTAVE, SMALL_WEIGHT = 20, 0.1
"""Volumes from 1 MiB are what training moves; a smaller octave counts a tenth, to settle the latency."""

ROWS_PER_OCTAVE = 4
"""The most volumes of an octave that a fit looks at."""

LOG_SCALE = 0.1
"""Residuals well above 10 % count linearly, not squared."""


@dataclass(frozen=True)
class Rows:
    """Measured rows of one GPU type and one medium, shape (n,) each.

    Each group counts by the octaves of volume it was measured in, not by its number of rows.
    """

    primitive: npt.NDArray[np.str_]
    ranks: Floats
    nodes: Floats
    sharing: Floats
    volume_bytes: Floats
    seconds: Floats
    weight: Floats

    def predicted_s(self, hardware: Hardware) -> Floats:
        """Return what alpha-beta says of every row."""
        out = np.empty(len(self.seconds))
        for name in np.unique(self.primitive):
            here = self.primitive == name
            axes = (self.volume_bytes[here], self.ranks[here], self.nodes[here], self.sharing[here])
            out[here] = hardware.alpha_beta_s(
                Primitive(name), *axes, np.full(int(here.sum()), float(Locality.LEAF))
            )
        return out


def fit_collectives(path: str | Path) -> Constants:
    """Fit latency and effective bandwidth per GPU type, medium and primitive.

    Links first, on groups inside a node; then networks, on the groups across nodes. Least squares
    of log errors, robust against outliers. The defaults are geometric means over the measured GPU
    types (of a kind of link).

    Raises
    ------
    InputError
        As `read_collectives`; for a GPU type the catalogue does not know, and a table from which
        no link or no network can be fitted.
    """
    return fit_table(read_collectives(path))


def fit_table(table: CollectiveTable) -> Constants:
    """Fit a table that has been read; see `fit_collectives`."""
    links: dict[str, Medium] = {}
    networks: dict[str, Medium] = {}
    for name in sorted({group.gpu_type for group in table.machines}):
        link, network = fit_gpu_type(table, name)
        if link is not None:
            links[name] = link
        if network is not None:
            networks[name] = network
    return Constants(links, networks, _defaults(table, links, networks), table.sha256)


def fit_gpu_type(table: CollectiveTable, name: str) -> tuple[Medium | None, Medium | None]:
    """Fit links and network of one GPU type; None where nobody measured, and without links no network.

    Raises
    ------
    InputError
        If the catalogue does not know the GPU type.
    """
    gpu = load_gpu_types().get(name)
    if gpu is None:
        remedy = nearest(name, load_gpu_types())
        raise InputError(f"unknown GPU type {name!r}", file=table.path, field="gpu_type", remedy=remedy)
    inside, across = _rows(table, name, False), _rows(table, name, True)
    link = None if inside is None else _fit(inside, gpu, None)
    return link, None if link is None or across is None else _fit(across, gpu, link)


def _rows(table: CollectiveTable, gpu_type: str, across: bool) -> Rows | None:
    columns: list[tuple[Group, Floats, Floats, Floats]] = []
    for group, curves in table.machines.items():
        if group.gpu_type != gpu_type or (group.nodes > 1) != across:
            continue
        for curve in map(_thinned, curves):
            octave = _octave(curve.volume_bytes)
            weight = np.where(octave >= LARGE_OCTAVE, 1.0, SMALL_WEIGHT) / np.bincount(octave)[octave]
            columns.append((group, curve.volume_bytes, curve.seconds, weight))
    if not columns:
        return None
    sizes = [len(volume) for _, volume, _, _ in columns]

    def repeated(name: str) -> Floats:
        return np.repeat([float(getattr(group, name)) for group, *_ in columns], sizes)

    return Rows(
        np.repeat([group.primitive.value for group, *_ in columns], sizes),
        repeated("ranks"),
        repeated("nodes"),
        repeated("sharing"),
        np.concatenate([volume for _, volume, _, _ in columns]),
        np.concatenate([seconds for _, _, seconds, _ in columns]),
        np.concatenate([weight for *_, weight in columns]),
    )


def _octave(volume_bytes: Floats) -> npt.NDArray[np.int64]:
    return np.asarray(np.floor(np.log2(volume_bytes)), dtype=np.int64)


def _thinned(curve: Curve) -> Curve:
    octave = _octave(curve.volume_bytes)
    rank = np.arange(len(octave)) - np.searchsorted(octave, octave)
    keep = rank % -(-np.bincount(octave)[octave] // ROWS_PER_OCTAVE) == 0
    return Curve(curve.volume_bytes[keep], curve.seconds[keep])


def _fit(rows: Rows, gpu: GpuType, link: Medium | None) -> Medium:
    """Fit the link (where none is given) or the network of one GPU type."""
    from scipy.optimize import least_squares

    layout = Parameters.of(rows, link is not None)
    target, root = np.log(rows.seconds), np.sqrt(rows.weight)

    def residuals(x: Floats) -> Floats:
        hardware = _hardware(gpu, layout.medium(x), link)
        return np.asarray((np.log(rows.predicted_s(hardware)) - target) * root)

    low, start, high = np.log(layout.bounds()).T
    found = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=LOG_SCALE, xtol=1e-5)
    return _rounded(layout.medium(found.x))


class Parameters(NamedTuple):
    """Which constants a table determines; they are fitted as logarithms.

    Attributes
    ----------
    present : tuple of Primitive
        Measured ones: a latency and a share of each.
    hops : bool
        Whether any group makes more than one hop.
    paired : tuple of Primitive
        Those measured both in pairs and in larger groups of one node.
    alone : bool
        Whether nodes with one GPU in a network can be told from those with several.
    """

    present: tuple[Primitive, ...]
    hops: bool
    paired: tuple[Primitive, ...]
    alone: bool

    @staticmethod
    def of(rows: Rows, across: bool) -> Parameters:
        """Return what the rows determine."""
        hops = steps(Primitive.ALL_REDUCE, rows.ranks, rows.nodes)[int(across)]
        present = tuple(p for p in Primitive if p.value in rows.primitive)
        of_primitive = {p: rows.ranks[rows.primitive == p.value] for p in present}
        paired = tuple(p for p, n in of_primitive.items() if (n == 2).any() and (n > 2).any())
        busy = (rows.ranks / rows.nodes * rows.sharing)[rows.primitive != Primitive.SEND.value] > 1
        alone = bool(across and busy.any() and not busy.all())
        return Parameters(present, bool((hops > 0).any()), () if across else paired, alone)

    def bounds(self) -> Floats:
        """Return least value, start and greatest value of each constant, shape (n, 3)."""
        rows = [(1e-7, 5e-5, 0.1)] * len(self.present) + [(1e-3, 0.3, 1.0)] * len(self.present)
        rows += [
            *[(1e-7, 1e-5, 1e-2)] * self.hops,
            *[(0.1, 0.7, 1.0)] * len(self.paired),
            *[(1.0, 1.5, 8.0)] * self.alone,
        ]
        return np.array(rows)

    def medium(self, logs: Floats) -> Medium:
        """Return the constants from their logarithms."""
        values, n = iter(np.exp(logs).tolist()), self.present
        latency, share = {p: next(values) for p in n}, {p: next(values) for p in n}
        step = next(values) if self.hops else None
        pair = {p: next(values) for p in self.paired}
        return Medium(latency, step, share, pair, next(values) if self.alone else 1.0)


def _hardware(gpu: GpuType, medium: Medium, link: Medium | None) -> Hardware:
    bandwidth = Bandwidth.of_type(gpu)
    return Hardware(
        bandwidth,
        bandwidth,
        medium if link is None else link.completed(FLAT),
        FLAT if link is None else medium,
    )


def _rounded(medium: Medium) -> Medium:
    return Medium(
        {name: _digits(value) for name, value in medium.latency_s.items()},
        None if medium.step_s is None else _digits(medium.step_s),
        {name: _digits(value) for name, value in medium.share.items()},
        {name: _digits(value) for name, value in medium.pair_share.items() if value < PAIR_IS_ALL},
        _digits(medium.alone_speedup),
    )


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def _defaults(
    table: CollectiveTable,
    links: Mapping[str, Medium],
    networks: Mapping[str, Medium],
) -> dict[str, Medium]:
    catalogue = load_gpu_types()
    of_kind = {
        family: [m for name, m in links.items() if link_family(catalogue[name].link_kind) == family]
        for family in LINK_FAMILIES
    } | {NETWORK: list(networks.values())}
    for kind, mediums in of_kind.items():
        missing = [p.value for p in Primitive if not any(p in medium.share for medium in mediums)]
        if all(medium.step_s is None for medium in mediums):
            missing.append("group of more than one hop")
        if missing:
            message = f"no {missing[0]} on {kind} was measured, so nothing can stand in for other hardware"
            raise InputError(message, file=table.path, remedy="add such rows")
    return {kind: _mean(mediums) for kind, mediums in of_kind.items()}


def _mean(mediums: Sequence[Medium]) -> Medium:
    # How links are wired, and nodes to their network, is no property of a kind of link: left at 1.
    def mean(values: Sequence[float]) -> float:
        return _digits(float(np.exp(np.mean(np.log(values)))))

    return Medium(
        {p: mean([m.latency_s[p] for m in mediums if p in m.latency_s]) for p in Primitive},
        mean([m.step_s for m in mediums if m.step_s is not None]),
        {p: mean([m.share[p] for m in mediums if p in m.share]) for p in Primitive},
    )


HEADER = """\
# How fast links and networks carry collectives, fitted to measured latencies: seconds = latency_s
# + hops x step_s + traffic / (share x bandwidth of the data sheet). Links: a group of n GPUs reaches
# pair_share x (n - 1) of that, at most all. Networks: alone_speedup while a node has one GPU in it.
# `defaults` stand for hardware without an entry, and for what an entry lacks.
"""


def write_constants(constants: Constants, path: Path, source: str, rows: int) -> None:
    """Write constants as the YAML file that `load_constants` reads.

    Parameters
    ----------
    constants : Constants
    path : Path
        Replaced as a whole.
    source : str
        What they were fitted to, in words.
    rows : int
        Rows of the table that counted.
    """
    import json

    lines = [
        HEADER + "source:",
        f"  file: {json.dumps(source)}",
        f"  sha256: {json.dumps(constants.sha256)}",
        f"  rows: {rows}",
        "devices:",
    ]
    for name in sorted(constants.links):
        lines.append(f"  {name}:")
        lines += _medium_lines("link", constants.links[name], 4)
        if name in constants.networks:
            lines += _medium_lines("network", constants.networks[name], 4)
    lines.append("defaults:")
    for name, medium in constants.defaults.items():
        lines += _medium_lines(name, medium, 2)
    with atomic_path(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _medium_lines(name: str, medium: Medium, indent: int) -> list[str]:
    def mapping(values: Mapping[Primitive, float]) -> str:
        return "{" + ", ".join(f"{p.value}: {_number(values[p])}" for p in Primitive if p in values) + "}"

    inner = [f"latency_s: {mapping(medium.latency_s)}", f"share: {mapping(medium.share)}"]
    if medium.step_s is not None:
        inner.insert(1, f"step_s: {_number(medium.step_s)}")
    if medium.pair_share:
        inner.append(f"pair_share: {mapping(medium.pair_share)}")
    if medium.alone_speedup != 1.0:
        inner.append(f"alone_speedup: {_number(medium.alone_speedup)}")
    return [" " * indent + f"{name}:", *(" " * (indent + 2) + line for line in inner)]


def _number(value: float) -> str:
    """Return a float as YAML 1.1 reads it: 1e-05 without a point would be text."""
    text = f"{value:.4g}"
    mantissa, mark, exponent = text.partition("e")
    return text if "." in mantissa or not mark else f"{mantissa}.0{mark}{exponent}"
