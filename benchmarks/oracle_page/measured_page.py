"""Writes the part of the accuracy page about steps that were measured on one GPU for this project."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from clustergym.commands.oracle.common import percent
from clustergym.common.tables import table
from clustergym.oracle.calibration.measured_steps import MEASURED, validate_steps

Figures = Mapping[str, Any]

HEAD = f"""\
## Steps measured on one H100

`benchmarks/measure_training.py` measured these steps for this project (PyTorch 2.11, two machines with
an H100 80GB each; `{MEASURED}`): decoders of 0.12 to 4.0 billion parameters,
16 bytes per parameter, layers not compiled. **No constant was fitted to these rows**;
`clustergym oracle validate --data measured` prints the figures. *off* is the median error with its sign:
above 0, the prediction is too slow.
"""

COMPILED_STACK = "fsdp-2025"
"""The stack of PyTorch with compiled layers, shown beside the chosen one."""


def measure_steps() -> dict[str, Any]:
    """Return errors of predicted time and memory of training steps on one H100; empty if none is measured."""
    return validate_steps(MEASURED) if MEASURED.exists() else {}


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
            table(("seconds", *columns), [(name, *_errors(row)) for name, row in errors.items()]),
            "",
            table(("bytes", *columns), memory),
            "",
            _findings(figures),
        )
    )


def _errors(row: Figures) -> tuple[str, ...]:
    signed = row["median_signed_ape"]
    off = "-" if signed is None else f"{100 * signed:+.1f} %"
    return (f"{row['rows']}", percent(row["median_ape"]), percent(row["mape"]), percent(row["p90"]), off)


def _findings(figures: Figures) -> str:
    """Return a paragraph on what the tables of measured steps show."""
    border, unused = figures["borders"], figures["unused"]
    text = f"""\
        Of {figures["ran"]} steps that ran, the oracle refuses {figures["refused"]}. Of the micro-batches that
        were just too large, it refuses {percent(border["recall"], 0)}. PyTorch's allocator also reserves
        bytes without a tensor, {percent(unused["median_share"])} of the bytes of tensors in the median,
        which the oracle does not count: leave a margin of memory. Why steps take more or fewer seconds
        than predicted is not known.
        """
    # A number is not parted from its sign.
    words = " ".join(text.split()).replace(" %", "\0%")
    return textwrap.fill(words, 105, break_on_hyphens=False).replace("\0%", " %") + "\n"
