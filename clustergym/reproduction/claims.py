"""A paper's claims beside our measurements, one row for each; the figures decide the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from clustergym.terminal.markdown import table

TOLERANCE = 0.1
"""Ours reproduces a paper's figure if it lacks, or differs by, at most this share of it."""
_ROUNDING = 1e-9

REPRODUCED, SMALLER, LARGER, REVERSED = "reproduced", "smaller", "larger", "reversed"
NO_FIGURE, NOT_SIMULATED, NOT_RUN = "no figure", "not simulated", "not run"
VERDICTS = (REPRODUCED, SMALLER, LARGER, REVERSED, NO_FIGURE, NOT_SIMULATED, NOT_RUN)
FAIR, PUBLISHED = "fair", "as published"
"""Our two settings: one set of rules for all policies, or the rules of the paper's own simulator."""


class ClaimUnit(NamedTuple):
    """How the figures of a claim are shown and compared; the fields are those of `PaperClaim`."""

    unit: str = "%"
    neutral: float | None = 0.0
    decimals: int = 1


PERCENT, TIMES, COUNT = ClaimUnit(), ClaimUnit("x", 1.0, 2), ClaimUnit("", None, 2)
SHARE = ClaimUnit("%", None, 1)
"""A percentage that ours should equal, not a change."""


@dataclass(frozen=True)
class PaperClaim:
    """A figure or statement of a paper's evaluation, and ours.

    Attributes
    ----------
    claim, source : str
        What the paper says, in our words and without the figure ("mean JCT against FCFS"), and where.
    paper, fair, as_published : float or None
        The paper's figure; ours under one set of rules for all policies; ours under the rules of the
        paper's own simulator. None: there is none.
    unit : str
        "%", "x", "h", "s", "jobs" or "" (a plain number).
    neutral : float or None
        The value that means "no effect": 0 for a change in percent, 1 for a ratio. None: the figure is a
        quantity of its own, such as hours, and ours should equal it.
    why : str
        What was switched off and what that showed; for a claim that cannot be simulated, why not.
    decimals : int
        Of the printed figures.
    quick : bool
        False where the quick form, and it alone, leaves the claim out: then ours is None.
    """

    claim: str
    source: str
    paper: float | None
    fair: float | None = None
    as_published: float | None = None
    unit: str = "%"
    neutral: float | None = 0.0
    why: str = ""
    decimals: int = 1
    quick: bool = True

    def __post_init__(self) -> None:
        for value in (self.paper, self.fair, self.as_published):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{self.claim}: {value} is no figure")

    def verdict_of(self, ours: float) -> str:
        """Return the verdict on one figure of ours."""
        if self.paper is None:
            return NO_FIGURE
        if self.neutral is None:
            if abs(ours - self.paper) <= TOLERANCE * abs(self.paper) + _ROUNDING:
                return REPRODUCED
            return SMALLER if ours < self.paper else LARGER
        share = (ours - self.neutral) / (self.paper - self.neutral)
        if share >= 1 - TOLERANCE - _ROUNDING:
            return REPRODUCED
        return SMALLER if share > 0 else REVERSED

    @property
    def verdict(self) -> str:
        """The verdict as published, and the fair one where it differs; or that of the only figure."""
        ours = [value for value in (self.as_published, self.fair) if value is not None]
        if not ours:
            return NOT_SIMULATED if self.quick else NOT_RUN
        first, second = self.verdict_of(ours[0]), self.verdict_of(ours[-1])
        return first if first == second else f"{first} (fair: {second})"

    @property
    def cells(self) -> list[str]:
        """The row of a table, under `HEADERS`."""
        figures = (self.shown(value) for value in (self.paper, self.fair, self.as_published))
        return [self.claim, self.source, *figures, self.verdict, self.why]

    def plain(self) -> dict[str, Any]:
        """Return the row as JSON values, unrounded."""
        return {**asdict(self), "verdict": self.verdict}

    @staticmethod
    def of(row: Mapping[str, Any]) -> PaperClaim:
        """Return the claim of a row that `plain` gave."""
        return PaperClaim(**{entry.name: row[entry.name] for entry in fields(PaperClaim)})

    def shown(self, value: float | None) -> str:
        """Return a figure with its unit; `-` where there is none."""
        if value is None:
            return "-"
        sign = "+" if self.unit == "%" and self.neutral == 0 else ""
        gap = "" if self.unit in ("x", "") else " "
        return f"{value:{sign},.{self.decimals}f}{gap}{self.unit}"


def not_simulated(paper: str) -> list[PaperClaim]:
    """Return the rows of `texts/not_simulated.yaml` for a paper."""
    rows = (Path(__file__).parent / "texts" / "not_simulated.yaml").read_text(encoding="utf-8")
    return [PaperClaim(**{"paper": None, **row}) for row in yaml.safe_load(rows)[paper]]


HEADERS = ("claim", "source", "paper", "ours, fair", "ours, as published", "verdict", "why")


def claims_table(claims: Iterable[PaperClaim]) -> str:
    """Return the table that opens a page."""
    return table(HEADERS, (claim.cells for claim in claims), words=(0, 1, 5, 6))


def quantity(
    claim: str,
    source: str,
    paper: float | None,
    fair: float | None = None,
    as_published: float | None = None,
    unit: str = "%",
    decimals: int = 1,
    why: str = "",
) -> PaperClaim:
    """Return a claim whose figures should equal the paper's."""
    return PaperClaim(claim, source, paper, fair, as_published, unit, None, why, decimals)


Measure = Callable[[str], float | None]
"""Returns our figure in a setting."""


def measured(
    claim: str, source: str, paper: float | None, of: Measure, unit: ClaimUnit = PERCENT, why: str = ""
) -> PaperClaim:
    """Return a claim whose figures are `of(setting)`; without a run in either setting it is "not run".

    Where ours is not the paper's and no reason is given, the reason is not known.
    """
    fair, published = _value(of, FAIR), _value(of, PUBLISHED)
    missing = fair is None and published is None
    shown = {**unit._asdict(), "why": why, "quick": not missing}
    row = PaperClaim(claim, source, paper, fair, published, **shown)
    unexplained = not (missing or why or row.verdict == REPRODUCED)
    return replace(row, why="not known") if unexplained else row


def _value(of: Measure, setting: str) -> float | None:
    """Return a figure; None where its run is missing, or its divisor is zero."""
    try:
        return of(setting)
    except (KeyError, ZeroDivisionError, ValueError, TypeError):
        return None


def only_published(of: Callable[[], float | None]) -> Measure:
    """Return a measure that has no figure in the fair setting."""
    return lambda setting: of() if setting == PUBLISHED else None


def difference(ours: float, theirs: float) -> float:
    """Return a relative difference in percent."""
    return 100 * (ours / theirs - 1)
