"""Arguments, output files and printed tables of the sub-commands of `clustergym oracle`."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clustergym.cluster.cluster_files import canonical_gpu_type, cluster_names
from clustergym.cluster.spec import ClusterSpec, GpuType, Locality
from clustergym.common import errors
from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import data_folder
from clustergym.common.tables import print_table, text_table
from clustergym.oracle.models.catalog import Catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.work import MICRO_BATCHES

if TYPE_CHECKING:
    from clustergym.oracle.stacks.throughput import ThroughputRow


MOST_SAMPLES = 10**9

_GPUS = re.compile(r"([0-9]{1,18})[xX](.+)")


class StrictParser(errors.Parser):
    """A parser of arguments that raises `InputError` and accepts no abbreviated options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **kwargs})


class Allocation(NamedTuple):
    """A number of GPUs of one type on a cluster, and the network tier that connects them.

    Attributes
    ----------
    gpu_type : GpuType
        With the line rate that a node has at that locality, after oversubscription.
    per_node : int
        GPUs of a node.
    gpus : int
    locality : Locality
    """

    gpu_type: GpuType
    per_node: int
    gpus: int
    locality: Locality


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the option `--cluster` to a parser."""
    text = f"a YAML file, or one of {', '.join(cluster_names())} (arena-sim)"
    parser.add_argument("--cluster", metavar="NAME", default="arena-sim", help=text)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add the option `--json` to a parser."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the same figures, unrounded")


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """Add the options `--shapes` and `--accelerators` to a parser: files of transformers and of GPUs."""
    text = "a YAML file of further {}, in the form of {}"
    parser.add_argument(
        "--shapes",
        type=Path,
        metavar="FILE",
        help=text.format("transformers", "conf/transformer/shapes.yaml"),
    )
    parser.add_argument(
        "--accelerators",
        type=Path,
        metavar="FILE",
        help=text.format("GPUs", "conf/hardware/accelerators.yaml"),
    )


def add_data(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Add the option `--data`, a file of measurements, and the options of `add_shapes` to a parser."""
    text = (
        "measured throughput, iteration times, memory, collectives or steps, by its columns: a CSV file,"
        " `modern` (all tables of throughput in $CLUSTERGYM_DATA) or"
        " `measured` (benchmarks/measured/h100-steps.csv);"
        " step times by plan and placement: a folder, or `morphling` ($CLUSTERGYM_DATA/morphling)"
    )
    parser.add_argument("--data", metavar="FILE", required=required, help=text)
    add_shapes(parser)


def what_is_measured(data: str) -> str:
    """Return which measurements a file holds, as a word such as `throughput`, `memory` or `steps`.

    `times` are of iterations, `collectives` of collective operations; `steps` have both time and memory.
    """
    from clustergym.common.text_files import first_lines, header

    if data_path(data).is_dir():
        return "placements"
    names = set() if data == "modern" else header(first_lines(data_path(data)))
    if names & {"peak_allocated_bytes", "peak_reserved_bytes"}:
        return "steps"
    if names & {"memory_gb", "dp_degree"}:
        return "memory"
    if names & {"collective", "devices_per_node"}:
        return "collectives"
    return "times" if "model_family" in names else "throughput"


def data_path(data: str) -> Path:
    """Return the path that the value of `--data` stands for: `measured`, `morphling`, or itself a path."""
    from clustergym.oracle.calibration.measured_steps import MEASURED
    from clustergym.oracle.calibration.placements import MORPHLING

    return {"measured": MEASURED, "morphling": data_folder() / MORPHLING}.get(data, Path(data))


def throughput_rows(options: argparse.Namespace) -> list[ThroughputRow]:
    """Read the measured throughputs in the file that the option `--data` names."""
    from clustergym.oracle.calibration.placements import read_placements
    from clustergym.oracle.calibration.throughput_validation import read_published
    from clustergym.oracle.stacks.throughput import read_throughput

    if options.data == "modern":
        return read_published(data_folder())
    if what_is_measured(options.data) == "placements":
        return read_placements(data_path(options.data))
    return read_throughput(data_path(options.data), options.shapes, options.accelerators)


def parse_model(text: str, batch: int | None, catalog: Catalog) -> ModelClass:
    """Parse a model's name, such as gpt3-2.6B; the default global batch is the smallest in the catalogue."""
    known = {
        ModelClass(family, size, 1).model: (family, size)
        for family in catalog.families
        for size in catalog.sizes(family)
    }
    by_lower = {name.lower(): name for name in known}
    name = by_lower.get(text.lower())
    if name is None:
        raise InputError(f"unknown model {text!r}", field="--model", remedy=nearest(text, known))
    if batch is None:
        batch = min(catalog.get(ModelClass(*known[name], 1)).batches)
    if not 1 <= batch <= MOST_SAMPLES:
        message = f"{batch} samples are not a global batch"
        raise InputError(message, field="--batch", remedy=f"give at least 1 and at most {MOST_SAMPLES:,}")
    return ModelClass(*known[name], batch)


def check_divisible(model: ModelClass, catalog: Catalog) -> None:
    """Raise an `InputError` unless a model's global batch divides into equal micro-batches."""
    batch = model.global_batch
    if catalog.get(model).architecture == "dense" or batch <= MICRO_BATCHES or batch % MICRO_BATCHES == 0:
        return
    below = batch - batch % MICRO_BATCHES
    message = f"{batch} samples do not make {MICRO_BATCHES} equal micro-batches"
    raise InputError(message, field="--batch", remedy=f"give for instance {below} or {below + MICRO_BATCHES}")


def parse_allocation(text: str, locality: str | None, cluster: ClusterSpec) -> Allocation:
    """Parse a text such as 8xA40 as a number of GPUs of a type on a cluster.

    Parameters
    ----------
    text : str
        COUNTxTYPE.
    locality : str or None
        Name of a `Locality` in lower case; None: the best the count can have.
    cluster : ClusterSpec
    """
    match = _GPUS.fullmatch(text.strip())
    if match is None:
        message = f"{text!r} is not COUNTxTYPE"
        raise InputError(message, field="--gpus", remedy="give for instance 8xA40")
    gpus, row = int(match[1]), _row(match[2].strip(), cluster)
    _check_count(gpus, cluster, row)
    best = cluster.compact_locality(row, gpus)
    tier = best if locality is None else _locality(locality, best, gpus)
    return Allocation(_find_gpu_type(tier, row, cluster), int(cluster.gpus_per_node[row]), gpus, tier)


def _find_gpu_type(tier: Locality, row: int, cluster: ClusterSpec) -> GpuType:
    group = cluster.groups[row]
    if tier == Locality.NODE:
        return group.gpu_type
    ports = group.gpus_per_node if group.gpu_type.nic_per_gpu else 1
    return replace(group.gpu_type, nic_gbps=8 * cluster.bandwidth_gbs(row, tier) / ports)


def _row(name: str, cluster: ClusterSpec) -> int:
    by_lower = {own.lower(): row for row, own in enumerate(cluster.gpu_types)}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    try:
        canonical = canonical_gpu_type(name)
    except InputError as error:
        remedy = f"cluster {cluster.name} has {', '.join(cluster.gpu_types)}"
        raise InputError(error.message, field="--gpus", remedy=remedy) from None
    if canonical.lower() in by_lower:
        return by_lower[canonical.lower()]
    message = f"cluster {cluster.name} has no {canonical} (it has {', '.join(cluster.gpu_types)})"
    raise InputError(message, field="--gpus", remedy="name another cluster with --cluster")


def _check_count(gpus: int, cluster: ClusterSpec, row: int) -> None:
    name, most = cluster.gpu_types[row], int(cluster.capacity[row])
    if gpus < 1:
        raise InputError(f"{gpus} GPUs are not an allocation", field="--gpus", remedy="give at least 1")
    if gpus > most:
        message = f"cluster {cluster.name} has {most} {name}, not {gpus}"
        raise InputError(message, field="--gpus", remedy="give fewer or name another cluster with --cluster")
    if gpus & (gpus - 1):
        below = 1 << (gpus.bit_length() - 1)
        message = f"{gpus} is not a power of two"
        raise InputError(message, field="--gpus", remedy=f"give {below}x{name} or {2 * below}x{name}")


def _locality(name: str, best: Locality, gpus: int) -> Locality:
    tiers = {name.lower(): tier for name, tier in Locality.__members__.items()}
    if name.lower() not in tiers:
        raise InputError(f"unknown locality {name!r}", field="--locality", remedy=nearest(name, tiers))
    asked = tiers[name.lower()]
    if asked < best:
        message = f"{gpus} GPUs cannot be within one {name.lower()} of this cluster"
        raise InputError(message, field="--locality", remedy=f"the best is {best.name.lower()}")
    if gpus == 1 and asked != Locality.NODE:
        raise InputError(
            "1 GPU is always within one node", field="--locality", remedy="leave it out, or say node"
        )
    return asked


def check_target(path: Path | None, option: str) -> None:
    """Raise an `InputError` if an output file could not be written, before any work is done."""
    if path is None:
        return
    if path.is_dir():
        raise InputError("is a folder", file=path, field=option, remedy="name a file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not folder.is_dir():
        raise InputError("does not lie in a folder", file=path, field=option, remedy="name another file")
    if not os.access(folder, os.W_OK):
        message = f"cannot be written: no permission to write in {folder}"
        raise InputError(message, file=path, field=option, remedy="name another file")


def percent(share: float | None, digits: int = 1) -> str:
    """Format a share from 0 to 1 in percent; `-` where there is none."""
    return "-" if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f} %"


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on how to read the figures to stderr; skip empty notes."""
    for note in filter(None, notes):
        print(f"note: {note}", file=sys.stderr)


def print_written(*paths: Path | None) -> None:
    """Print the names of the files that were written."""
    for path in paths:
        if path is not None:
            print(f"wrote {path}")


@contextlib.contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Give a context with a function that shows progress messages on stderr."""
    if not sys.stderr.isatty():
        yield lambda message: print(message, file=sys.stderr)
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("") as status:
        yield lambda message: status.update(escape(message))


Figures = Mapping[str, Any]

SHARES = {"mape", "ape", "p90", "regret", "agreement", "recall", "share"}
"""Figures whose names have such a word are shares and shown in percent."""


def human(name: str, value: float | None) -> str:
    """Format a figure as text: in percent if its name says it is a share, else as a number; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    return percent(value, 2) if SHARES & {*name.split("_")} else f"{value:.4g}"


def print_figures(title: str, figures: Figures) -> None:
    """Print figures: single ones in one table, and each group of them in another.

    A mapping of plain figures (as of a group of its own) is a table of one row.
    """
    print(title)
    single = {name: value for name, value in figures.items() if not isinstance(value, Mapping)}
    if single:
        print_table(text_table("", ("figure", "value"), [(n, human(n, v)) for n, v in single.items()]))
    for name, group in figures.items():
        if isinstance(group, Mapping) and group:
            _print_group(name.replace("_", " "), group)


def _print_group(title: str, group: Figures) -> None:
    rows = {name: row for name, row in group.items() if isinstance(row, Mapping)} or {"": group}
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    cells = [[name, *(human(c, row.get(c)) for c in columns)] for name, row in rows.items()]
    print()
    print_table(text_table(title, ("", *columns), cells))
