"""Parse the cells of Slurm's tables of jobs: times, durations, limits, array ids, states and users."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from clustergym.cluster.slurm_text import UNKNOWN_TEXTS
from clustergym.common.columns import parse_seconds, quote_cell
from clustergym.common.errors import InputError
from clustergym.trace.outcomes import SLURM_STATES, UNKNOWN
from clustergym.trace.trace import FAILED, KILLED

STATES: Mapping[str, str] = {
    **SLURM_STATES,
    "REQUEUED": KILLED,
    "LAUNCH_FAILED": FAILED,
    "RECONFIG_FAIL": FAILED,
    **dict.fromkeys(
        ("REVOKED", "RESIZING", "COMPLETING", "CONFIGURING", "STOPPED", "SIGNALING", "SPECIAL_EXIT"), UNKNOWN
    ),
    **dict.fromkeys(("REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "STAGE_OUT", "EXPEDITING"), UNKNOWN),
    **{"PD": UNKNOWN, "R": UNKNOWN, "CG": UNKNOWN, "CF": UNKNOWN, "S": UNKNOWN},
}
"""Outcomes by the states that sacct and squeue print; Slurm's short names are those of squeue's `ST`."""
MOST_TASKS = 10_000
"""Most waiting tasks of one array."""
_SPAN = re.compile(r"(?:(\d{1,9})-)?(?:(\d{1,6}):)?(\d{1,6})(?::(\d\d))?(?:\.\d+)?", re.ASCII)
_ARRAY = re.compile(r"(\d{1,18})_\[([\d,:%-]*)\]?.*", re.ASCII)


@dataclass(frozen=True)
class CellRules:
    """Rules for parsing the cells of Slurm's tables: time zone of dates, and hashing of users.

    Attributes
    ----------
    zone : ZoneInfo or None
        Time zone of times that name none; None: they are kept as they are.
    salt : str or None
        Users and accounts are replaced by a hash of them with this; None: they are kept.
    """

    zone: ZoneInfo | None = None
    salt: str | None = None

    def moment(self, cell: str) -> float:
        """Parse a date and time to seconds since 1970; NaN for `Unknown` and similar cells.

        Raises
        ------
        ValueError
            The message says what is wrong with the cell.
        """
        if cell.lower() in UNKNOWN_TEXTS:
            return float("nan")
        if cell.isascii() and cell.isdigit():
            if len(cell) > 11:
                raise ValueError(f"{quote_cell(cell)} is no number of seconds since 1970")
            return float(cell) or float("nan")
        seconds = parse_seconds(cell)
        if self.zone is None or re.search(r"(Z|[+-]\d\d:?\d\d)$", cell):
            return seconds
        try:
            return datetime.fromtimestamp(seconds, tz=UTC).replace(tzinfo=self.zone).timestamp()
        except (OverflowError, OSError) as error:
            raise ValueError(f"{quote_cell(cell)} is not a time: {error}") from error

    def name(self, cell: str) -> str:
        """Return the name of a user or account, hashed if the rules ask for it."""
        if self.salt is None or not cell:
            return cell
        return hashlib.sha256(f"{self.salt}\0{cell}".encode()).hexdigest()[:10]


def find_zone(name: str | None) -> ZoneInfo | None:
    """Return a time zone by its name, such as `Europe/Zurich`; raise an `InputError` if it is unknown."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        remedy = "give a name like Europe/Zurich or UTC"
        raise InputError(f"unknown time zone {name!r}", field="--timezone", remedy=remedy) from error


def span_s(cell: str) -> float:
    """Parse a time span `[days-]hours:minutes:seconds` to seconds; NaN if the cell has none.

    `UNLIMITED` and `Partition_Limit` are none. With days, hours come first, as in `1-12`; without, two
    numbers are minutes and seconds.

    Raises
    ------
    ValueError
        The message says what is wrong with the cell.
    """
    if cell.lower() in UNKNOWN_TEXTS | {"unlimited", "partition_limit", "not_set", "invalid"}:
        return float("nan")
    days, _, rest = cell.rpartition("-") if "-" in cell else ("", "", cell)
    found = _SPAN.fullmatch(cell)
    if not found:
        raise ValueError(f"{quote_cell(cell)} is not a time span like 1-12:00:00")
    parts = [float(part) for part in rest.split(".")[0].split(":")]
    if days:
        parts = [*parts, 0.0, 0.0][:3]
    else:
        parts = [0.0] * (3 - len(parts)) + parts if len(parts) > 1 else [0.0, parts[0], 0.0]
    hours, minutes, seconds = parts
    return float(days or 0) * 86_400 + hours * 3600 + minutes * 60 + seconds


def waiting_tasks(job_id: str) -> list[str] | None:
    """Return the task ids of a waiting job array such as `123_[5-9,12%4]`; None if it is no job array.

    Raises
    ------
    ValueError
        If there are more than `MOST_TASKS`.
    """
    found = _ARRAY.fullmatch(job_id)
    if found is None:
        return None
    tasks: list[str] = []
    for part in found[2].partition("%")[0].split(","):
        spread, _, step = part.partition(":")
        first, _, last = spread.partition("-")
        if not first.isdigit() or not (last or first).isdigit() or (step and not step.isdigit()):
            continue
        numbers = range(int(first), int(last or first) + 1, max(int(step or 1), 1))
        if len(tasks) + len(numbers) > MOST_TASKS:
            raise ValueError(f"{quote_cell(job_id)} has more than {MOST_TASKS:,} waiting tasks")
        tasks += [f"{found[1]}_{number}" for number in numbers]
    return tasks
