"""Writes the part of the accuracy page about steps that were measured on one GPU for this project."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from clustergym.commands.oracle.common import percent
from clustergym.common.tables import table
from clustergym.oracle.calibration.measured_steps import (
    CURVES,
    MEASURED,
    read_shares,
    validate_steps,
)
from clustergym.oracle.stacks.memory import UNCOMPILED_LOSS_BYTES

Figures = Mapping[str, Any]

HEAD = f"""\
## Steps measured on one H100

`benchmarks/measure_training.py` measured these steps for this project (PyTorch 2.11, 2026-11-26, two
machines with an H100 80GB HBM3 each; `{MEASURED}`). There are nine
decoders of 0.12 to 4.0 billion parameters, sequences of 1,024 to 8,192 tokens, every layer recomputed or
none, and micro-batches up to the largest that fits. Weights and gradients are in bf16, an fp32 copy of the
weights and Adam's moments in fp32: 16 bytes per parameter, as the oracle assumes. Layers are not compiled,
and the loss is the cross entropy of fp32 logits. **No constant was fitted to these rows.**
`clustergym oracle validate --data measured` prints the figures.
"""

TIMES_NOTE = """\
The next table has the errors of predicted seconds, for steps that were timed seven times. First is the
stack that the oracle chooses, for all steps and by tokens of a micro-batch. The other stacks follow, and
two stacks for steps with compiled layers. *off* is the median error with its sign; above 0, the
prediction is too slow.
"""

MEMORY_NOTE = """\
The next table has the errors of the most bytes that tensors take.
"""

SHARES_NOTE = """\
Parts of a step were also measured alone. The table has their rates as shares of the data sheet's, and
the shares that follow from the stacks' constants (from 2025 on, fits keep to the fastest matrix product):
"""

COMPILED_STACK = "fsdp-2025"
"""The stack of PyTorch with compiled layers, shown beside the chosen one."""


def measure_steps() -> dict[str, Any]:
    """Return errors of predicted time and memory of training steps on one H100; empty if none is measured."""
    if not (MEASURED.exists() and CURVES.exists()):
        return {}
    return {**validate_steps(MEASURED), "curves": read_shares(CURVES)}


def steps_section(figures: Figures) -> str:
    """Return the accuracy page's section on training steps measured on one H100, in Markdown."""
    chosen, *stacks = figures["seconds"].items()
    errors = {
        chosen[0]: chosen[1],
        **{f"- {tokens} tokens": row for tokens, row in figures["by_tokens"].items()},
        **{name: row for name, row in stacks if name not in chosen[0]},
        **{
            f"compiled layers, {name}": row
            for name, row in figures["compiled"].items()
            if name in (chosen[0], COMPILED_STACK)
        },
    }
    memory = [(name, *_errors(row)) for name, row in figures["memory"].items()]
    columns = ("steps", "median", "mean", "90th percentile", "off")
    return "\n".join(
        (
            HEAD,
            TIMES_NOTE,
            table(("seconds", *columns), [(name, *_errors(row)) for name, row in errors.items()]),
            "",
            MEMORY_NOTE,
            table(("bytes", *columns), memory),
            "",
            _findings(figures),
            SHARES_NOTE,
            _shares(figures["curves"]),
            "",
        )
    )


def _errors(row: Figures) -> tuple[str, ...]:
    signed = row["median_signed_ape"]
    off = "-" if signed is None else f"{100 * signed:+.1f} %"
    return (f"{row['rows']}", percent(row["median_ape"]), percent(row["mape"]), percent(row["p90"]), off)


def _findings(figures: Figures) -> str:
    """Return a paragraph on what the tables of measured steps show."""
    segments, repeats, unused = figures["segments"], figures["repeats"], figures["unused"]
    border = figures["borders"]
    text = f"""\
        `cross_entropy` of fp32 logits in plain PyTorch holds up to {UNCOMPILED_LOSS_BYTES:g} bytes for each
        token and word of the vocabulary: the logarithms of probabilities, their gradient and that of the
        logits, as the peaks of these rows by phase show. The oracle counts them where nothing is compiled,
        and the stack's `loss_bytes` elsewhere. Gradients that are dropped between steps save their 2 bytes
        per parameter; the oracle always counts them. The card had {figures["free_gb"]:.1f} GB free, of which
        the oracle uses {figures["usable_gb"]:.1f}. It refuses {figures["refused"]} of {figures["ran"]} steps
        that ran. Its largest micro-batch is {border["median"]:.2f} times the largest that ran, in the median
        of {border["pairs"]} models, lengths and recomputations ({border["least"]:.2f} to
        {border["most"]:.2f}). It refuses {percent(border["recall"], 0)} of the micro-batches that were just
        too large; the target is 80 %. {segments["failed"]} of them were tried again with the allocator's
        expandable segments: {segments["ran"]} ran, and the oracle refuses {segments["refused"]} of the
        {segments["failed"] - segments["ran"]} that did not. By default, the bytes that the allocator reserves
        without a tensor are {percent(unused["median_share"])} of the bytes of tensors in the median and
        {percent(unused["p90"])} at the 90th percentile.
        {repeats["repeats"]} steps were measured again on the second machine. Their seconds differ by
        {percent(repeats["median_ape"])} in the median and {percent(repeats["most_ape"])} at most, and their
        bytes by {percent(repeats["memory_most_ape"])}. Why steps take more or fewer seconds than predicted is
        not known.
        """
    # A number is not parted from its sign.
    words = " ".join(text.split()).replace(" %", "\0%")
    return textwrap.fill(words, 105, break_on_hyphens=False).replace("\0%", " %") + "\n"


def _shares(curves: Figures) -> str:
    names = {
        "matmul": "matrix products of layers",
        "attention": "attention, forward and backward",
        "copy": "a copy",
    }
    stacks = list(curves["matmul"]["stacks"])
    rows = [
        (
            title,
            f"{curves[name]['rows']}",
            *(f"{curves[name][key]:.2f}" for key in ("least", "median", "most")),
            *(f"{curves[name]['stacks'][one]:.2f}" if curves[name]["stacks"] else "-" for one in stacks),
        )
        for name, title in names.items()
    ]
    return table(("", "points", "least", "median", "most", *stacks), rows)
