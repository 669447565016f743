"""Tables of how fast two jobs are that share GPUs: Gavel's (OSDI '20) and a plain CSV layout."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import canonical_gpu_type
from clustergym.common.columns import MAX_GPUS, integers, numbers, quote_cell
from clustergym.common.errors import InputError
from clustergym.common.reading import parse_json
from clustergym.common.text_files import TextTable, check_path, read_bytes, read_csv

SIMULATION = "simulation_throughputs.json"
"""Table that is read of a folder laid out as Gavel's artifact."""
COLUMNS = ("gpu_type", "gpus", "model_a", "batch_a", "model_b", "batch_b", "kept_a", "kept_b")
MEMORY = ("memory_a_mib", "memory_b_mib", "device_memory_mib")
"""Columns of the CSV layout; those of `MEMORY` may be left out, or empty."""
MOST_KEPT = 100.0
_KEY = re.compile(r"""\((?P<quote>['"])(?P<name>[^'"\\]+)(?P=quote), ?(?P<gpus>[0-9]{1,9})\)""")


class Workload(NamedTuple):
    """A job in a table of pairs, identified by its model's name and its global batch."""

    model: str
    batch: int


class PairKey(NamedTuple):
    """What identifies a pair in a table: the two jobs, the GPU type and the GPU count that they share."""

    gpu_type: str
    gpus: int
    first: Workload
    second: Workload


@dataclass(frozen=True)
class PairTable:
    """A table of the speeds that two jobs keep if they share GPUs.

    Attributes
    ----------
    path : Path
        The file.
    kept : mapping of PairKey to (float, float)
        Share of its speed alone that each of the two keeps; (0, 0): they cannot share. In both orders.
    sha256 : str
        Digest of the file.
    """

    path: Path
    kept: Mapping[PairKey, tuple[float, float]]
    sha256: str

    @property
    def gpu_types(self) -> list[str]:
        """GPU types that the table has measurements of."""
        return sorted({key.gpu_type for key in self.kept})


def read_pair_table(path: Path) -> PairTable:
    """Read the speeds of pairs of jobs that share a GPU, from a CSV file or from Gavel's JSON file."""
    check_path(path)
    if path.is_dir():
        path = path / SIMULATION
    return _read_csv(path) if path.suffix == ".csv" else _read_gavel(path)


# Gavel's layout


class GavelPair(NamedTuple):
    """An entry of Gavel's tables: two job types that share GPUs, and the share of its speed each keeps."""

    gpu_type: str
    gpus: int
    first: str
    second: str
    kept: tuple[float, float]


def gavel_pairs(path: Path) -> tuple[list[GavelPair], str]:
    """Read Gavel's table of job pairs; return its entries and the digest of the file.

    Types whose names end in `_unconsolidated` are left out: their pairs are equal. An entry whose job has
    no speed alone counts as one that cannot share.
    """
    content, remedy = read_bytes(path), f"give Gavel's {SIMULATION}, a folder that has it, or a CSV file"
    table = parse_json(content, path, remedy)
    try:
        entries = list(_entries(table))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"is not a table of pairs: {error}", file=path, remedy=remedy) from None
    for entry in entries:
        if not all(0 <= value <= MOST_KEPT for value in entry.kept):
            what = f"{entry.gpu_type}, {entry.first} beside {entry.second}"
            message = f"a job keeps {max(entry.kept):g} of its speed alone"
            raise InputError(
                message, file=path, field=what, remedy=f"give rates from 0 to {MOST_KEPT:g} times"
            )
    return entries, hashlib.sha256(content).hexdigest()


def _entries(table: Any) -> Iterator[GavelPair]:
    for gpu_type, jobs in table.items():
        if gpu_type.endswith("_unconsolidated"):
            continue
        named = {key: job_and_count(key) for key in jobs}
        alone = {key: float(rates["null"]) for key, rates in jobs.items()}
        for key, rates in jobs.items():
            (first, gpus) = named[key]
            for other, (mine, theirs) in ((at, pair) for at, pair in rates.items() if at != "null"):
                second, same = named[other]
                # A pair holds the same GPUs, so that both must have as many.
                if gpus != same:
                    raise ValueError(f"{key} beside {other} on {gpu_type}: the counts are unequal")
                kept = (
                    _compute_kept_share(float(mine), alone[key]),
                    _compute_kept_share(float(theirs), alone[other]),
                )
                # A job that stands still beside another does not share with it, whatever the other keeps.
                yield GavelPair(gpu_type, gpus, first, second, kept if min(kept) > 0 else (0.0, 0.0))


def job_and_count(key: str) -> tuple[str, int]:
    """Parse a key of Gavel's tables into a job type and a GPU count, such as `('LSTM', 2)`.

    Raises
    ------
    ValueError
        If it is none.
    """
    found = _KEY.fullmatch(key)
    if found is None or not 1 <= int(found["gpus"]) <= MAX_GPUS:
        raise ValueError(f"{quote_cell(key)} is not a job type and a count")
    return found["name"], int(found["gpus"])


def _compute_kept_share(rate: float, alone: float) -> float:
    if not (math.isfinite(rate) and math.isfinite(alone) and rate >= 0 and alone >= 0):
        raise ValueError(f"{rate} beside another and {alone} alone are not rates")
    return rate / alone if alone > 0 else 0.0


def _read_gavel(path: Path) -> PairTable:
    from clustergym.trace.readers.gavel import parse_models

    entries, sha256 = gavel_pairs(path)
    names = sorted({name for entry in entries for name in (entry.first, entry.second)})
    workload = dict(zip(names, itertools.starmap(Workload, parse_models(names, path)), strict=True))
    gpu_types = {name: _type(name, path) for name in sorted({entry.gpu_type for entry in entries})}
    kept = {
        PairKey(
            gpu_types[entry.gpu_type], entry.gpus, workload[entry.first], workload[entry.second]
        ): entry.kept
        for entry in entries
    }
    return PairTable(path, kept, sha256)


def _type(name: str, path: Path, line: int | None = None) -> str:
    try:
        return canonical_gpu_type(name)
    except InputError as error:
        raise InputError(error.message, file=path, line=line, field="gpu_type", remedy=error.remedy) from None


# The CSV layout


def _read_csv(path: Path) -> PairTable:
    table = read_csv(path, COLUMNS, known=(*COLUMNS, *MEMORY))
    gpus = integers(table, "gpus", low=1, high=MAX_GPUS)
    batches = [integers(table, f"batch_{job}", low=1).tolist() for job in "ab"]
    workloads = [
        [Workload(*cells) for cells in zip(table.columns[f"model_{job}"], batch, strict=True)]
        for job, batch in zip("ab", batches, strict=True)
    ]
    speeds = [numbers(table, f"kept_{job}", low=0, high=MOST_KEPT) for job in "ab"]
    fits = _fits(table)
    kept: dict[PairKey, tuple[float, float]] = {}
    for row, line in enumerate(table.line):
        gpu_type = _type(table.columns["gpu_type"][row], path, line)
        key = PairKey(gpu_type, int(gpus[row]), workloads[0][row], workloads[1][row])
        pair = float(speeds[0][row]), float(speeds[1][row])
        if min(pair) == 0 and max(pair) > 0:
            remedy = "give 0 to both where they cannot share"
            raise InputError("is 0 for one job alone", file=path, line=line, field="kept_a", remedy=remedy)
        pair = pair if fits[row] else (0.0, 0.0)
        # Both ways round, so that a look-up need not know which job is first; a second row of a pair must
        # then agree with the first.
        for way, speed in ((key, pair), (key._replace(first=key.second, second=key.first), pair[::-1])):
            if kept.setdefault(way, speed) != speed:
                message = f"{way.first.model} beside {way.second.model} has other speeds in an earlier row"
                raise InputError(message, file=path, line=line, field="kept_a", remedy="keep one of the rows")
    return PairTable(path, kept, table.sha256)


def _fits(table: TextTable) -> list[bool]:
    """Return whether the two jobs of each row fit in the memory of a device; True where it is not known."""
    if not all(name in table.columns for name in MEMORY):
        return [True] * len(table)
    used_a, used_b, device = (numbers(table, name, low=0, default=np.nan) for name in MEMORY)
    return [not over for over in (used_a + used_b > device).tolist()]
