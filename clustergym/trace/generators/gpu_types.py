"""Draw the GPU type each job asks for, in proportion to capacity among the types it fits on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.trace.draw import RULES, ReferenceTimes
from clustergym.trace.options import ReferenceTime


def draw_gpu_types(
    cluster: ClusterSpec,
    names: Sequence[str],
    *,
    rule: str,
    gpu_s: Floats,
    gpus: Ints,
    time_s: ReferenceTime,
    seed: int,
) -> list[str]:
    """Draw a GPU type for each job, in proportion to the types' capacity.

    A type counts if it has as many GPUs as the job asks for and some model that the rule draws for
    such a job (of its first tier that fits on any of the types) fits in their memory.

    Parameters
    ----------
    cluster : ClusterSpec
    names : sequence of str
        The types to draw among.
    rule : str
        Name of the rule of `draw`.
    gpu_s : ndarray of float, shape (n,)
        GPU-seconds of each job.
    gpus : ndarray of int, shape (n,)
    time_s : callable
        Seconds per iteration of (model class, type, count).
    seed : int

    Raises
    ------
    InputError
        If a job fits on none of the types.
    """
    chance = random_streams.GPU_TYPES.generator(seed).random(len(gpus))
    pairs = list(zip(RULES[rule].stratum(gpu_s).tolist(), gpus.tolist(), strict=True))
    asked = sorted(set(pairs))
    if isinstance(time_s, ReferenceTimes):
        time_s.prepare_rule(RULES[rule], asked)
    fitting = {pair: _fitting(cluster, tuple(names), rule, *pair, time_s) for pair in asked}
    drawn = []
    for pair, share in zip(pairs, chance.tolist(), strict=True):
        kinds, area = fitting[pair]
        drawn.append(kinds[bisect_right(area, share * area[-1])])
    return drawn


@lru_cache(maxsize=1024)
def _fitting(
    cluster: ClusterSpec, names: tuple[str, ...], rule: str, stratum: int, gpus: int, time_s: ReferenceTime
) -> tuple[list[str], list[int]]:
    """Return the types that fit, and the cumulative sum of their capacities."""
    capacity = dict(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))
    large = [kind for kind in names if capacity[kind] >= gpus]
    for tier in RULES[rule].tiers(stratum, gpus):
        kinds = [kind for kind in large if any(np.isfinite(time_s(model, kind, gpus)) for model, _ in tier)]
        if kinds:
            return kinds, list(accumulate(capacity[kind] for kind in kinds))
    message = f"no model of rule {rule!r} fits on {gpus} GPUs of {' or '.join(names)} of {cluster.name}"
    raise InputError(message, field="gpus", remedy="set max_gpus, or choose another rule or cluster")
