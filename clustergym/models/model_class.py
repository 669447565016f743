"""What a job trains, as an oracle knows it."""

from __future__ import annotations

from typing import NamedTuple


class ModelClass(NamedTuple):
    """What the oracle knows a job by: all jobs of one class train alike."""

    family: str
    size: str
    global_batch: int

    @property
    def model(self) -> str:
        """`family-size`, or the family alone where it has one size only."""
        return f"{self.family}-{self.size}" if self.size else self.family
