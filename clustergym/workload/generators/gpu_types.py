"""Draw the GPU type each job asks for, in proportion to capacity among the types it fits on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.cluster.spec import ClusterSpec
from clustergym.inputs.errors import InputError
from clustergym.workload.draw import RULES, ReferenceTimes
from clustergym.workload.options import ReferenceTime

GPU_TYPES = 130
"""Number of the random stream used here; every purpose of a generator has its own."""


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
    chance = np.random.default_rng([seed, GPU_TYPES]).random(len(gpus))
    strata = RULES[rule].stratum(gpu_s)
    keys, group = np.unique(np.stack([strata, gpus], axis=1), axis=0, return_inverse=True)
    if isinstance(time_s, ReferenceTimes):
        time_s.prepare_rule(RULES[rule], keys)
    drawn = [""] * len(gpus)
    for index, (stratum, count) in enumerate(keys.tolist()):
        kinds = _fitting(cluster, names, rule, stratum, count, time_s)
        area = np.cumsum([int(cluster.capacity[cluster.gpu_types.index(kind)]) for kind in kinds])
        for row in np.flatnonzero(group.ravel() == index).tolist():
            drawn[row] = kinds[int(np.searchsorted(area, chance[row] * area[-1], side="right"))]
    return drawn


def _fitting(
    cluster: ClusterSpec, names: Sequence[str], rule: str, stratum: int, gpus: int, time_s: ReferenceTime
) -> list[str]:
    large = [kind for kind in names if cluster.capacity[cluster.gpu_types.index(kind)] >= gpus]
    for tier in RULES[rule].tiers(stratum, gpus):
        kinds = [kind for kind in large if any(np.isfinite(time_s(model, kind, gpus)) for model, _ in tier)]
        if kinds:
            return kinds
    message = f"no model of rule {rule!r} fits on {gpus} GPUs of {' or '.join(names)} of {cluster.name}"
    raise InputError(message, field="gpus", remedy="set max_gpus, or choose another rule or cluster")
