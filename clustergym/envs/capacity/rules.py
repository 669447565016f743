"""Rules of `Capacity` that are linear in what is seen, and the parts of it that each of them uses."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from clustergym.common.arrays import Bools, Floats
from clustergym.envs.capacity.world import ARRIVALS, ASKED, CLOCK, FEATURES, HELD, PRICE, WORK

Parts = tuple[int, ...]
_LOAD: Parts = (WORK, ASKED)
CLOCKS: Parts = tuple(range(CLOCK, CLOCK + 4))
PRICES: Parts = (PRICE, PRICE + 1)
RECENT: Parts = tuple(range(ARRIVALS, ARRIVALS + 3))
SEEN: Mapping[str, tuple[Parts, Parts]] = MappingProxyType(
    {
        "constant": ((), ()),
        "reactive": (_LOAD, (*_LOAD, HELD)),
        "reactive, clock": ((*_LOAD, *CLOCKS), (*_LOAD, HELD, *CLOCKS)),
        "reactive, prices": ((*_LOAD, *PRICES), (*_LOAD, HELD, *PRICES)),
        "reactive, clock, prices": ((*_LOAD, *CLOCKS, *PRICES), (*_LOAD, HELD, *CLOCKS, *PRICES)),
        "linear": (tuple(range(FEATURES)), tuple(range(FEATURES))),
    }
)
"""Rule -> what its targets of contracts and of on-demand GPUs depend on (`world.FEATURE_NAMES`)."""


def list_used(rule: str) -> Bools:
    """Return which weights a rule has, shape (2, 1 + FEATURES); the first column is the constant."""
    used = np.zeros((2, 1 + FEATURES), dtype=np.bool_)
    used[:, 0] = True
    for product, parts in enumerate(SEEN[rule]):
        used[product, [1 + part for part in parts]] = True
    return used


def fill(used: Bools, values: Floats) -> Floats:
    """Return weights of a rule, shape (2, 1 + FEATURES), from those that it uses, in order."""
    weights = np.zeros(used.shape)
    weights[used] = values
    return weights


_WEIGHTS = (0.2349, 0.2673, 0.2483, -0.2981, -0.0727, 0.5728, -0.7661)
REACTIVE: Mapping[int, tuple[float, ...]] = MappingProxyType({16: _WEIGHTS, 64: _WEIGHTS})
"""Weights of the rule `reactive`, by CMA-ES on training days at size 16 (benchmarks/capacity_page.py)."""
