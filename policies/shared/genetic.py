"""A genetic search for allocations on one GPU type, as Pollux has it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class GeneticSearch:
    """Maximises the summed value of jobs' counts within a capacity (Pollux, OSDI '21, section 4.2).

    A gene is a job's index into the counts. A generation: parents by tournaments of two, each gene
    from either of them, one gene in n drawn anew, and genes of random jobs lowered until the
    individual fits; the best of parents and children stay. The population goes on in the next search.

    Parameters
    ----------
    rng : Generator
    population, generations : int
    """

    def __init__(self, rng: np.random.Generator, population: int, generations: int) -> None:
        self._rng, self._size, self._generations = rng, population, generations
        self._job = np.empty(0, dtype=np.int64)
        self._genes = np.zeros((population, 0), dtype=np.int64)

    def search(self, job: Ints, value: Floats, gpus: Ints, capacity: int, start: Ints) -> Ints:
        """Return an index into the counts for each job.

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
            The genes of now.
        """
        lower = _next_lower(value)
        genes = self._inherited(job, value, start)
        genes[-1] = start
        genes = self._repaired(genes, lower, gpus, capacity)
        fitness = _fitness(genes, value)
        for _ in range(self._generations if len(job) else 0):
            children = self._repaired(self._children(genes, fitness, value), lower, gpus, capacity)
            genes = np.concatenate([genes, children])
            fitness = np.concatenate([fitness, _fitness(children, value)])
            best = np.argsort(-fitness, kind="stable")[: self._size]
            genes, fitness = genes[best], fitness[best]
        self._job, self._genes = job, genes
        fittest: Ints = genes[int(np.argmax(fitness))]
        return fittest

    def _inherited(self, job: Ints, value: Floats, start: Ints) -> Ints:
        """Return the last population for the jobs of now; a new job's gene is that of the start."""
        genes = np.tile(start, (self._size, 1))
        both, here, there = np.intersect1d(job, self._job, assume_unique=True, return_indices=True)
        if len(both):
            genes[:, here] = self._genes[:, there]
        legal = np.isfinite(value[np.arange(len(job)), genes])
        return np.where(legal, genes, 0)

    def _children(self, genes: Ints, fitness: Floats, value: Floats) -> Ints:
        size, n = genes.shape
        pairs = self._rng.integers(0, size, (2, size, 2))
        parents = np.where(fitness[pairs[..., 0]] >= fitness[pairs[..., 1]], pairs[..., 0], pairs[..., 1])
        mixed = np.where(self._rng.random((size, n)) < 0.5, genes[parents[0]], genes[parents[1]])
        legal = np.isfinite(value)
        ranked = np.argsort(~legal, axis=1, kind="stable")
        drawn = (self._rng.random((size, n)) * legal.sum(axis=1)).astype(np.int64)
        mutates = self._rng.random((size, n)) < 1.0 / n
        children: Ints = np.where(mutates, ranked[np.arange(n), drawn], mixed)
        return children

    def _repaired(self, genes: Ints, lower: Ints, gpus: Ints, capacity: int) -> Ints:
        """Lower genes of random jobs, each by one step, until every individual fits."""
        columns = np.arange(genes.shape[1])
        excess = gpus[genes].sum(axis=1) - capacity
        while (over := np.flatnonzero(excess > 0)).size:
            order = np.argsort(self._rng.random((len(over), len(columns))), axis=1)
            before = genes[over]
            after = lower[columns, before]
            saved = np.take_along_axis(gpus[before] - gpus[after], order, axis=1)
            needed = np.cumsum(saved, axis=1) - saved < excess[over, None]
            chosen = np.zeros_like(needed)
            np.put_along_axis(chosen, order, needed, axis=1)
            genes[over] = np.where(chosen, after, before)
            excess[over] = gpus[genes[over]].sum(axis=1) - capacity
        return genes


def _fitness(genes: Ints, value: Floats) -> Floats:
    fitness: Floats = value[np.arange(genes.shape[1]), genes].sum(axis=1)
    return fitness


def _next_lower(value: Floats) -> Ints:
    """Return for each job and index the next lower one it may have, shape (n, L); 0 for 0."""
    levels = np.arange(value.shape[1])
    allowed = np.where(np.isfinite(value), levels, 0)
    at_most = np.maximum.accumulate(allowed, axis=1)
    return np.concatenate([np.zeros((len(value), 1), dtype=np.int64), at_most[:, :-1]], axis=1)
