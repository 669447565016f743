"""Speeds of jobs that share GPUs in pairs, for the model classes and the cluster of a scenario."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.pair_tables import PairKey, PairTable, Workload

Interference = Literal["refuse", "free", "estimate"]
"""What becomes of a pair that the table lacks: it may not share, each keeps its whole speed, or estimated."""


@dataclass(frozen=True, eq=False)
class PairSpeeds:
    """Speeds of two jobs that share GPUs, by their model classes, GPU type and GPU count.

    Attributes
    ----------
    kept : ndarray of float, shape (C, C, T, K)
        Share of its speed alone that a job of the first class keeps beside one of the second; 0: they may
        not share.
    missing : ndarray of bool, shape (C, C, T, K)
        Whether the table lacks the pair, so that `kept` follows from `interference`.
    interference : str
    """

    kept: Floats
    missing: Bools
    interference: Interference

    @cached_property
    def allowed(self) -> Bools:
        """Whether jobs of two model classes may share GPUs, by both classes, type and count, (C, C, T, K)."""
        return self.kept > 0

    def fingerprint(self) -> str:
        """Return a digest of all speeds, for the scenario's digest."""
        return hashlib.sha256(self.kept.tobytes() + self.missing.tobytes()).hexdigest()

    @classmethod
    def from_table(
        cls,
        table: PairTable,
        classes: Sequence[ModelClass],
        cluster: ClusterSpec,
        counts: Ints,
        interference: Interference,
    ) -> PairSpeeds:
        """Look up in a table how fast jobs of each two model classes are if they share GPUs."""
        for name in cluster.gpu_types:
            if name not in table.gpu_types:
                types = ", ".join(table.gpu_types)
                remedy = f"it has {types}; give a table of all types of cluster {cluster.name}"
                raise InputError(f"has no pairs on {name}", file=table.path, field="gpu_type", remedy=remedy)
        kept = _lookup(table.kept, classes, cluster.gpu_types, counts)
        # Of the table, not of the estimate: it says which speeds were measured.
        missing = np.isnan(kept)
        if interference == "estimate":
            kept = estimate_missing_pairs(kept)
        free = interference == "free"
        return cls(np.where(np.isnan(kept), 1.0 if free else 0.0, kept), missing, interference)


def _lookup(
    pairs: Mapping[PairKey, tuple[float, float]],
    classes: Sequence[ModelClass],
    gpu_types: Sequence[str],
    counts: Ints,
) -> Floats:
    """Return the speed share that each class keeps beside each other, (C, C, T, K); NaN: not in the table."""
    names = [Workload(model.model, model.global_batch) for model in classes]
    kept = np.full((len(names), len(names), len(gpu_types), len(counts)), np.nan)
    place = {
        (gpu_type, int(count)): (t, k)
        for t, gpu_type in enumerate(gpu_types)
        for k, count in enumerate(counts)
    }
    row = {name: at for at, name in enumerate(names)}
    for (gpu_type, count, first, second), pair in pairs.items():
        at = place.get((gpu_type, count))
        if at is not None and first in row and second in row:
            kept[row[first], row[second], *at] = pair[0]
    return kept


def estimate_missing_pairs(kept: Floats) -> Floats:
    """Fill in the share of speed kept by jobs in unmeasured pairs (NaN in `kept`), from the measured pairs.

    A job keeps what it keeps on average, times what others keep on average beside this partner, over what
    all keep on average, at most 1. A class without known pairs counts as average. NaN where no pair
    of the type and count is known.
    """
    # Of rank one: own x beside / overall is the least model in which both jobs have an effect. A pair that
    # may not share (0) says nothing of how fast others are.
    possible = np.where(kept > 0, kept, np.nan)
    known = np.isfinite(possible)
    overall = _mean(possible, known, (0, 1))
    own = _mean(possible, known, (1,))
    beside = _mean(possible, known, (0,))
    own, beside = np.where(np.isnan(own), overall, own), np.where(np.isnan(beside), overall, beside)
    guess = np.minimum(own * beside / overall, 1.0)
    return np.where(np.isnan(kept), guess, kept)


def _mean(values: Floats, known: Bools, axes: tuple[int, ...]) -> Floats:
    total, number = (
        np.where(known, values, 0.0).sum(axis=axes, keepdims=True),
        known.sum(axis=axes, keepdims=True),
    )
    mean: Floats = np.where(number > 0, total / np.maximum(number, 1), np.nan)
    return mean
