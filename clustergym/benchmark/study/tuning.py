"""Tune a policy: draw 20 settings from its ranges, and keep the best on two train cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from clustergym.benchmark.study.stability import measure_cells
from clustergym.common import random_streams
from clustergym.common.errors import InputError

SETTINGS = 20
TRAIN_SEEDS = (0, 1)


@dataclass(frozen=True)
class ParameterRange:
    """The range of values from which a policy's parameter is sampled.

    Attributes
    ----------
    low, high : float
        Both inclusive.
    logarithmic : bool
        Whether values are drawn evenly by their logarithm.
    whole : bool
        Whether values are whole numbers.
    source : str
        Who publishes the range.
    """

    low: float
    high: float
    logarithmic: bool = False
    whole: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.logarithmic and self.low <= 0):
            message = f"{self.low:g} to {self.high:g} is no range"
            raise InputError(message, field="ranges", remedy="give low <= high, above 0 if logarithmic")

    def value(self, chance: float) -> float | int:
        """Return the parameter's value at a quantile of the range, from 0 to 1."""
        if self.whole:
            if self.logarithmic:
                return round(self._between(chance))
            return math.floor(self.low + chance * (self.high - self.low + 1))
        return float(f"{self._between(chance):.6g}")

    def _between(self, chance: float) -> float:
        if self.logarithmic:
            return math.exp(math.log(self.low) + chance * (math.log(self.high) - math.log(self.low)))
        return self.low + chance * (self.high - self.low)


Setting = tuple[tuple[str, float | int], ...]
"""Values of parameters by name."""


def draw_settings(
    ranges: Mapping[str, ParameterRange], number: int = SETTINGS, seed: int = 0
) -> list[Setting]:
    """Sample parameter settings at random from ranges; equal ranges and seeds give equal settings."""
    if not ranges or number < 1:
        raise InputError("nothing to draw", field="ranges", remedy="give a range, and at least one setting")
    chance = random_streams.TUNED_SETTINGS.generator(seed).random((number, len(ranges)))
    return [
        tuple((name, one.value(float(at))) for (name, one), at in zip(ranges.items(), row, strict=True))
        for row in chance
    ]


def choose_tuned(
    policy: str,
    ranges: Mapping[str, ParameterRange],
    overrides: Sequence[str],
    seeds: Sequence[int] = TRAIN_SEEDS,
    number: int = SETTINGS,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[str, list[tuple[str, float]]]:
    """Try random settings of a policy; return the one with the least mean JCT, and all with their JCTs (s).

    The policy with its own defaults is tried first, and stays where no setting is better.

    Parameters
    ----------
    policy : str
    ranges : mapping of str to ParameterRange
        By parameter of the policy.
    overrides : sequence of str
        Words of the configuration of the train cells.
    seeds : sequence of int
        A cell each.
    number : int
        Settings that are drawn.
    tell : callable
        Called with a text on each trial and its mean JCT.

    Returns
    -------
    str, list of (str, float)
        As `measure_cells` takes it, `NAME KEY=VALUE …`; each that was tried with its mean JCT over cells, s.
    """
    words = [policy]
    words += [
        " ".join([policy, *(f"{key}={value}" for key, value in setting)])
        for setting in draw_settings(ranges, number)
    ]
    tried = []
    for word in dict.fromkeys(words):
        jct_s = float(np.mean([each for _, _, each in measure_cells(overrides, None, [word], seeds)]))
        tell(f"{word}: {jct_s:.6g} s")
        tried.append((word, jct_s))
    return min(tried, key=lambda one: one[1])[0], tried
