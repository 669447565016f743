"""Pollux's genetic search against the same search gene by gene, with the same random numbers."""

import numpy as np
import pytest
from clustergym.policies.shared import genetic, genetic_compiled
from clustergym.policies.shared.gene_limits import GeneLimits
from clustergym.policies.shared.genetic import GeneticSearch, repair_genes
from hypothesis import given, settings
from hypothesis import strategies as st

GPUS = np.array([0, 1, 2, 3, 4, 8])


def cut(genes, value, capacity, first):
    """Lower the genes of one individual, in the order of `first`, until they fit."""
    genes = list(genes)
    excess = sum(GPUS[gene] for gene in genes) - capacity
    for job in first:
        if excess <= 0:
            break
        keeps = max(GPUS[genes[job]] - excess, 0)
        excess -= GPUS[genes[job]] - keeps
        genes[job] = max(gene for gene in range(6) if GPUS[gene] <= keeps and np.isfinite(value[job, gene]))
    return genes


def worth(genes, value):
    return float(value[np.arange(len(genes)), genes].sum())


def gene_by_gene(rng, size, generations, value, capacity, start, first):
    """Return the fittest individual after some generations that begin with copies of the start."""
    n = len(value)
    population = [cut(start, value, capacity, first) for _ in range(size)]
    for _ in range(generations):
        fitness = [worth(genes, value) for genes in population]
        pairs = rng.integers(0, size, (2, size, 2))
        inherits, draws, mutates = (rng.random((size, n)) for _ in range(3))
        for child in range(size):
            one, other = (a if fitness[a] >= fitness[b] else b for a, b in pairs[:, child])
            genes = []
            for job in range(n):
                allowed = np.flatnonzero(np.isfinite(value[job]))
                gene = population[one if inherits[child, job] < 0.5 else other][job]
                if mutates[child, job] < 1 / n:
                    gene = int(allowed[int(draws[child, job] * len(allowed))])
                genes.append(gene)
            population.append(cut(genes, value, capacity, first))
        population = sorted(population, key=lambda genes: -worth(genes, value))[:size]
    return population[0]


@st.composite
def searches(draw):
    rng, n = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.integers(1, 9))
    value = rng.integers(0, 9, (n, len(GPUS))) / 8
    value[rng.random(value.shape) < 0.3] = -np.inf
    value[:, 0] = 0.0
    start = np.where(np.isfinite(value[:, 2]) & (rng.random(n) < 0.5), 2, 0)
    return value, draw(st.integers(0, 3 * n)), start, rng.integers(0, 5, n).astype(np.float64)


@pytest.mark.parametrize("evolve", [genetic.evolve, genetic_compiled.evolve], ids=["numpy", "compiled"])
@settings(max_examples=60, deadline=None)
@given(searches(), st.integers(0, 99))
def test_the_search_is_that_of_gene_by_gene(evolve, drawn, seed):
    value, capacity, start, attained = drawn
    size, generations, first = 6, 5, np.argsort(-attained, kind="stable").tolist()
    search = GeneticSearch(np.random.default_rng(seed), size, generations)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(genetic, "_fastest", lambda: evolve)
        found = search.search(np.arange(len(value)), value, GPUS, capacity, start, attained)
    rng = np.random.default_rng(seed)
    assert found.tolist() == gene_by_gene(rng, size, generations, value, capacity, start, first)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 300), st.integers(0, 2**32 - 1))
def test_both_forms_evolve_the_same_population(n, seed):
    rng, size = np.random.default_rng(seed), 12
    value = rng.random((n, len(GPUS)))
    value[rng.random(value.shape) < 0.3] = -np.inf
    value[:, 0] = rng.random(n)
    genes = np.array(
        [[rng.choice(np.flatnonzero(np.isfinite(of_job))) for of_job in value] for _ in range(size)]
    )
    of_jobs = genetic._at_most(value), GPUS, int(rng.integers(0, 3 * n)), rng.permutation(n)
    limits = GeneLimits(*genetic._sort_allowed_first(value), *of_jobs)
    rest = genes, genetic._fitness(genes, value), value, limits
    plain, fast = np.random.default_rng(seed), np.random.default_rng(seed)
    of_plain, of_fast = genetic.evolve(7, plain, *rest), genetic_compiled.evolve(7, fast, *rest)
    assert all((one == other).all() for one, other in zip(of_plain, of_fast, strict=True))
    assert plain.bit_generator.state == fast.bit_generator.state


@settings(max_examples=200, deadline=None)
@given(searches(), st.integers(0, 2**32 - 1))
def test_repair_cuts_job_by_job(drawn, seed):
    value, capacity, _, attained = drawn
    rng, n = np.random.default_rng(seed), len(value)
    genes = rng.integers(0, len(GPUS), (7, n))
    genes = np.where(np.isfinite(value[np.arange(n), genes]), genes, 0)
    at_most = np.maximum.accumulate(np.where(np.isfinite(value), np.arange(len(GPUS)), 0), axis=1)
    first = np.argsort(-attained, kind="stable")
    expected = [cut(individual, value, capacity, first.tolist()) for individual in genes.tolist()]
    assert repair_genes(genes, at_most, GPUS, capacity, first).tolist() == expected
