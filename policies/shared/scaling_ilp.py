"""An integer program that chooses the scalings of greatest total value."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints

from .elastic import Scaling, VirtualCluster

NODE_LIMIT = 500
RELATIVE_GAP = 1e-3
"""Distance to the bound at which a solution is good enough: values are sums of estimates."""


class ScalingCandidates(NamedTuple):
    """Possible changes of jobs' GPUs: the job's position in the View, new GPU type and count, and gain."""

    at: Ints
    gpu_type: Ints
    level: Ints
    gain: Floats


def best_scalings(cluster: VirtualCluster, waiting: Ints, gap: float = RELATIVE_GAP) -> list[Scaling] | None:
    """Choose the launches, halvings and enlargements of jobs with the greatest total gain; None on failure.

    The candidates are the heuristic's: half, once and twice the request of a waiting job on
    each type; for a running one half its count (not below half its request, nor shortly before
    its end), and whatever growth repays its restart. At most one a job; jobs are not preempted.

    Parameters
    ----------
    cluster : VirtualCluster
    waiting : ndarray of int
        Positions in the View of jobs that may be launched.
    gap : float
        Relative distance to the bound at which the solver stops.

    Returns
    -------
    list of Scaling or None
        Those that shrink first. None if the solver found no solution within its limits.
    """
    found = _all_candidates(cluster, waiting)
    if not (found.gain > 0).any():
        return []
    chosen = _solve(cluster, found, cluster.free, gap)
    if chosen is None:
        return None
    freed = np.where(cluster.gpu_type[found.at] >= 0, cluster.counts[cluster.level[found.at]], 0)
    # Shrinks first, so that no step in between needs more GPUs than are free.
    order = sorted(chosen.tolist(), key=lambda c: int(cluster.counts[found.level[c]] - freed[c]))
    return [Scaling(int(found.at[c]), int(found.gpu_type[c]), int(found.level[c])) for c in order]


def _all_candidates(cluster: VirtualCluster, waiting: Ints) -> ScalingCandidates:
    held = np.flatnonzero(cluster.gpu_type >= 0)
    parts = [_launches(cluster, waiting), _growths(cluster, held), _halvings(cluster, held)]
    return ScalingCandidates(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _launches(cluster: VirtualCluster, waiting: Ints) -> ScalingCandidates:
    steps = cluster.requested[waiting][:, None, None] + np.array([-1, 0, 1])
    shape = (len(waiting), len(cluster.free), 3)
    level = np.broadcast_to(steps, shape)
    gpu_type = np.broadcast_to(np.arange(len(cluster.free))[None, :, None], shape)
    at = np.broadcast_to(waiting[:, None, None], shape)
    inside = (level >= 0) & (level < len(cluster.counts))
    gain = np.where(inside, cluster.value[at, gpu_type, np.clip(level, 0, len(cluster.counts) - 1)], 0.0)
    take = gain > 0
    return ScalingCandidates(at[take], gpu_type[take], level[take], gain[take])


def _growths(cluster: VirtualCluster, held: Ints) -> ScalingCandidates:
    gain, gpu_type, level = cluster.growth(held)
    at = np.broadcast_to(held[:, None, None], gain.shape)
    take = gain > 0
    return ScalingCandidates(at[take], gpu_type[take], level[take], gain[take])


def _halvings(cluster: VirtualCluster, held: Ints) -> ScalingCandidates:
    held = held[cluster.worth_disturbing(held)]
    gpu_type, level = cluster.gpu_type[held], cluster.level[held]
    freed, lost = cluster.halving(held, gpu_type, level)
    take = freed > 0
    return ScalingCandidates(held[take], gpu_type[take], level[take] - 1, -lost[take])


def _solve(cluster: VirtualCluster, found: ScalingCandidates, free: Ints, gap: float) -> Ints | None:
    """Return the positions of the chosen candidates; None if there is no trustworthy solution."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix, vstack

    types, columns = len(cluster.free), np.arange(len(found.at))
    use = np.zeros((types, len(columns)))
    use[found.gpu_type, columns] += cluster.counts[found.level]
    running = np.flatnonzero(cluster.gpu_type[found.at] >= 0)
    jobs = found.at[running]
    # A change of a running job gives back what it holds, so a shrink has a negative use.
    use[cluster.gpu_type[jobs], running] -= cluster.counts[cluster.level[jobs]]
    members, row = np.unique(found.at, return_inverse=True)
    # Not `csr_array`: that of SciPy 1.12 has indices of 64 bits, and its solver takes none.
    once = csr_matrix((np.ones(len(columns)), (row, columns)), shape=(len(members), len(columns)))
    # Rows are scaled to 1: with larger coefficients a value within tolerance of 1 would violate its rows.
    largest = float(cluster.counts[-1])
    limits = np.concatenate([free / largest, np.ones(len(members))])
    rows = csr_matrix(vstack([csr_matrix(use / largest), once]))
    with _mute_stdout():
        answer = milp(
            -found.gain,
            integrality=np.ones(len(columns)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(rows, -np.inf, limits),
            options={"node_limit": NODE_LIMIT, "mip_rel_gap": gap},
        )
    if answer.x is None:
        return None
    chosen = np.flatnonzero(answer.x > 0.5)
    # The solver's tolerances are not ours: what breaks a capacity, or loses, is no answer.
    legal = (use[:, chosen].sum(axis=1) <= free).all() and len(np.unique(found.at[chosen])) == len(chosen)
    return chosen if legal and found.gain[chosen].sum() >= 0 else None


@contextlib.contextmanager
def _mute_stdout() -> Iterator[None]:
    """Discard the line of debugging that HiGHS writes to stdout whatever its options say."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
