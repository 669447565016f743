"""Communication matrices, instances, spreads and ranks of pre-training jobs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from clustergym.common.errors import InputError
from clustergym.scenario.placement_problem import (
    Assignment,
    Instance,
    PretrainingJob,
    Spread,
    cell_spread,
    cells,
    score,
    spread,
)


def test_matrix_of_the_first_setting():
    # 96 GPUs, TP 4, PP 2: DP = 96 / 4 / 2 = 12; two TP groups a node, so 12 / 2 = 6 rows and 2 columns.
    job = PretrainingJob(96, 12, 4, 2)
    assert (job.rows, job.columns, job.nodes) == (6, 2, 12)
    assert job.groups("pp") == (6, 2)
    assert job.groups("dp") == (2, 6)
    assert PretrainingJob.from_gpus(96, 4, 2) == job


@refused("pretraining-jobs")
def test_what_does_not_divide_is_rejected_with_the_reason(given, said):
    with said.of_error():
        PretrainingJob(*given)


def test_unknown_unit():
    with pytest.raises(InputError, match="unit: 'tp' is not a unit of placement"):
        PretrainingJob(96, 12, 4, 2).groups("tp")


@pytest.mark.parametrize(
    ("free", "alpha", "field"),
    [([], 0.5, "free_nodes"), ([-1, 3], 0.5, "free_nodes"), ([1.5], 0.5, "free_nodes"), ([3], 1.1, "alpha")],
)
def test_instances_out_of_range(free, alpha, field):
    with pytest.raises(InputError, match=field):
        Instance(PretrainingJob(96, 12, 4, 2), np.array(free), alpha)


def test_spread_and_score_by_hand():
    # Two PP groups of four nodes in three minipods: one in 0 and 1, one whole in 2.
    job = PretrainingJob(64, 2, 8, 4)
    made = Assignment(np.array([[3, 1, 0], [0, 0, 4]]))
    assert spread(made, job, "pp") == Spread(dp=3, pp=2)
    assert score(made, Instance(job, np.array([3, 1, 4]), alpha=0.25)) == 0.25 * 3 + 0.75 * 2
    # Cell by cell: column 0 is in minipods 0 and 2, column 3 in 1 and 2; none in three.
    assert cells(made, job, "pp").tolist() == [[0, 0, 0, 1], [2, 2, 2, 2]]
    assert cell_spread(cells(made, job, "pp")) == Spread(dp=2, pp=2)


def test_pairs_of_gpus_that_exchange_nothing():
    # 32 GPUs, TP 8, PP 2, DP 2: each talks to 7 in its node, to 1 of the other rank and 1 of the other stage.
    assert PretrainingJob(32, 2, 8, 2).silent_share == 1 - 9 / 31
    # Rings of 150 ranks and 8 stages: 2 neighbours in each.
    assert PretrainingJob(9600, 150, 8, 8).silent_share == 1 - 11 / 9599


def test_spread_of_dp_groups():
    job = PretrainingJob(64, 4, 8, 2)
    made = Assignment(np.array([[4, 0], [1, 3]]))
    assert spread(made, job, "dp") == Spread(dp=2, pp=2)
    instance = Instance(job, np.array([5, 3]), 0.75, "dp")
    assert score(made, instance) == 2.0
    assert (instance.minipod_weight, instance.group_weight) == (0.25, 0.75)


def test_infeasible_says_what_is_lacking_and_places_nothing():
    instance = Instance(PretrainingJob(96, 12, 4, 2), np.array([5, 4]))
    made = Assignment.infeasible(instance)
    made.check(instance)
    assert (made.feasible, made.shortfall, made.counts.sum()) == (False, 3, 0)
    with pytest.raises(ValueError, match="3 nodes are lacking"):
        cells(made, instance.job, "pp")


def test_capacity_that_went_away_is_seen_before_enacting():
    made = Assignment(np.array([[2, 0], [1, 1]]))
    assert made.missing(np.array([3, 1])) == 0
    assert made.missing(np.array([1, 0])) == 3


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([[2, 0], [0, 1]], "has not its 2 nodes"),
        ([[0, 2], [0, 2]], "2 nodes more than are free"),
        ([[3, -1], [0, 2]], "do not fit"),
        ([[2, 0]], "do not fit"),
    ],
)
def test_check_finds_wrong_assignments(counts, message):
    instance = Instance(PretrainingJob(32, 2, 8, 2), np.array([4, 2]))
    with pytest.raises(ValueError, match=message):
        Assignment(np.array(counts)).check(instance)


@given(st.data())
def test_cells_keep_the_counts_and_never_touch_more_than_the_spread(data):
    rows, columns, minipods = (data.draw(st.integers(1, 5)) for _ in range(3))
    job = PretrainingJob(rows * columns * 8, rows, 8, columns)
    unit = data.draw(st.sampled_from(["pp", "dp"]))
    groups, nodes = job.groups(unit)
    where = data.draw(st.lists(st.integers(0, minipods - 1), min_size=job.nodes, max_size=job.nodes))
    counts = np.array([np.bincount(w, minlength=minipods) for w in np.array(where).reshape(groups, nodes)])
    made = Assignment(counts)
    matrix = cells(made, job, unit)
    assert matrix.shape == (rows, columns)
    assert np.bincount(matrix.ravel(), minlength=minipods).tolist() == counts.sum(axis=0).tolist()
    bound, exact = spread(made, job, unit), cell_spread(matrix)
    assert exact.dp <= bound.dp
    assert exact.pp <= bound.pp
    assert getattr(exact, unit) == getattr(bound, unit)
