"""Compiled generation of Pollux's genetic search; it makes the same children as the NumPy form."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry, compile_part


@compile_part
def _cut(genome: Ints, excess: int, at_most: Ints, gpus: Ints, first: Ints) -> None:
    """Lower genes, in the order of `first`, until they hold `excess` fewer GPUs."""
    for job in first:
        if excess <= 0:
            return
        has = gpus[genome[job]]
        keeps = max(has - excess, 0)
        excess -= has - keeps
        level = genome[job]
        while gpus[level] > keeps:
            level -= 1
        genome[job] = at_most[job, level]


@compile_entry
def breed(
    genes: Ints,
    fitness: Floats,
    pairs: Ints,
    draws: Floats,
    allowed: Ints,
    number: Ints,
    at_most: Ints,
    gpus: Ints,
    capacity: int,
    first: Ints,
) -> Ints:
    """Return a new generation as `genetic.breed` does, in compiled code."""
    size, n = genes.shape
    children = np.empty_like(genes)
    for child in range(size):
        mother, father = pairs[0, child, 0], pairs[1, child, 0]
        if fitness[mother] < fitness[pairs[0, child, 1]]:
            mother = pairs[0, child, 1]
        if fitness[father] < fitness[pairs[1, child, 1]]:
            father = pairs[1, child, 1]
        excess, genome = -capacity, children[child]
        of_mother, of_father = genes[mother], genes[father]
        inherits, drawn, mutates = draws[0, child], draws[1, child], draws[2, child]
        for job in range(n):
            one, other = of_mother[job], of_father[job]
            genome[job] = one if inherits[job] < 0.5 else other
        for job in range(n):
            if mutates[job] < 1.0 / n:
                genome[job] = allowed[job, int(drawn[job] * number[job])]
        for job in range(n):
            excess += gpus[genome[job]]
        _cut(genome, excess, at_most, gpus, first)
    return children
