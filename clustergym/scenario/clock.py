"""The clock of a simulation: whole microseconds."""

from __future__ import annotations

TICKS_PER_S = 1_000_000
"""The clock counts whole microseconds, so that simultaneous events have exactly equal times."""


def ticks(seconds: float) -> int:
    """Convert seconds to the nearest clock tick (whole microseconds)."""
    return round(seconds * TICKS_PER_S)


def seconds(tick: int) -> float:
    """Convert a clock tick (microseconds) to seconds."""
    return tick / TICKS_PER_S
