"""Pollux's genetic search for allocations on one GPU type."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from clustergym.common.arrays import Floats, Ints

from .gene_limits import GeneLimits


class GeneticSearch:
    """A genetic search for jobs' GPU counts of the greatest total value within a capacity (as Pollux).

    A gene is a job's index into the counts. In each generation, parents are chosen by tournaments of two, a
    child takes each gene from either parent, and one gene in n is drawn anew. Genes are then lowered until
    the child fits, those of the jobs with most attained service first, as in Pollux's published simulator.
    The best of parents and children stay. The next search starts from the last population.

    Parameters
    ----------
    rng : Generator
    population, generations : int
    """

    def __init__(self, rng: np.random.Generator, population: int, generations: int) -> None:
        self._rng, self._size, self._generations = rng, population, generations
        self._job = np.empty(0, dtype=np.int64)
        self._genes = np.zeros((population, 0), dtype=np.int64)

    def search(
        self, job: Ints, value: Floats, gpus: Ints, capacity: int, start: Ints, attained: Floats
    ) -> Ints:
        """Return the index of each job's GPU count, (n,), after some generations from the present, `start`.

        Parameters
        ----------
        job : ndarray of int, shape (n,)
            Identities, ascending.
        value : ndarray of float, shape (n, L)
            -inf where a job may not have a count; column 0, no GPUs, is always allowed.
        gpus : ndarray of int, shape (L,)
            Ascending from 0.
        capacity : int
        start : ndarray of int, shape (n,)
            The present genes.
        attained : ndarray of float, shape (n,)
            Service so far, in any unit.
        """
        first = np.argsort(-attained, kind="stable")
        limits = GeneLimits(*_sort_allowed_first(value), _at_most(value), gpus, capacity, first)
        genes = self._inherit_population(job, value, start)
        # The present allocation is always in the population, so that a search cannot end worse than no
        # change.
        genes[-1] = start
        genes = repair_genes(genes, limits.at_most, gpus, capacity, first)
        fitness = _fitness(genes, value)
        if len(job):
            genes, fitness = _fastest()(self._generations, self._rng, genes, fitness, value, limits)
        self._job, self._genes = job, genes
        fittest: Ints = genes[int(np.argmax(fitness))]
        return fittest

    def _inherit_population(self, job: Ints, value: Floats, start: Ints) -> Ints:
        """Return the last population with columns for the present jobs; new jobs have the start's gene."""
        genes = np.tile(start, (self._size, 1))
        both, here, there = np.intersect1d(job, self._job, assume_unique=True, return_indices=True)
        if len(both):
            genes[:, here] = self._genes[:, there]
        legal = np.isfinite(value[np.arange(len(job)), genes])
        return np.where(legal, genes, 0)


@cache
def _fastest() -> Callable[..., tuple[Ints, Floats]]:
    """Return `evolve`, compiled where Numba is installed."""
    from clustergym.sim.compiled.numba_cache import has_numba

    if not has_numba():
        return evolve
    from . import genetic_compiled

    return genetic_compiled.evolve


def evolve(
    generations: int,
    rng: np.random.Generator,
    genes: Ints,
    fitness: Floats,
    value: Floats,
    limits: GeneLimits,
) -> tuple[Ints, Floats]:
    """Return the population after some generations, the fittest first, and its fitness.

    Parameters
    ----------
    generations : int
    rng : Generator
    genes : ndarray of int, shape (size, n)
    fitness : ndarray of float, shape (size,)
    value : ndarray of float, shape (n, L)
    limits : GeneLimits
    """
    size, draws = len(genes), np.empty((3, *genes.shape))
    for _ in range(generations):
        pairs = rng.integers(0, size, (2, size, 2))
        rng.random(out=draws)
        children = breed(genes, fitness, pairs, draws, limits)
        # Parents compete with their children: the best of a generation is never lost.
        genes = np.concatenate([genes, children])
        fitness = np.concatenate([fitness, _fitness(children, value)])
        best = np.argsort(-fitness, kind="stable")[:size]
        genes, fitness = genes[best], fitness[best]
    return genes, fitness


def breed(genes: Ints, fitness: Floats, pairs: Ints, draws: Floats, limits: GeneLimits) -> Ints:
    """Return a new generation: a child of random parents for each individual, which fits the capacity.

    Parameters
    ----------
    genes : ndarray of int, shape (size, n)
    fitness : ndarray of float, shape (size,)
    pairs : ndarray of int, shape (2, size, 2)
        Of each child, two individuals of which the fitter is the mother, and two for the father.
    draws : ndarray of float, shape (3, size, n)
        From 0 to 1: whether a gene is the mother's, the number of a new one, and whether it is drawn anew.
    limits : GeneLimits
    """
    n = genes.shape[1]
    parents = np.where(fitness[pairs[..., 0]] >= fitness[pairs[..., 1]], pairs[..., 0], pairs[..., 1])
    mother, drawn, mutates = draws
    children: Ints = np.where(mother < 0.5, genes[parents[0]], genes[parents[1]])
    # Flat indices: NumPy finds the few that are true much faster in one dimension than in two.
    new = np.flatnonzero(mutates < 1.0 / n)
    job = new % n
    children.flat[new] = limits.allowed[job, (drawn.ravel()[new] * limits.number[job]).astype(np.int64)]
    return repair_genes(children, limits.at_most, limits.gpus, limits.capacity, limits.first)


def repair_genes(genes: Ints, at_most: Ints, gpus: Ints, capacity: int, first: Ints) -> Ints:
    """Lower genes (GPU count indices), jobs in the order of `first`, until individuals fit the capacity.

    Parameters
    ----------
    genes : ndarray of int, shape (individuals, n)
        Allowed ones.
    at_most, gpus, capacity, first
        As of `GeneLimits`.
    """
    excess = gpus.take(genes).sum(axis=1) - capacity
    over = np.flatnonzero(excess > 0)
    has = gpus.take(genes[over].take(first, axis=1))
    left = np.cumsum(has, axis=1) - excess[over][:, None]
    # The jobs before the excess is made up for lose all they have, and the next one a part.
    cut = np.flatnonzero(left < has)
    individual, place = np.divmod(cut, len(first)) if len(cut) else (cut, cut)
    level = np.searchsorted(gpus, np.maximum(left.ravel()[cut], 0), side="right") - 1
    fitting = genes.copy()
    fitting[over[individual], first[place]] = at_most[first[place], level]
    return fitting


def _sort_allowed_first(value: Floats) -> tuple[Ints, Ints]:
    """Return each job's indices, the allowed ones first, shape (n, L), and how many are, shape (n,)."""
    allowed = np.isfinite(value)
    return np.argsort(~allowed, axis=1, kind="stable"), allowed.sum(axis=1)


def _fitness(genes: Ints, value: Floats) -> Floats:
    jobs, levels = value.shape
    fitness: Floats = value.ravel().take(genes + np.arange(jobs) * levels).sum(axis=1)
    return fitness


def _at_most(value: Floats) -> Ints:
    """Return the largest allowed index at or below each index, shape (n, L)."""
    allowed = np.where(np.isfinite(value), np.arange(value.shape[1]), 0)
    at_most: Ints = np.maximum.accumulate(allowed, axis=1)
    return at_most
