"""Arnold: communication groups over minipods at the least weighted spread, proven optimal.

Source: Arnold's mixed-integer programme. With s_ij for group i having nodes in minipod j, y_j for minipod
j being used and p_ij the share of group i in j, minimise

    alpha * sum_j y_j + beta * T      alpha + beta = 1
    sum_j s_ij <= T                   for every group i
    sum_i p_ij <= c_j y_j             for every minipod j; c_j = free nodes / nodes of a group
    sum_j p_ij  = 1                   for every group i
    p_ij <= s_ij,  y and s binary, p in [0, 1].

alpha weighs the DP spread. With PP groups as units sum_j y_j counts for it; with DP groups T does, and
the weights change places.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np

from clustergym.common.errors import InputError
from clustergym.envs.placement.instances import Assignment, Instance

from .arnold_counts import solve_counts

NODE_LIMIT = 5_000


def solve(
    instance: Instance,
    rng: np.random.Generator | None = None,
    *,
    node_limit: int = NODE_LIMIT,
) -> Assignment:
    """Place an instance at the least score; `rng` is not used.

    Parameters
    ----------
    instance : Instance
    rng : Generator, optional
        Not used.
    node_limit : int
        A twentieth of the choices that each search may make; a limit in seconds would make results depend
        on the machine. Where it is hit, `solution.proven` is False and the best known assignment is returned.

    Raises
    ------
    InputError
        For a limit below 1.
    """
    if node_limit < 1:
        raise InputError(f"{node_limit} is not valid", field="node_limit", remedy="give a number from 1")
    if instance.shortfall:
        return Assignment.infeasible(instance)
    started = perf_counter()
    made = solve_counts(instance, node_limit)
    made.check(instance)
    assert made.solution is not None
    return replace(made, solution=replace(made.solution, solve_s=perf_counter() - started))
