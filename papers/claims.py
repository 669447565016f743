"""A paper's claims beside our measurements, one row for each; the figures decide the verdict."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from clustergym.common.tables import table

TOLERANCE = 0.1
"""Ours reproduces a paper's effect, or quantity, if it is at most this share of it above or below."""
_ROUNDING = 1e-9

REPRODUCED, SMALLER, LARGER, REVERSED = "reproduced", "smaller", "larger", "reversed"
NO_FIGURE, NOT_SIMULATED, NOT_RUN = "no figure in the text", "not simulated", "not run"
VERDICTS = (REPRODUCED, SMALLER, LARGER, REVERSED, NO_FIGURE, NOT_SIMULATED, NOT_RUN)
UNKNOWN = "not known"
"""The reason of a gap of which no cause was found."""
FAIR, PUBLISHED = "fair", "as published"
"""Our two settings: one set of rules for all policies, or the rules of the paper's own simulator."""


Comparison = Literal["equal", "at least", "at most"]
"""How ours should stand to a paper's figure: "over 90 % of jobs" is kept by 95 % and broken by 86 %."""


@dataclass(frozen=True)
class PaperClaim:
    """A figure or statement of a paper's evaluation, beside our figures.

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
        quantity of its own, such as hours, and ours should equal it. An accuracy is given as its error.
    why : str
        What was switched off and what that showed; for a claim that cannot be simulated, why not.
    decimals : int
        Of the printed figures.
    quick : bool
        False where the quick form, and it alone, leaves the claim out: then ours is None.
    paper_most : float or None
        The other end where the paper gives a range from `paper` on; ours should lie between the two.
    comparison : str
        "equal", or the side of the paper's figure that ours should be on.
    direction : int
        Where the text states no figure: 1 if it says that ours is above `neutral`, -1 below, 0 neither.
    first_stated_by : str
        The paper whose figure it is, by the name of its module, where this one took it over: it counts there.
    rests_on : str
        A claim whose effect is reversed here and from which this one follows.
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
    paper_most: float | None = None
    comparison: Comparison = "equal"
    direction: int = 0
    first_stated_by: str = ""
    rests_on: str = ""

    def __post_init__(self) -> None:
        for value in (self.paper, self.paper_most, self.fair, self.as_published):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{self.claim}: {value} is no figure")
        if self.direction and (self.paper is not None or self.neutral is None):
            raise ValueError(f"{self.claim}: a direction is for an effect of which the paper gives no figure")

    def judge_figure(self, ours: float) -> str:
        """Return the verdict on one of our figures, such as "reproduced" or "reversed"."""
        if self.paper is None:
            against = self.direction and self.direction * (ours - (self.neutral or 0.0)) <= 0
            return REVERSED if against else NO_FIGURE
        least, most = self._compute_accepted_range(self.paper)
        if least - _ROUNDING <= ours <= most + _ROUNDING:
            return REPRODUCED
        if self.neutral is None:
            return SMALLER if ours < least else LARGER
        share = (ours - self.neutral) / (self.paper - self.neutral)
        return REVERSED if share <= 0 else SMALLER if share < 1 else LARGER

    def _compute_accepted_range(self, paper: float) -> tuple[float, float]:
        """Return the least and the greatest figure that reproduces the paper's.

        A quantity of 0 leaves no share to differ by: ours should be 0 as rounded for print.
        """
        if self.comparison == "at least":
            return paper, math.inf
        if self.comparison == "at most":
            return -math.inf, paper
        if self.paper_most is not None:
            return min(paper, self.paper_most), max(paper, self.paper_most)
        half_digit = 0.5 * 10.0**-self.decimals if paper == 0.0 else 0.0
        margin = TOLERANCE * abs(paper - (self.neutral or 0.0)) or half_digit
        return paper - margin, paper + margin

    @property
    def ours(self) -> list[float]:
        """Our figures: first under the paper's own rules, then under one set of rules for all policies."""
        return [value for value in (self.as_published, self.fair) if value is not None]

    @property
    def verdict(self) -> str:
        """The verdict under the paper's own rules, and that under equal rules if it differs."""
        if not self.ours:
            return NOT_SIMULATED if self.quick else NOT_RUN
        first, second = self.judge_figure(self.ours[0]), self.judge_figure(self.ours[-1])
        both = first if first == second else f"{first} (fair: {second})"
        return f"{both}, as {self.rests_on!r} is reversed" if self.rests_on else both

    @property
    def main_verdict(self) -> str:
        """The verdict as one of `VERDICTS`, without its remarks on equal rules and on other claims."""
        return next(name for name in VERDICTS if self.verdict.startswith(name))

    @property
    def note(self) -> str:
        """The reason of a verdict that is not plainly that of the paper; empty where none is known."""
        plainly_kept = self.verdict in (REPRODUCED, NO_FIGURE)
        return "" if plainly_kept or self.why == UNKNOWN else self.why

    def plain(self) -> dict[str, Any]:
        """Return the paper's claim and our verdict as JSON values, unrounded."""
        return {**asdict(self), "verdict": self.verdict}

    @staticmethod
    def from_row(row: Mapping[str, Any]) -> "PaperClaim":
        """Rebuild a paper's claim from the JSON values that `plain` returns."""
        return PaperClaim(**{entry.name: row[entry.name] for entry in fields(PaperClaim)})

    @property
    def shown_paper(self) -> str:
        """The paper's figure, range or direction as text with its unit; `-` if it states none."""
        if self.direction:
            return f"{'>' if self.direction > 0 else '<'} {self.format_figure(self.neutral)}"
        if self.paper_most is not None:
            return f"{self.paper:,.{self.decimals}f} to {self.format_figure(self.paper_most)}"
        side = "" if self.comparison == "equal" else f"{self.comparison} "
        return side + self.format_figure(self.paper)

    def format_figure(self, value: float | None) -> str:
        """Return a figure as text with its unit; `-` for None."""
        if value is None:
            return "-"
        sign = "+" if self.unit == "%" and self.neutral == 0 else ""
        gap = "" if self.unit in ("x", "") else " "
        return f"{value:{sign},.{self.decimals}f}{gap}{self.unit}"


def claims_table(claims: Iterable[PaperClaim]) -> str:
    """Return Markdown tables of a paper's claims beside our figures, one for each place in the paper.

    A table leaves out a setting that none of its claims has. Reasons stand below it, each once, by number.
    """
    places: dict[str, list[PaperClaim]] = {}
    for claim in claims:
        places.setdefault(claim.source, []).append(claim)
    return "\n\n".join(f"### {place}\n\n{_table_of_place(rows)}" for place, rows in places.items())


def _table_of_place(claims: Sequence[PaperClaim]) -> str:
    notes = list(dict.fromkeys(claim.note for claim in claims if claim.note))
    settings = {
        "ours, fair": [claim.fair for claim in claims],
        "ours": [claim.as_published for claim in claims],
    }
    shown = {name: values for name, values in settings.items() if any(value is not None for value in values)}
    rows = [
        [
            claim.claim,
            claim.shown_paper,
            *(claim.format_figure(values[at]) for values in shown.values()),
            claim.verdict + (f" ({notes.index(claim.note) + 1})" if claim.note else ""),
        ]
        for at, claim in enumerate(claims)
    ]
    made = table(("claim", "paper", *shown, "verdict"), rows, words=(0, len(shown) + 2))
    listed = "\n".join(f"{number}. {note}" for number, note in enumerate(notes, 1))
    return f"{made}\n\n{listed}".strip()


def difference(ours: float, theirs: float) -> float:
    """Return by how many percent `ours` is above `theirs`."""
    return 100 * (ours / theirs - 1)
