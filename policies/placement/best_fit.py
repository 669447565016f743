"""Best fit: each communication group goes to the minipod with the fewest free nodes that suffice.

Arnold's benchmark places node by node instead: `best_fit_by_node`.
"""

from __future__ import annotations

import numpy as np

from clustergym.envs.placement.instances import Assignment, Instance

from .greedy import tightest, whole_groups_first


def solve(instance: Instance, rng: np.random.Generator | None = None) -> Assignment:
    """Place an instance; `rng` is not used."""
    return whole_groups_first(instance, tightest)
