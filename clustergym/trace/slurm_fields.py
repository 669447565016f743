"""Parse the cells of Slurm's tables of jobs: times, states and users."""

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

    def moment(self, cell: str, least_s: float = float("-inf")) -> float:
        """Parse a date and time to seconds since 1970; NaN for `Unknown` and similar cells.

        Of an hour that the clock shows twice, it is the second one if only that is not before `least_s`.

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
            naive = datetime.fromtimestamp(seconds, tz=UTC)
            first, second = (naive.replace(tzinfo=self.zone, fold=fold).timestamp() for fold in (0, 1))
            return second if first < least_s <= second else first
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
