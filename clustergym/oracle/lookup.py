"""Many iteration times at once from the dense tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clustergym.errors import InputError
from clustergym.oracle.base import Floats, OracleTables
from clustergym.oracle.cache import KINDS

AXES = ("class", "GPU type", "level", "locality")


def iteration_time(
    tables: OracleTables,
    model: npt.ArrayLike,
    gpu_type: npt.ArrayLike,
    level: npt.ArrayLike,
    locality: npt.ArrayLike,
    kind: str = "execution",
) -> Floats:
    """Return seconds per iteration of many (class, GPU type, count, locality) at once.

    Parameters
    ----------
    tables : OracleTables
    model, gpu_type, level, locality : array_like of int
        Positions in `classes`, `gpu_types` and `counts`, and a `Locality`; they broadcast.
    kind : str
        `execution`, `profiled` or `data_parallel`.

    Returns
    -------
    ndarray of float
        Of the broadcast shape; inf where the class does not fit.

    Raises
    ------
    InputError
        For a kind that is none, and positions outside the tables or not whole.
    """
    if kind not in KINDS:
        raise InputError(f"unknown kind {kind!r}", field="kind", remedy="give one of " + ", ".join(KINDS))
    table: Floats = getattr(tables, kind)
    given = (model, gpu_type, level, locality)
    positions = [_positions(*axis) for axis in zip(AXES, map(np.asarray, given), table.shape, strict=True)]
    found: Floats = np.asarray(table[tuple(positions)])
    return found


def _positions(axis: str, given: npt.NDArray[np.generic], size: int) -> npt.NDArray[np.integer]:
    if not np.issubdtype(given.dtype, np.integer):
        raise InputError(f"positions of type {given.dtype}", field=axis, remedy="give whole numbers")
    whole: npt.NDArray[np.integer] = given  # type: ignore[assignment]
    if whole.size and (whole.min() < 0 or whole.max() >= size):
        outside = int(whole.min()) if whole.min() < 0 else int(whole.max())
        raise InputError(f"there is no position {outside}", field=axis, remedy=f"0 to {size - 1}")
    return whole
