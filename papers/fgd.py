"""FGD's page (ATC '23): six placers of parts of GPUs fill Alibaba's openb cluster, as published."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError, nearest, require_known
from clustergym.common.paths import install_line
from clustergym.common.processes import in_order
from clustergym.common.tables import table
from clustergym.sim.compiled.numba_cache import announce_compilation, has_numba
from clustergym.sim.parts.placers import PLACERS

from . import filling, openb
from .claim_files import judge_claims
from .claims import PUBLISHED as AS_PUBLISHED
from .openb import read_source
from .page import Report, make_report, passage, words
from .reproduction import Options, number

SUMMARY = "six placers of parts of GPUs fill Alibaba's openb cluster (ATC '23)"
PUBLISHED = dict(
    zip(PLACERS, ("Random", "DotProd", "GpuClustering", "GpuPacking", "BestFit", "FGD"), strict=True)
)
"""What the published results call the placers."""
ARRIVED_PCT = (50, 80, 90, 100, 110, 120, 130)
QUICK_WORKLOAD = "default"
WITHIN = 0.02
"""Points by which a figure may differ and count as the published one; those have two decimals."""
ALLOCATED, FRAGMENTED = "allocated_pct", "fragmented_pct"
COLUMNS = (ALLOCATED, FRAGMENTED)
Row = dict[str, Any]


class FillCurves(NamedTuple):
    """Curves of allocated GPUs and of unusable idle ones while requests arrive, and how many are rejected.

    Curves hold percent of installed GPUs, at each percent of installed GPUs requested.
    """

    curves: Mapping[str, Floats]
    rejected: int
    arrivals: int


class Run(NamedTuple):
    """One workload and seed, with the placers to run on it."""

    folder: Path
    workload: str
    seed: int
    placers: tuple[str, ...]


def reproduce(options: Options) -> Report:
    """Simulate the runs that reproduce the paper on FGD, and return its page with the results."""
    if not has_numba():
        raise InputError("needs the package numba", field="fgd", remedy=install_line("learn"))
    folder = find_folder(options.data)
    placers = tuple(_choose_names("--policies", options.policies, PLACERS, PUBLISHED))
    runs = list(_runs(folder, options, placers))
    published = {
        name: openb.read_expected(folder / f"expected_{what}.csv", name)
        for name, what in ((ALLOCATED, "allocation"), (FRAGMENTED, "fragmentation"))
    }
    announce_compilation(filling.place_arrivals)
    done = list(in_order(_fills, runs, options.workers, label="workloads and seeds"))
    rows = [row for run, fills in zip(runs, done, strict=True) for row in _rows(run, fills, published)]
    sections = [words(part) for part in _parts(rows)]
    report = make_report(passage("fgd", "introduction"), judge_claims("fgd", _figures(rows)), sections, {})
    return replace(report, figures=rows)


def find_folder(data: Path) -> Path:
    """Return the folder with the files of the data set openb: the given one, or its subfolder `openb`."""
    inner = data / "openb"
    return inner if inner.is_dir() and not openb.find_packed_file(data / openb.NODES).exists() else data


def _choose_names(
    field: str, asked: Sequence[str] | None, known: Sequence[str], other: Mapping[str, str] = {}
) -> list[str]:
    """Return names in the order asked; `other` has second names."""
    second = {name.lower(): first for first, name in other.items()}
    found = []
    for name in known if asked is None else asked:
        first = second.get(name.lower(), name)
        if first not in known:
            raise InputError(f"unknown name {name!r}", field=field, remedy=nearest(name, known))
        found.append(first)
    if not found:
        raise InputError("names nothing", field=field, remedy=f"give some of {', '.join(known)}")
    return list(dict.fromkeys(found))


def _runs(folder: Path, options: Options, placers: tuple[str, ...]) -> Iterator[Run]:
    """Yield the workloads and seeds: those that are asked for, else those that have an order file."""
    known = openb.workloads(folder)
    ordered = [name for name in known if (folder / "orders" / f"{name}.npz").exists()]
    if options.workloads is not None:
        chosen = _choose_names("--workloads", options.workloads, known)
    elif options.quick:
        chosen = [QUICK_WORKLOAD] if QUICK_WORKLOAD in ordered else ordered[:1]
    else:
        chosen = ordered
    if not chosen:
        raise InputError(
            "has no orders of arrival", file=folder / "orders", remedy="give a folder that has them"
        )
    for workload in chosen:
        known_seeds = tuple(read_source(folder, workload)[1])
        for seed in options.seeds or ():
            require_known(str(seed), [str(known) for known in known_seeds], "seed", "--seeds")
        seeds = options.seeds or (known_seeds[:1] if options.quick else known_seeds)
        yield from (Run(folder, workload, seed, placers) for seed in seeds)


def _fills(run: Run) -> dict[str, FillCurves]:
    """Fill the cluster once with each placer."""
    source, orders = read_source(run.folder, run.workload)
    order = orders[run.seed]
    requests, request = source.requests, source.request[order.arrivals]
    arrived = np.cumsum((requests.gpus * requests.gpu_milli)[request])
    curve = partial(at_arrived_pct, arrived, installed_milli=source.nodes.installed_milli)
    found = {}
    for placer in run.placers:
        nodes = source.nodes.with_ranks(order.node_rank)
        filled = filling.fill(nodes, requests, request, source.usual, placer, run.seed)
        curves = {ALLOCATED: curve(filled.used_milli), FRAGMENTED: curve(filled.fragments_milli)}
        found[placer] = FillCurves(curves, int((filled.node < 0).sum()), len(request))
    return found


def _rows(
    run: Run, fills: Mapping[str, FillCurves], published: Mapping[str, openb.Expected]
) -> Iterator[Row]:
    """Yield a row for each placer and per cent, with the published figures where there are any."""
    for placer, fill in fills.items():
        key = run.workload, PUBLISHED[placer], run.seed
        told = {at for known in published.values() for *head, at in known if tuple(head) == key}
        for at in sorted(told | set(ARRIVED_PCT)):
            if at <= LAST and np.isfinite(fill.curves[ALLOCATED][at]):
                row = {"workload": run.workload, "policy": key[1], "placer": placer, "seed": run.seed}
                row |= {"arrived_pct": at} | {name: float(fill.curves[name][at]) for name in COLUMNS}
                row["rejected"] = fill.rejected
                expected = {name: published[name].get((*key, at)) for name in COLUMNS}
                yield row | {"expected": expected if at in told else None}


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    yield from (_agreement(rows), passage("fgd", "means"), _means(rows))


def _compare_rows(rows: Iterable[Row], column: str) -> list[float]:
    """Return the difference of each row from its published figure, in percentage points."""
    found = ((row[column], row["expected"] and row["expected"][column]) for row in rows)
    return [abs(ours - theirs) for ours, theirs in found if theirs is not None]


def _agreement(rows: Sequence[Row]) -> str:
    """Return the table of how far ours are from the published figures, run by run."""
    lines = []
    for placer in dict.fromkeys(row["placer"] for row in rows):
        own = [row for row in rows if row["placer"] == placer]
        cells = [placer, PUBLISHED[placer]]
        for column in COLUMNS:
            off = _compare_rows(own, column)
            within = sum(value <= WITHIN for value in off)
            cells += [str(len(off)), str(within), number(max(off), 4) if off else "-"]
        lines.append(cells)
    if not any(line[2] != "0" for line in lines):
        return ""
    figures = ["figures", f"within {WITHIN}", "farthest"]
    headers = ["placer", "published as", *(f"allocated: {name}" for name in figures)]
    headers += [f"fragmented: {name}" for name in figures]
    return passage("fgd", "agreement", within=WITHIN) + "\n\n" + table(headers, lines, words=(0, 1))


def _means(rows: Sequence[Row]) -> str:
    """Return a table of allocation at the end of each workload: ours, and in brackets the published one."""
    placers = list(dict.fromkeys(row["placer"] for row in rows))
    last = [row for row in rows if row["arrived_pct"] == LAST]
    lines = []
    for workload, found in groupby(last, key=lambda row: row["workload"]):
        own, cells = list(found), [workload]
        for name in placers:
            ours, theirs = _both([row for row in own if row["placer"] == name])
            cells.append(number(ours, 2) + ("" if theirs is None else f" ({theirs:.2f})"))
        lines.append(cells)
    return table(["workload", *placers], lines)


def _both(rows: Sequence[Row]) -> tuple[float | None, float | None]:
    """Return the means of our allocation and, where all rows have one, of the published one."""
    if not rows:
        return None, None
    told = [row["expected"] and row["expected"][ALLOCATED] for row in rows]
    theirs = None if None in told else float(np.mean(told))
    return float(np.mean([row[ALLOCATED] for row in rows])), theirs


def _figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return each placer's allocation at the end of the default workload, where there is a published one."""
    ours, theirs = {}, {}
    for placer in dict.fromkeys(row["placer"] for row in rows):
        where = {"workload": "default", "placer": placer, "arrived_pct": LAST}
        own = [row for row in rows if all(row[name] == value for name, value in where.items())]
        if own and _both(own)[1] is not None:
            ours[PUBLISHED[placer]], theirs[PUBLISHED[placer]] = _both(own)
    return {AS_PUBLISHED: {"allocated": ours}, "allocated": theirs, "placers": {"placer": list(ours)}}


LAST = 130


def at_arrived_pct(arrived_milli: Ints, value_milli: Ints | Floats, installed_milli: int) -> Floats:
    """Return the mean of `value_milli` (as % of all GPUs) at each percent of all GPUs requested so far.

    Parameters
    ----------
    arrived_milli : ndarray of int, shape (A,)
        Thousandths of GPUs that have been asked for, rejected ones too, after each arrival.
    value_milli : ndarray, shape (A,)
    installed_milli : int

    Returns
    -------
    ndarray of float, shape (LAST + 1,)
        Per cent of the installed GPUs; NaN where nothing has arrived so far, or near.
    """
    pct = np.rint(100.0 * arrived_milli / installed_milli).astype(np.int64)
    value = np.round(100.0 * value_milli / installed_milli, 2)
    inside = pct <= LAST
    number = np.bincount(pct[inside], minlength=LAST + 1).astype(np.float64)
    total = np.bincount(pct[inside], value[inside], minlength=LAST + 1)
    # An empty per cent takes the mean of its neighbours.
    near_number, near_total = (np.convolve(counts, np.ones(3), "same") for counts in (number, total))
    empty = number == 0
    with np.errstate(invalid="ignore"):
        return np.where(empty, near_total, total) / np.where(empty, near_number, number)
