"""Renders a paper's page: claims, then sections; most sections are a table of runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from clustergym.benchmark.papers.claims import PaperClaim, claims_table
from clustergym.benchmark.papers.details import change, number, padded_jct
from clustergym.benchmark.papers.plots import Draw
from clustergym.benchmark.papers.study import Figures, Found, RunSpec
from clustergym.common.markdown import table


@dataclass(frozen=True)
class Report:
    """A page in Markdown, its claims, the same figures unrounded, and plots that lie beside the page.

    `plots` gives, by file name, what draws each plot; the text refers to plots by these names.
    """

    text: str
    figures: list[dict[str, Any]]
    claims: Sequence[PaperClaim] = ()
    plots: Mapping[str, Draw] = field(default_factory=dict)


Labelled = Mapping[Any, RunSpec]
"""Runs by the labels that open their rows, each a tuple of str."""


class Section(NamedTuple):
    """A part of a page: the runs that it needs, the text that it makes of them, and the runs of its table."""

    specs: Sequence[RunSpec]
    text: Callable[[Found], str]
    runs: Labelled = MappingProxyType({})


@cache
def _passages(paper: str) -> Mapping[str, str]:
    written = (Path(__file__).parent / "texts" / f"{paper}.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"<!-- (.+) -->\n", written)
    return {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}


def passage(paper: str, name: str, **values: Any) -> str:
    """Return the passage that stands under `<!-- name -->` in `texts/PAPER.md`, with values filled in."""
    return _passages(paper)[name].format(**values)


def words(text: str) -> Section:
    """Return a section that needs no runs."""
    return Section((), lambda found: text)


def specs_of(sections: Iterable[Section]) -> list[RunSpec]:
    """Return the runs of all sections."""
    return [spec for section in sections for spec in section.specs]


def make_report(
    introduction: str,
    claims: Sequence[PaperClaim],
    sections: Iterable[Section],
    found: Found,
    plots: Mapping[str, Draw] | None = None,
    plain: Callable[[RunSpec, Figures], dict[str, Any]] = RunSpec.plain,
) -> Report:
    """Write the page: introduction, claims (where there are any), sections."""
    opening = [introduction, *([f"## Claims\n\n{claims_table(claims)}"] if claims else [])]
    parts = [*opening, *(section.text(found) for section in sections)]
    runs = [plain(spec, figures) for spec, figures in found.items()]
    return Report("\n\n".join(filter(None, parts)) + "\n", runs, claims, plots or {})


class RunColumn(NamedTuple):
    """A column of a table: a metric, shown as it is or, by `unit`, in hours (h), milliseconds, or percent."""

    header: str
    metric: str
    decimals: int = 0
    unit: str = ""

    def shown(self, figures: Figures) -> str:
        """Return the figure of a run; `-` where there is none."""
        value = figures.get(self.metric)
        if value is None:
            return "-"
        if self.unit == "%":
            return f"{100 * value:.{self.decimals}f} %"
        return number({"h": value / 3600, "ms": 1000 * value}.get(self.unit, value), self.decimals)


RESTARTS = RunColumn("restarts a job", "restarts_mean", 1)
Added = Mapping[str, Sequence[str]]
"""Further columns by header; a blank at the end tells two equal headers apart and is not shown."""


def figures_table(
    labels: Sequence[str],
    rows: Mapping[Any, Figures],
    columns: Sequence[RunColumn],
    added: Added | None = None,
) -> str:
    """Return a table: a row for each run, columns of labels and metrics, and added ones."""
    more = added or {}
    headers = [*labels, *(column.header for column in columns), *(header.rstrip() for header in more)]
    lines = [
        [*opening, *(column.shown(row) for column in columns), *(cells[at] for cells in more.values())]
        for at, (opening, row) in enumerate(rows.items())
    ]
    return table(headers, lines)


def runs_table(
    text: str,
    labels: Sequence[str],
    runs: Labelled,
    columns: Sequence[RunColumn],
    added: Callable[[Found, Labelled], Added] = lambda found, runs: {},
) -> Section:
    """Return a section of a text and a table of runs."""

    def render(found: Found) -> str:
        rows = {opening: found[spec] for opening, spec in runs.items()}
        return f"{text}\n\n{figures_table(labels, rows, columns, added(found, runs))}"

    return Section(list(runs.values()), render, runs)


def changes(found: Found, runs: Labelled, metric: str) -> list[str]:
    """Return how far each run's metric is from that of the first row with the same later labels."""
    first: dict[tuple[str, ...], float] = {}
    for labels, spec in runs.items():
        first.setdefault(labels[1:], found[spec][metric])
    return [change(found[spec][metric], first[labels[1:]]) for labels, spec in runs.items()]


def padded_in(found: Found, runs: Labelled, reference: str, *group: str) -> dict[str, float]:
    """Return the padded JCT by first label, seconds, of the runs whose later labels are `group`."""
    figures = {labels[0]: found[spec] for labels, spec in runs.items() if labels[1:] == group}
    return padded_jct(figures, reference) if reference in figures else {}
