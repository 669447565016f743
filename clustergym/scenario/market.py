"""Prices of rented GPUs over time: steps in ticks, drawn ones, and what they add up to."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.parameter_types import AtLeastOne, Fraction, FractionBelowOne, NonNegativeFloat
from clustergym.common.parameters import Parameters
from clustergym.scenario.clock import TICKS_PER_S

HOUR = 3600 * TICKS_PER_S
Steps = tuple[tuple[int, float], ...]
"""(tick, value) from which on the value holds; ascending, the first at tick 0."""


@dataclass(frozen=True)
class PriceProcess(Parameters):
    """How a price is drawn anew each hour around its mean: a daily wave, noise that fades, and spells.

    Attributes
    ----------
    wave : float
        USD by which the wave of a day exceeds the mean price, at `peak_h` o'clock.
    keep, noise : float
        The logarithm of the factor of an hour is `keep` times that of the hour before, plus a normal draw
        of this standard deviation.
    spell, begin, end : float
        Factor in spells of scarcity, and the chances of an hour that one begins and that it ends.
    """

    config_key = "scenario.capacity.products.process"

    wave: NonNegativeFloat = 0.0
    peak_h: NonNegativeFloat = 14.0
    keep: FractionBelowOne = 0.0
    noise: NonNegativeFloat = 0.0
    spell: AtLeastOne = 1.0
    begin: Fraction = 0.0
    end: Fraction = 1.0


def draw_prices(
    rng: np.random.Generator,
    prices: Floats,
    mean: float,
    wave: float,
    peak_h: float,
    keep: float,
    noise: float,
    spell: float,
    begin: float,
    end: float,
) -> None:
    """Draw the prices of consecutive hours from midnight into `prices`, shape (hours,); see `PriceProcess`.

    Compiled by environments, which draw the prices of every episode with it.
    """
    level, scarce = 0.0, False
    for hour in range(len(prices)):
        level = keep * level + noise * rng.standard_normal()
        luck = rng.random()
        scarce = luck >= end if scarce else luck < begin
        base = mean + wave * math.cos(2.0 * math.pi * (hour - peak_h) / 24.0)
        prices[hour] = base * math.exp(level) * (spell if scarce else 1.0)


def find_value(steps: Sequence[tuple[int, float]], tick: int) -> float:
    """Return the value of a step function at a tick."""
    return steps[bisect_right(steps, (tick, math.inf)) - 1][1]


def accrue(prices: Steps, at: Ints) -> Floats:
    """Return the USD for holding a GPU from tick 0 to each of some ticks, at a price per GPU-hour."""
    starts = np.array([start for start, _ in prices], dtype=np.int64)
    values = np.array([price for _, price in prices], dtype=np.float64)
    before = np.concatenate([[0.0], np.cumsum(values[:-1] * np.diff(starts))])
    step = np.searchsorted(starts, at, "right") - 1
    owed: Floats = (before[step] + values[step] * (at - starts[step])) / HOUR
    return owed
