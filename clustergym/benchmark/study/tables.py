"""Tables of a study, as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from clustergym.benchmark.study.runs import StudyResults
from clustergym.benchmark.study.study_file import Study, slug
from clustergym.common import markdown
from clustergym.results.metrics.aggregates import Aggregate
from clustergym.results.metrics.catalogue import Metric
from clustergym.results.metrics.statistics import Estimate
from clustergym.results.report.groups import Column, ResultGroup
from clustergym.results.report.metric_tables import Unit, finished_jobs_differ, human_unit, human_value, ratio
from clustergym.scenario.policy import KNOWS, InformationClass

ARROWS = {"lower": " ↓", "higher": " ↑", "": ""}
LATEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "↓": "$\\downarrow$",
    "↑": "$\\uparrow$",
    "[": "{[}",
}


class TextTable(NamedTuple):
    """A table of texts.

    Attributes
    ----------
    name : str
        Of its file.
    title : str
    headers : sequence of str
    rows : sequence of sequence of str
    words : int
        Number of leading columns that hold words.
    notes : sequence of str
    """

    name: str
    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int
    notes: Sequence[str] = ()

    @property
    def markdown(self) -> str:
        """The table in Markdown, without its title."""
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self.rows]
        return markdown.table([cell.replace("|", "\\|") for cell in self.headers], rows, range(self.words))

    @property
    def latex(self) -> str:
        """The table in LaTeX; it needs the package booktabs."""
        lines = [" & ".join(map(escaped, line)) + " \\\\" for line in (self.headers, *self.rows)]
        columns = "l" * self.words + "r" * (len(self.headers) - self.words)
        body = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", lines[0], "\\midrule", *lines[1:]]
        notes = [f"% {' '.join(note.split())}" for note in (self.title, *self.notes)]
        return "\n".join([*notes, *body, "\\bottomrule", "\\end{tabular}", ""])


def escaped(text: str) -> str:
    """Return a text as LaTeX."""
    return "".join(LATEX.get(character, character) for character in text)


def ordered(group: ResultGroup, metric: Metric) -> list[Column]:
    """Return a group's columns by what they know, least first, and then by a metric, best first."""
    known = {name.value: place for place, name in enumerate(reversed(InformationClass))}
    sign = -1.0 if metric.better == "higher" else 1.0

    def place(column: Column) -> tuple[int, float]:
        figure = group.figures(column).get(metric.name)
        value = float("inf") if figure is None else sign * figure.mean
        return known.get(column.any.information_class, len(known)), value

    return sorted(group.columns, key=place)


def summary_table(study: Study, groups: Mapping[str, ResultGroup], units: Mapping[str, Unit]) -> TextTable:
    """Return the table of chosen metrics of all scenarios, a row for each policy."""
    first, (metric, *_) = next(iter(study.summary.items()))
    order = ordered(groups[first], study.about[metric])
    headers = ["knows", "policy"]
    rows = [[told, column.label] for told, column in zip(_classes(order), order, strict=True)]
    for scenario, names in study.summary.items():
        group = groups[scenario]
        columns = {column.label: column for column in group.columns}
        figures = [group.figures(columns[column.label]) for column in order]
        for name in names:
            unit = units[name]
            headers.append(f"{scenario}: {heading(study, name, unit)}")
            for row, of_policy in zip(rows, figures, strict=True):
                row.append(shown(of_policy.get(name), unit))
    return TextTable("summary", "summary", headers, rows, 2)


def _classes(order: Sequence[Column]) -> list[str]:
    """Return what each row's policy knows, where it differs from the row above."""
    told = [KNOWS.get(column.any.information_class, column.any.information_class) for column in order]
    return ["" if at and told[at - 1] == words else words for at, words in enumerate(told)]


def comparison(study: Study, of: str, label: str, group: ResultGroup, units: Mapping[str, Unit]) -> TextTable:
    """Return the table of all metrics of a group: a row for each policy `of` a scenario, or the reverse.

    Beside each metric stands its ratio to the reference, if there is one, with its paired interval.
    """
    by_policy = of == "scenario"
    what = "policy" if by_policy else "scenario"
    columns = ordered(group, study.about[next(iter(study.metrics))]) if by_policy else group.columns
    figures = [group.figures(column) for column in columns]
    headers = ["knows", what] if by_policy else [what]
    rows = [
        [*([told] if by_policy else []), column.label]
        for told, column in zip(_classes(columns), columns, strict=True)
    ]
    base = None if group.reference is None else group.columns[group.reference]
    for metric in study.metrics:
        unit = units[metric]
        headers.append(heading(study, metric, unit))
        for row, of_column in zip(rows, figures, strict=True):
            row.append(shown(of_column.get(metric), unit))
        if base is not None and study.about[metric].better:
            headers.append(f"to {base.label}")
            of_base = group.figures(base).get(metric)
            for row, column, of_column in zip(rows, columns, figures, strict=True):
                pair = group.ratios(column).get(metric)
                plain = None if column is base else ratio(of_column.get(metric), of_base)
                row.append(shown_ratio(plain, pair))
    caution = finished_jobs_differ([{"metrics": table} for table in figures])
    notes = [*group.notes, *filter(None, [caution])]
    return TextTable(f"{of}-{slug(label)}", f"{of} {label}", headers, rows, 2 if by_policy else 1, notes)


def heading(study: Study, metric: str, unit: Unit) -> str:
    """Return the heading of a metric's column."""
    named = f" ({unit.name})" if unit.name else ""
    return f"{study.metrics[metric]}{named}{ARROWS[study.about[metric].better]}"


def units_of(study: Study, results: StudyResults) -> dict[str, Unit]:
    """Return the unit of each metric, the same in all tables and plots of a study."""
    figures = [group.figures(column) for group in results.by_scenario.values() for column in group.columns]
    found = {}
    for metric in study.metrics:
        means = [figure.mean for table in figures if (figure := table.get(metric)) is not None]
        found[metric] = human_unit(study.about[metric], max(map(abs, means), default=0.0))
    return found


def shown(figure: Estimate | None, unit: Unit) -> str:
    """Return a figure with its interval, without its unit."""
    return "-" if figure is None else human_value(figure, Unit(unit.factor, ""))


def shown_ratio(plain: float | None, pair: Aggregate | None) -> str:
    """Return a ratio with its interval, if it has one of some width."""
    if plain is None:
        return ""
    interval = "" if pair is None or pair.low == pair.high else f" [{pair.low:.2f}, {pair.high:.2f}]"
    return f"{plain:.2f}x{interval}"
