"""All placement algorithms by name; each is a function `solve(instance, rng) -> Assignment`."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np

from clustergym.common.errors import InputError, nearest
from clustergym.envs.placement.instances import Assignment, Instance

Algorithm = Callable[[Instance, np.random.Generator], Assignment]

ALGORITHMS = {
    "arnold": "clustergym.policies.placement.arnold",
    "best_fit": "clustergym.policies.placement.best_fit",
    "random_fit": "clustergym.policies.placement.random_fit",
    "best_fit_by_node": "clustergym.policies.placement.best_fit_by_node",
    "random_fit_by_node": "clustergym.policies.placement.random_fit_by_node",
    "gpu_packing": "clustergym.policies.placement.gpu_packing",
    "topology_aware": "clustergym.policies.placement.topology_aware",
    "round_robin": "clustergym.policies.placement.round_robin",
}
"""Name -> module with the function `solve`; imported when first asked for."""


def algorithm(name: str) -> Algorithm:
    """Return the `solve` function of an algorithm.

    For an instance that does not fit it returns an infeasible assignment and raises nothing.

    Raises
    ------
    InputError
        For an unknown name; the message names the nearest ones.
    """
    if name not in ALGORITHMS:
        raise InputError(f"unknown placement algorithm {name!r}", remedy=nearest(name, ALGORITHMS))
    solve: Algorithm = importlib.import_module(ALGORITHMS[name]).solve
    return solve
