"""Holds the step times of stacks against measured throughput."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common.errors import InputError
from clustergym.oracle.calibration.step_fit import (
    FREE,
    compute_rate,
    fit_stack,
    fitted_stack,
    leave_out_groups,
    tokens_per_s_per_gpu,
    usable_rows,
)
from clustergym.oracle.calibration.validation import summarise_groups, summary
from clustergym.oracle.models.shape import Machine, Precision, TransformerShape
from clustergym.oracle.stacks.catalog import DENSE, EXPERTS, choose_for_shape, load_stack, of_framework
from clustergym.oracle.stacks.search import assess_plan, search_plans
from clustergym.oracle.stacks.step_time import StackConstants, StepParts
from clustergym.oracle.stacks.throughput import Setting, ThroughputRow, newest, read_throughput

PUBLISHED = tuple(Path(name) / "throughput.csv" for name in ("modern", "modern-2026-11"))
"""Tables of public measurements in a folder, which `--data modern` names together."""


def read_published(folder: Path) -> list[ThroughputRow]:
    """Read the rows of all tables of `PUBLISHED` that a folder has, or an `InputError` of the first."""
    tables = [folder / path for path in PUBLISHED if (folder / path).exists()]
    return [row for path in tables or [folder / PUBLISHED[0]] for row in read_throughput(path)]


def predict_row(row: ThroughputRow, constants: StackConstants) -> dict[str, Any]:
    """Return a row's `id`, measured and predicted throughput, and whether its plan fits in memory.

    `predicted` is of the published plan, None where it does not fit or cannot be expressed; where the table
    has no plan, of the search's own;
    `predicted_search` of the search's own plan, which is at least as fast.
    """
    found: dict[str, Any] = {
        "id": row.id, "measured": row.measured, "predicted": None, "predicted_search": None, "fits": None,
        "reason": row.reason,
    }  # fmt: skip
    if row.setting is None:
        return found
    one = row.setting
    given = {"global_batch": one.global_batch, "sequence_length": one.sequence_length}
    if not one.planned:
        own = fastest(one.shape, one.machine, constants, one.plan.gpus, one.plan.precision, **given)
        found["fits"] = own is not None
        if own is None:
            found["reason"] += "; none fits"
        else:
            found["predicted"] = found["predicted_search"] = compute_rate(one, own)
        return found
    step = assess_plan(one.shape, one.machine, one.plan, constants, **given)
    found["fits"] = step.fits
    if step.fits:
        found["predicted"] = compute_rate(one, step.seconds)
    else:
        needed = f"needs {step.needed_bytes / 1e9:.0f} GB a GPU of {one.machine.memory_gb:g} GB"
        found["reason"] = "; ".join(filter(None, (row.reason, needed)))
    # Adapters are trained with the plan that is given; the search trains all parameters.
    if one.plan.adapters:
        found["predicted_search"] = found["predicted"]
        return found
    own = fastest(one.shape, one.machine, constants, one.plan.gpus, one.plan.precision, **given)
    # The published plan is one of those that the search may take.
    known = [seconds for seconds in (own, step.seconds if step.fits else None) if seconds is not None]
    if known:
        found["predicted_search"] = compute_rate(one, min(known))
    return found


@lru_cache(maxsize=1024)
def fastest(
    shape: TransformerShape,
    machine: Machine,
    constants: StackConstants,
    gpus: int,
    precision: Precision,
    *,
    global_batch: int,
    sequence_length: int,
) -> float | None:
    """Return the seconds of a step by the fastest plan; None if no plan fits in memory."""
    plans = search_plans(
        shape,
        machine,
        constants,
        gpus=gpus,
        global_batch=global_batch,
        sequence_length=sequence_length,
        precision=precision,
    )
    return plans[0].seconds if plans and plans[0].fits else None


def predict_rows(rows: Sequence[ThroughputRow], stack: str | None = None) -> list[dict[str, Any]]:
    """Predict each row's throughput with `stack`, or by default with the stack it was measured on."""
    constants: dict[str, StackConstants] = {}
    found = []
    for row in rows:
        name = stack or row.stack
        if name not in constants:
            constants[name] = load_stack(name).step_constants
        found.append(predict_row(row, constants[name]))
    return found


def figures(rows: Sequence[ThroughputRow], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the errors of predicted throughputs, overall and by groups of rows.

    Errors are shares of what was measured, of rows given the published plan.
    """
    by_id = {row.id: row for row in newest(rows)}
    pairs = [(row, made) for row, made in zip(rows, predictions, strict=True) if row.measured]
    errors = np.array([_error(row, made["predicted"]) for row, made in pairs])
    dense = np.array([bool(row.setting and not row.setting.shape.experts) for row, _ in pairs], dtype=bool)
    latest = np.array([row.id in by_id for row, _ in pairs], dtype=bool)
    ran = [made for _, made in pairs if made["fits"] is not None]
    scored = [row for row, _ in pairs]
    curves = scaling_curves(scored, [made["predicted"] for _, made in pairs])

    def summarise_each(name: Callable[[ThroughputRow], Any], chosen: Any = None) -> dict[str, Any]:
        mask = np.where(chosen, errors, np.nan) if chosen is not None else errors
        return summarise_groups(mask, [name(row) for row in scored])

    return {
        "measured_rows": len(pairs),
        "expressed": len(ran),
        "refused": sum(not made["fits"] for made in ran),
        "slower_than_published": sum(
            made["predicted"] is not None and made["predicted_search"] < made["predicted"]
            for _, made in pairs
        ),
        "errors": {
            "dense": summary(errors[dense]),
            "dense, newest release": summary(errors[dense & latest]),
            "experts, newest release": summary(errors[~dense & latest]),
            "experts, all releases": summary(errors[~dense]),
        },
        "per_gpu_speed": scaling_errors(curves),
        "per_gpu_curves": curves,
        "most_gpus": max((row.gpus or 0 for row in scored), default=0),
        "by_source": summarise_each(lambda row: row.source),
        "by_gpu_type": summarise_each(lambda row: row.gpu_type),
        "by_model": summarise_each(lambda row: row.setting.shape.name if row.setting else row.model),
        "by_precision": summarise_each(
            lambda row: row.setting.plan.precision if row.setting else row.precision
        ),
        "by_gpus": summarise_each(lambda row: row.gpus or 0),
    }


def errors_without_parts(rows: Sequence[ThroughputRow]) -> dict[str, dict[str, Any]]:
    """Return, by part of the step, prediction errors if that part is left out and constants are unchanged.

    Rows whose step has none of a part do not count for it.
    """
    steps = []
    for row, one, rate in _scored(rows):
        constants = load_stack(row.stack).step_constants
        given = {"global_batch": one.global_batch, "sequence_length": one.sequence_length}
        step = assess_plan(one.shape, one.machine, one.plan, constants, **given)
        if step.fits:
            steps.append((rate, compute_rate(one, step.seconds), step))
    table = {}
    for part in fields(StepParts):
        chosen = [(m, p, getattr(s.parts, part.name) / s.seconds) for m, p, s in steps]
        chosen = [one for one in chosen if one[2] > 0]
        if chosen:
            measured, predicted, share = np.array(chosen).T
            whole = summary(np.abs(predicted / measured - 1))
            left = summary(np.abs(predicted / (1 - share) / measured - 1))
            table[part.name.removesuffix("_s").replace("_", " ")] = {
                "rows": len(chosen),
                "share_of_step_median": float(np.median(share)),
                "median_ape": whole["median_ape"],
                "median_ape_without": left["median_ape"],
                "mape": whole["mape"],
                "mape_without": left["mape"],
            }
    return table


def _error(row: ThroughputRow, predicted: float | None) -> float:
    if predicted is None or not row.measured:
        return float("nan")
    return abs(predicted / row.measured - 1)


def scaling_curves(rows: Sequence[ThroughputRow], predicted: Sequence[float | None]) -> list[dict[str, Any]]:
    """Return dense models' measured and predicted speeds per GPU, relative to those on the fewest GPUs.

    Curves that begin at more than 64 GPUs are left out.

    Returns
    -------
    list of dict
        `model`, `gpu_type`, `fewest` GPUs, `first_error`, which is the predicted speed on these over the
        measured one less 1, and `points`: for each larger count `gpus`, `measured` and `predicted`, relative.
    """
    curves: dict[tuple[object, ...], dict[int, tuple[float, float]]] = {}
    for row, rate in zip(rows, predicted, strict=True):
        one = row.setting
        if one is None or rate is None or not row.measured or not row.gpus or one.shape.experts:
            continue
        key: tuple[object, ...] = (
            one.shape.name,
            row.gpu_type,
            row.source,
            row.release,
            row.precision,
            one.sequence_length,
        )
        key += (one.plan.tensor, one.plan.pipeline, one.plan.recompute, one.plan.compiled)
        best = curves.setdefault(key, {}).get(row.gpus)
        # Where a table has several batches, the fastest is what a user would run.
        if best is None or row.measured > best[0]:
            curves[key][row.gpus] = (row.measured, rate)
    found = []
    for (model, gpu_type, *_), curve in curves.items():
        (fewest, (measured, rate)), *larger = sorted(curve.items())
        if fewest <= 64 and larger:
            points = [
                {"gpus": gpus, "measured": pair[0] / measured, "predicted": pair[1] / rate}
                for gpus, pair in larger
            ]
            shown = {"model": model, "gpu_type": gpu_type, "fewest": fewest}
            found.append(shown | {"first_error": rate / measured - 1, "points": points})
    return found


def scaling_errors(curves: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return errors of relative speeds in percentage points; key "2 to 8": speed on 8 GPUs relative to 2."""
    points: dict[tuple[int, int], list[float]] = {}
    for curve in curves:
        for point in curve["points"]:
            off = abs(point["predicted"] - point["measured"])
            points.setdefault((curve["fewest"], point["gpus"]), []).append(off)
    return {
        f"{fewest} to {gpus}": {
            "rows": len(off),
            "mean_points": 100 * float(np.mean(off)),
            "largest_points": 100 * max(off),
        }
        for (fewest, gpus), off in sorted(points.items())
    }


def cross_validate(rows: Sequence[ThroughputRow], tell: Callable[[str], None]) -> dict[str, Any]:
    """Return prediction errors if each group (model, GPU type, precision) is left out of the fit in turn."""
    predictions: dict[str, float] = {}
    for stack in FREE:
        tell(f"fitting {stack} without one model, GPU type and precision at a time")
        try:
            predictions |= leave_out_groups(rows, stack)
        except InputError:
            # All rows of a stack are of one group: nothing is left to fit to.
            continue
    kept = [row for row in rows if row.id in predictions and row.job == "pretrain"]
    made = [
        {"predicted": predictions[row.id], "predicted_search": predictions[row.id], "fits": True}
        for row in kept
    ]
    shown = figures(kept, made)
    return {**shown["errors"], **shown["by_source"]}


def _scored(rows: Sequence[ThroughputRow]) -> list[tuple[ThroughputRow, Setting, float]]:
    """Return the rows of pre-training, of the newest release and of no known defect, that have a plan.

    Each with its setting and what was measured.
    """
    return [
        (row, row.setting, row.measured)
        for row in newest(rows)
        if row.setting
        and row.setting.planned
        and row.measured
        and row.job == "pretrain"
        and not row.defective
    ]


def compare_sources(rows: Sequence[ThroughputRow]) -> dict[str, list[float]]:
    """Return, by architecture, how much faster a setting's fastest source is than its slowest.

    A setting, of those that several sources measured, has a model, GPU type, number of GPUs, precision and
    sequence length. Of each source the fastest plan counts.
    """
    speeds: dict[tuple[object, ...], dict[str, float]] = {}
    for row, one, measured in _scored(rows):
        key = (bool(one.shape.experts), one.shape.name, row.gpu_type, row.gpus, one.plan.precision)
        of = speeds.setdefault((*key, one.sequence_length), {})
        of[row.source] = max(measured, of.get(row.source, 0.0))
    found: dict[str, list[float]] = {DENSE: [], EXPERTS: []}
    for (experts, *_), of in speeds.items():
        if len(of) > 1:
            found[EXPERTS if experts else DENSE].append(max(of.values()) / min(of.values()))
    return found


def leave_out_sources(rows: Sequence[ThroughputRow], tell: Callable[[str], None]) -> dict[str, Any]:
    """Return prediction errors of each source by fits to the others, as of a world with the rows' settings.

    A row has the stack that the oracle chooses for its model, GPU type and year among those that are left of
    its framework, which a user knows.

    Returns
    -------
    dict
        By source and architecture, those of dense models also by GPU type and precision: the figures of
        `summary`, the `median_ratio` of predicted to measured speed, the `stacks` chosen, and the
        `any_median_ape` with the stack that is chosen among those of all frameworks.
    """
    scored = _scored(rows)
    found: dict[str, Any] = {}
    for source in sorted({row.source for row, *_ in scored}):
        tell(f"fitting without {source}")
        others = [row for row in rows if row.source != source]
        names = [name for name in FREE if usable_rows(others, name)]
        stacks = [fitted_stack(others, name, fit_stack(others, name)) for name in names]
        pairs: dict[str, list[tuple[float, float, str]]] = {}
        for row, one, measured in scored:
            if row.source == source:
                year, own = int(row.stack[-4:]), of_framework(stacks, row.stack)
                used, other = (choose_for_shape(one.shape, one.machine, year, s).stack for s in (own, stacks))
                ratio, without = (
                    tokens_per_s_per_gpu(one, stack.step_constants) / measured for stack in (used, other)
                )
                keys = [f"{source}, {EXPERTS if one.shape.experts else DENSE}"]
                if not one.shape.experts:
                    keys.append(f"{keys[0]}, {row.gpu_type}, {one.plan.precision}")
                for key in keys:
                    pairs.setdefault(key, []).append((ratio, without, used.name))
        for key, of_key in sorted(pairs.items()):
            ratios, untold = (np.array([one[at] for one in of_key]) for at in (0, 1))
            found[key] = summary(np.abs(ratios - 1)) | {
                "median_ratio": float(np.median(ratios)),
                "stacks": sorted({name for *_, name in of_key}),
                "any_median_ape": float(np.median(np.abs(untold - 1))),
            }
    return found


def draw(
    path: Path,
    rows: Sequence[ThroughputRow],
    predictions: Sequence[Mapping[str, Any]],
    arena: Iterable[tuple[str, float, float]] = (),
) -> None:
    """Plot predicted against measured step times by GPU type, and write the image to a file.

    Parameters
    ----------
    arena : iterable of (str, float, float)
        GPU type, measured and predicted seconds of an iteration, of another oracle's rows.
    """
    from clustergym.common.figures import draw_figure

    latest = {row.id for row in newest(rows)}
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row, made in zip(rows, predictions, strict=True):
        one = row.setting
        if row.measured and made["predicted"] and one and row.id in latest:
            tokens = one.global_batch * one.sequence_length / one.plan.gpus
            suffix = ", experts" if one.shape.experts else ""
            seconds = tokens / row.measured, tokens / made["predicted"]
            points.setdefault((row.gpu_type, suffix), []).append(seconds)
    for gpu_type, measured_s, predicted_s in arena:
        points.setdefault((gpu_type, ", Arena"), []).append((measured_s, predicted_s))

    def paint(figure: Any) -> None:
        from matplotlib import colormaps

        axes, markers = figure.subplots(), {"": "o", ", experts": "^", ", Arena": "s"}
        measured = [point[0] for of in points.values() for point in of]
        ends = [min(measured) / 1.5, max(measured) * 1.5]
        axes.plot(ends, ends, color="0.6", linewidth=1)
        axes.fill_between(
            ends, [0.9 * e for e in ends], [1.1 * e for e in ends], color="0.92", label="within 10 %"
        )
        types = sorted({name for name, _ in points})
        for (name, suffix), of in sorted(points.items()):
            color = colormaps["tab20"](types.index(name))
            across, up = zip(*of, strict=True)
            axes.scatter(
                across, up, s=14, marker=markers[suffix], color=color, alpha=0.8, label=f"{name}{suffix}"
            )
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        axes.set_xlabel("measured, seconds of a step")
        axes.set_ylabel("predicted, seconds of a step")
        axes.legend(fontsize=7, loc="upper left", ncols=2)

    draw_figure(path, (6.4, 6.0), paint)
