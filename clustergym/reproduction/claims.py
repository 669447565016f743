"""What a paper claims, beside what we measured: a row a claim, its verdict worked out from the figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from clustergym.reproduction.study import table

TOLERANCE = 0.1
"""Share of the paper's figure that ours may lack, or differ by, and still reproduce it."""
_ROUNDING = 1e-9

REPRODUCED, SMALLER, LARGER, REVERSED, NO_FIGURE, NOT_SIMULATED, NOT_RUN = VERDICTS = (
    "reproduced",
    "smaller",
    "larger",
    "reversed",
    "no figure",
    "not simulated",
    "not run",
)


@dataclass(frozen=True)
class Claim:
    """A figure or statement of a paper's evaluation, and ours.

    Attributes
    ----------
    claim : str
        What the paper says, in our words, without the figure: "mean JCT against FCFS".
    source : str
        Section, figure or table: "section 5.3, Fig. 12".
    paper, fair, as_published : float or None
        The paper's figure; ours under one set of rules for all; ours under the rules of the paper's own
        simulator. None: there is none. Where only the paper's is missing, the verdict is "no figure".
    unit : str
        "%", "x", "h", "s", "jobs" or "" (a plain number).
    neutral : float or None
        The value that means "no effect": 0 for a change in percent, 1 for a ratio. None: the figure is a
        quantity of its own, such as hours, and ours should equal it.
    why : str
        One line: what was switched off and what that showed; for a claim that cannot be simulated, why not.
    decimals : int
        Of the printed figures.
    quick : bool
        Whether the quick form measures it too. Where it does not, its figures are None there and the verdict
        is "not run".
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
        """The verdict as published; where the fair one differs, that too; of the only one there is."""
        ours = [value for value in (self.as_published, self.fair) if value is not None]
        if not ours:
            return NOT_SIMULATED if self.quick else NOT_RUN
        first = self.verdict_of(ours[0])
        second = self.verdict_of(ours[-1])
        return first if first == second else f"{first} (fair: {second})"

    def plain(self) -> dict[str, Any]:
        """Return the row as JSON values, unrounded."""
        return {**asdict(self), "verdict": self.verdict}

    @staticmethod
    def of(row: Mapping[str, Any]) -> Claim:
        """Return the claim of a row that `plain` gave."""
        return Claim(**{entry.name: row[entry.name] for entry in fields(Claim)})

    def shown(self, value: float | None) -> str:
        """Return a figure with its unit; `-` where there is none."""
        if value is None:
            return "-"
        sign = "+" if self.unit == "%" and self.neutral == 0 else ""
        gap = "" if self.unit in ("x", "") else " "
        return f"{value:{sign},.{self.decimals}f}{gap}{self.unit}"


def claims_table(claims: Iterable[Claim]) -> str:
    """Return the table that opens a page."""
    headers = ["claim", "source", "paper", "ours, fair", "ours, as published", "verdict", "why"]
    return table(
        headers,
        (
            [c.claim, c.source, *(c.shown(v) for v in (c.paper, c.fair, c.as_published)), c.verdict, c.why]
            for c in claims
        ),
        words=(0, 1, 5, 6),
    )
