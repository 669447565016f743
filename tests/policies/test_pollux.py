"""Pollux's fitness, speed model and searches, on cases solved by hand and against brute force."""

import itertools

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.pollux import Pollux, fit_time_s, goodput_of_share
from clustergym.policies.shared.gene_limits import GeneLimits
from clustergym.policies.shared.genetic import GeneticSearch, _sort_allowed_first, breed, repair_genes
from clustergym.policies.shared.goodput import restart_factor
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import Job, allotments, small_scenario

from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.engine import Simulation

LINEAR = {"m": {"X": {1: 8.0, 2: 4.0, 4: 2.0}, "Y": {1: 16.0, 2: 8.0, 4: 4.0}}}


def policy_of(simulation, **parameters):
    policy = Pollux(**parameters)
    policy.reset(simulation.setting, np.random.default_rng([0, 1]))
    return policy


def simulation_of(jobs, groups, times=LINEAR):
    scenario = small_scenario(jobs, groups, times, rounds=60.0)
    return Simulation(scenario, Buddy(defragment_s=None), InformationClass.BOOTSTRAP)


def test_the_speed_model_by_hand():
    # a + b / N with sync c + d (N - 2) inside a node of 4: b = 8 from one GPU; 2 GPUs take 5 = 4 + 1,
    # so c = 1; 4 GPUs 4 = 2 + 1 + 2 d, so d = 0.5. Across nodes nothing is known: 8 / 8 and no sync.
    counts = np.array([1, 2, 4, 8])
    times = np.array([8.0, 5.0, 4.0, np.inf])
    fitted = fit_time_s(counts, 4, np.array([True, True, True, False]), times)
    assert fitted[:3].tolist() == [8.0, 5.0, 4.0]
    assert fitted[3] == pytest.approx(1.0, rel=1e-3)
    # One observation: perfect scaling. Two: the synchronisation of 2 GPUs stays on 4.
    alone = fit_time_s(counts, 8, np.array([True, False, False, False]), times)
    assert alone == pytest.approx([8, 4, 2, 1], rel=1e-3)
    two = fit_time_s(counts, 8, np.array([True, True, False, False]), times)
    assert two == pytest.approx([8, 5, 3, 2], rel=1e-3)


def test_what_a_job_did_and_its_first_profile_are_fitted():
    # 10 s on one GPU by the profile, and 7 s measured on two: a + b / N has b = 10 and c = 2 of
    # synchronisation, so 10 / 4 + 2 on four. By the measured time alone it would be 14, 7, 3.5.
    times = {"m": {"X": {1: 10.0, 2: 7.0, 4: 6.0}}}
    simulation = simulation_of([Job("a", 0, 1000)], {"X": (1, 4)}, times)
    policy, view = policy_of(simulation, search="exact"), simulation.advance()
    first = Decision.of([(0, 0, 2)])
    policy._speeds.observe(view)
    policy._speeds.record_decision(view, first)
    simulation.apply(first)
    view = simulation.advance()
    policy._speeds.observe(view)
    prior = np.array([[[10.0, 10.0, 10.0]]])
    assert policy._fit_times(view, prior)[0, 0] == pytest.approx([10.0, 7.0, 4.5], rel=1e-3)


def test_the_fair_share_is_rounded_up():
    # Two jobs on 5 X: a share of 3 each. a has 1, 2, 4 on 1, 2, 4 GPUs, so 3 on 3; b 1, 1.6, 1.6, so
    # 1.6. With p = -1: 4 + 1 costs 3/4 + 1.6 = 2.35, 2 + 2 costs 3/2 + 1 = 2.5. Shares of 2 would turn
    # that: 2/4 + 1.6 = 2.1 and 1 + 1 = 2.
    counts, good = np.array([1, 2, 4]), np.array([[1.0, 2.0, 4.0], [1.0, 1.6, 1.6]])
    assert goodput_of_share(counts, good, 3).tolist() == pytest.approx([3.0, 1.6])
    simulation = simulation_of([Job("a", 0, 1000), Job("b", 0, 1000)], {"X": (1, 5)})
    view = simulation.advance()
    policy = policy_of(simulation, search="exact")
    assert policy._on_type(view, 0, np.arange(2), good, good).tolist() == [4, 1]
    # Below the least count that fits a job's share is that least count; beyond the last it is the last.
    assert goodput_of_share(counts, np.array([[0.0, 0.0, 3.0]]), 1).tolist() == [3.0]
    assert goodput_of_share(counts, good, 64).tolist() == [4.0, 1.6]


@pytest.mark.parametrize(("restart_s", "started", "factor"), [(30.0, 60 / 90, 30 / 90), (0.0, 1.0, 1.0)])
def test_waiting_jobs_have_the_restart_factor_too(restart_s, started, factor):
    # At 60 both are 60 s old. b never ran: 60 / (60 + 30) everywhere. a was moved from 1 to 2 X once, at
    # 30: (60 - 30) / (60 + 30) on all but what it holds.
    scenario = small_scenario([Job("a", 0, 1000), Job("b", 0, 1000)], {"X": (1, 4)}, LINEAR, rounds=30.0)
    simulation = Simulation(scenario, Buddy(defragment_s=None), InformationClass.BOOTSTRAP)
    for gpus in (1, 2):
        simulation.advance()
        simulation.apply(Decision.of([(0, 0, gpus)]))
    found = restart_factor(simulation.advance(), waiting=True, each_s=restart_s)
    assert found[0, 0].tolist() == pytest.approx([factor, 1.0, factor])
    assert found[1, 0].tolist() == pytest.approx([started] * 3)


def test_it_may_go_below_the_request_unless_told_otherwise():
    # Two jobs ask for 2 of 3 X. Each gets what it can; with the request as floor only one runs, on 2.
    simulation = simulation_of([Job("a", 0, 1000, gpus=2), Job("b", 0, 1000, gpus=2)], {"X": (1, 3)})
    view = simulation.advance()
    below = policy_of(simulation, search="exact").schedule(view)
    assert below.gpus.tolist() == [1, 1]
    asked = policy_of(simulation, search="exact", at_least_request=True).schedule(view)
    assert asked.gpus.tolist() == [2]


@pytest.mark.parametrize("search", ["genetic", "exact"])
def test_two_equal_jobs_share_a_type_equally(search):
    # p = -1, 4 X: 2 + 2 against the fair share of 2 gives 1/1 + 1/1; 4 + 0 far worse. They have held 1.
    simulation = simulation_of([Job("a", 0, 10_000), Job("b", 0, 10_000)], {"X": (1, 4)})
    policy = policy_of(simulation, search=search)
    held = []
    for _ in range(3):
        decision = policy.schedule(simulation.advance())
        simulation.apply(decision)
        held.append(allotments(decision))
    assert held == [{0: (0, 1), 1: (0, 1)}, {0: (0, 2), 1: (0, 2)}, {0: (0, 2), 1: (0, 2)}]


@pytest.mark.parametrize("search", ["genetic", "exact"])
def test_waiting_jobs_join_the_type_with_most_throughput_a_job(search):
    # 2 X at 1/8 a GPU and 2 Y at 1/16: alone on X 2/8, on Y 2/16; the second gets half of X, 1/8, or
    # all of Y, 1/8: the first of equals, X. The third: X 2/24, Y 1/8.
    simulation = simulation_of([Job(f"j{at}", 0, 1000) for at in range(3)], {"X": (1, 2), "Y": (1, 2)})
    chosen = allotments(policy_of(simulation, search=search).schedule(simulation.advance()))
    assert chosen == {0: (0, 1), 1: (0, 1), 2: (1, 1)}


def test_a_running_job_moves_to_a_type_that_nobody_is_on():
    # Both run on Y although X is twice as fast and empty: one moves.
    simulation = simulation_of([Job("a", 0, 1000), Job("b", 0, 1000)], {"X": (1, 2), "Y": (1, 2)})
    simulation.advance()
    simulation.apply(Decision.of([(0, 1, 1), (1, 1, 1)]))
    chosen = allotments(policy_of(simulation, search="exact").schedule(simulation.advance()))
    assert sorted(kind for kind, _ in chosen.values()) == [0, 1]


@st.composite
def instances(draw):
    n = draw(st.integers(1, 4))
    rows = draw(st.lists(st.lists(st.integers(-1, 9), min_size=3, max_size=3), min_size=n, max_size=n))
    value = np.array([[0.0, *row] for row in rows], dtype=np.float64)
    value[value < 0] = -np.inf
    return value, draw(st.integers(0, 8))


@settings(max_examples=20, deadline=None, derandomize=True)
@given(instance=instances())
def test_the_genetic_search_finds_the_optimum_of_small_instances(instance):
    value, capacity = instance
    gpus = np.array([0, 1, 2, 4])
    n = len(value)
    search = GeneticSearch(np.random.default_rng(3), 40, 40)
    genes = search.search(np.arange(n), value, gpus, capacity, np.zeros(n, dtype=np.int64), np.zeros(n))
    best = max(
        sum(value[job, gene] for job, gene in enumerate(choice))
        for choice in itertools.product(range(4), repeat=n)
        if gpus[list(choice)].sum() <= capacity
    )
    assert gpus[genes].sum() <= capacity
    assert value[np.arange(n), genes].sum() == best


def test_repair_cuts_the_jobs_with_most_attained_service():
    # 4 + 4 + 2 GPUs, 5 too many: the first in order loses its 4, the second 1 of its 4; 3 is no count, so
    # it has 2, or 1 where it may not have 2. What fits stays as it is.
    gpus, genes = np.array([0, 1, 2, 4]), np.array([[3, 3, 2], [0, 1, 3]])
    every = np.tile(np.arange(4), (3, 1))
    assert repair_genes(genes, every, gpus, 5, np.array([0, 1, 2])).tolist() == [[0, 2, 2], [0, 1, 3]]
    not_two = np.array([[0, 1, 2, 3], [0, 1, 1, 3], [0, 1, 2, 3]])
    assert repair_genes(genes, not_two, gpus, 5, np.array([0, 1, 2]))[0].tolist() == [0, 1, 2]
    assert repair_genes(genes, every, gpus, 5, np.array([2, 1, 0]))[0].tolist() == [3, 1, 0]


def test_children_have_genes_of_both_parents_and_a_few_new_ones():
    # All of one half of the population have gene 1, of the other half gene 2; nobody has 3, which comes only
    # by mutation, of one gene in 200 and to each of 4 as likely: 200 x 200 / 200 / 4 = 50.
    rng, value = np.random.default_rng(5), np.zeros((200, 4))

    def children_of(genes, fitness):
        draws = rng.integers(0, 200, (2, 200, 2)), rng.random((3, 200, 200))
        room = np.arange(4) * np.ones((200, 1), dtype=np.int64), np.arange(4), 10**6, np.arange(200)
        return breed(genes, fitness, *draws, GeneLimits(*_sort_allowed_first(value), *room))

    genes = np.repeat([[1], [2]], 100, axis=0) * np.ones(200, dtype=np.int64)
    children = children_of(genes, np.zeros(200))
    assert (children == 3).sum() == pytest.approx(50, abs=25)
    ones = (children == 1).mean(axis=1)
    # Parents differ in half of the pairs, and then half of the genes are of each.
    assert (np.abs(ones - 0.5) < 0.2).mean() == pytest.approx(0.5, abs=0.15)
    # Of two the fitter is a parent: with those of gene 2 fitter, gene 1 comes from pairs of its own only.
    fitter = children_of(genes, np.repeat([0.0, 1.0], 100))
    assert (fitter == 1).mean() == pytest.approx(0.25, abs=0.05)
    # What a job may not have it does not get.
    value[:, 3] = -np.inf
    assert not (children_of(genes, np.zeros(200)) == 3).any()


def test_a_gene_that_is_allowed_no_longer_is_none():
    # Jobs 0 and 2 stay from one round to the next; 3 comes, with what it holds; 2 may have nothing any more.
    search, gpus = GeneticSearch(np.random.default_rng(5), 4, 1), np.array([0, 1, 2])
    search.search(np.arange(3), np.array([[0.0, 1.0, 5.0]] * 3), gpus, 6, np.full(3, 2), np.zeros(3))
    value = np.array([[0.0, 1.0, 5.0], [0.0, -np.inf, -np.inf], [0.0, 1.0, 5.0]])
    assert search._inherit_population(np.array([0, 2, 3]), value, np.array([2, 2, 1]))[0].tolist() == [
        2,
        0,
        1,
    ]


def test_the_population_goes_on_with_the_jobs_that_stay():
    # One generation is too few to find the optimum of 12 jobs; the search goes on from round to round.
    rng = np.random.default_rng(7)
    value = np.concatenate([np.zeros((12, 1)), np.sort(rng.random((12, 3)), axis=1)], axis=1)
    gpus, search, start = np.array([0, 1, 2, 4]), GeneticSearch(rng, 20, 1), np.zeros(12, dtype=np.int64)
    found = []
    for _ in range(60):
        genes = search.search(np.arange(12), value, gpus, 20, start, np.zeros(12))
        found.append(float(value[np.arange(12), genes].sum()))
    assert found == sorted(found)
    assert found[-1] > found[0]
