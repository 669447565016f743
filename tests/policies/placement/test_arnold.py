"""Arnold agrees with another programme and with brute force, on whole nodes."""

import time

import exhaustive_placement
import numpy as np
import pytest
from arnold_patterns import least_score, partitions
from clustergym.policies.placement import arnold
from clustergym.policies.placement.arnold import solve
from clustergym.policies.placement.arnold_components import find_components, one_component, split
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clustergym.common.errors import InputError
from clustergym.scenario.placement_problem import Instance, PretrainingJob, Spread, algorithm, score, spread


def job_of(rows, columns):
    return PretrainingJob(rows * columns * 8, rows, 8, columns)


@st.composite
def small_instances(draw, minipods=4, rows=4, columns=4, most_free=7):
    job = job_of(draw(st.integers(1, rows)), draw(st.integers(1, columns)))
    free = draw(st.lists(st.integers(0, most_free), min_size=1, max_size=minipods))
    alpha = draw(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0]))
    instance = Instance(job, np.array(free), alpha, draw(st.sampled_from(["pp", "dp"])))
    assume(not instance.shortfall)
    return instance


@settings(max_examples=120, deadline=None)
@given(small_instances(rows=3, columns=3))
def test_it_reaches_the_exhaustive_optimum(instance):
    best = score(exhaustive_placement.solve(instance), instance)
    made = solve(instance)
    made.check(instance)
    assert made.solution.proven
    assert made.solution.gap == 0
    assert score(made, instance) == pytest.approx(best, abs=1e-9)
    assert least_score(instance) == pytest.approx(best, abs=1e-6)


@settings(max_examples=40, deadline=None)
@given(small_instances(minipods=9, rows=6, columns=8, most_free=7))
def test_it_reaches_the_optimum_where_minipods_are_small(instance):
    made = solve(instance)
    assert made.solution.proven
    assert score(made, instance) == pytest.approx(least_score(instance), abs=1e-6)


@pytest.mark.parametrize(
    ("job", "minipods", "nodes"),
    [
        (PretrainingJob(768, 24, 4, 8), 5, 88),
        (PretrainingJob(2944, 46, 8, 8), 11, 93),
        # Groups of five nodes in minipods of at most four.
        (PretrainingJob(960, 24, 8, 5), 55, 4),
    ],
)
def test_it_reaches_the_optimum_on_the_benchmark_s_sizes(job, minipods, nodes):
    for seed in range(4):
        rng = np.random.default_rng([seed, minipods])
        free = np.maximum(*rng.integers(0, nodes + 1, (2, minipods)))
        instance = Instance(job, free, rng.choice([0.2, 0.5, 0.8]))
        if not instance.shortfall:
            made = solve(instance)
            assert made.solution.proven
            assert score(made, instance) == pytest.approx(least_score(instance), abs=1e-6)


@pytest.mark.parametrize(
    ("free", "alpha", "expected"),
    [
        # Four groups of two nodes. (5, 3): whole groups fill 4 + 2 nodes, so one must be split.
        ([5, 3], 0.5, Spread(dp=2, pp=2)),
        # (4, 4, 8): the third takes all.
        ([4, 4, 8], 0.5, Spread(dp=1, pp=1)),
        # (7, 1, 2): whole groups need 7 and 2, and splitting none saves a minipod.
        ([7, 1, 2], 0.5, Spread(dp=2, pp=1)),
        # (5, 3, 2): without a split three minipods (2 + 1 + 1 groups): 3 a + (1 - a) = 1.4 at a = 0.2;
        # with one two minipods: 2.
        ([5, 3, 2], 0.2, Spread(dp=3, pp=1)),
        # At a = 0.8: 2.6 against 2.
        ([5, 3, 2], 0.8, Spread(dp=2, pp=2)),
    ],
)
def test_solved_by_hand(free, alpha, expected):
    instance = Instance(job_of(4, 2), np.array(free), alpha)
    assert spread(solve(instance), instance.job, "pp") == expected


def components_of(free, groups, size, most, limit=1000):
    found = find_components(np.array(free), groups, size, most, limit)
    assert found.complete
    return None if found.components is None else sorted(found.components)


def test_minipods_smaller_than_a_group_are_parted_into_components():
    # Two groups of 6 in (3, 3, 3, 3), two parts each: 4 minipods are more than 2 (2 - 1) + 1, so that they
    # part in two: each pair is a group.
    assert [groups for _, groups in components_of([3, 3, 3, 3], 2, 6, 2)] == [1, 1]
    # (4, 4, 4) is one component of two groups: 4 + 2, 2 + 4. So is (5, 5, 2).
    assert components_of([4, 4, 4], 2, 6, 2) == [((0, 1, 2), 2)]
    assert components_of([5, 5, 2], 2, 6, 2) == [((0, 1, 2), 2)]
    # (5, 5, 1, 1): 5 + 1 twice.
    assert [len(minipods) for minipods, _ in components_of([5, 5, 1, 1], 2, 6, 2)] == [2, 2]
    # (6, 2, 2, 2): a group in the first alone leaves 2 + 2 at most for the other.
    assert components_of([6, 2, 2, 2], 2, 6, 2) is None
    made = solve(Instance(job_of(2, 6), np.array([6, 2, 2, 2]), 0.5))
    assert (made.solution.proven, made.solution.bound) == (True, 0.5 * 4 + 0.5 * 3)


def test_a_search_that_comes_to_its_limit_is_not_complete():
    # Ten groups of 12 from twenty minipods of 7 and 5: every pair needs one of each kind.
    found = find_components(np.array([7] * 10 + [5] * 10), 10, 12, 2, 3)
    assert (found.components, found.complete) == (None, False)
    assert len(components_of([7] * 10 + [5] * 10, 10, 12, 2)) == 10


def test_not_enough_nodes():
    made = algorithm("arnold")(Instance(job_of(4, 2), np.array([3, 2])), None)
    assert (made.feasible, made.shortfall, made.counts.sum()) == (False, 3, 0)


def test_a_limit_that_is_hit_is_flagged_and_the_best_known_answer_used(monkeypatch):
    # As above, but nothing may be tried: 4 minipods at T = 3 (3.5) are known from their sum, as 4 is less
    # than 2 (3 - 1) + 1; whether 4 at T = 2 (3.0) would do stays open.
    monkeypatch.setattr(arnold, "CHOICES", 0)
    instance = Instance(job_of(2, 6), np.array([6, 2, 2, 2]), 0.5)
    made = solve(instance)
    assert score(made, instance) == 3.5
    assert not made.solution.proven
    assert made.solution.bound == 3.0
    assert made.solution.gap == pytest.approx(0.5 / 3.5)


def test_the_same_answer_each_time():
    instance = Instance(job_of(9, 6), np.array([9, 9, 8, 7, 7, 5, 5, 4, 3, 2]), 0.4)
    first, second = (solve(instance) for _ in range(2))
    assert first.counts.tolist() == second.counts.tolist()


def test_a_limit_below_one():
    with pytest.raises(InputError, match="node_limit: 0 is not valid"):
        arnold.solve(Instance(job_of(1, 1), np.array([1])), node_limit=0)


def test_partitions():
    assert list(partitions(5, 2)) == [(5,), (4, 1), (3, 2)]
    assert len(list(partitions(8, 8))) == 22


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=8).map(lambda free: np.array(sorted(free)[::-1])),
    st.integers(1, 6),
    st.integers(1, 8),
    st.integers(2, 4),
)
def test_groups_fit_into_one_component_exactly_where_its_nodes_suffice(free, groups, size, most):
    if one_component(free, groups, size, most):
        counts = split(free, groups, size, most)
        assert (counts.sum(axis=1) == size).all()
        assert (counts.sum(axis=0) <= free).all()
        assert (counts > 0).sum(axis=1).max() <= most
    elif (free // size).sum() < groups:
        with pytest.raises(ValueError, match="do not fit"):
            split(free, groups, size, most)


def test_of_equal_assignments_the_one_in_the_tightest_minipods():
    # Three groups of two fit in any of the minipods but the first: in the tightest. Five need two
    # minipods: the whole of the roomiest with the rest in the tightest that takes it.
    free = np.array([5, 8, 6, 7])
    assert solve(Instance(job_of(3, 2), free, 0.5)).counts.sum(axis=0).tolist() == [0, 0, 6, 0]
    assert solve(Instance(job_of(5, 2), free, 0.9)).counts.sum(axis=0).tolist() == [2, 8, 0, 0]
    assert arnold.tightest(np.array([3, 5, 5]), np.array([5, 9, 6, 4])).tolist() == [3, 0, 2]


def test_as_few_groups_as_can_be_are_split():
    # Four groups of 4 in (10, 7): 2 + 1 are whole, and 2 + 3 nodes are left for the fourth.
    assert (split(np.array([10, 7]), 4, 4, 2) > 0).sum() == 5
    # Five groups of 4 in (11, 9): 2 + 2, and 3 + 1. Five in (7, 7, 6): 1 + 1 + 1, and (3, 3, 2) for two of
    # at most two parts: 3 + 1, 2 + 2.
    assert (split(np.array([11, 9]), 5, 4, 2) > 0).sum() == 6
    assert (split(np.array([7, 7, 6]), 5, 4, 2) > 0).sum() == 7


@pytest.mark.parametrize(
    ("job", "minipods", "nodes", "limit_s"),
    [
        (PretrainingJob(2944, 46, 8, 8), 11, 92, 0.5),
        (PretrainingJob(9600, 150, 8, 8), 50, 40, 1.0),
        (PretrainingJob(40_000, 625, 8, 8), 250, 40, 10.0),
        (PretrainingJob(9600, 75, 8, 16), 200, 10, 1.0),
    ],
)
@pytest.mark.timed
@pytest.mark.parametrize("unit", ["pp", "dp"])
def test_speed(job, minipods, nodes, limit_s, unit):
    solve(Instance(job_of(1, 1), np.array([1])))
    for seed in range(5):
        rng = np.random.default_rng(seed)
        free = np.maximum(rng.integers(0, nodes + 1, minipods), rng.integers(0, nodes + 1, minipods))
        instance = Instance(job, free, 0.5, unit)
        started = time.process_time()
        made = algorithm("arnold")(instance, None)
        assert time.process_time() - started < limit_s
        assert made.solution is None or made.solution.proven
