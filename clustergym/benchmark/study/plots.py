"""Plots of a study: a dot with its interval for each policy, or for each scenario."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.benchmark.study.runs import StudyResults
from clustergym.benchmark.study.study_file import Study, slug
from clustergym.benchmark.study.tables import heading, ordered, units_of
from clustergym.common.figures import draw_figure
from clustergym.results.report.colours import COLOURS, styles_of
from clustergym.results.report.groups import Column, ResultGroup

FORMATS = (".svg", ".pdf")


class Plot(NamedTuple):
    """A plot: its file's name, its title, its rows from the top, and a panel for each metric."""

    name: str
    title: str
    group: ResultGroup
    columns: Sequence[Column]
    metrics: Sequence[str]


def plots_of(study: Study, results: StudyResults) -> list[Plot]:
    """Return the plots of a study: of each scenario in the summary, and of each policy over scenarios."""
    found = []
    for label, metrics in study.summary.items():
        group = results.by_scenario[label]
        found.append(
            Plot(f"scenario-{slug(label)}", label, group, ordered(group, study.about[metrics[0]]), metrics)
        )
    first = next(iter(study.metrics))
    for label, group in results.by_policy.items():
        found.append(Plot(f"policy-{slug(label)}", label, group, group.columns, [first]))
    return found


def draw(study: Study, results: StudyResults, plot: Plot, folder: Path) -> list[Path]:
    """Draw a plot in each of `FORMATS`; the same results give the same bytes."""
    names = [column.any.policy.name for column in plot.columns]
    several = len(set(names)) > 1
    colours = [style.colour for style in styles_of(names)] if several else [COLOURS[0]] * len(names)
    units = units_of(study, results)
    figures = [plot.group.figures(column) for column in plot.columns]

    def fill(figure: Any) -> None:
        for at, metric in enumerate(plot.metrics, start=1):
            axes, unit = figure.add_subplot(1, len(plot.metrics), at), units[metric]
            for row, (of_row, colour) in enumerate(zip(figures, colours, strict=True)):
                known = of_row.get(metric)
                if known is None:
                    continue
                mean, low, high = (value * unit.factor for value in known[:3])
                axes.plot([low, high], [row, row], color=colour, linewidth=1.5)
                axes.plot([mean], [row], "o", color=colour, markersize=5)
            labels = [column.label for column in plot.columns] if at == 1 else []
            axes.set_yticks(range(len(plot.columns)), labels or [""] * len(plot.columns))
            axes.set_ylim(len(plot.columns) - 0.5, -0.5)
            axes.set_xlim(left=0)
            axes.set_xlabel(heading(study, metric, unit))
            axes.grid(axis="x", alpha=0.3)
        figure.suptitle(plot.title, fontsize="medium")

    size = 1.6 + 2.8 * len(plot.metrics), 1.0 + 0.26 * len(plot.columns)
    paths = [folder / f"{plot.name}{suffix}" for suffix in FORMATS]
    for path in paths:
        draw_figure(path, size, fill)
    return paths
