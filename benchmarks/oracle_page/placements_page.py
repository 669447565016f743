"""Writes the part of the accuracy page about plans and placements that another laboratory measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clustergym.commands.oracle.common import percent
from clustergym.common.tables import table
from clustergym.oracle.calibration.placements import COMPARED, STACK, validate_placements
from clustergym.oracle.calibration.step_fit import FREE

Figures = Mapping[str, Any]

HEAD = f"""\
## Plans and placements of another laboratory

Morphling's authors (MLSys '25) measured steps of five models on up to 64 A800, by plan and by the GPUs that
each node has (AlibabaPAI/reconfigurable-dl-scheduler, Apache-2.0; `clustergym oracle validate --data
morphling`). Plans are data parallelism with and without recomputation, ZeRO-2, ZeRO-Offload, and degrees of
tensor and pipeline parallelism. The stack `{STACK}` has {len(FREE[STACK][0])} constants, none of which
belongs to one model; in the rows `left out`, each model is predicted by a fit to the four others. The network
of these nodes is not known: `network_rate` is one of the constants. A ring over nodes is taken to be as fast
as where it has the fewest GPUs.

Two groups of rows are unlike their neighbours, and no constant is fitted to them: ViT is several times
slower where a node of several has an odd number of GPUs, which no other model is, and T5 by pipeline
parallelism on one GPU at a time is more than twice as slow as on one GPU. The causes are not known. *usual
rows* are all but these.

In the next table, *lost* is how much slower the plan that is predicted to be the fastest of a placement runs
than the one that is; *ratio* is the error of the ratio of step times of a plan on eight GPUs of one node
(`{COMPARED[0]}`) and on four GPUs of each of two (`{COMPARED[1]}`). The targets are 5 % and 15 %.
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
    models = figures["left out, usual rows"]
    by_model = [
        (
            name,
            percent(found["median_ape"]),
            percent(models["plans"][name]["within_5_percent"], 0),
            percent(models["plans"][name]["lost_mean"]),
            percent(models["plans"][name]["lost_most"]),
        )
        for name, found in models["by_model"].items()
    ]
    names = ("left out, usual rows", "median error", "lost up to 5 %", "lost, mean", "most")
    return "\n".join((HEAD, table(("", *heads), rows), "", table(names, by_model), ""))
