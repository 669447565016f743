"""The plot of the placement benchmark: score against alpha, a panel per setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clustergym.inputs.errors import InputError
from clustergym.inputs.writing import atomic_path
from clustergym.placement.benchmark import BASELINES, estimates
from clustergym.report.colours import style_of

SUFFIXES = (".png", ".svg", ".pdf")

DATES = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
"""What would make two drawings of the same figures differ."""


def draw(figures: dict[str, Any], path: Path) -> None:
    """Write the plot; the bands are 95 % intervals over states.

    Raises
    ------
    InputError
        If Matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        remedy = "pip install 'clustergym[report]'"
        raise InputError("Matplotlib is not installed", field="--plot", remedy=remedy) from error
    with matplotlib.rc_context({"svg.hashsalt": "clustergym"}):
        figure = Figure(figsize=(12, 4), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, setting in zip(figure.subplots(1, 3), figures["settings"], strict=True):
            _panel(axes, setting, figures["alphas"])
        figure.axes[0].set_ylabel("alpha x DP spread + (1 - alpha) x PP spread")
        figure.axes[0].legend(fontsize="small")
        with atomic_path(path) as temporary:
            kind = path.suffix.lower()
            figure.savefig(temporary, format=kind[1:], dpi=120, metadata=DATES[kind])


def _panel(axes: Any, setting: dict[str, Any], alphas: list[float]) -> None:
    for name in ("arnold", *BASELINES):
        found = estimates(setting["scores"][name])
        style, label = style_of(name), name.replace("_", " ")
        axes.plot(alphas, [e.mean for e in found], marker=".", label=label, **style.matplotlib)
        low, high = [e.low for e in found], [e.high for e in found]
        axes.fill_between(alphas, low, high, alpha=0.15, color=style.colour, linewidth=0)
    axes.set_title(f"({setting['name']}) {setting['minipods']} minipods, {setting['nodes']} nodes")
    axes.set_xlabel("alpha")
    axes.set_ylim(bottom=0)
