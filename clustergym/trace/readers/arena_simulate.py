"""Read Arena's `simulate_trace…` files; Arena's simulator runs a fifth of their iterations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clustergym.trace.options import ReadOptions
from clustergym.trace.readers import arena
from clustergym.trace.trace import Trace

NAME = "arena-simulate"
DIVISOR = 5
"""Arena's simulator divides `num_iteration` by this number when it submits a job."""


def sniff(path: Path, lines: Sequence[str]) -> bool:
    """Return whether a file is named `simulate_trace…` and looks like a trace of Arena."""
    return path.name.startswith("simulate_trace") and arena.sniff(path, lines)


def read(path: Path, options: ReadOptions) -> Trace:
    """Read a trace of Arena, with iterations divided by five (rounded down, at least 1)."""
    return arena.read_divided(path, options, NAME, DIVISOR)
