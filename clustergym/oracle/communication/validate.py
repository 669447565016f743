"""Predicted against measured latencies of collectives."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clustergym.cluster.config import load_gpu_types
from clustergym.cluster.spec import Locality
from clustergym.errors import InputError, nearest
from clustergym.oracle.communication.collectives import Collectives
from clustergym.oracle.communication.constants import Constants
from clustergym.oracle.communication.measured import Curve, Group, pooled, read_collectives
from clustergym.oracle.communication.primitives import Primitive

Floats = npt.NDArray[np.float64]

LARGE_BYTES = 1e6
"""Volumes above which errors are reported."""

HELD = (Primitive.ALL_REDUCE, Primitive.ALL_GATHER)
"""Primitives whose errors are reported by default."""


def validate_collectives(
    path: str | Path, constants: Constants | None = None, primitives: Iterable[Primitive] = HELD
) -> dict[str, dict[str, float]]:
    """Return median absolute percentage errors over 1 MB, by hardware.

    Parameters
    ----------
    path : str or Path
        A table as `read_collectives` reads.
    constants : Constants, optional
        Of conf/calibration/collectives.yaml by default.
    primitives : iterable of Primitive

    Returns
    -------
    dict
        By `GPU type inside` or `GPU type across` a node, and `all`: `rows`, and the median error in
        percent of `interpolated` (with the volume itself left out of the table; absent where each
        group has one volume only) and `alpha_beta` (the constants alone). GPU types that the
        catalogue does not know are left out.

    Raises
    ------
    InputError
        As `read_collectives`; if there is no row to hold anything against.
    """
    table = read_collectives(path)
    wanted = set(primitives)
    known = load_gpu_types()
    names = sorted({group.gpu_type for group in table.machines} & set(known))
    collectives = Collectives.from_gpu_types([known[name] for name in names], constants=constants)
    errors: dict[str, list[tuple[Floats, Floats]]] = {}
    for group, curves in table.machines.items():
        if group.primitive in wanted and group.gpu_type in known:
            medium = "across" if group.nodes > 1 else "inside"
            pair = (interpolation_errors(curves), alpha_beta_errors(collectives, group, curves))
            errors.setdefault(f"{group.gpu_type} {medium}", []).append(pair)
            errors.setdefault("all", []).append(pair)
    found = {name: _summary(errors[name]) for name in sorted(errors)}
    if not any(row["rows"] for row in found.values()):
        kinds = " or ".join(sorted(primitive.value for primitive in wanted))
        remedy = f"GPU types are {nearest('', known)[len('valid: ') :]}"
        raise InputError(f"no {kinds} over 1 MB of a known GPU type in it", file=table.path, remedy=remedy)
    return {name: row for name, row in found.items() if row["rows"]}


def interpolation_errors(curves: Iterable[Curve]) -> Floats:
    """Return signed relative errors of interpolation over 1 MB, each volume left out in turn."""
    machines = list(curves)
    volumes = np.unique(np.concatenate([curve.volume_bytes for curve in machines]))
    found = []
    for volume in volumes[volumes > LARGE_BYTES]:
        others = [curve for curve in (full.without(volume) for full in machines) if len(curve.seconds)]
        if not others:
            continue
        guess = float(pooled(others).at(np.array(volume)))
        for curve in machines:
            measured = curve.seconds[curve.volume_bytes == volume]
            found.extend(guess / measured - 1)
    return np.array(found)


def alpha_beta_errors(collectives: Collectives, group: Group, curves: Iterable[Curve]) -> Floats:
    """Return signed relative errors of the alpha-beta constants over 1 MB."""
    found = []
    for curve in curves:
        large = curve.volume_bytes > LARGE_BYTES
        guess = collectives.latency_s(
            group.primitive,
            curve.volume_bytes[large],
            group.gpu_type,
            group.ranks,
            group.nodes,
            group.sharing,
            Locality.LEAF,
        )
        found.append(guess / curve.seconds[large] - 1)
    return np.concatenate(found)


def _summary(pairs: list[tuple[Floats, Floats]]) -> dict[str, float]:
    columns = [np.abs(np.concatenate(column)) for column in zip(*pairs, strict=True)]
    names = ("interpolated", "alpha_beta")
    medians = {
        name: float(100 * np.median(errors))
        for name, errors in zip(names, columns, strict=True)
        if len(errors)
    }
    return {"rows": len(columns[1])} | medians
