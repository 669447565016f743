"""The interface of every performance oracle, and the dense tables the simulator reads."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError, nearest
from clustergym.oracle.models.model_spec import ModelClass, ModelSpec

if TYPE_CHECKING:
    from clustergym.oracle.models.catalog import Catalog


def statistical_efficiency(batch: Floats | Ints, base_batch: Floats | Ints, noise_scale: Floats) -> Floats:
    """Return the progress per sample at `batch` relative to that at `base_batch`, given the gradient noise.

    (phi + M0) / (phi + M) with the gradient noise scale phi (Pollux, OSDI '21, section 3.1; Sia,
    SOSP '23, section 3.3).

    Parameters
    ----------
    batch, base_batch : ndarray
        M and M0, samples.
    noise_scale : ndarray of float
        phi, samples.
    """
    efficiency: Floats = (noise_scale + base_batch) / (noise_scale + batch)
    return efficiency


@dataclass(frozen=True)
class BatchTables:
    """Iteration times and training progress per sample at all global batches at which models may train.

    Each class may train at its requested batch; a class without a choice has only that. The statistical
    efficiency of a batch is constant within each of the S segments of a training, and changes between them.

    Attributes
    ----------
    sizes : ndarray of int, shape (C, B)
        Samples, ascending; 0 after the last one of a class.
    execution : ndarray of float, shape (C, T, K, 4, B)
        Seconds per iteration at which jobs run; the last axis but one is `Locality`; inf where infeasible.
    ends : ndarray of float, shape (C, S)
        Share of the training at which each segment ends, ascending; the last is 1.
    efficiency : ndarray of float, shape (C, S, B)
        Progress per sample relative to that at the requested batch, see `statistical_efficiency`.
    """

    sizes: Ints
    execution: Floats
    ends: Floats
    efficiency: Floats


@dataclass(frozen=True)
class OracleTables:
    """Three tables of seconds per iteration by model class, GPU type, count and network tier.

    Values carry six significant digits, so that a last-bit difference between two
    machines' mathematics cannot change a simulation.

    Attributes
    ----------
    classes : tuple of ModelClass
        Axis C.
    gpu_types : tuple of str
        Axis T, in the cluster's order.
    counts : ndarray of int, shape (K,)
        GPU counts, ascending.
    execution : ndarray of float, shape (C, T, K, 4)
        Times at which jobs run: those of the best adaptive parallelism; the last axis is `Locality`.
    profiled : ndarray of float, shape (C, T, K, 4)
        What a policy sees of `execution` after profiling: estimates, inf exactly where `execution` is.
    data_parallel : ndarray of float, shape (C, T, K, 4)
        Times of pure data parallelism; inf where that does not fit.
    batches : BatchTables, optional
        Times and efficiencies at other global batches than the requested one.
    segments : ndarray of int, shape (C, T, K), optional
        GPUs of each block of a job that must lie in one NVLink domain: those of its plan on the most compact
        placement; 1 where infeasible. None: GPUs of every job may lie anywhere, as where all are 1.
    """

    classes: tuple[ModelClass, ...]
    gpu_types: tuple[str, ...]
    counts: Ints
    execution: Floats
    profiled: Floats
    data_parallel: Floats
    batches: BatchTables | None = None
    segments: Ints | None = None

    def __post_init__(self) -> None:
        if self.segments is not None and (self.segments == 1).all():
            # Segments of one GPU lie anywhere, as jobs without segments do.
            object.__setattr__(self, "segments", None)

    @staticmethod
    def from_oracle(
        classes: Sequence[ModelClass],
        cluster: ClusterSpec,
        counts: Sequence[int],
        tables: Sequence[Floats],
        batches: BatchTables | None = None,
    ) -> OracleTables:
        """Build from 3 `tables` of iteration times: as jobs run, as a profiler estimates, and data-parallel.

        `tables` has the three in this order, in seconds per iteration; they are rounded to six digits.
        """
        axis = np.array(counts, dtype=np.int64)
        execution, profiled, data_parallel = map(six_digits, tables)
        return OracleTables(
            tuple(classes), cluster.gpu_types, axis, execution, profiled, data_parallel, batches
        )

    def tighter_where_missing(self) -> Floats:
        """Return the iteration times at which jobs run; where infinite, those at the next closer tier.

        A job that fits in memory at one locality fits at every locality.
        """
        return fill_tiers(self.execution)

    @property
    def sha256(self) -> str:
        """SHA-256 digest of all times, and of the classes, GPU types and counts that they are for."""
        # Bytes of a fixed order ("<f8"), so that the digest is the same on every machine.
        digest = hashlib.sha256(repr((self.classes, self.gpu_types, self.counts.tolist())).encode())
        for table in (self.execution, self.profiled, self.data_parallel):
            digest.update(np.ascontiguousarray(table, dtype="<f8").tobytes())
        if self.segments is not None:
            digest.update(np.ascontiguousarray(self.segments, dtype="<i8").tobytes())
        if self.batches is not None:
            digest.update(np.ascontiguousarray(self.batches.sizes, dtype="<i8").tobytes())
            for table in (self.batches.execution, self.batches.ends, self.batches.efficiency):
                digest.update(np.ascontiguousarray(table, dtype="<f8").tobytes())
        return digest.hexdigest()


class Oracle(ABC):
    """Base class of models that predict how fast a model class trains on an allocation of GPUs.

    Attributes
    ----------
    name : str
    catalog : Catalog
        The models it knows by their dimensions.
    worth_caching : bool
        Whether its tables take so long to build that they are kept on disk.
    knows_segments : bool
        Whether its tables say which GPUs of a job must lie in one NVLink domain.
    sees_fabric : bool
        Whether its times depend on the bandwidths of the cluster's fabric.
    knows_models : bool
        Whether jobs train models of the catalogue; otherwise their checkpoints cost nothing.
    lacks, remedy : str
        Why jobs have no time on any GPUs of a cluster, a predicate; what to do about it. For error messages.
    """

    name: str
    catalog: Catalog
    worth_caching: bool = False
    knows_segments: bool = False
    sees_fabric: bool = False
    knows_models: bool = True
    lacks: str = "fit in the memory of none of its GPUs"
    remedy: str = "name another cluster or oracle"

    @abstractmethod
    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Predict the iteration times of model classes on all GPU types, counts and network tiers."""

    def notes(self, classes: Sequence[ModelClass], cluster: ClusterSpec) -> list[str]:
        """Return texts that warn about predictions, as of models or GPUs never measured; none by default."""
        return []

    def fingerprint(self) -> dict[str, object]:
        """Return as JSON values what predictions depend on besides `tables`' arguments; not implemented here.

        Only an oracle whose tables are kept on disk is asked for it.
        """
        raise NotImplementedError


def fill_tiers(times: Floats) -> Floats:
    """Replace each infinite time by that of the next closer network tier; tiers are the last axis."""
    filled = times.copy()
    for tier in range(1, filled.shape[-1]):
        gap = np.isinf(filled[..., tier])
        # In ascending tiers, so that a gap of several tiers is filled from the tightest one known.
        filled[..., tier][gap] = filled[..., tier - 1][gap]
    return filled


def check_counts(counts: Sequence[int]) -> None:
    """Raise an `InputError` if a GPU count is below 1."""
    if any(count < 1 for count in counts):
        raise InputError(f"{min(counts)} GPUs are not an allocation", remedy="give counts of at least 1")


def refuse_shapes(oracle: str, specs: Sequence[ModelSpec]) -> None:
    """Raise an `InputError` if a model is a published transformer, for which no costs by layer are known.

    `oracle` is the name of the oracle that cannot predict such models.
    """
    for spec in specs:
        if spec.shape:
            model = f"{spec.family}-{spec.size}" if spec.size else spec.family
            message = f"the {oracle} oracle does not know {model}, a transformer of today"
            raise InputError(message, field="oracle", remedy="choose oracle=stack")


def check_choice(value: str, valid: Collection[str], field: str) -> None:
    """Raise an `InputError` with the most similar valid names if a name is not valid."""
    if value not in valid:
        raise InputError(f"unknown value {value!r}", field=field, remedy=nearest(str(value), valid))


def six_digits(values: Floats) -> Floats:
    """Return numbers rounded to six significant decimal digits; inf stays inf."""
    flat = [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64).ravel()]
    return np.array(flat, dtype=np.float64).reshape(np.shape(values))


def linear(times: Floats, feasible: Bools, counts: Ints, precise: int = 1) -> Floats:
    """Keep times of the `precise` smallest feasible GPU counts; assume linear speedup at larger counts.

    Parameters
    ----------
    times : ndarray of float, shape (..., K)
    feasible : ndarray of bool, shape (..., K)
    counts : ndarray of int, shape (K,)
    precise : int
        How many of the least feasible counts keep their times. 1 is the bootstrap of Sia (SOSP '23, section
        3.2); larger values are the knob of Arena (EuroSys '26, section 2.3).

    Returns
    -------
    ndarray of float, shape (..., K)
        Scaled values carry six significant digits; inf where infeasible.
    """
    if precise < 1:
        raise InputError(f"{precise} is not valid", field="precise", remedy="give at least 1")
    known = feasible & np.isfinite(times)
    # 1 for the least known count, 2 for the next, and so on.
    rank = np.cumsum(known, axis=-1)
    exact = known & (rank <= precise)
    positions = np.where(exact, np.arange(times.shape[-1]), -1)
    last = positions.max(axis=-1, keepdims=True, initial=-1)
    base = np.take_along_axis(times, np.maximum(last, 0), axis=-1)
    # Twice the GPUs, half the time: the bootstrap knows nothing of communication.
    scaled = np.where(last < 0, np.inf, base * counts[np.maximum(last, 0)] / counts)
    # Rounded as all tables are, so that no last digit of a quotient differs between machines.
    out = np.where(feasible & ~exact, six_digits(scaled), np.inf)
    return np.where(exact, times, out)


def same_local_batch(times: Floats, sizes: Ints, feasible: Bools, counts: Ints) -> Floats:
    """Estimate times on N GPUs by those on the fewest feasible GPUs with as many samples per GPU.

    An iteration of batch M on N GPUs is taken to last as long as one of batch M x least / N on the least
    count, where each GPU has equally many samples: synchronisation is taken to last no longer (Sia, SOSP '23,
    section 3.2). Times between two batches are interpolated; below the smallest batch its time is used.

    Parameters
    ----------
    times : ndarray of float, shape (C, T, K, B)
        Seconds per iteration; inf where infeasible.
    sizes : ndarray of int, shape (C, B)
        Global batches, ascending, 0 after the last one of a class.
    feasible : ndarray of bool, shape (C, T, K)
    counts : ndarray of int, shape (K,)

    Returns
    -------
    ndarray of float, shape (C, T, K, B)
        To six significant digits.
    """
    out = np.where(feasible[..., None], times, np.inf)
    for c, t in np.argwhere(feasible.any(axis=2)).tolist():
        least = int(np.argmax(feasible[c, t]))
        has = np.flatnonzero(sizes[c])
        fits = feasible[c, t] & (counts > counts[least])
        # The batch that gives each of the least count's GPUs as many samples as this allotment's GPUs have.
        local = sizes[c, has] * counts[least] / counts[fits, None]
        out[c, t, fits, : len(has)] = np.interp(local, sizes[c, has], times[c, t, least, has])
    return six_digits(out)
