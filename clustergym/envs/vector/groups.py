"""Group rollouts of the same trace, as most of the variance of returns comes from the traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError


def groups(trace_seeds: Sequence[int], size: int) -> dict[str, Any]:
    """Return options for `reset` that give each trace to `size` consecutive environments.

    `reset(options=groups([3, 4], 8))` needs 16 environments: eight begin trace 3, and eight begin trace 4.
    """
    if size < 1 or len(trace_seeds) == 0:
        message, remedy = f"{len(trace_seeds)} groups of {size}", "give one trace or more, and a size from 1"
        raise InputError(message, field="groups", remedy=remedy)
    return {"trace_seed": np.repeat(np.asarray(trace_seeds, dtype=np.int64), size)}


def relative_to_group(returns: npt.ArrayLike, size: int) -> Floats:
    """Return (return - mean) / standard deviation of each episode, within its group of `size` episodes.

    Parameters
    ----------
    returns : array_like of float, shape (groups x size,)
        Of environments that began with `groups`.
    size : int

    Notes
    -----
    The advantages of group-relative policy optimisation (Shao et al., 2024, DeepSeekMath, section 4.1).
    """
    grouped = np.asarray(returns, dtype=np.float64).reshape(-1, size)
    centred = grouped - grouped.mean(axis=1, keepdims=True)
    deviation = grouped.std(axis=1, keepdims=True)
    relative: Floats = np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 1e-12)
    return relative.reshape(-1)
