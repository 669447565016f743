"""Shows an explanation as JSON figures, as tables and as a plot."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clustergym.commands.oracle.common import percent
from clustergym.common.figures import draw_figure
from clustergym.common.tables import text_table
from clustergym.oracle.grid.plans import Explanation, Frontier, OutOfMemory, Plan, ProxyPlan, Stage

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

PARTS = {
    "compute_s": "compute",
    "intra_stage_s": "intra-stage",
    "inter_stage_s": "inter-stage",
    "bubble_s": "bubble",
}
"""Parts of an iteration's time and their names for people."""

PLANS = {
    "proxy": "proxy (estimated)",
    "chosen": "chosen",
    "pruned": "pruned search",
    "data_parallel": "data-parallel",
}
"""Plans of an explanation and their names for people."""

COSTS = {"profiling": "profile every grid", "search": "full search", "pruned_search": "pruned search"}

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
"""Colours that people with any colour blindness can tell apart (Okabe and Ito, 2008)."""

MARKERS, HATCHES = "osD^vPX*", ("", "//", "..", "xx")


def list_plans(explanation: Explanation) -> dict[str, Plan]:
    """Return the parallel plans that an iteration time's explanation compares, by name, such as `chosen`."""
    proxy = explanation.proxy
    plans = {
        "proxy": None if proxy is None else proxy.plan,
        "chosen": explanation.chosen,
        "pruned": explanation.pruned,
        "data_parallel": explanation.data_parallel,
    }
    return {name: plan for name, plan in plans.items() if plan is not None}


def figures(explanation: Explanation) -> dict[str, Any]:
    """Return the explanation of an iteration time as JSON values, in seconds and bytes."""
    plans, chosen = list_plans(explanation), explanation.chosen
    return {
        "model": explanation.model.model,
        "global_batch": explanation.model.global_batch,
        "gpu_type": explanation.gpu_type,
        "gpus": explanation.gpus,
        "nodes": explanation.nodes,
        "locality": explanation.locality.name.lower(),
        "feasible": chosen is not None,
        "reason": None if explanation.reason is None else why(explanation.reason),
        "iteration_time_s": None if chosen is None else chosen.iteration_s,
        "estimated_iteration_time_s": plans["proxy"].iteration_s if "proxy" in plans else None,
        "memory_limit_bytes": explanation.memory_limit_bytes,
        "memory_bytes": None if chosen is None else chosen.memory_bytes,
        "operators": list(explanation.operators),
        "grids": [_grid(frontier) for frontier in explanation.frontiers],
        "infeasible_grids": [
            {"stages": stages, **asdict(reason), "reason": why(reason)}
            for stages, reason in sorted(explanation.infeasible.items())
        ],
        "plans": {name: plan_figures(plan) for name, plan in plans.items()},
        "costs": {name: asdict(getattr(explanation, name)) for name in COSTS},
    }


def plan_figures(plan: Plan) -> dict[str, Any]:
    """Return a parallel plan as JSON values, with its memory in bytes."""
    return asdict(plan) | {"memory_bytes": plan.memory_bytes}


def _grid(frontier: Frontier) -> dict[str, Any]:
    return {
        "stages": frontier.grid.stages,
        "considered": frontier.considered,
        "proxy": frontier.points.index(frontier.proxy) if frontier.proxy in frontier.points else None,
        "frontier": [_point(point) for point in frontier.points],
        "proxy_plan": _point(frontier.proxy),
    }


def _point(point: ProxyPlan) -> dict[str, Any]:
    weighed = {"bias": point.bias, "communication_load": point.communication_load}
    return weighed | {"plan": plan_figures(point.plan)}


def why(reason: OutOfMemory) -> str:
    """Say why a pipeline stage does not fit: too little memory, or operators that its GPUs cannot split."""
    if math.isfinite(reason.excess_bytes):
        return str(reason)
    return f"operators {reason.first} to {reason.last} cannot be split over {_many(reason.gpus, 'GPU')}"


def title(explanation: Explanation) -> str:
    """Return a title for an explained iteration time, on one line: model, batch and GPUs."""
    e = explanation
    nodes = _many(e.nodes, "node")
    batch = f"global batch {e.model.global_batch:,}"
    return (
        f"{e.model.model}, {batch}, on {e.gpus} x {e.gpu_type} ({nodes}, locality {e.locality.name.lower()})"
    )


def tables(explanation: Explanation) -> list[Table]:
    """Return an iteration time's explanation as tables: plans tried, stages, time by cause, search costs."""
    shown = [_grids_table(explanation)]
    if explanation.proxy is not None:
        best = explanation.proxy.plan.grid
        shown += [_frontier_table(f) for f in explanation.frontiers if f.grid == best]
        shown.append(_stages_table(explanation, "proxy", explanation.proxy.plan))
    if explanation.chosen is not None:
        shown.append(_stages_table(explanation, "chosen", explanation.chosen))
    if list_plans(explanation):
        shown += [_times_table(explanation), _costs_table(explanation)]
    return shown


def shape(plan: Plan) -> str:
    """Describe a plan's stages as data x tensor parallelism, equal ones grouped: `3 x (2x1) + 1 x (1x2)`."""
    runs: list[tuple[str, int]] = []
    for stage in plan.stages:
        form = f"{stage.data}x{stage.tensor}"
        if runs and runs[-1][0] == form:
            runs[-1] = form, runs[-1][1] + 1
        else:
            runs.append((form, 1))
    return " + ".join(f"{count} x ({form})" if count > 1 else f"({form})" for form, count in runs)


def _grids_table(explanation: Explanation) -> Table:
    chosen = None if explanation.proxy is None else explanation.proxy.plan.grid
    rows: dict[int, list[str]] = {}
    for frontier in explanation.frontiers:
        proxy = frontier.proxy
        rows[frontier.grid.stages] = [
            f"{frontier.considered:,}",
            f"{len(frontier.points)}",
            f"{proxy.bias:.3f}",
            f"{proxy.communication_load:.4g}",
            f"{proxy.plan.iteration_s:.4g}",
            shape(proxy.plan) + ("  <- best estimate" if frontier.grid == chosen else ""),
        ]
    for stages, reason in explanation.infeasible.items():
        rows[stages] = ["0", "-", "-", "-", "does not fit", why(reason)]
    columns = (
        "stages",
        "partitions",
        "frontier",
        "bias",
        "comm load s",
        "estimated s",
        "proxy: stages x (data x tensor)",
    )
    every = [[f"{stages}", *rows[stages]] for stages in sorted(rows)]
    return text_table("Grids, each with its proxy plan", columns, every)


def _frontier_table(frontier: Frontier) -> Table:
    rows = [
        [
            f"{number}" + (" proxy" if point == frontier.proxy else ""),
            f"{point.bias:.4f}",
            f"{point.communication_load:.4g}",
            f"{point.plan.iteration_s:.4g}",
            " ".join(str(stage.gpus) for stage in point.plan.stages),
            " ".join(str(stage.last - stage.first + 1) for stage in point.plan.stages),
        ]
        for number, point in enumerate(frontier.points, start=1)
    ]
    stages = frontier.grid.stages
    heading = "Pareto frontier of the grid of " + (_many(stages, "stage"))
    columns = ("point", "bias", "comm load s", "estimated s", "GPUs per stage", "operators per stage")
    return text_table(heading, columns, rows)


def _stages_table(explanation: Explanation, name: str, plan: Plan) -> Table:
    limit = explanation.memory_limit_bytes
    rows = [
        _stage_row(number, stage, explanation, limit) for number, stage in enumerate(plan.stages, start=1)
    ]
    batches = f"{_many(plan.micro_batches, 'micro-batch', 'es')} of {_many(plan.micro_batch, 'sample')}"
    heading = f"Plan {PLANS[name]}, stage by stage: {batches}"
    columns = ("stage", "operators", "GPUs", "data", "tensor", "memory GB", "of limit")
    times = ("compute ms", "intra ms", "inter ms", "synchronise ms")
    caption = f"ms of a micro-batch, synchronise of an iteration; memory limit {limit / 1e9:.1f} GB"
    return text_table(heading, columns + times, rows, caption)


def _many(count: int, noun: str, ending: str = "s") -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else ending)


def _stage_row(number: int, stage: Stage, explanation: Explanation, limit: float) -> list[str]:
    seconds = (stage.compute_s, stage.intra_stage_s, stage.inter_stage_s, stage.synchronise_s)
    names = explanation.operators
    ends = f"{names[stage.first]} .. {names[stage.last]}" if stage.first != stage.last else names[stage.first]
    return [
        f"{number}",
        ends,
        *(f"{value}" for value in (stage.gpus, stage.data, stage.tensor)),
        f"{stage.memory_bytes / 1e9:.1f}",
        percent(stage.memory_bytes / limit, 0),
        *(f"{1e3 * value:.4g}" for value in seconds),
    ]


def _times_table(explanation: Explanation) -> Table:
    rows, batch = [], explanation.model.global_batch
    for name, plan in list_plans(explanation).items():
        parts = [getattr(plan, part) for part in PARTS]
        shares = [f"{part:.4g} ({percent(part / plan.iteration_s, 0)})" for part in parts]
        speed = [f"{plan.iteration_s:.4g}", f"{batch / plan.iteration_s:.4g}"]
        memory = f"{plan.memory_bytes / 1e9:.1f} of {explanation.memory_limit_bytes / 1e9:.1f}"
        rows.append([PLANS[name], *speed, *shares, memory, shape(plan)])
    columns = ("plan", "iteration s", "samples/s", *(f"{part} s" for part in PARTS.values()))
    return text_table("Where the time goes", (*columns, "memory GB", "stages x (data x tensor)"), rows)


def _costs_table(explanation: Explanation) -> Table:
    rows = [
        [label, f"{cost.seconds:,.0f}", f"{cost.gpu_seconds:,.0f}", f"{cost.trials:,}"]
        for label, cost in ((label, getattr(explanation, name)) for name, label in COSTS.items())
    ]
    return text_table("What finding out costs", ("", "seconds", "GPU-seconds", "trials"), rows)


def verdict(explanation: Explanation) -> str:
    """Return an explanation's outcome on one line: the chosen parallel plan, or why none fits."""
    chosen = explanation.chosen
    if chosen is None:
        reason = explanation.reason
        return "infeasible: " + ("no plan fits" if reason is None else why(reason))
    memory = f"{chosen.memory_bytes / 1e9:.1f} of {explanation.memory_limit_bytes / 1e9:.1f} GB"
    return f"chosen: {shape(chosen)}, {chosen.iteration_s:.4g} s an iteration, {memory} a GPU"


def write_plot(explanation: Explanation, path: Path) -> None:
    """Plot the best plans, and an iteration's time by cause, into a file."""
    draw_figure(path, (12, 4.8), lambda figure: _fill(figure, explanation), "--plot")


def _fill(figure: Figure, explanation: Explanation) -> None:
    left, right = figure.subplots(1, 2)
    figure.suptitle(title(explanation), parse_math=False)
    _draw_frontiers(left, explanation)
    _draw_times(right, explanation)


def _draw_frontiers(axes: Axes, explanation: Explanation) -> None:
    for number, frontier in enumerate(explanation.frontiers):
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        stages = frontier.grid.stages
        label = _many(stages, "stage")
        bias = [point.bias for point in frontier.points]
        load = [point.communication_load for point in frontier.points]
        axes.plot(bias, load, color=colour, marker=marker, linewidth=1.2, markersize=5, label=label)
        at = frontier.proxy.bias, frontier.proxy.communication_load
        axes.plot(*at, color=colour, marker=marker, markersize=11, markerfacecolor="none", linestyle="")
    axes.set(
        xlabel="computation bias, GPUs", ylabel="communication load, s", title="Frontiers (outlined: proxy)"
    )
    if explanation.frontiers:
        axes.legend(title="grid", fontsize="small")
    else:
        axes.text(
            0.5, 0.5, verdict(explanation), ha="center", va="center", wrap=True, transform=axes.transAxes
        )


def _draw_times(axes: Axes, explanation: Explanation) -> None:
    plans = list_plans(explanation)
    labels, base = [PLANS[name] for name in plans], [0.0] * len(plans)
    for number, (part, label) in enumerate(PARTS.items()):
        heights = [getattr(plan, part) for plan in plans.values()]
        colour, hatch = COLOURS[number], HATCHES[number]
        axes.bar(labels, heights, bottom=base, label=label, color=colour, hatch=hatch, edgecolor="white")
        base = [below + height for below, height in zip(base, heights, strict=True)]
    axes.set(ylabel="iteration, s", title="Where the time goes")
    axes.margins(y=0.08)
    if plans:
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1), reverse=True)
