"""`explain`: shows how a transformer of today trains on GPUs: plan, time by part, other plans."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict
from typing import Any

from clustergym.commands.oracle import common
from clustergym.common.errors import InputError, require
from clustergym.common.writing import write_json
from clustergym.oracle.models.shape import Machine, ParallelPlan, TransformerShape
from clustergym.oracle.models.shape_files import load_accelerator, load_transformer
from clustergym.oracle.stacks.catalog import (
    DENSE,
    EXPERTS,
    choose_for_shape,
    describe_extension,
    load_stack,
)
from clustergym.oracle.stacks.search import PlannedStep, search_plans
from clustergym.oracle.stacks.stack_oracle import PRECISIONS

SUMMARY = "show how a transformer trains on GPUs, and why"

SHOWN = 5
"""Next best plans, and plans that do not fit, that are shown."""
USUAL_LENGTH = 8192
"""Tokens of a sequence where nothing else is said."""
MOST_GPUS, MOST_SEQUENCES, LONGEST_SEQUENCE = 2**17, 10**7, 2**24
_GPUS = re.compile(r"([0-9]{1,9})[xX](.+)", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clustergym oracle explain` to a parser."""
    add = parser.add_argument
    add("--model", required=True, metavar="NAME", help="as in llama3-70B, or a config.json")
    add("--batch", required=True, type=int, metavar="N", help="sequences of a step")
    add("--gpus", required=True, metavar="COUNTxTYPE", help="as in 64xH100")
    text = f"tokens of a sequence ({USUAL_LENGTH})"
    add("--sequence-length", type=int, metavar="N", default=USUAL_LENGTH, help=text)
    add("--precision", metavar="NAME", default=PRECISIONS[0], help=f"{', '.join(PRECISIONS)} (bf16)")
    text = "a software stack of conf/stack, or a file (the one measured on the model and the GPUs)"
    add("--stack", metavar="NAME", help=text)
    common.add_shapes(parser)
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print how a transformer trains on GPUs of the catalogue; return the exit status."""
    common.check_target(options.json, "--json")
    shape = load_transformer(options.model, options.shapes)
    gpus, machine = _allocation(options)
    _check(options, machine)
    stack, extended = choose_for_shape(shape, machine)
    if options.stack is not None:
        stack = load_stack(options.stack)
        architecture = EXPERTS if shape.experts else DENSE
        extended = describe_extension(stack, shape.name, architecture, machine.name)
    common.print_notes([extended])
    plans = search_plans(
        shape,
        machine,
        stack.step_constants,
        gpus=gpus,
        global_batch=options.batch,
        sequence_length=options.sequence_length,
        precision=options.precision,
    )
    shown = figures(shape, machine, plans, gpus, options)
    write_json(options.json, {"stack": stack.name, **shown})
    _print(shape, machine, plans, gpus, options, stack.name)
    common.print_written(options.json)
    return 0


def _allocation(options: argparse.Namespace) -> tuple[int, Machine]:
    match = _GPUS.fullmatch(options.gpus.strip())
    if match is None:
        message = f"{options.gpus!r} is not COUNTxTYPE"
        raise InputError(message, field="--gpus", remedy="give for instance 64xH100")
    gpus = int(match[1])
    require(1 <= gpus <= MOST_GPUS, "--gpus", gpus, f"give 1 to {MOST_GPUS}")
    return gpus, load_accelerator(match[2].strip(), options.accelerators)


def _check(options: argparse.Namespace, machine: Machine) -> None:
    require(1 <= options.batch <= MOST_SEQUENCES, "--batch", options.batch, f"give 1 to {MOST_SEQUENCES}")
    length = options.sequence_length
    require(1 <= length <= LONGEST_SEQUENCE, "--sequence-length", length, f"give 1 to {LONGEST_SEQUENCE}")
    if options.precision not in PRECISIONS:
        raise InputError(
            f"unknown precision {options.precision!r}", field="--precision", remedy=", ".join(PRECISIONS)
        )
    if machine.peak_tflops(options.precision) is None:
        message = f"{machine.name} has no {options.precision} arithmetic"
        raise InputError(message, field="--precision", remedy="leave it out for bf16")


def tokens_per_s_per_gpu(step: PlannedStep, gpus: int, options: argparse.Namespace) -> float:
    """Return the tokens per second that each GPU trains on."""
    return float(options.batch * options.sequence_length / step.seconds / gpus)


def _mfu(
    step: PlannedStep, shape: TransformerShape, machine: Machine, gpus: int, options: argparse.Namespace
) -> float:
    rate = tokens_per_s_per_gpu(step, gpus, options) * shape.flops_per_token(options.sequence_length)
    return rate / ((machine.peak_tflops(options.precision) or 1.0) * 1e12)


def figures(
    shape: TransformerShape,
    machine: Machine,
    plans: list[PlannedStep],
    gpus: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Return a training step's explanation as JSON values; the key `plan` is None where no plan fits."""

    def plain(step: PlannedStep) -> dict[str, Any]:
        return {
            **asdict(step.plan),
            "recompute": step.recompute,
            "step_s": step.seconds,
            "tokens_per_s_per_gpu": tokens_per_s_per_gpu(step, gpus, options),
            "mfu": _mfu(step, shape, machine, gpus, options),
            "memory_gb": step.needed_bytes / 1e9,
            "parts_s": asdict(step.parts),
        }

    fitting = [plain(step) for step in plans if step.fits]

    return {
        "model": shape.name,
        "parameters": shape.parameters,
        "active_parameters": shape.active_parameters,
        "flops_per_token": shape.flops_per_token(options.sequence_length),
        "accelerator": machine.name,
        "gpus": gpus,
        "plan": fitting[0] if fitting else None,
        "next_best": fitting[1 : 1 + SHOWN],
        "too_large": [plain(step) for step in plans if not step.fits][:SHOWN],
    }


def _billions(parameters: int) -> str:
    return f"{parameters / 1e9:.{1 if parameters >= 1e9 else 3}f} G"


def _print(
    shape: TransformerShape,
    machine: Machine,
    plans: list[PlannedStep],
    gpus: int,
    options: argparse.Namespace,
    stack: str,
) -> None:
    from clustergym.common.tables import print_table, text_table

    counted = f"{_billions(shape.parameters)} parameters ({_billions(shape.active_parameters)} active)"
    print(
        f"{shape.name}, {counted}, {options.batch} sequences of {options.sequence_length} tokens a step,"
        f" on {gpus} {machine.name}, stack {stack}\n"
    )
    fitting, too_large = [s for s in plans if s.fits], [s for s in plans if not s.fits]
    if fitting:
        best = fitting[0]
        rate = tokens_per_s_per_gpu(best, gpus, options)
        print(f"plan: {_plan(best)}")
        mfu = common.percent(_mfu(best, shape, machine, gpus, options))
        print(
            f"step {best.seconds:.3g} s, {rate:,.0f} tokens/s/GPU, MFU {mfu},"
            f" {best.needed_bytes / 1e9:.0f} of {machine.memory_gb:g} GB\n"
        )
        rows = [
            (
                name.removesuffix("_s").replace("_", " "),
                f"{seconds:.4g}",
                common.percent(seconds / best.seconds),
            )
            for name, seconds in asdict(best.parts).items()
            if seconds
        ]
        print_table(text_table("time by part", ("", "s", "share"), rows))
        rows = [
            (_plan(step), f"{step.seconds:.4g}", f"{tokens_per_s_per_gpu(step, gpus, options):,.0f}")
            for step in fitting[1 : 1 + SHOWN]
        ]
        print_table(text_table("next best plans", ("", "step s", "tokens/s/GPU"), rows))
    else:
        print(_why_none(plans, gpus, options))
    if too_large:
        least = min(too_large, key=lambda step: step.needed_bytes)
        rows = [
            (_plan(step), f"{step.needed_bytes / 1e9:.0f}", f"{step.usable_bytes / 1e9:.0f}")
            for step in dict.fromkeys((least, *too_large[: SHOWN - 1]))
        ]
        print_table(text_table(f"{len(too_large)} plans do not fit", ("", "needs GB", "may fill GB"), rows))


def _why_none(plans: list[PlannedStep], gpus: int, options: argparse.Namespace) -> str:
    if plans:
        return "no plan fits, even if every layer is computed again"
    return (
        f"no plan uses {gpus} GPUs for {options.batch} sequences: one is divided among tensor, context and"
        " pipeline ranks that are powers of two"
    )


def _plan(step: PlannedStep) -> str:
    plan: ParallelPlan = step.plan
    return f"{plan}, recompute {100 * step.recompute:.0f} %"
