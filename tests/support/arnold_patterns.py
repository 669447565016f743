"""Arnold's problem without its symmetry: how many groups are split how, not which.

Groups are interchangeable, so that an assignment is given by how many of them are split into the parts
of each pattern (a partition of the nodes of a group), and how many parts of each size each minipod
gives. Minipods are interchangeable up to their free nodes: putting a minipod with more free
nodes in the place of a used one keeps every group as it is, so that the k roomiest minipods are
used, for some k.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from clustergym.policies.placement.greedy import gpu_packing as pack
from scip_models import Outcome, new_model, optimize, solution_of

from clustergym.common.arrays import Ints
from clustergym.scenario.placement_problem import Assignment, Instance, score

MOST_PATTERNS = 400
"""With more the programme is not built, and packing answers, not proven."""

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


def patterns_up_to(size: int, most: int) -> list[Pattern] | None:
    """Return the partitions of `size` into at most `most` parts; None if there are too many."""
    found: list[Pattern] = []
    for pattern in partitions(size, most):
        if len(found) == MOST_PATTERNS:
            return None
        found.append(pattern)
    return found


class Programme(NamedTuple):
    """A model and its variables.

    Attributes
    ----------
    model : pyscipopt.Model
    patterns : list of tuple of int
    times : list of variable
        Groups split by each pattern.
    given : list of dict
        For each minipod: size -> variable, parts of that size it gives.
    """

    model: Any
    patterns: list[Pattern]
    times: list[Any]
    given: list[dict[int, Any]]

    def counts(self, groups: int) -> Ints:
        """Return the nodes of each group in each minipod of the best solution, shape (groups, minipods)."""
        stock: dict[int, list[int]] = {}
        for minipod, sizes in enumerate(self.given):
            for size, variable in sizes.items():
                stock.setdefault(size, []).extend([minipod] * round(self.model.getVal(variable)))
        counts = np.zeros((groups, len(self.given)), dtype=np.int64)
        group = 0
        for pattern, variable in zip(self.patterns, self.times, strict=True):
            for _ in range(round(self.model.getVal(variable))):
                for size in pattern:
                    counts[group, stock[size].pop()] += size
                group += 1
        return counts


def programme(
    free: Sequence[int], groups: int, size: int, patterns: list[Pattern], node_limit: int
) -> Programme:
    """Return the programme in which every group is split by a pattern; it has no objective yet.

    Parameters
    ----------
    free : sequence of int
        Free nodes of each minipod.
    groups, size : int
        Groups and nodes of each.
    patterns : list of tuple of int
    node_limit : int
    """
    from pyscipopt import quicksum

    model = new_model("arnold-patterns", node_limit)
    times = [model.addVar(f"u{k}", vtype="I", lb=0, ub=groups) for k in range(len(patterns))]
    given = [
        {
            part: model.addVar(f"z{j}_{part}", vtype="I", lb=0, ub=room // part)
            for part in range(1, min(size, room) + 1)
        }
        for j, room in enumerate(free)
    ]
    model.addCons(quicksum(times) == groups)
    for j, room in enumerate(free):
        model.addCons(quicksum(part * z for part, z in given[j].items()) <= room)
    for part in range(1, size + 1):
        needed = quicksum(
            pattern.count(part) * u for pattern, u in zip(patterns, times, strict=True) if part in pattern
        )
        model.addCons(quicksum(sizes[part] for sizes in given if part in sizes) >= needed)
    return Programme(model, patterns, times, given)


def solve_patterns(instance: Instance, node_limit: int) -> Assignment:
    """Solve an instance as one programme over minipods used (y) and the longest pattern used (T).

    Where a limit leaves nothing, GPU packing answers, not proven.
    """
    order = np.argsort(-instance.free_nodes, kind="stable")
    free = instance.free_nodes[order]
    incumbent = pack(instance)
    longest = int((incumbent.counts > 0).sum(axis=1).max())
    patterns = patterns_up_to(instance.group_nodes, longest)
    if patterns is None:
        return _answer(incumbent, instance, Outcome(False, False, 1.0, 0))
    built = programme(free.tolist(), instance.groups, instance.group_nodes, patterns, node_limit)
    _weigh(built, instance, free, longest)
    outcome = optimize(built.model)
    if not outcome.found:
        return _answer(incumbent, instance, outcome)
    counts = np.zeros((instance.groups, instance.minipods), dtype=np.int64)
    counts[:, order] = built.counts(instance.groups)
    return _answer(Assignment(counts), instance, outcome)


def _answer(made: Assignment, instance: Instance, outcome: Outcome) -> Assignment:
    return Assignment(made.counts, solution=solution_of(score(made, instance), outcome))


def _weigh(built: Programme, instance: Instance, free: Ints, longest: int) -> None:
    """Add minipods used and T, and their weighted sum as the objective.

    Packing reaches the fewest minipods there can be, so that no optimum has a longer T than it.
    """
    from pyscipopt import quicksum

    model, groups = built.model, instance.groups
    used = [model.addVar(f"y{j}", vtype="B") for j in range(len(free))]
    for j, room in enumerate(free.tolist()):
        if j:
            model.addCons(used[j] <= used[j - 1])
        parts = built.given[j].items()
        model.addCons(quicksum(part * z for part, z in parts) <= room * used[j])
    model.addCons(quicksum(int(room) * y for room, y in zip(free, used, strict=True)) >= instance.job.nodes)
    longer = [model.addVar(f"t{k}", vtype="B") for k in range(2, longest + 1)]
    for k, t in enumerate(longer, start=2):
        of_length = [u for p, u in zip(built.patterns, built.times, strict=True) if len(p) == k]
        model.addCons(quicksum(of_length) <= groups * t)
        if k > 2:
            model.addCons(t <= longer[k - 3])
    objective = instance.minipod_weight * quicksum(used) + instance.group_weight * (1 + quicksum(longer))
    model.setObjective(objective, "minimize")
