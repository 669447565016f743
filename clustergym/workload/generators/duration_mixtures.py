"""Draw job durations from mixtures of log-normals, one mixture per range of GPU counts."""

from __future__ import annotations

import numpy as np

from clustergym.arrays import Floats, Ints
from clustergym.inputs.errors import InputError
from clustergym.workload.generators.arrivals import whole_milliseconds
from clustergym.workload.generators.sources import Durations, Mixture

DURATIONS = 120
"""Number of the random stream used here; every purpose of a generator has its own."""
MOST_ROUNDS = 2000


def draw_durations(
    durations: Durations, gpus: Ints, seed: int, min_s: float | None = None, max_s: float | None = None
) -> Floats:
    """Draw the duration of each job, seconds rounded to whole milliseconds, shape (n,).

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
    drawn = np.zeros(len(gpus))
    left = np.arange(len(gpus))
    for attempt in range(MOST_ROUNDS):
        rng = np.random.default_rng([seed, DURATIONS, attempt])
        drawn[left] = whole_milliseconds(_draw(durations, gpus[left], rng))
        left = left[(drawn[left] < low) | (drawn[left] > high)]
        if not len(left):
            return drawn
    message = f"jobs of {gpus[left[0]]} GPUs hardly ever run {low:.6g} to {high:.6g} s"
    raise InputError(message, field="max_duration_s", remedy="widen the limits")


def _draw(durations: Durations, gpus: Ints, rng: np.random.Generator) -> Floats:
    chance, normal = rng.random(len(gpus)), rng.standard_normal(len(gpus))
    logs = np.zeros(len(gpus))
    for count in np.unique(gpus).tolist():
        mixture, rows = _mixture(durations, count), gpus == count
        weights = np.cumsum([component.weight for component in mixture.components])
        last = len(weights) - 1
        index = np.minimum(np.searchsorted(weights, chance[rows] * weights[-1], side="right"), last)
        mean = np.array([component.ln_mean for component in mixture.components])
        sigma = np.array([component.ln_sigma for component in mixture.components])
        logs[rows] = mean[index] + mixture.ln_slope * np.log2(count) + sigma[index] * normal[rows]
    return np.exp(np.minimum(logs, 700.0))


def _mixture(durations: Durations, gpus: int) -> Mixture:
    """Return the mixture for a GPU count; outside all ranges, that of the nearest range."""
    return min(durations.mixtures, key=lambda m: max(m.gpus[0] - gpus, gpus - m.gpus[1], 0))
