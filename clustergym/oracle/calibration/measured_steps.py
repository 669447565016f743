"""Holds stacks and the memory of a step against steps measured on one GPU, up to the end of its memory.

`benchmarks/measure_training.py` measures them. No constant is fitted to these rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common.arrays import Floats
from clustergym.common.columns import integers, numbers
from clustergym.common.errors import InputError
from clustergym.common.text_files import read_csv
from clustergym.oracle.calibration.validation import Figures, summary
from clustergym.oracle.stacks.catalog import choose_for_shape, current_stacks, load_stack
from clustergym.oracle.stacks.memory import activation_bytes, loss_bytes, state_bytes, usable_bytes
from clustergym.oracle.stacks.search import assess_plan
from clustergym.oracle.stacks.step_time import StackConstants
from clustergym.oracle.stacks.throughput import OPTIONAL, REQUIRED, Setting, make_rows

MEASURED = Path("benchmarks/measured/h100-steps.csv")
"""What `--data measured` names."""
CURVES = Path("benchmarks/measured/h100-curves.csv")
COLUMNS = ("changed", "fits", "step_s", "peak_allocated_bytes", "peak_reserved_bytes", "free_bytes")
BESIDE = (
    *("least_s", "most_s", "layers_s", "loss_s", "backward_s", "optimizer_s", "state_bytes", "kept_bytes"),
    *("loss_peak_bytes", "backward_peak_bytes", "optimizer_peak_bytes", "gpu", "driver", "torch"),
)
"""Columns of a measurement that are not compared with predictions."""
WITHOUT_LOSS, DROPPED, COMPILED = "loss", "gradients_kept", "compiled"
SEGMENTS, REPEATED = "segments", "repeat"
"""Values of `changed`: what differs from the usual step; the last has a number."""
LARGEST_MICRO_BATCH = 2**16


@dataclass(frozen=True)
class MeasuredStep:
    """The measured seconds and memory of one training step on one GPU.

    Attributes
    ----------
    setting : Setting
    changed : str
        One of the values of `changed`; empty: nothing.
    fits : bool
    seconds : float or None
    allocated, reserved, free : float
        Bytes: of tensors, at most; of the allocator, at most; and of the GPU before there was a model.
    """

    setting: Setting
    changed: str
    fits: bool
    seconds: float | None
    allocated: float
    reserved: float
    free: float

    @property
    def border(self) -> tuple[str, str, int, float | None]:
        """A key of all settings of a step but its micro-batch, to group steps that differ only in that."""
        one = self.setting
        return (one.machine.name, one.shape.name, one.sequence_length, one.plan.recompute)


FEW_TOKENS, MANY_TOKENS = 4096, 16384
"""Of a micro-batch: fewer than the first are few, and from the second on many."""


def read_steps(
    path: Path, shapes: Path | None = None, accelerators: Path | None = None
) -> list[MeasuredStep]:
    """Read measured training steps on one GPU from a CSV file.

    Raises
    ------
    InputError
        Names file, line and column of what is missing, malformed or unknown.
    """
    table = read_csv(path, (*REQUIRED, *COLUMNS), optional=(*OPTIONAL, *BESIDE))
    fits = integers(table, "fits", low=0, high=1)
    seconds = numbers(table, "step_s", low=0.0, default=0.0)
    allocated = numbers(table, "peak_allocated_bytes", low=1.0)
    reserved = numbers(table, "peak_reserved_bytes", low=1.0)
    free = numbers(table, "free_bytes", low=1.0)
    found = []
    for at, row in enumerate(make_rows(table, shapes, accelerators)):
        line = table.line[at]
        if row.setting is None:
            remedy = "give a model, a GPU and a plan that are known"
            raise InputError(row.reason, file=path, line=line, remedy=remedy)
        if row.setting.plan.recompute is None:
            field, remedy = "activation_checkpointing", "give full or none"
            raise InputError("is neither", file=path, line=line, field=field, remedy=remedy)
        if row.setting.plan.gpus != 1:
            raise InputError(
                "more than 1", file=path, line=line, field="gpus", remedy="give steps of one GPU"
            )
        found.append(
            MeasuredStep(
                row.setting,
                table.columns["changed"][at],
                bool(fits[at]),
                float(seconds[at]) or None,
                float(allocated[at]),
                float(reserved[at]),
                float(free[at]),
            )
        )
    return found


def predict_bytes(step: MeasuredStep) -> float:
    """Return the bytes that a measured step needs on its GPU."""
    one, loss = step.setting, loss_bytes(step.setting.plan, _constants(step))
    # Without an output layer there is no word to have a loss, though its weights stand there.
    shape = replace(one.shape, vocabulary=0) if step.changed == WITHOUT_LOSS else one.shape
    given = loss, one.plan.recompute or 0.0, one.global_batch, one.sequence_length
    return state_bytes(one.shape, one.plan) + activation_bytes(shape, one.plan, *given)


def _constants(step: MeasuredStep) -> StackConstants:
    return choose_for_shape(step.setting.shape, step.setting.machine).stack.step_constants


def is_predicted_to_fit(step: MeasuredStep) -> bool:
    """Return whether a measured step is predicted to fit in its GPU's memory."""
    return predict_bytes(step) <= usable_bytes(step.setting.machine, _constants(step))


def predict_largest(step: MeasuredStep) -> int:
    """Return the largest micro-batch with which the step is predicted to fit; 0 if none."""

    def fits(micro: int) -> bool:
        plan = replace(step.setting.plan, micro_batch=micro)
        setting = replace(step.setting, plan=plan, global_batch=micro)
        return is_predicted_to_fit(replace(step, setting=setting))

    low, high = 0, LARGEST_MICRO_BATCH
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def find_borders(steps: Iterable[MeasuredStep]) -> list[tuple[MeasuredStep, MeasuredStep]]:
    """Pair steps of the largest fitting and least failing micro-batch, by model, GPU, length, recomputation.

    One pair for each GPU, model, length and recomputation that has both, of steps with nothing changed.
    """
    sides: dict[Any, tuple[list[MeasuredStep], list[MeasuredStep]]] = {}
    for step in steps:
        if not step.changed:
            fit, fail = sides.setdefault(step.border, ([], []))
            (fit if step.fits else fail).append(step)

    def micro(step: MeasuredStep) -> int:
        return step.setting.plan.micro_batch

    return [(max(fit, key=micro), min(fail, key=micro)) for fit, fail in sides.values() if fit and fail]


def border_figures(pairs: Sequence[tuple[MeasuredStep, MeasuredStep]]) -> Figures:
    """Return how well it is predicted which step of each pair of `find_borders` fits in memory.

    Returns
    -------
    dict
        `pairs`; of saying that a step does not fit, `precision` (None if that is never said) and `recall`;
        and the `least`, `median` and `most` of the largest micro-batch predicted over the measured one.
    """
    refused = [not is_predicted_to_fit(fit) for fit, _ in pairs]
    recalled = [not is_predicted_to_fit(fail) for _, fail in pairs]
    said = sum(refused) + sum(recalled)
    ratios = [predict_largest(fit) / fit.setting.plan.micro_batch for fit, _ in pairs]
    return {
        "pairs": len(pairs),
        "precision": sum(recalled) / said if said else None,
        "recall": float(np.mean(recalled)),
        "least": min(ratios),
        "median": float(np.median(ratios)),
        "most": max(ratios),
    }


def compare(predicted: Floats, measured: Floats) -> Figures:
    """Return statistics of predictions' relative errors: of absolute errors, and the median signed error."""
    off = predicted / measured - 1
    return summary(np.abs(off)) | {"median_signed_ape": float(np.median(off)) if len(off) else None}


def predict_seconds(steps: Sequence[MeasuredStep], stack: str = "") -> Floats:
    """Predict the seconds of measured steps with a software stack, by default the oracle's choice."""
    found = []
    for one in (step.setting for step in steps):
        used = load_stack(stack) if stack else choose_for_shape(one.shape, one.machine).stack
        batch, length = one.global_batch, one.sequence_length
        planned = assess_plan(
            one.shape, one.machine, one.plan, used.step_constants, global_batch=batch, sequence_length=length
        )
        found.append(planned.seconds)
    return np.array(found)


def _tokens(step: MeasuredStep) -> int:
    return step.setting.plan.micro_batch * step.setting.sequence_length


def _range_of_tokens(step: MeasuredStep) -> str:
    tokens = _tokens(step)
    if tokens < FEW_TOKENS:
        return f"below {FEW_TOKENS:,}"
    return f"from {MANY_TOKENS:,} on" if tokens >= MANY_TOKENS else f"{FEW_TOKENS:,} to {MANY_TOKENS:,}"


def _time_figures(steps: Sequence[MeasuredStep]) -> Figures:
    """Return errors of the seconds of the chosen stack and of each, and those of the first by groups."""
    measured = np.array([step.seconds for step in steps], dtype=np.float64)
    own = predict_seconds(steps)
    ascending = sorted(steps, key=_tokens)
    names = [stack.name for stack in current_stacks() if stack.of_steps]
    chosen = sorted({choose_for_shape(s.setting.shape, s.setting.machine).stack.name for s in steps})
    by: dict[str, Callable[[MeasuredStep], str]] = {
        "by_tokens": _range_of_tokens,
        "by_length": lambda step: f"{step.setting.sequence_length:,}",
        "by_model": lambda step: step.setting.shape.name,
        "by_recomputation": lambda step: "full" if step.setting.plan.recompute else "none",
    }
    return {
        "seconds": {f"chosen: {', '.join(chosen)}": compare(own, measured)}
        | {name: compare(predict_seconds(steps, name), measured) for name in names},
        **{
            name: {
                key: compare(own[here], measured[here])
                for key in dict.fromkeys(map(group, ascending))
                for here in [np.array([group(step) == key for step in steps])]
            }
            for name, group in by.items()
        },
    }


def _compare_bytes(steps: Sequence[MeasuredStep]) -> Figures:
    predicted = np.array([predict_bytes(step) for step in steps])
    return compare(predicted, np.array([step.allocated for step in steps]))


def _count_refused(steps: Sequence[MeasuredStep]) -> int:
    return sum(not is_predicted_to_fit(step) for step in steps)


def _repeats(steps: Sequence[MeasuredStep]) -> Figures:
    """Return how far measured again is from measured first: seconds and allocated bytes."""
    first = {(step.border, step.setting.plan.micro_batch): step for step in steps if not step.changed}
    seconds, allocated = [], []
    for step in steps:
        other = first.get((step.border, step.setting.plan.micro_batch))
        if step.changed.startswith(REPEATED) and other and step.seconds and other.seconds:
            seconds.append(abs(step.seconds / other.seconds - 1))
            allocated.append(abs(step.allocated / other.allocated - 1))
    if not seconds:
        return {"repeats": 0}
    return {
        "repeats": len(seconds),
        "median_ape": float(np.median(seconds)),
        "most_ape": max(seconds),
        "memory_most_ape": max(allocated),
    }


def validate_steps(path: Path, shapes: Path | None = None, accelerators: Path | None = None) -> Figures:
    """Return errors of predicted seconds, memory and largest micro-batches of the steps in a CSV file.

    Returns
    -------
    dict
        `cases` and how many `ran`; `free_gb` before there was a model; errors of `seconds` by stack, of the
        chosen one's `by_tokens` of a micro-batch, `by_length`, `by_model` and `by_recomputation`, and of
        `compiled` steps by stack; errors of `memory` against the bytes of tensors; `usable_gb` of the first
        step's GPU; how many steps that ran are `refused`; `borders` (`border_figures`); `repeats`; `unused`,
        the reserved bytes over the allocated ones, less 1; `segments`: how many cases failed, how many of
        these `ran` with expandable segments, and how many of the others are `refused`.

    Raises
    ------
    InputError
        As `read_steps`, and if no step has seconds, or none lies at the end of memory.
    """
    steps = read_steps(path, shapes, accelerators)
    ran = [step for step in steps if step.fits and not step.changed]
    timed, pairs = [step for step in ran if step.seconds], find_borders(steps)
    if not pairs or not timed:
        message = "has no step with seconds, or no pair of steps of which one fits"
        raise InputError(message, file=path, remedy="give steps on both sides of the end of memory")
    unused = np.array([step.reserved / step.allocated - 1 for step in ran])
    changed: dict[str, list[MeasuredStep]] = {
        name: [] for name in (WITHOUT_LOSS, DROPPED, COMPILED, SEGMENTS)
    }
    for step in steps:
        changed.setdefault(step.changed, []).append(step)
    compiled = [step for step in changed[COMPILED] if step.seconds]
    without, dropped = ([s for s in changed[name] if s.fits] for name in (WITHOUT_LOSS, DROPPED))
    return {
        "cases": len(steps),
        "ran": sum(step.fits for step in steps),
        "free_gb": min(step.free for step in steps) / 1e9,
        **_time_figures(timed),
        "compiled": _time_figures(compiled)["seconds"] if compiled else {},
        "memory": {
            "as it is": _compare_bytes(ran),
            "steps without a loss": _compare_bytes(without),
            "steps that drop gradients": _compare_bytes(dropped),
        },
        "usable_gb": usable_bytes(ran[0].setting.machine, _constants(ran[0])) / 1e9,
        "refused": _count_refused([step for step in steps if step.fits]),
        "borders": border_figures(pairs),
        "repeats": _repeats(steps),
        "unused": {"median_share": float(np.median(unused)), "p90": float(np.quantile(unused, 0.9))},
        "segments": {
            "failed": len(changed[SEGMENTS]),
            "ran": sum(step.fits for step in changed[SEGMENTS]),
            "refused": _count_refused([step for step in changed[SEGMENTS] if not step.fits]),
        },
    }
