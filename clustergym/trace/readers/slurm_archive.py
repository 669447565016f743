"""Read a job file of `sacctmgr archive dump`: slurmdbd's records of jobs, packed.

The layout is that of Slurm 22.05, read off a file that slurmdbd 22.05.8 wrote beside the table of its
database: numbers are big-endian, and each record has 53 texts, each with its length and a NUL at its end.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from clustergym.common.columns import quote_cell
from clustergym.common.errors import InputError
from clustergym.common.text_files import MOST_ROWS, read_text

VERSION = 38 << 8
"""Slurm's number of its protocol in 22.05 (slurm_protocol_common.h), with which a file begins."""
JOBS = 1421
"""Slurm's number for records of jobs (DBD_GOT_JOBS in slurmdbd_defs.h)."""
HEADER = struct.Struct(">HQH")
LENGTH = struct.Struct(">I")
CELLS = 53
COLUMNS = {
    **{"account": 0, "id_assoc": 3, "id_array_job": 4, "id_array_task": 6, "timelimit": 19, "time_end": 21},
    **{"gres_used": 23, "id_job": 25, "partition": 34, "id_qos": 36, "time_start": 40, "state": 41},
    **{"time_submit": 43, "tres_alloc": 47, "id_user": 49},
}
"""Where the columns of the database's table of jobs are in a record."""
TRES = "tres.txt"
"""File beside an archive that says which ids GPUs have."""
TRES_COMMAND = "sacctmgr -P show tres format=Type,Name,ID"


def is_archive(content: bytes) -> bool:
    """Whether a file's bytes begin as an archive of any records, of any version of Slurm."""
    if len(content) < HEADER.size:
        return False
    version, _, records = HEADER.unpack_from(content)
    return bool(version >= 20 << 8 and version % 256 == 0 and 1400 <= records < 1500)


def read_records(content: bytes, path: Path) -> Iterator[dict[str, str]]:
    """Yield the records of an archive's jobs as mappings of `COLUMNS` to texts; NULL is empty.

    Raises
    ------
    InputError
        If it is of another version or of other records, or ends within a record.
    """
    version, _, records = HEADER.unpack_from(content)
    if records != JOBS:
        remedy = "give the file NAME_job_table_archive_FROM_TO"
        raise InputError(f"has records of number {records}, not of jobs", file=path, remedy=remedy)
    if version != VERSION:
        remedy = "load it with sacctmgr archive load, and print it with sacct or mysqldump"
        raise InputError(f"is not of Slurm 22.05 (protocol {version >> 8}, not 38)", file=path, remedy=remedy)
    _, at = _text(content, HEADER.size, path)
    count, at = _length(content, at, path), at + LENGTH.size
    if count > MOST_ROWS:
        raise InputError(f"says that it has {count:,} records", file=path, remedy="archive shorter times")
    for _ in range(count):
        cells = []
        for _ in range(CELLS):
            cell, at = _text(content, at, path)
            cells.append(cell)
        yield {name: cells[column] for name, column in COLUMNS.items()}


def _length(content: bytes, at: int, path: Path) -> int:
    if at + LENGTH.size > len(content):
        raise InputError("ends within a record", file=path, remedy="copy it again")
    return int(LENGTH.unpack_from(content, at)[0])


def _text(content: bytes, at: int, path: Path) -> tuple[str, int]:
    """Return the text at a place, and where the next begins."""
    length, at = _length(content, at, path), at + LENGTH.size
    if at + length > len(content):
        raise InputError("ends within a record", file=path, remedy="copy it again")
    return content[at : at + length].rstrip(b"\0").decode("utf-8", "replace"), at + length


def read_gpu_ids(path: Path) -> dict[str, str]:
    """Return the types of GPUs, empty for any, by the ids that a cluster's database gives them.

    Raises
    ------
    InputError
        If the table is missing beside the archive, is none, or has no GPUs.
    """
    beside = path.with_name(TRES)
    remedy = f"write it with {TRES_COMMAND} > {beside}"
    if not beside.is_file():
        message = f"an archive does not say which ids GPUs have: there is no {TRES} beside it"
        raise InputError(message, file=path, remedy=remedy)
    found = {}
    for line, row in enumerate(read_text(beside)[0].splitlines()[1:], start=2):
        cells = [cell.strip() for cell in row.split("|")]
        if len(cells) < 3 or not (cells[2].isascii() and cells[2].isdigit()):
            message = f"{quote_cell(row)} is not Type|Name|ID"
            raise InputError(message, file=beside, line=line, remedy=remedy)
        if cells[0] == "gres" and re.fullmatch(r"gpu(:.*)?", cells[1]):
            found[cells[2]] = cells[1].removeprefix("gpu").lstrip(":")
    if not found:
        raise InputError(
            "names no gres/gpu", file=beside, remedy="set AccountingStorageTRES=gres/gpu in Slurm"
        )
    return found
