"""The plot of the placement benchmark: score against alpha, a panel per setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from clustergym.benchmark.papers.arnold_benchmark import BASELINES, estimates
from clustergym.common.figures import draw_figure
from clustergym.results.report.colours import style_of


def draw(figures: dict[str, Any], path: Path, option: str) -> None:
    """Write the plot, see `draw_figure`; the bands are 95 % intervals over states."""

    def fill(figure: Any) -> None:
        for axes, setting in zip(figure.subplots(1, 3), figures["settings"], strict=True):
            _panel(axes, setting, figures["alphas"])
        figure.axes[0].set_ylabel("alpha x DP spread + (1 - alpha) x PP spread")
        figure.axes[0].legend(fontsize="small")

    draw_figure(path, (12, 4), fill, option, {"svg.fonttype": "path"})


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
