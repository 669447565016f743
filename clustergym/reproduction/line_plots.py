"""Line plots of a study, a panel for each of its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from clustergym.errors import InputError
from clustergym.paths import atomic_path
from clustergym.report.colours import COLOURS, style_of


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
    bars : bool
        Bars, one for each label, which is a policy's, instead of lines; `x` is not used.
    """

    title: str
    x_label: str
    y_label: str
    x: Sequence[float]
    lines: Mapping[str, Sequence[float]]
    band: tuple[float, float] | None = None
    log_x: bool = False
    bars: bool = False


@dataclass(frozen=True)
class LinePlot:
    """Panels side by side; called with a path, it writes them there as SVG, the same bytes each time."""

    panels: Sequence[Panel]

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
        except ImportError as error:
            remedy = "pip install 'clustergym[report]'"
            raise InputError("Matplotlib is not installed", file=path, remedy=remedy) from error
        with matplotlib.rc_context({"svg.hashsalt": "clustergym", "svg.fonttype": "none"}):
            figure = Figure(figsize=(4.5 * len(self.panels), 3.6), layout="constrained")
            FigureCanvasSVG(figure)
            for number, panel in enumerate(self.panels):
                _draw(figure.add_subplot(1, len(self.panels), number + 1), panel)
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format="svg", metadata={"Date": None})


def _draw(axes: object, panel: Panel) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    if panel.bars:
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
