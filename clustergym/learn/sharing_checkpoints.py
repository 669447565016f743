"""Checkpoints of learned placers of shares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.arrays import Floats
from clustergym.inputs.errors import InputError
from clustergym.interface.policy import InformationClass
from clustergym.learn.checkpoints import read, write
from clustergym.sharing.desk import NAMES
from clustergym.sharing.learned import CLASSES, SHAPE

SCHEMA = "clustergym.sharing/1"


@dataclass(frozen=True, eq=False)
class SharingCheckpoint:
    """A trained placer of shares.

    Attributes
    ----------
    weights : ndarray of float, shape (classes, features)
        `clustergym.sharing.learned.SHAPE`.
    sha256 : str
        Digest of the weights file.
    """

    weights: Floats
    sha256: str


def save(path: Path, weights: Floats, about: Mapping[str, Any]) -> None:
    """Write weights to `path`, and their description to the YAML beside it."""
    head = {"schema": SCHEMA, "features": list(NAMES), "classes": list(CLASSES)}
    tensors = {"weights": np.ascontiguousarray(weights, dtype=np.float64)}
    write(path, tensors, head, InformationClass.NONE, about)


def load(name: str) -> SharingCheckpoint:
    """Read a checkpoint by its path, or its name in the package.

    Raises
    ------
    InputError
        If it is missing, damaged, or of other features.
    """
    stored = read(name, SCHEMA)
    weights = stored.tensors.get("weights")
    named = stored.about.get("features") == list(NAMES) and stored.about.get("classes") == list(CLASSES)
    if not named or weights is None or weights.dtype != np.float64 or weights.shape != SHAPE:
        raise InputError("are not this version's", file=stored.yaml, field="features", remedy="train it anew")
    return SharingCheckpoint(weights, stored.sha256)
