"""Writes the part of the accuracy page about software stacks and today's transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
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
parallel plan. The compared figure is tokens/s per GPU. Each stack has at most 15 fitted constants, none
of which belongs to one model. In the columns `left out`, each group (a model, GPU type and precision) is
predicted by a fit to all other rows. For mixtures of experts only the newest release of each
configuration counts, since the releases of one configuration differ by factors of 1.0 to 2.9.

One oracle contains all stacks (`oracle=stack`, the default). For each model and GPU type it uses the
stack, of those measured on both, whose year is nearest to `oracle.year` (by default the newest), among
those of a framework if `oracle.stack` names one (`fsdp`, `megatron`). If there is none, it extrapolates
the stack of the nearest year and prints a note: of Megatron on GPUs with fp8 arithmetic, of FSDP on
others. For the papers' models on their GPUs the stack is `alpa-2022`, and the times are those of
[`oracle=grid`](#the-grid-based-estimates-of-adaptive-parallelism). The settings of papers and some frozen
boards still use `oracle=roofline`; board `llm-2026` names a former fit.

Fits from 2025 on keep to two shares of an H100's bf16 peak, which a step's time tells poorly: that of
large matrix products (0.73, the fastest of those in `benchmarks/measured/h100-curves.csv`), as
Megatron-Bridge publishes no dense model in bf16, and for PyTorch's own FSDP that of flash attention 2
(0.35, Shah et al., NeurIPS '24), as torchtitan's rows have 8,192 tokens. A GPU's sustained rates fall with
the cube root of the peak that each watt has to sustain, since the voltage goes with the clock.
"""

TARGETS = {
    "dense, newest release": "4.5, 7, 13 %",
    "experts, newest release": "15 % median",
}

SOURCES_NOTE = """\
A user's own software is none of these stacks. In the next table, each source is left out whole: stacks
are fitted to the other sources, and a row has the stack that the oracle chooses among those of its
framework (dgxc-benchmarking and Megatron-Bridge are Megatron, the others FSDP) for its model, GPU type and
year. *ratio* is the median of the predicted over the measured speed. *untold* is the median error of the
stacks that are chosen if the framework is not told. This is the error to expect of a model of one's own;
the errors above are of software that a stack was fitted to.
"""

MISSED_NOTE = """\
If left out of the fit, dense rows of three types are predicted too fast by a fifth or more:

- torchtitan with rowwise fp8. Its release has a known defect, to which no stack is fitted.
- mpt-30B on 8 GPUs with a micro-batch of one sequence of 8,192 tokens, and mpt-70B on 64 A100-40.
- mpt-760M on 8 A100-80 with up to 1,024 tokens, and mpt-1B on 32 A100-40. The former runs as predicted
  on H100, the latter on 16 and 64 GPUs.

The causes of the second and the third are not known.

Torchtitan's selective recomputation is assumed to recompute half of the forward pass. Torchtitan's fit
starts from the result of a joint fit to its own rows and those of Megatron-Bridge; the joint fit, too,
leaves the group out.

Mixtures of experts in release 26.08 (DeepSeek-V3, Qwen3) are predicted too slow, as slow as in earlier
releases, because one set of constants covers all of 2026. Few rows have an all-to-all over more than
eight GPUs, and the constant `exchange_exposed` depends on these rows.
"""

SPEED_NOTE = """\
The next table compares curves of the speed per GPU over the number of GPUs, for dense models. A curve
has one model, GPU type, precision, sequence length and plan, in one release; curves that begin at more
than 64 GPUs are left out. Speeds are relative to that on the fewest GPUs of the curve. The figures are
absolute differences between prediction and measurement, in percentage points. The target is 3 points at
most from 8 to 64 GPUs, and 5 points up to 512.
"""

MISSED_POINTS = 5
"""Points of error from which a curve of speed per GPU is shown by itself."""

CURVES_NOTE = f"""\
The next table has the curves that are off by more than {MISSED_POINTS} points, each at the number of GPUs
with the largest error. *fewest* is how much too fast the row on the fewest GPUs is predicted, to which the
rest of the curve is relative. Where a table does not say what is recomputed, the oracle takes the least
that fits. The causes are not known.
"""

PARTS_NOTE = """\
The next table has the errors with a part of the step, and those without it at unchanged constants. Its
rows are those of the newest releases whose step has the part. *Exposed* communication is not hidden
behind computation. These tables do not validate the parts that hardly change the error: context
parallelism, exposed data-parallel communication, and the pipeline bubble.
"""

REFIT_NOTE = """\
The next table has the errors if one constant is removed and all others are fitted again, on the rows to
which they are fitted (newest releases). The first two columns are of dense models, the last two of
mixtures of experts. The constants `tensor exposed` and `straggling` could be removed.
"""

COLLECTIVES_NOTE = """\
### Collectives

`clustergym oracle validate --data TABLE --gpu-type NAME` prints the errors against Vidur's measurements
(MLSys '24). In the model, a message uses the faster of two protocols, each of which has a latency and a
bandwidth. The column `before` is of a simpler model without latency, whose bandwidth is 0.8 of NVLink's
or 0.72 of a network port's. All-reduces across nodes are not validated: none was measured on H100, and
each node with A100 had a single port of 200 Gbit/s, which also limits its sends.
"""

GRIDS_NOTE = """\
### Grids, Pareto frontiers and proxy plans

The papers search plans by grid: a GPU type, a number of GPUs and a number of pipeline stages. Of each
grid, one *proxy plan* is profiled. The table applies this to the plans of today's stacks, for nine
models on 8, 64 and 512 H100 and GB200 (where they fit), with 512 sequences of 8,192 tokens. A proxy plan
is chosen from the Pareto frontier of two figures. The computation bias is the number of GPUs lost to
uneven stages, the pipeline bubble, recomputation and small micro-batches, relative to the plan that
loses the fewest on the allocation. The communication load is the exposed communication in seconds.
Policies that profile get the best estimate of the grids' proxy plans, which includes neither stragglers
nor the optimizer's step.
"""


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
    sources = [
        (*_rows({name: row})[0], *_three(figures["left_out"].get(name, {})))
        for name, row in figures["by_source"].items()
    ]
    groups = [
        table(("source", "rows", *three, *left_out), sources),
        *(
            table((name, "rows", *three), _rows(figures[key]))
            for name, key in (("GPU", "by_gpu_type"), ("model", "by_model"))
        ),
    ]
    speed = [
        (f"{name} GPUs", f"{row['rows']}", f"{row['mean_points']:.1f}", f"{row['largest_points']:.1f}")
        for name, row in figures["per_gpu_speed"].items()
    ]
    parts = [
        (
            name,
            f"{row['rows']}",
            percent(row["share_of_step_median"]),
            f"{percent(row['median_ape'])} to {percent(row['median_ape_without'])}",
            f"{percent(row['mape'])} to {percent(row['mape_without'])}",
        )
        for name, row in figures["without_a_part"].items()
    ]
    refits = [
        (name.replace("_", " "), *(percent(value) for value in row.values()))
        for name, row in figures["without_a_constant"].items()
    ]
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
            *(f"{group}\n" for group in groups),
            SPEED_NOTE,
            table(("", "curves", "mean", "largest"), speed),
            "",
            CURVES_NOTE,
            _missed_curves(figures["per_gpu_curves"]),
            "",
            PARTS_NOTE,
            table(("part", "rows", "share of step, median", "median error", "mean error"), parts),
            "",
            REFIT_NOTE,
            table(("without", *(2 * ["median", "mean"])), refits),
            "",
            *_collectives(figures.get("collectives", {})),
            GRIDS_NOTE,
            _grids(figures["grids"]),
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


def _missed_curves(curves: Iterable[Figures]) -> str:
    rows = [
        (
            f"{curve['model']}, {curve['gpu_type']}",
            f"{curve['fewest']} to {point['gpus']}",
            f"{point['measured']:.2f}",
            f"{point['predicted']:.2f}",
            f"{points:+.1f}",
            f"{100 * curve['first_error']:+.0f} %",
        )
        for curve, point, points in find_missed_curves(curves)
    ]
    return table(("", "GPUs", "measured", "predicted", "points", "fewest"), rows)


def _left_out_sources(figures: Figures) -> str:
    rows = [
        (
            *_rows({name: row})[0],
            f"{row['median_ratio']:.2f}",
            ", ".join(row["stacks"]),
            percent(row["any_median_ape"]),
        )
        for name, row in figures.items()
    ]
    three = ("median", "mean", "90th percentile")
    return table(("left out", "rows", *three, "ratio", "stacks chosen", "untold: median"), rows)


def _two_sources(ratios: Figures) -> str:
    said = (f"{max(of):.2f} times as fast for {name} ({len(of)})" for name, of in ratios.items() if of)
    return (
        "Sources differ by themselves: a model on equal GPUs, with equal precision and sequence length, is\n"
        f"in one source up to {', up to '.join(said)} as in another.\n"
        "In brackets is the number of settings that several have.\n"
    )


def _collectives(figures: Figures) -> tuple[str, ...]:
    if not figures:
        return ()
    rows = [
        (f"{gpu_type} {name}", f"{row['rows']}", percent(row["mape_before"]), percent(row["mape"]))
        for gpu_type, found in figures.items()
        for name, row in found.items()
    ]
    return COLLECTIVES_NOTE, table(("", "rows", "mean error before", "mean error"), rows), ""


def _grids(figures: Figures) -> str:
    rows = [
        (
            f"`strategy={name}`",
            f"{row['allocations']}",
            percent(row["share_mean"]),
            percent(row["share_worst"]),
            percent(row["estimate_error_mean"]),
            f"{row['frontier_plans_most']}",
        )
        for name, row in figures.items()
    ]
    titles = ("best proxy plan: share of the optimum, mean", "worst", "estimate error", "largest frontier")
    return table(("", "allocations", *titles), rows)


def _three(row: Figures) -> tuple[str, str, str]:
    return percent(row.get("median_ape")), percent(row.get("mape")), percent(row.get("p90"))


def _rows(groups: Figures) -> list[tuple[str, ...]]:
    return [(name, f"{row['rows']}", *_three(row)) for name, row in groups.items()]


def measure_stacks(data: Path, progress: Callable[[str], None]) -> Figures:
    """Return errors of the throughput predicted for software stacks, given a folder of measurements.

    Beside them are those of estimated plans and of collectives.
    """
    from clustergym.oracle.calibration import throughput_validation as validation

    rows = validation.read_published(data)
    return {
        **validation.figures(rows, validation.predict_rows(rows)),
        "left_out": validation.cross_validate(rows, progress),
        "without_a_source": validation.leave_out_sources(rows, progress),
        "between_sources": validation.compare_sources(rows),
        "without_a_part": validation.errors_without_parts(rows),
        "without_a_constant": validation.errors_without_constants(rows, progress),
        "grids": measure_grids(),
        "collectives": measure_collectives(data / "modern" / "collectives"),
    }


GRID_MODELS = (
    *("llama3-8B", "llama3-70B", "llama3-405B", "qwen3-30B-A3B", "qwen3-235B-A22B"),
    *("deepseek-v3", "mixtral-8x7B", "gpt-oss-120B", "mpt-7B"),
)


def measure_grids() -> Figures:
    """Return the speed of the parallel plan that each search rule chooses, as a share of the fastest plan's.

    Beside it, the error of these plans' estimated step times.
    """
    from clustergym.oracle.grid.profiler import STRATEGIES
    from clustergym.oracle.models.shape_files import load_accelerator, load_transformer
    from clustergym.oracle.stacks.catalog import choose_for_shape
    from clustergym.oracle.stacks.proxies import estimate_step, list_grids
    from clustergym.oracle.stacks.search import search_plans

    found: dict[str, list[tuple[float, float, int]]] = {strategy: [] for strategy in STRATEGIES}
    for model, accelerator, gpus in product(GRID_MODELS, ("H100", "GB200"), (8, 64, 512)):
        shape, machine = load_transformer(model), load_accelerator(accelerator)
        constants = choose_for_shape(shape, machine).stack.step_constants
        plans = search_plans(shape, machine, constants, gpus=gpus, global_batch=512, sequence_length=8192)
        fitting = [step for step in plans if step.fits]
        for strategy, outcomes in found.items():
            grids = list_grids(shape, fitting, strategy)
            if grids:
                told, proxy = min((estimate_step(g.proxy.step), g.proxy.step.seconds) for g in grids)
                most = max(len(grid.points) for grid in grids)
                outcomes.append((fitting[0].seconds / proxy, abs(told / proxy - 1), most))
    return {
        strategy: {
            "allocations": len(outcomes),
            "share_mean": sum(one[0] for one in outcomes) / len(outcomes),
            "share_worst": min(one[0] for one in outcomes),
            "estimate_error_mean": sum(one[1] for one in outcomes) / len(outcomes),
            "frontier_plans_most": max(one[2] for one in outcomes),
        }
        for strategy, outcomes in found.items()
    }


def measure_collectives(folder: Path) -> Figures:
    """Return errors of predicted times of collectives, by GPU type; empty without Vidur's measured tables."""
    from clustergym.oracle.stacks.collectives import validate_collectives

    found: dict[str, dict[str, Any]] = {}
    for gpu_type, name in (("A100", "a100"), ("H100", "h100")):
        for collective in ("all_reduce", "send_recv"):
            path = folder / f"network_{name}_dgx_{collective}.csv"
            if path.exists():
                found.setdefault(gpu_type, {}).update(validate_collectives(path, gpu_type))
    return found


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
