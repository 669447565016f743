"""The class of a job: model family, size and global batch."""

from __future__ import annotations

from typing import NamedTuple


class ModelClass(NamedTuple):
    """Model family, size and global batch of a job: all that an oracle knows of it."""

    family: str
    size: str
    global_batch: int

    @property
    def model(self) -> str:
        """Name of the model: `family-size`, or the family alone if it has a single size."""
        return f"{self.family}-{self.size}" if self.size else self.family
