"""Read slurmdbd's database as mysqldump writes it, with associations and TRES, and its archives of jobs.

Read a job file of `sacctmgr archive dump`: slurmdbd's records of jobs, packed.

The layout is that of Slurm 22.05, read off a file that slurmdbd 22.05.8 wrote beside the table of its
database: numbers are big-endian, and each record has 53 texts, each with its length and a NUL at its end.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from clustergym.cluster.slurm_text import parse_gres
from clustergym.common.columns import MAX_GPUS, quote_cell
from clustergym.common.errors import InputError
from clustergym.common.text_files import MOST_ROWS, read_bytes, read_text
from clustergym.trace.readers.sacct import SlurmJob, build_log
from clustergym.trace.readers.supercloud import NO_LIMIT, STATES
from clustergym.trace.records import RecordedJobs
from clustergym.trace.slurm_fields import CellRules
from clustergym.trace.trace import KILLED

NAME = "slurmdbd"
REMEDY = "write it with mysqldump slurm_acct_db tres_table CLUSTER_assoc_table CLUSTER_job_table"
NEEDED = ("id_job", "id_assoc", "state", "time_submit", "time_start", "time_end", "tres_alloc")
STATE_BITS = 0xFF
"""The rest of the state's bits are flags (slurm.h)."""
REQUEUED_BIT = 0x400
"""Flag of a run that was ended to be started again (JOB_REQUEUE)."""
_CREATE = re.compile(r"(?:\w+_)?(job|assoc|tres)_table` \(")
_INSERT = re.compile(r"INSERT INTO `(?:\w+_)?(job|assoc|tres)_table` VALUES ")
_VALUE = re.compile(r"\s*(?:'((?:[^'\\]|\\.|'')*)'|([^,()']*))\s*([,)])")
_NEXT = re.compile(r"\s*,\s*")
_ESCAPED = re.compile(r"\\(.)|''", re.DOTALL)


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file's first lines are those of a MySQL or MariaDB dump, as of Slurm's database."""
    return any(line.startswith(("-- MySQL dump", "-- MariaDB dump")) for line in lines)


def read_log(
    path: Path, rules: CellRules | None = None, type_of_partition: Mapping[str, str] | None = None
) -> RecordedJobs:
    """Read the jobs that ran from a dump or archive of Slurm's database; their models are not named.

    Times are seconds since 1970, whatever the time zone. GPUs are TRES `gres/gpu` and `gres/gpu:TYPE` by the
    ids that the table of TRES gives them; user and account are those of the association. An archive has no
    tables beside that of jobs: its users are numbers, and ids of GPUs are in a file beside it.
    """
    content = read_bytes(path)
    if is_archive(content):
        return _read_archive(content, path, rules or CellRules(), type_of_partition or {})
    text, sha256 = read_text(path)
    columns = {
        found[1]: re.findall(r"^[ \t]*`(\w+)`", table[: table.find("\n)")], re.MULTILINE)
        for table in text.split("CREATE TABLE `")
        if (found := _CREATE.match(table))
    }
    for table, needed in (("job", NEEDED), ("tres", ("id", "type", "name"))):
        missing = [name for name in needed if name not in columns.get(table, ())]
        if missing:
            message = f"has no column {missing[0]} of a {table}_table"
            raise InputError(message, file=path, field=f"{table}_table", remedy=REMEDY)
    types = {
        row["id"]: row["name"].removeprefix("gpu").lstrip(":")
        for row in _rows(text, path, "tres", columns)
        if row["type"] == "gres" and re.fullmatch(r"gpu(:.*)?", row["name"])
    }
    whose = {row.get("id_assoc", ""): row for row in _rows(text, path, "assoc", columns)}
    rules = rules or CellRules()
    jobs = [
        _job(row, types, whose.get(row["id_assoc"], {}), rules, path)
        for row in _rows(text, path, "job", columns)
    ]
    return build_log(path, NAME, sha256, jobs, Counter(), type_of_partition or {})


def _read_archive(
    content: bytes, path: Path, rules: CellRules, type_of_partition: Mapping[str, str]
) -> RecordedJobs:
    types = read_gpu_ids(path)
    jobs = [_job(row, types, {"user": row["id_user"]}, rules, path) for row in read_records(content, path)]
    return build_log(path, NAME, hashlib.sha256(content).hexdigest(), jobs, Counter(), type_of_partition)


def _rows(
    text: str, path: Path, table: str, columns: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, str]]:
    """Yield the rows of a table as mappings of its columns to texts; NULL is empty."""
    for insert in _INSERT.finditer(text):
        if insert[1] != table:
            continue
        at = insert.end()
        while text[at : at + 1] == "(":
            cells, end = list[str](), ","
            while end == ",":
                found = _VALUE.match(text, at + 1)
                if found is None or len(cells) > len(columns.get(table, ())):
                    line = text.count("\n", 0, at) + 1
                    raise InputError("is no row of mysqldump's", file=path, line=line, remedy=REMEDY)
                quoted, plain, end = found.groups()
                cells.append(_unescaped(quoted) if quoted is not None else plain.strip().replace("NULL", ""))
                at = found.end() - 1
            if len(cells) != len(columns.get(table, ())):
                line = text.count("\n", 0, at) + 1
                message = f"a row of the {table}_table has {len(cells)} values"
                raise InputError(message, file=path, line=line, remedy=REMEDY)
            yield dict(zip(columns[table], cells, strict=True))
            following = _NEXT.match(text, at + 1)
            at = following.end() if following else at + 1


def _unescaped(quoted: str) -> str:
    return _ESCAPED.sub(lambda found: found[1] or "'", quoted)


def _job(
    row: Mapping[str, str], types: Mapping[str, str], owner: Mapping[str, str], rules: CellRules, path: Path
) -> SlurmJob:
    job_id, array = row["id_job"], row.get("id_array_job", "0")

    def seconds(key: str) -> float:
        cell = row[key]
        if not (cell.isascii() and cell.isdigit()) or len(cell) > 11:
            message = f"{cell[:40]!r} is no number of seconds since 1970"
            raise InputError(message, file=path, field=f"job {job_id}: {key}", remedy=REMEDY)
        return float(cell) or float("nan")

    state = row["state"]
    code = str(int(state) & STATE_BITS) if state.isascii() and state.isdigit() and len(state) < 11 else state
    if code not in STATES:
        raise InputError(
            f"{state[:40]!r} is no state", file=path, field=f"job {job_id}: state", remedy=REMEDY
        )
    start_s, end_s = seconds("time_start"), seconds("time_end")
    pairs = (part.partition("=") for part in row["tres_alloc"].split(","))
    tres = ",".join(f"gres/gpu:{types[name]}={count}" for name, _, count in pairs if name in types)
    try:
        found = parse_gres(tres or row.get("gres_used", ""))
    except ValueError as problem:
        raise InputError(str(problem), file=path, field=f"job {job_id}: tres_alloc", remedy=REMEDY) from None
    gpus = found.gpus
    minutes, on = row.get("timelimit", "0"), row.get("nodes_alloc", "0")
    nodes = int(on) if on.isascii() and on.isdigit() and len(on) < 9 else 0
    limited = minutes.isascii() and minutes.isdigit() and 0 < int(minutes[:10]) < NO_LIMIT
    return SlurmJob(
        line=0,
        job_id=job_id if array in ("", "0") else f"{array}_{row.get('id_array_task', job_id)}",
        user=rules.name(owner.get("user", "")),
        account=rules.name(row.get("account", "") or owner.get("acct", "")),
        partition=row.get("partition", "").partition(",")[0],
        qos=row.get("id_qos", ""),
        state=code,
        outcome=KILLED if int(state) & REQUEUED_BIT else STATES[code],
        submit_s=seconds("time_submit"),
        start_s=start_s,
        end_s=end_s,
        duration_s=max(end_s - start_s, 0.0) if start_s == start_s else np.nan,
        limit_s=60.0 * int(minutes[:10]) if limited else float("nan"),
        gpus=min(gpus, MAX_GPUS),
        gpu_type=found.gpu_type,
        from_request=False,
        no_gpus="MIG devices or shares, no whole GPUs" if found.parts else "CPU job",
        nodes=nodes if 0 < nodes <= gpus and gpus % nodes == 0 else 0,
    )


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
    """Return whether a file's first bytes are those of a Slurm archive of any version and content."""
    if len(content) < HEADER.size:
        return False
    version, _, records = HEADER.unpack_from(content)
    return bool(version >= 20 << 8 and version % 256 == 0 and 1400 <= records < 1500)


def read_records(content: bytes, path: Path) -> Iterator[dict[str, str]]:
    """Yield the job records of a Slurm archive as texts by column name; NULL becomes empty."""
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
    """Read which GPU type each resource id in a Slurm archive means, from the file beside; empty: any."""
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
