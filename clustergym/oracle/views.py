"""What baselines see of iteration times: profiles that are narrower, or rougher, than the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError, nearest
from clustergym.oracle.base import six_digits
from clustergym.registry import build

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Times:
    """Seconds per iteration of C model classes on T GPU types at K counts; inf where there is none.

    Attributes
    ----------
    execution : ndarray of float, shape (C, T, K)
        What jobs run at.
    feasible : ndarray of bool, shape (C, T, K)
        Where they may run.
    counts : ndarray of int, shape (K,)
        GPU counts, ascending.
    data_parallel : ndarray of float, shape (C, T, K), optional
        Of pure data parallelism; inf where that does not fit in memory.
    measured : ndarray of float, shape (C, T, K), optional
        Of a measured table; inf or NaN where nobody measured.
    """

    execution: Floats
    feasible: Bools
    counts: Ints
    data_parallel: Floats | None = None
    measured: Floats | None = None

    def __post_init__(self) -> None:
        shape = self.execution.shape
        for name in ("feasible", "data_parallel", "measured"):
            table = getattr(self, name)
            if table is not None and table.shape != shape:
                raise ValueError(f"{name} has shape {table.shape}, execution {shape}")
        if shape[-1:] != self.counts.shape or (np.diff(self.counts) <= 0).any() or (self.counts < 1).any():
            raise ValueError(f"counts {self.counts} are not {shape[-1:]} ascending counts of GPUs")


def linear(times: Floats, feasible: Bools, counts: Ints, precise: int = 1) -> Floats:
    """Return the least counts as they are, the others scaled linearly from the last of those.

    Parameters
    ----------
    times : ndarray of float, shape (..., K)
    feasible : ndarray of bool, shape (..., K)
    counts : ndarray of int, shape (K,)
    precise : int
        How many of the least feasible counts are known as they are. 1 is the bootstrap of Sia
        (SOSP '23, section 3.2); more of them is the knob of Arena (EuroSys '26, section 2.3).

    Returns
    -------
    ndarray of float, shape (..., K)
        Scaled values carry six significant digits; inf where infeasible.

    Raises
    ------
    InputError
        If `precise` is below 1.
    """
    _check_precise(precise)
    known = feasible & np.isfinite(times)
    rank = np.cumsum(known, axis=-1)
    exact = known & (rank <= precise)
    positions = np.where(exact, np.arange(times.shape[-1]), -1)
    last = positions.max(axis=-1, keepdims=True, initial=-1)
    base = np.take_along_axis(times, np.maximum(last, 0), axis=-1)
    scaled = np.where(last < 0, np.inf, base * counts[np.maximum(last, 0)] / counts)
    out = np.where(feasible & ~exact, six_digits(scaled), np.inf)
    return np.where(exact, times, out)


def same_local_batch(times: Floats, sizes: Ints, feasible: Bools, counts: Ints) -> Floats:
    """Return times at several global batches, bootstrapped from the least feasible count of each type.

    An iteration of batch M on N GPUs takes as long as one of M x least / N on the least count, where each
    GPU has as many samples, and no longer synchronises (Sia, SOSP '23, section 3.2): interpolated
    between the batches, and below the smallest as long as that.

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
        local = sizes[c, has] * counts[least] / counts[fits, None]
        out[c, t, fits, : len(has)] = np.interp(local, sizes[c, has], times[c, t, least, has])
    return six_digits(out)


def data_parallel(times: Floats, feasible: Bools) -> Floats:
    """Return a data-parallel profile where a job may run; inf also where it exceeds memory."""
    return np.where(feasible & np.isfinite(times), times, np.inf)


def measured(times: Floats, feasible: Bools, counts: Ints, missing: str = "infeasible") -> Floats:
    """Return measured times where a job may run.

    Parameters
    ----------
    times : ndarray of float, shape (..., K)
        inf or NaN where nobody measured.
    feasible : ndarray of bool, shape (..., K)
    counts : ndarray of int, shape (K,)
    missing : str
        What stands where nobody measured: `infeasible` (inf), or `linear`: scaled linearly from
        the next smaller measured count, from the least one below that.

    Raises
    ------
    InputError
        If `missing` is neither.
    """
    _check_missing(missing)
    known = np.isfinite(times)
    if missing == "infeasible":
        return np.where(feasible & known, times, np.inf)
    positions = np.where(known, np.arange(times.shape[-1]), -1)
    below = np.maximum.accumulate(positions, axis=-1)
    source = np.where(below < 0, np.argmax(known, axis=-1)[..., None], below)
    base = np.take_along_axis(times, source, axis=-1)
    scaled = np.where(known.any(axis=-1, keepdims=True), base * counts[source] / counts, np.inf)
    return np.where(feasible, np.where(known, times, six_digits(scaled)), np.inf)


def _check_precise(precise: int) -> None:
    if precise < 1:
        raise InputError(f"{precise} is not valid", field="precise", remedy="give at least 1")


def _check_missing(missing: str) -> None:
    valid = ("infeasible", "linear")
    if missing not in valid:
        raise InputError(f"unknown value {missing!r}", field="missing", remedy=nearest(missing, valid))


class TimesView(Protocol):
    """What a baseline sees of iteration times."""

    def __call__(self, times: Times) -> Floats:
        """Return seconds per iteration, shape (C, T, K); inf where the baseline sees none."""


@dataclass(frozen=True)
class Exact:
    """The truth."""

    def __call__(self, times: Times) -> Floats:
        """Return what jobs run at."""
        return np.where(times.feasible, times.execution, np.inf)


@dataclass(frozen=True)
class DataParallel:
    """Profiles of pure data parallelism, with its memory limit."""

    def __call__(self, times: Times) -> Floats:
        """Return data-parallel times."""
        return data_parallel(_given(times.data_parallel, "data_parallel"), times.feasible)


@dataclass(frozen=True)
class Bootstrap:
    """The least feasible count of each GPU type, scaled linearly (Sia, SOSP '23, section 3.2)."""

    def __call__(self, times: Times) -> Floats:
        """Return scaled times."""
        return linear(times.execution, times.feasible, times.counts)


@dataclass(frozen=True)
class Linear:
    """The `precise` least feasible counts as they are, the others linear (Arena, section 2.3).

    Attributes
    ----------
    precise : int
        At least 1.
    """

    precise: int = 1

    def __post_init__(self) -> None:
        _check_precise(self.precise)

    def __call__(self, times: Times) -> Floats:
        """Return precise and scaled times."""
        return linear(times.execution, times.feasible, times.counts, self.precise)


@dataclass(frozen=True)
class Measured:
    """A measured table.

    Attributes
    ----------
    missing : str
        `infeasible` or `linear`; see `measured`.
    """

    missing: str = "infeasible"

    def __post_init__(self) -> None:
        _check_missing(self.missing)

    def __call__(self, times: Times) -> Floats:
        """Return measured times."""
        return measured(_given(times.measured, "measured"), times.feasible, times.counts, self.missing)


VIEWS: Mapping[str, type[TimesView]] = {
    "exact": Exact,
    "data_parallel": DataParallel,
    "bootstrap": Bootstrap,
    "linear": Linear,
    "measured": Measured,
}
"""Views by name; their fields are their parameters."""


def view_from_config(mapping: Mapping[str, Any]) -> TimesView:
    """Return a view from `{name: …, parameter: value, …}`.

    Raises
    ------
    InputError
        For an unknown name or parameter (names the nearest), or a value that is not valid.
    """
    given = dict(mapping)
    name = given.pop("name", None)
    if not isinstance(name, str) or name not in VIEWS:
        message = "is missing" if name is None else f"unknown view {name!r}"
        raise InputError(message, field="view.name", remedy=nearest(str(name or ""), VIEWS))
    made: TimesView = build(VIEWS[name], given, "view")
    return made


def _given(table: Floats | None, name: str) -> Floats:
    if table is None:
        raise InputError(
            f"this oracle has no {name} times", field="view.name", remedy="choose another view or oracle"
        )
    return table
