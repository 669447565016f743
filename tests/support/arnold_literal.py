"""Arnold's mixed-integer programme as the paper states it, and its shares realised in whole nodes."""

import numpy as np
from clustergym.policies.placement.greedy import gpu_packing as pack
from scip_models import Outcome, new_model, optimize, solution_of

from clustergym.common.arrays import Bools, Ints
from clustergym.scenario.placement_problem import Assignment, Instance, score


def solve_literal(instance: Instance, node_limit: int) -> Assignment:
    """Solve the programme; where a limit leaves nothing, GPU packing answers, not proven.

    Rounding loses nothing: for given s and y the shares p are a transportation problem, whose supplies
    (nodes of a group) and capacities (free nodes) are whole numbers, so that some whole-number
    flow has the same support; `realise` finds it.
    """
    model, used, touches = _model(instance, node_limit)
    outcome = optimize(model)
    if not outcome.found:
        return _flagged(pack(instance), instance, outcome)
    support = np.array([[model.getVal(s) > 0.5 for s in row] for row in touches])
    support &= np.array([model.getVal(y) > 0.5 for y in used])
    counts = realise(support, instance)
    if counts is None:
        return _flagged(pack(instance), instance, outcome)
    return _flagged(Assignment(counts), instance, outcome)


def _flagged(made: Assignment, instance: Instance, outcome: Outcome) -> Assignment:
    return Assignment(made.counts, solution=solution_of(score(made, instance), outcome))


def _model(instance: Instance, node_limit: int):  # type: ignore[no-untyped-def]
    from pyscipopt import quicksum

    groups, minipods = range(instance.groups), range(instance.minipods)
    model = new_model("arnold", node_limit)
    y = [model.addVar(f"y{j}", vtype="B") for j in minipods]
    s = [[model.addVar(f"s{i}_{j}", vtype="B") for j in minipods] for i in groups]
    p = [[model.addVar(f"p{i}_{j}", lb=0.0, ub=1.0) for j in minipods] for i in groups]
    most = model.addVar("T", lb=0.0)
    for i in groups:
        model.addCons(quicksum(s[i]) <= most)
        model.addCons(quicksum(p[i]) == 1)
        for j in minipods:
            model.addCons(p[i][j] <= s[i][j])
    for j in minipods:
        room = int(instance.free_nodes[j]) / instance.group_nodes
        model.addCons(quicksum(p[i][j] for i in groups) <= room * y[j])
    model.setObjective(instance.minipod_weight * quicksum(y) + instance.group_weight * most, "minimize")
    return model, y, s


def realise(support: Bools, instance: Instance) -> Ints | None:
    """Return whole nodes of each group in each minipod inside a support, or None if there are none.

    Parameters
    ----------
    support : ndarray of bool, shape (groups, M)
    instance : Instance

    Notes
    -----
    A maximum flow from the groups over the support to the free nodes.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    groups, minipods = support.shape
    sink = groups + minipods + 1
    capacity = np.zeros((sink + 1, sink + 1), dtype=np.int32)
    capacity[0, 1 : groups + 1] = instance.group_nodes
    capacity[1 : groups + 1, groups + 1 : sink] = support * instance.group_nodes
    capacity[groups + 1 : sink, sink] = instance.free_nodes
    found = maximum_flow(csr_array(capacity), 0, sink)
    if found.flow_value < instance.job.nodes:
        return None
    flow: Ints = found.flow.toarray()[1 : groups + 1, groups + 1 : sink].astype(np.int64)
    return flow
