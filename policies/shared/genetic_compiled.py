"""Compiled generations of Pollux's genetic search; they are those of the NumPy form."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_entry, compile_in_place
from clustergym.sim.compiled.sums import pairwise_sum

from .gene_limits import GeneLimits


@compile_in_place
def _cut(genome: Ints, excess: int, limits: GeneLimits) -> None:
    """Lower genes, in the order of `limits.first`, until they hold `excess` fewer GPUs."""
    gpus = limits.gpus
    for job in limits.first:
        if excess <= 0:
            return
        has = gpus[genome[job]]
        keeps = max(has - excess, 0)
        excess -= has - keeps
        level = genome[job]
        while gpus[level] > keeps:
            level -= 1
        genome[job] = limits.at_most[job, level]


@compile_in_place
def _breed(genes: Ints, fitness: Floats, order: Ints, pairs: Ints, draws: Floats, limits: GeneLimits) -> None:
    """Put children, such that they fit the capacity, in the places of those in the second half of `order`."""
    size, n = len(pairs) // 4, genes.shape[1]
    rate, gpus, number = 1.0 / n, limits.gpus, limits.number
    for child in range(size):
        one, other = order[pairs[2 * child]], order[pairs[2 * child + 1]]
        of_mother = genes[one if fitness[one] >= fitness[other] else other]
        one, other = order[pairs[2 * (size + child)]], order[pairs[2 * (size + child) + 1]]
        of_father = genes[one if fitness[one] >= fitness[other] else other]
        genome, excess = genes[order[size + child]], -limits.capacity
        for job in range(n):
            one, other = of_mother[job], of_father[job]
            gene = one if draws[0, child, job] < 0.5 else other
            if draws[2, child, job] < rate:
                gene = limits.allowed[job, int(draws[1, child, job] * number[job])]
            genome[job] = gene
            excess += gpus[gene]
        _cut(genome, excess, limits)


@compile_in_place
def _sort_fittest_first(order: Ints, fitness: Floats) -> None:
    """Put the fitter half of all first, by falling fitness; those of equal fitness keep their order."""
    # Most are in order already: the parents are, and few children are fitter than the last of them.
    last = len(order) // 2 - 1
    for at in range(1, len(order)):
        one, place = order[at], at
        if at > last:
            if fitness[order[last]] >= fitness[one]:
                continue
            order[at], place = order[last], last
        while place > 0 and fitness[order[place - 1]] < fitness[one]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = one


@compile_entry
def evolve(
    generations: int,
    rng: np.random.Generator,
    parents: Ints,
    fitness: Floats,
    value: Floats,
    limits: GeneLimits,
) -> tuple[Ints, Floats]:
    """Return a population after some generations, and its fitness: `genetic.evolve` in compiled form."""
    size, n = parents.shape
    # Children take the places of those who have not survived.
    genes, worth = np.concatenate((parents, parents)), np.concatenate((fitness, fitness))
    order, of_child = np.arange(2 * size), np.empty(n)
    for _ in range(generations):
        pairs, draws = rng.integers(0, size, 4 * size), rng.random((3, size, n))
        _breed(genes, worth, order, pairs, draws, limits)
        for child in order[size:]:
            for job in range(n):
                of_child[job] = value[job, genes[child, job]]
            worth[child] = pairwise_sum(of_child)
        _sort_fittest_first(order, worth)
    alive = order[:size]
    return genes[alive], worth[alive]
