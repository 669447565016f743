"""SCIP through PySCIPOpt, set up so that the same model gives the same answer everywhere."""

from typing import Any, NamedTuple

from clustergym.common.errors import InputError
from clustergym.scenario.placement_problem import Solution

TOLERANCE = 1e-6


class Outcome(NamedTuple):
    """What a solve ended with: `bound` and `nodes` of branch and bound; whether it ran to its end."""

    found: bool
    complete: bool
    bound: float
    nodes: int


def new_model(name: str, node_limit: int) -> Any:
    """Return an empty, silent model on one thread with a limit on nodes.

    Raises
    ------
    InputError
        If PySCIPOpt is not installed.
    """
    try:
        from pyscipopt import Model
    except ImportError as error:
        raise InputError("PySCIPOpt is not installed", remedy="pip install pyscipopt") from error
    model = Model(name)
    model.hideOutput()
    model.setParam("limits/nodes", node_limit)
    model.setParam("lp/threads", 1)
    model.setParam("parallel/maxnthreads", 1)
    return model


def optimize(model: Any) -> Outcome:
    """Solve a model; nothing about time decides."""
    model.optimize()
    complete = model.getStatus() in ("optimal", "infeasible")
    found = model.getNSols() > 0
    return Outcome(found, complete, float(model.getDualbound()), int(model.getNTotalNodes()))


def solution_of(reached: float, outcome: Outcome) -> Solution:
    """Return the report on an assignment of score `reached`; the seconds are filled in by the caller.

    Both spreads are at least 1, and so is their weighted mean: a bound where branch and bound has none.
    """
    bound = min(reached, max(1.0, outcome.bound))
    if outcome.complete and reached - bound < TOLERANCE * max(1.0, reached):
        bound = reached
    gap = (reached - bound) / reached
    return Solution(bound == reached, bound, gap, outcome.nodes, 0.0)
