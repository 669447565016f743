"""Arnold's optimum by another programme, without the problem's symmetry: how many groups are split how.

Groups are interchangeable, so that an assignment is given by how many of them are split into the parts
of each pattern (a partition of the nodes of a group), and how many parts of each size each minipod
gives. Minipods are interchangeable up to their free nodes: putting a minipod with more free
nodes in the place of a used one keeps every group as it is, so that the k roomiest minipods are
used, for some k.
"""

from collections.abc import Iterator

import numpy as np
from clustergym.policies.placement.greedy import gpu_packing as pack

from clustergym.scenario.placement_problem import Instance

Pattern = tuple[int, ...]


def partitions(size: int, most: int, largest: int | None = None) -> Iterator[Pattern]:
    """Yield the partitions of `size` into at most `most` parts, each at most `largest`, descending."""
    if size == 0:
        yield ()
        return
    if most == 0:
        return
    top = size if largest is None else min(size, largest)
    for part in range(top, (size - 1) // most, -1):
        for rest in partitions(size - part, most - 1, part):
            yield (part, *rest)


def least_score(instance: Instance) -> float:
    """Return the optimum of an instance that fits: SCIP over minipods used (y) and the longest pattern (T).

    Packing reaches the fewest minipods there can be, so that no optimum has a longer T than it.
    """
    from pyscipopt import Model, quicksum

    free = np.sort(instance.free_nodes)[::-1].tolist()
    longest = int((pack(instance).counts > 0).sum(axis=1).max())
    size, groups = instance.group_nodes, instance.groups
    patterns = list(partitions(size, longest))
    model = Model("arnold-patterns")
    model.hideOutput()
    times = [model.addVar(f"u{k}", vtype="I", lb=0, ub=groups) for k in range(len(patterns))]
    given = [
        {
            part: model.addVar(f"z{j}_{part}", vtype="I", lb=0, ub=room // part)
            for part in range(1, min(size, room) + 1)
        }
        for j, room in enumerate(free)
    ]
    model.addCons(quicksum(times) == groups)
    for part in range(1, size + 1):
        needed = quicksum(
            pattern.count(part) * u for pattern, u in zip(patterns, times, strict=True) if part in pattern
        )
        model.addCons(quicksum(sizes[part] for sizes in given if part in sizes) >= needed)
    used = [model.addVar(f"y{j}", vtype="B") for j in range(len(free))]
    for j, room in enumerate(free):
        if j:
            model.addCons(used[j] <= used[j - 1])
        model.addCons(quicksum(part * z for part, z in given[j].items()) <= room * used[j])
    model.addCons(quicksum(room * y for room, y in zip(free, used, strict=True)) >= instance.job.nodes)
    longer = [model.addVar(f"t{k}", vtype="B") for k in range(2, longest + 1)]
    for k, t in enumerate(longer, start=2):
        of_length = [u for p, u in zip(patterns, times, strict=True) if len(p) == k]
        model.addCons(quicksum(of_length) <= groups * t)
        if k > 2:
            model.addCons(t <= longer[k - 3])
    objective = instance.minipod_weight * quicksum(used) + instance.group_weight * (1 + quicksum(longer))
    model.setObjective(objective, "minimize")
    model.optimize()
    assert model.getStatus() == "optimal"
    return float(model.getObjVal())
