"""Plots of a study: panels of lines or bars, and a grid that shows who is first where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from clustergym.common.figures import draw_figure
from clustergym.results.report.colours import COLOURS, style_of

Draw = Callable[[Path], None]
"""Writes a plot as SVG, the same bytes each time; raises an `InputError` if Matplotlib is not installed."""


class Panel(NamedTuple):
    """Lines by label over `x`, or where there is no `x` a bar for each policy; `band`: a range to shade."""

    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    lines: Mapping[str, Sequence[float]]
    band: tuple[float, float] | None = None
    log_x: bool = False


def panel_plot(panels: Sequence[Panel]) -> Draw:
    """Return a function that draws panels side by side."""

    def fill(figure: Any) -> None:
        for at, panel in enumerate(panels, start=1):
            axes = figure.add_subplot(1, len(panels), at)
            if not panel.x:
                colours = [style_of(label).colour for label in panel.lines]
                axes.bar(list(panel.lines), [values[0] for values in panel.lines.values()], color=colours)
                axes.tick_params(axis="x", rotation=60)
            else:
                for (label, values), colour in zip(panel.lines.items(), cycle(COLOURS), strict=False):
                    axes.plot(panel.x, values, marker=".", label=label, color=colour)
                axes.legend(fontsize="small")
            if panel.log_x:
                axes.set_xscale("log", base=2)
            if panel.band is not None:
                axes.axvspan(*panel.band, alpha=0.15, color="grey", linewidth=0)
            axes.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
            axes.set_ylim(bottom=0)

    return lambda path: draw_figure(path, (4.5 * len(panels), 3.6), fill, "--out")


def grid_plot(
    x: Sequence[str],
    y: Sequence[str],
    policies: Sequence[Sequence[str]],
    texts: Sequence[Sequence[str]],
    legend: Sequence[str],
    **labels: str,
) -> Draw:
    """Return a function that draws a grid of fields, each with a policy's colour and a text.

    `x` labels the columns, `y` the rows from the top; `labels` are the title and those of Matplotlib's axes.
    """

    def fill(figure: Any) -> None:
        from matplotlib.patches import Patch, Rectangle

        axes = figure.add_subplot()
        for row, named in enumerate(policies):
            for column, policy in enumerate(named):
                corner, colour = (column - 0.5, row - 0.5), style_of(policy).colour
                axes.add_patch(Rectangle(corner, 1, 1, facecolor=colour, alpha=0.5, edgecolor="white"))
                axes.text(column, row, texts[row][column], ha="center", va="center")
        axes.set(xlim=(-0.5, len(x) - 0.5), ylim=(len(y) - 0.5, -0.5), **labels)
        axes.set_xticks(range(len(x)), x)
        axes.set_yticks(range(len(y)), y)
        axes.title.set_fontsize("small")
        handles = [Patch(facecolor=style_of(name).colour, alpha=0.5, label=name) for name in legend]
        figure.legend(handles=handles, loc="outside right upper", fontsize="small")

    size = 1.3 * len(x) + 3.2, 0.8 * len(y) + 1.6
    return lambda path: draw_figure(path, size, fill, "--out")
