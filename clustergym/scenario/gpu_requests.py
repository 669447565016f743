"""Turns the GPUs that jobs ask for into counts and types on which they run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Ints
from clustergym.common.errors import InputError
from clustergym.trace.trace import Trace


class GpuRequests(NamedTuple):
    """What jobs ask for: type index (-1: any), GPUs (0: it fits nowhere), and whether that was changed."""

    gpu_type: Ints
    gpus: Ints
    changed: Bools


def index_named_types(trace: Trace, cluster: ClusterSpec) -> Ints:
    """Return the index of the GPU type that each job names, shape (n,); -1: any."""
    index = {name: cluster.gpu_types.index(name) if name else -1 for name in set(trace.gpu_type)}
    return np.array([index[name] for name in trace.gpu_type], dtype=np.int64)


def fit_requests(
    named: Ints, asked: Ints, oversize: Bools, feasible: Bools, class_of: Ints, counts: Ints
) -> GpuRequests:
    """Return requests that fit in memory, as `Scenario.request_gpus` says.

    Parameters
    ----------
    named, asked, class_of : ndarray of int, shape (n,)
        Type index, GPUs and row of the model class of each job.
    oversize : ndarray of bool, shape (n,)
        Whether a job asks for more than it can have.
    feasible : ndarray of bool, shape (C, T, K)
        Whether a class fits on (type, count).
    counts : ndarray of int, shape (K,)
    """
    every, nowhere = np.arange(len(asked)), len(counts)
    least = _least_level(feasible)[class_of, :, np.searchsorted(counts, asked)]
    lowest = least.min(axis=1)
    level = np.where(named < 0, lowest, least[every, named])
    moved = (level == nowhere) | oversize
    wanted = np.where(moved & (lowest < nowhere) & (named >= 0), least.argmin(axis=1), named)
    wanted[moved & (lowest == nowhere)] = -1
    gpus = np.append(counts, 0)[np.where(moved, lowest, level)]
    wanted, gpus = np.where(oversize, named, wanted), np.where(oversize, 0, gpus)
    return GpuRequests(wanted, gpus, oversize | (gpus != asked) | (wanted != named))


def _least_level(feasible: Bools) -> Ints:
    """Return the least index, from each on, of a count at which a class fits, (C, T, K + 1); K: none."""
    levels = feasible.shape[-1]
    level = np.full((*feasible.shape[:2], levels + 1), levels)
    level[..., :-1] = np.where(feasible, np.arange(levels), levels)
    return np.minimum.accumulate(level[..., ::-1], axis=-1)[..., ::-1]


def make_oversize_error(trace: Trace, cluster: ClusterSpec, allowed: int, row: int, named: int) -> InputError:
    """Return the error for a job that asks for more GPUs than it can have; `allowed`: the largest count."""
    type_text = "of one type" if named < 0 else cluster.gpu_types[named]
    most = int(cluster.capacity.max() if named < 0 else cluster.capacity[named])
    read = int(trace.gpus[row])
    asked = read if trace.asked_gpus is None else int(trace.asked_gpus[row])
    rounded = f" (rounded up to {read})" * (asked != read)
    limit = f", and the scenario allows no more than {allowed} to a job" * (asked == read > allowed)
    keep = "keep counts with trace.counts=keep, " * (asked <= most)
    return InputError(
        f"job {trace.job_id[row]} asks for {asked} GPUs{rounded}, cluster "
        f"{cluster.name} has {most} {type_text}{limit * (asked <= most)}",
        file=trace.path or None,
        line=int(trace.line[row]) or None,
        field="gpus",
        remedy=f"{keep}name a larger cluster, or drop such jobs with scenario.oversize=drop",
    )
