"""Draw job durations from mixtures of log-normals, one mixture per range of GPU counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.trace.generators.arrivals import whole_milliseconds
from clustergym.trace.generators.sources import Durations, Mixture

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

    Raises
    ------
    InputError
        If a GPU count has hardly any duration within the limits.
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
        return np.exp(np.minimum(logs, 700.0))


def _mixture(durations: Durations, gpus: int) -> Mixture:
    """Return the mixture for a GPU count; outside all ranges, that of the nearest range."""
    return min(durations.mixtures, key=lambda m: max(m.gpus[0] - gpus, gpus - m.gpus[1], 0))
