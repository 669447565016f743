"""Draw how large each job is: its GPU count, its virtual cluster and its duration.

Draw the GPU type each job asks for, in proportion to capacity among the types it fits on.

Draw job durations from mixtures of log-normals, one mixture per range of GPU counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import round_up_counts
from clustergym.common.errors import InputError
from clustergym.trace.draw import RULES, ReferenceTimes
from clustergym.trace.generators.arrivals import whole_milliseconds
from clustergym.trace.generators.sources import Durations, Mixture, Source
from clustergym.trace.options import ReferenceTime

ARENA_SHARES: Mapping[int, float] = {1: 100, 2: 286, 4: 717, 8: 644, 16: 191}
"""Requests of the 1,938 jobs of Arena's published Philly trace, by GPU count (simulate_trace_philly.csv)."""

PRETRAINING_SHARES: Mapping[int, float] = {64: 16, 128: 8, 256: 4, 512: 2, 1024: 1}
"""Requests of pre-training jobs: as many GPUs in all for each power of two (assumed, for want of a trace)."""


def draw_gpus(
    shares: Mapping[int, float],
    jobs: int,
    seed: int,
    max_gpus: int | None = None,
    power_of_two: bool = False,
    stream: random_streams.RandomStream = random_streams.JOB_SIZES,
) -> Ints:
    """Sample the GPU count of each job at random by given shares, shape (jobs,).

    Parameters
    ----------
    shares : mapping
        GPU count -> share of the jobs (relative).
    jobs, seed : int
    max_gpus : int, optional
        Draws from the shares given that a count is at most this.
    power_of_two : bool
        Whether the limit holds for the count rounded up to a power of two.
    stream : RandomStream
    """
    counts = np.array(sorted(shares), dtype=np.int64)
    weights = np.array([shares[count] for count in counts.tolist()], dtype=np.float64)
    if max_gpus is not None:
        # Counts too large are not drawn again but left out beforehand: the shares of the others stay in
        # proportion.
        weights = weights * ((round_up_counts(counts) if power_of_two else counts) <= max_gpus)
    if weights.sum() <= 0:
        message = f"no job of this source asks for {max_gpus} GPUs or fewer"
        raise InputError(message, field="max_gpus", remedy=f"give at least {counts.min()}")
    chance = stream.generator(seed).random(jobs)
    return counts[_pick(weights, chance)]


def draw_virtual_clusters(source: Source, gpus: Ints, seed: int) -> list[str]:
    """Sample each job's virtual cluster (a team's part of a cluster) by GPU count; empty texts if none."""
    if not source.virtual_clusters:
        return [""] * len(gpus)
    chance = random_streams.VIRTUAL_CLUSTERS.generator(seed).random(len(gpus))
    picked, names = np.empty(len(gpus), dtype=np.int64), list(source.virtual_clusters)
    for count in set(gpus.tolist()):
        rows = gpus == count
        picked[rows] = _pick(source.virtual_cluster_weights(count), chance[rows])
    return [names[pick] for pick in picked.tolist()]


def draw_tenants(shares: Mapping[str, float], jobs: int, seed: int) -> list[str]:
    """Sample the name of a tenant for each job at random, given each tenant's share of the jobs."""
    chance = random_streams.VIRTUAL_CLUSTERS.generator(seed).random(jobs)
    names, weights = list(shares), np.array(list(shares.values()), dtype=np.float64)
    return [names[pick] for pick in _pick(weights, chance).tolist()]


def _pick(weights: Floats, chance: Floats) -> Ints:
    area = np.cumsum(weights)
    # Never a value of weight 0: `right` passes over it, and the last of positive weight catches a chance that
    # rounding puts at the end.
    index = np.searchsorted(area, chance * area[-1], side="right")
    return np.asarray(np.minimum(index, np.flatnonzero(weights)[-1]), dtype=np.int64)


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
    """Sample for each job one of the GPU types that can run it, in proportion to their numbers of GPUs.

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
    """
    chance = random_streams.GPU_TYPES.generator(seed).random(len(gpus))
    pairs = list(zip(RULES[rule].stratum(gpu_s).tolist(), gpus.tolist(), strict=True))
    asked = sorted(set(pairs))
    if isinstance(time_s, ReferenceTimes):
        time_s.prepare_rule(RULES[rule], asked)
    fitting = {pair: _fitting(cluster, tuple(names), rule, *pair, time_s) for pair in asked}
    drawn = []
    for pair, share in zip(pairs, chance.tolist(), strict=True):
        types, area = fitting[pair]
        drawn.append(types[bisect_right(area, share * area[-1])])
    return drawn


@lru_cache(maxsize=1024)
def _fitting(
    cluster: ClusterSpec, names: tuple[str, ...], rule: str, stratum: int, gpus: int, time_s: ReferenceTime
) -> tuple[list[str], list[int]]:
    """Return the types that fit, and the cumulative sum of their capacities."""
    capacity = dict(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))
    large = [gpu_type for gpu_type in names if capacity[gpu_type] >= gpus]
    for tier in RULES[rule].tiers(stratum, gpus):
        types = [
            gpu_type
            for gpu_type in large
            if any(np.isfinite(time_s(model, gpu_type, gpus)) for model, _ in tier)
        ]
        if types:
            return types, list(accumulate(capacity[gpu_type] for gpu_type in types))
    message = f"no model of rule {rule!r} fits on {gpus} GPUs of {' or '.join(names)} of {cluster.name}"
    raise InputError(message, field="gpus", remedy="set max_gpus, or choose another rule or cluster")


MOST_ROUNDS = 2000


def draw_durations(
    durations: Durations, gpus: Ints, seed: int, min_s: float | None = None, max_s: float | None = None
) -> Floats:
    """Generate a random duration for each job in seconds, in whole milliseconds, shape (n,).

    Durations outside the limits are drawn again, so they follow the source's distribution given
    that they lie within.

    Parameters
    ----------
    durations : Durations
    gpus : ndarray of int, shape (n,)
    seed : int
    min_s, max_s : float, optional
        Limits besides the source's own.
    """
    low, high = max(durations.min_s, min_s or 0.0), min(durations.max_s, max_s or np.inf)
    if low > high:
        message = f"no duration is at least {low:.6g} s and at most {high:.6g} s"
        raise InputError(message, field="max_duration_s", remedy="widen the limits")
    counts, group = np.unique(gpus, return_inverse=True)
    mixtures = _Mixtures.from_durations(durations, counts)
    drawn = np.zeros(len(gpus))
    left = np.arange(len(gpus))
    for attempt in range(MOST_ROUNDS):
        # A stream for each attempt: which jobs are drawn again does not shift what the others get.
        rng = random_streams.DURATIONS.generator(seed, attempt)
        drawn[left] = whole_milliseconds(mixtures.draw(group[left], rng))
        left = left[(drawn[left] < low) | (drawn[left] > high)]
        if not len(left):
            return drawn
    message = f"jobs of {gpus[left[0]]} GPUs hardly ever run {low:.6g} to {high:.6g} s"
    raise InputError(message, field="max_duration_s", remedy="widen the limits")


class _Mixtures(NamedTuple):
    """The mixtures of G distinct GPU counts with at most M components.

    Attributes
    ----------
    until : ndarray of float, shape (G, M)
        Cumulative weights; inf after the last component.
    total, last : ndarray, shape (G,)
        Sum of the weights, and index of the last component.
    ln_mean, ln_sigma : ndarray of float, shape (G, M)
    """

    until: Floats
    total: Floats
    last: Ints
    ln_mean: Floats
    ln_sigma: Floats

    @classmethod
    def from_durations(cls, durations: Durations, counts: Ints) -> _Mixtures:
        mixtures = [_mixture(durations, count) for count in counts.tolist()]
        last = np.array([len(mixture.components) - 1 for mixture in mixtures])
        until, mean, sigma = np.full((3, len(mixtures), int(last.max(initial=0)) + 1), np.inf)
        for row, (mixture, count) in enumerate(zip(mixtures, counts.tolist(), strict=True)):
            parts, slope = mixture.components, mixture.ln_slope * np.log2(count)
            until[row, : len(parts)] = np.cumsum([part.weight for part in parts])
            mean[row, : len(parts)] = [part.ln_mean + slope for part in parts]
            sigma[row, : len(parts)] = [part.ln_sigma for part in parts]
        return cls(until, until[np.arange(len(last)), last], last, mean, sigma)

    def draw(self, group: Ints, rng: np.random.Generator) -> Floats:
        """Generate random durations from the mixtures with the given row numbers."""
        chance, normal = rng.random(len(group)), rng.standard_normal(len(group))
        passed = (self.until[group] <= (chance * self.total[group])[:, None]).sum(axis=1)
        cell = group, np.minimum(passed, self.last[group])
        logs: Floats = self.ln_mean[cell] + self.ln_sigma[cell] * normal
        # exp(709) is the last below infinity; so long a duration is drawn again in any case.
        return np.exp(np.minimum(logs, 700.0))


def _mixture(durations: Durations, gpus: int) -> Mixture:
    """Return the mixture for a GPU count; outside all ranges, that of the nearest range."""
    return min(durations.mixtures, key=lambda m: max(m.gpus[0] - gpus, gpus - m.gpus[1], 0))
