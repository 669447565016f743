"""A grid of named cells, such as who is first where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from clustergym.errors import InputError
from clustergym.paths import atomic_path
from clustergym.report.colours import style_of


@dataclass(frozen=True)
class Grid:
    """Cells, each of a name, which is its colour, and with a text.

    Attributes
    ----------
    title, x_label, y_label : str
    x, y : sequence of str
        Labels of the columns and, from the top, of the rows.
    name, text : sequence of sequence of str
        Of each cell, by row.
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


@dataclass(frozen=True)
class GridPlot:
    """Called with a path, it draws the grid there as SVG, the same bytes each time."""

    grid: Grid

    def __call__(self, path: Path) -> None:
        """Draw to a file.

        Raises
        ------
        InputError
            If Matplotlib is not installed.
        """
        try:
            import matplotlib
            from matplotlib.backends.backend_svg import FigureCanvasSVG
            from matplotlib.figure import Figure
            from matplotlib.patches import Patch, Rectangle
        except ImportError as error:
            remedy = "pip install 'clustergym[report]'"
            raise InputError("Matplotlib is not installed", file=path, remedy=remedy) from error
        grid = self.grid
        with matplotlib.rc_context({"svg.hashsalt": "clustergym", "svg.fonttype": "none"}):
            figure = Figure(figsize=(1.3 * len(grid.x) + 3.2, 0.8 * len(grid.y) + 1.6), layout="constrained")
            FigureCanvasSVG(figure)
            axes = figure.add_subplot()
            for row, names in enumerate(grid.name):
                for column, name in enumerate(names):
                    corner = (column - 0.5, row - 0.5)
                    colour = style_of(name).colour
                    axes.add_patch(Rectangle(corner, 1, 1, facecolor=colour, alpha=0.5, edgecolor="white"))
                    axes.text(column, row, grid.text[row][column], ha="center", va="center")
            axes.set_xlim(-0.5, len(grid.x) - 0.5)
            axes.set_ylim(len(grid.y) - 0.5, -0.5)
            axes.set_xticks(range(len(grid.x)), grid.x)
            axes.set_yticks(range(len(grid.y)), grid.y)
            axes.set(xlabel=grid.x_label, ylabel=grid.y_label)
            axes.set_title(grid.title, fontsize="small")
            handles = [Patch(facecolor=style_of(name).colour, alpha=0.5, label=name) for name in grid.names]
            figure.legend(handles=handles, loc="outside right upper", fontsize="small")
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format="svg", metadata={"Date": None})
