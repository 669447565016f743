"""Writes the part of the accuracy page about plans and placements that another laboratory measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clustergym.commands.oracle.common import percent
from clustergym.common.tables import table
from clustergym.oracle.calibration.placements import STACK, validate_placements
from clustergym.oracle.calibration.step_fit import FREE

Figures = Mapping[str, Any]

HEAD = f"""\
## Plans and placements of another laboratory

Morphling's authors (MLSys '25) measured steps of five models on up to 64 A800, by plan and by the GPUs that
each node has (`clustergym oracle validate --data morphling`). The stack `{STACK}` has
{len(FREE[STACK][0])} constants, none of which belongs to one model. In the rows `left out`, each model is
predicted by a fit to the four others. *usual rows* are without two groups that are unlike their neighbours:
ViT on an odd number of GPUs of a node, and T5 by pipeline parallelism on one GPU at a time. Why is not known.

*lost* is how much slower the plan that is predicted to be the fastest of a placement runs than the one that
is. *ratio* is the error of the ratio of step times of a plan on eight GPUs of one node and on four GPUs of
each of two.
"""


def measure_placements(folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Return the figures of plans and placements; empty where the folder is missing."""
    return validate_placements(folder, left_out=True, tell=tell) if folder.is_dir() else {}


def placements_section(figures: Figures) -> str:
    """Return the accuracy page's section on plans and placements, in Markdown."""
    rows = [
        (
            title,
            f"{one['seconds']['rows']}",
            percent(one["seconds"]["median_ape"]),
            percent(one["seconds"]["mape"]),
            f"{one['plans']['all']['placements']}",
            percent(one["plans"]["all"]["within_5_percent"], 0),
            percent(one["plans"]["all"]["lost_mean"]),
            percent(one["ratios"]["median_ape"]),
            percent(one["ratios"]["most"]),
        )
        for title, one in figures.items()
    ]
    heads = (
        "rows",
        "median error",
        "mean",
        "placements",
        "lost up to 5 %",
        "lost, mean",
        "ratio, median",
        "most",
    )
    return "\n".join((HEAD, table(("", *heads), rows), ""))
