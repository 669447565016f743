"""Plots of a study: panels of lines or bars, and a grid that shows who is first where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from clustergym.errors import InputError
from clustergym.paths import atomic_path
from clustergym.report.colours import COLOURS, style_of


def _draw(path: Path, size: tuple[float, float], fill: Callable[[Any], None]) -> None:
    """Write a figure that `fill` draws as SVG; the same figure gives the same bytes."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure
    except ImportError as error:
        remedy = "pip install 'clustergym[report]'"
        raise InputError("Matplotlib is not installed", file=path, remedy=remedy) from error
    with matplotlib.rc_context({"svg.hashsalt": "clustergym", "svg.fonttype": "none"}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        fill(figure)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format="svg", metadata={"Date": None})


@dataclass(frozen=True)
class Panel:
    """Lines over one axis.

    Attributes
    ----------
    title, x_label, y_label : str
    x : sequence of float
    lines : mapping of str to sequence of float
        By label.
    band : (float, float) or None
        A range of x to shade.
    log_x : bool
    """

    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    lines: Mapping[str, Sequence[float]]
    band: tuple[float, float] | None = None
    log_x: bool = False

    def draw(self, axes: Any) -> None:
        """Draw on the axes of Matplotlib."""
        for (label, values), colour in zip(self.lines.items(), cycle(COLOURS), strict=False):
            axes.plot(self.x, values, marker=".", label=label, color=colour)
        axes.legend(fontsize="small")
        if self.log_x:
            axes.set_xscale("log", base=2)
        if self.band is not None:
            axes.axvspan(*self.band, alpha=0.15, color="grey", linewidth=0)
        axes.set(title=self.title, xlabel=self.x_label, ylabel=self.y_label)


@dataclass(frozen=True)
class Bars:
    """A bar for each policy."""

    title: str
    y_label: str
    heights: Mapping[str, float]

    def draw(self, axes: Any) -> None:
        """Draw on the axes of Matplotlib."""
        colours = [style_of(label).colour for label in self.heights]
        axes.bar(list(self.heights), list(self.heights.values()), color=colours)
        axes.tick_params(axis="x", rotation=60)
        axes.set(title=self.title, xlabel="", ylabel=self.y_label)


@dataclass(frozen=True)
class PanelPlot:
    """Panels side by side; called with a path, it writes them there."""

    panels: Sequence[Panel | Bars]

    def __call__(self, path: Path) -> None:
        """Draw to a file; raises an `InputError` if Matplotlib is not installed."""
        _draw(path, (4.5 * len(self.panels), 3.6), self._fill)

    def _fill(self, figure: Any) -> None:
        for at, panel in enumerate(self.panels, start=1):
            axes = figure.add_subplot(1, len(self.panels), at)
            panel.draw(axes)
            axes.set_ylim(bottom=0)


@dataclass(frozen=True)
class GridPlot:
    """A grid of fields; each has a policy's colour and a text. Called with a path, it writes it there.

    Attributes
    ----------
    title, x_label, y_label : str
    x, y : sequence of str
        Labels of the columns and, from the top, of the rows.
    name, text : sequence of sequence of str
        Policy and text of each field, by row.
    names : sequence of str
        In the order of the legend.
    """

    title: str
    x_label: str
    y_label: str
    x: Sequence[str]
    y: Sequence[str]
    name: Sequence[Sequence[str]]
    text: Sequence[Sequence[str]]
    names: Sequence[str]

    def __call__(self, path: Path) -> None:
        """Draw to a file; raises an `InputError` if Matplotlib is not installed."""
        _draw(path, (1.3 * len(self.x) + 3.2, 0.8 * len(self.y) + 1.6), self._fill)

    def _fill(self, figure: Any) -> None:
        from matplotlib.patches import Patch, Rectangle

        axes = figure.add_subplot()
        for row, names in enumerate(self.name):
            for column, name in enumerate(names):
                corner, colour = (column - 0.5, row - 0.5), style_of(name).colour
                axes.add_patch(Rectangle(corner, 1, 1, facecolor=colour, alpha=0.5, edgecolor="white"))
                axes.text(column, row, self.text[row][column], ha="center", va="center")
        axes.set_xlim(-0.5, len(self.x) - 0.5)
        axes.set_ylim(len(self.y) - 0.5, -0.5)
        axes.set_xticks(range(len(self.x)), self.x)
        axes.set_yticks(range(len(self.y)), self.y)
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        axes.set_title(self.title, fontsize="small")
        handles = [Patch(facecolor=style_of(name).colour, alpha=0.5, label=name) for name in self.names]
        figure.legend(handles=handles, loc="outside right upper", fontsize="small")
