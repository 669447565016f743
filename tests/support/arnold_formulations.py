"""Arnold's problem in three formulations, which check one another."""

from dataclasses import replace
from time import perf_counter

from arnold_literal import solve_literal
from arnold_patterns import solve_patterns
from clustergym.policies.placement.arnold import NODE_LIMIT, solve_counts

from clustergym.scenario.placement_problem import Assignment, Instance

METHODS = {"counts": solve_counts, "patterns": solve_patterns, "literal": solve_literal}
"""What the placer uses; the whole problem by counts of patterns, and as the paper states it, both by SCIP."""


def solve(
    instance: Instance, rng: object = None, *, method: str = "counts", node_limit: int = NODE_LIMIT
) -> Assignment:
    """Solve an instance by one of `METHODS`, within so many nodes of branch and bound."""
    if instance.shortfall:
        return Assignment.infeasible(instance)
    started = perf_counter()
    made = METHODS[method](instance, node_limit)
    made.check(instance)
    assert made.solution is not None
    return replace(made, solution=replace(made.solution, solve_s=perf_counter() - started))
