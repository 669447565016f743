"""The clock of a simulation: whole microseconds."""

from __future__ import annotations

TICKS_PER_S = 1_000_000
"""The clock counts whole microseconds, so that simultaneous events have exactly equal times."""


def ticks(seconds: float) -> int:
    """Return a time in seconds as the nearest clock tick (whole microseconds)."""
    return round(seconds * TICKS_PER_S)


def seconds(tick: int) -> float:
    """Return a clock tick as seconds."""
    return tick / TICKS_PER_S
