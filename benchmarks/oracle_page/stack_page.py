"""Writes the part of the accuracy page about software stacks and today's transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from clustergym.commands.oracle.common import percent
from clustergym.common.tables import table

Figures = Mapping[str, Any]

PICTURE = "oracle-throughput.svg"
"""File of the picture, beside the page."""

PICTURE_NOTE = f"""\
![Predicted against measured seconds of a step, by GPU type]({PICTURE})

A *stack* is a training framework, with constants fitted to its measured times (`conf/stack`). The
picture shows the rows of all sources: the newest releases of today's stacks, and Arena's iterations,
predicted by the stack `alpa-2022`.
"""

HEAD = """\
## Training throughput of today's stacks

`clustergym oracle validate --data modern` compares the step times of software stacks (`conf/stack`) with
public tables of llm-foundry, Megatron-Bridge, dgxc-benchmarking and torchtitan, for the published
parallel plan. The compared figure is tokens/s per GPU. No constant of a stack belongs to one model. In
the columns `left out`, each group (a model, GPU type and precision) is predicted by a fit to all other
rows. Of mixtures of experts the releases of one configuration differ by factors of 1.0 to 2.9, so the row
of the newest release says most.

`oracle=stack`, the default, contains all stacks. For each model and GPU type it uses the stack, of those
measured on both, whose year is nearest to `oracle.year` (by default the newest), among those of a framework
if `oracle.stack` names one (`fsdp`, `megatron`). If there is none, it takes the stack of the nearest year and
prints a note. For the papers' models on their GPUs the times are those of
[`oracle=grid`](#the-grid-based-estimates-of-adaptive-parallelism).
"""

TARGETS = {"dense, newest release": "4.5, 7, 13 %", "experts, newest release": "15 % median"}

SOURCES_NOTE = """\
A user's own software is none of these stacks. **This table is the error to expect of a model of one's own**:
each source is left out whole, the stacks are fitted to the other sources, and a row has the stack that the
oracle chooses among those of its framework. *ratio* is the median of the predicted over the measured speed.
*untold* is the median error if the framework is not told.
"""

MISSED_NOTE = """\
Too fast by a fifth or more, if left out of the fit: torchtitan with rowwise fp8 (its release has a known
defect), and some small or memory-bound cases of mpt (the causes are not known). Mixtures of experts in the
newest release are predicted too slow, because one set of constants covers all of 2026.
"""

MISSED_POINTS = 5
"""Points of error from which a curve of speed per GPU counts as missed."""


def stack_section(figures: Figures) -> str:
    """Return the accuracy page's section on errors of predicted throughput by software stack, in Markdown."""
    three = ("median", "mean", "90th percentile")
    left_out = ("left out: median", *three[1:])
    errors = [
        (*_rows({name: row})[0], *_three(figures["left_out"].get(name, {})), TARGETS.get(name, ""))
        for name, row in figures["errors"].items()
    ]
    refused = (
        f"The tables have {figures['measured_rows']} rows, of which {figures['expressed']} can be expressed"
        f" as plans of the oracle. Of these, {figures['refused']} ran\n"
        "although the oracle says that it does not fit; its table omits the sharding that it must have had.\n"
        "The plan that the oracle's search finds is predicted to be slower than the published one in"
        f" {figures['slower_than_published']} rows."
    )
    return "\n".join(
        (
            HEAD,
            table(("", "rows", *three, *left_out, "target"), errors),
            "",
            refused,
            "",
            SOURCES_NOTE,
            _left_out_sources(figures["without_a_source"]),
            "",
            _two_sources(figures["between_sources"]),
            MISSED_NOTE,
            table(("GPU", "rows", *three), _rows(figures["by_gpu_type"])),
            "",
        )
    )


def find_missed_curves(curves: Iterable[Figures]) -> list[tuple[Figures, Figures, float]]:
    """Return the scaling curves that predictions miss by too much, with their worst point and its error.

    The worst comes first.
    """
    worst = []
    for curve in curves:
        off = [(100 * (point["predicted"] - point["measured"]), point) for point in curve["points"]]
        points, point = max(off, key=lambda pair: abs(pair[0]))
        if abs(points) > MISSED_POINTS:
            worst.append((curve, point, points))
    return sorted(worst, key=lambda found: -abs(found[2]))


def _left_out_sources(figures: Figures) -> str:
    rows = [
        (*_rows({name: row})[0], f"{row['median_ratio']:.2f}", percent(row["any_median_ape"]))
        for name, row in figures.items()
        if name.count(", ") == 1
    ]
    three = ("median", "mean", "90th percentile")
    return table(("left out", "rows", *three, "ratio", "untold: median"), rows)


def _two_sources(ratios: Figures) -> str:
    said = (f"{max(of):.2f} times as fast for {name} ({len(of)})" for name, of in ratios.items() if of)
    return (
        "Sources differ by themselves: a model on equal GPUs, with equal precision and sequence length, is\n"
        f"in one source up to {', up to '.join(said)} as in another.\n"
        "In brackets is the number of settings that several have.\n"
    )


def _three(row: Figures) -> tuple[str, str, str]:
    return percent(row.get("median_ape")), percent(row.get("mape")), percent(row.get("p90"))


def _rows(groups: Figures) -> list[tuple[str, ...]]:
    return [(name, f"{row['rows']}", *_three(row)) for name, row in groups.items()]


def measure_stacks(data: Path, progress: Callable[[str], None]) -> Figures:
    """Return errors of the throughput predicted for software stacks, given a folder of measurements."""
    from clustergym.oracle.calibration import throughput_validation as validation

    rows = validation.read_published(data)
    return {
        **validation.figures(rows, validation.predict_rows(rows)),
        "left_out": validation.cross_validate(rows, progress),
        "without_a_source": validation.leave_out_sources(rows, progress),
        "between_sources": validation.compare_sources(rows),
    }


def draw_stacks(data: Path, target: Path) -> None:
    """Plot predicted against measured throughput, given a folder of measurements."""
    import numpy as np

    from clustergym.oracle.calibration.throughput_validation import draw, predict_rows, read_published
    from clustergym.oracle.calibration.validation import predict_measured

    rows = read_published(data)
    arena, seconds = predict_measured(data / "arena" / "arena_profile.csv")
    names = [layout.gpu_type for layout in arena.layouts]
    pairs = zip(names, arena.seconds.tolist(), seconds.tolist(), strict=True)
    ran = [pair for pair in pairs if np.isfinite(pair[1:]).all()]
    draw(target, rows, predict_rows(rows), ran)
