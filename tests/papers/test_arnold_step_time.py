"""Rules for traffic across minipods, by hand, and the ablation that they are part of."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.papers.arnold_ablation import (
    SHIPPED,
    TEXT,
    ablate,
    best_fit,
    compute_tied_coefficient,
    gpu_packing,
    random_fit,
    spread_matrix,
)
from clustergym.papers.arnold_characterisation import (
    DENSE,
    FREE,
    JOB,
    LAYERS,
    MODELS,
    SCALES,
    fabric_tiers,
    placements,
    two_minipods,
)
from clustergym.papers.arnold_step_time import (
    Across,
    StepTime,
    constant,
    predict,
    rising,
    share_uplinks,
    static_routes,
)

from clustergym.scenario.placement_problem import PretrainingJob, Spread, cell_spread

WIDE = np.array([[0, 0, 1], [2, 2, 2]])
"""Columns touch minipods 0 and 2, 0 and 2, 1 and 2; rows two and one."""


def test_a_rising_factor_is_1_where_a_group_stays_in_one_minipod():
    for rule in (rising(0.61, 0.85), rising(0.61), rising(0.61, growth="logarithm")):
        assert rule(np.zeros((3, 2), dtype=np.int64), True) == (1.0, 1.0)
        # Two minipods: 1 + 0.61, whatever the shape.
        assert rule(WIDE, True) == pytest.approx((1.61, 1.61))
    # A column over five minipods, rows in one each: 1 + 0.5 x 4^0.5, 1 + 0.5 x 4, 1 + 0.5 log2 5.
    column = np.arange(5)[:, None]
    assert rising(0.5, 0.5)(column, True) == (1.0, 2.0)
    assert rising(0.5)(column, True) == (1.0, 3.0)
    assert rising(0.5, growth="logarithm")(column, True).reduction == pytest.approx(1 + 0.5 * np.log2(5))


def test_shared_uplinks_slow_only_what_fills_them():
    # Eight ports a node. Stages in a circle: 0 -> 1 in the first row's middle, and 1 -> 0 back: 8 flows on
    # each. Rings of two rows: every node of all three columns sends to the other minipod, so that 24 flows
    # leave and enter minipod 2, 16 minipod 0 and 8 minipod 1.
    assert share_uplinks(16)(WIDE, True) == (1.0, 24 / 16)
    assert share_uplinks(4)(WIDE, True) == (2.0, 6.0)
    assert share_uplinks(24)(WIDE, True) == (1.0, 1.0)


def test_without_a_virtual_stage_the_last_one_sends_to_nobody():
    row = np.array([[0, 1, 1]])
    assert share_uplinks(1)(row, True) == (8.0, 1.0)
    # 0 -> 1 is left, of eight flows; from the last stage back there is nothing.
    assert share_uplinks(1)(row, False) == (8.0, 1.0)
    assert share_uplinks(1)(np.array([[1, 1, 0], [1, 1, 0], [1, 1, 1]]), False).hop == 16.0
    assert share_uplinks(1)(np.array([[0, 0, 0, 1], [0, 1, 1, 1]]), True).hop == 16.0


def test_static_routes_by_hand():
    # One uplink takes every flow: as many as share it.
    assert static_routes(1)(WIDE, True) == share_uplinks(1)(WIDE, True) == (8.0, 24.0)
    assert static_routes(1, flows=4)(WIDE, True) == (8.0, 24.0)
    # Nothing crosses: nothing is slowed.
    assert static_routes(8)(np.zeros((2, 2), dtype=np.int64), True) == (1.0, 1.0)
    # Never better than balanced, never worse than one link; of so many links that flows hardly meet, 1.
    found = static_routes(8)(WIDE, True)
    balanced = share_uplinks(8)(WIDE, True)
    assert all(1.0 <= least < one <= most for least, one, most in zip(balanced, found, (8, 24), strict=True))
    assert static_routes(10**6)(WIDE, True) == (1.0, 1.0)
    assert static_routes(8)(WIDE, True) == found
    assert static_routes(8, seed=1)(WIDE, True) != found


def test_eight_flows_over_two_links_meet_as_coins_fall():
    # One node sends over two uplinks and arrives over two downlinks. The fuller of two heaps of eight coins
    # holds 4, 5, 6, 7 or 8 with 70, 112, 56, 16 and 2 of 256; the larger of two such, up and down:
    shares = np.array([70, 112, 56, 16, 2]) / 256
    expected = float((np.diff(np.cumsum(shares) ** 2, prepend=0.0) * np.arange(4, 9)).sum())
    found = static_routes(2, draws=4000)(np.array([[0, 1]]), False).hop
    assert found == pytest.approx(expected, abs=0.05)


def test_the_rule_of_the_slowest_tier_is_the_oversubscription():
    for model in MODELS:
        for matrix in placements(FREE, JOB).values():
            of_tiers = predict(matrix, JOB, model, fabric_tiers(2.0))
            by_rule = predict(matrix, JOB, model, fabric_tiers(1.0), core=constant(2.0))
            assert by_rule == pytest.approx(of_tiers, rel=1e-12)
    aligned = placements(FREE, JOB)["pp_aligned"]
    slow = predict(aligned, JOB, DENSE, fabric_tiers(1.0), core=lambda *_: Across(9.0, 1.0))
    assert slow == predict(aligned, JOB, DENSE, fabric_tiers(1.0)), "no hop crosses, so its factor is not met"


def test_the_coefficient_is_tied_to_figure_4():
    rows = two_minipods([DENSE], LAYERS, fabric_tiers(1.0), rising(compute_tied_coefficient()))
    assert np.mean([row["gain"]["pp_aligned"] for row in rows]) == pytest.approx(0.023, abs=1e-9)


@pytest.mark.parametrize(("dp", "pp"), [(1, 1), (3, 2), (21, 4), (14, 3)])
def test_a_matrix_of_given_spreads(dp, pp):
    job = SCALES[-1].job
    assert cell_spread(spread_matrix(job, dp, pp)) == Spread(dp, pp)


def test_the_slowest_tier_gives_nothing_where_both_kinds_stay_spread():
    job, tiers = SCALES[-1].job, fabric_tiers(1.0)
    wide, narrow = spread_matrix(job, 21, 4), spread_matrix(job, 14, 3)
    model = replace(DENSE, layers=48)
    for rule, gains in ((constant(2.0), False), (rising(0.6), True)):
        slower, faster = (predict(matrix, job, model, tiers, core=rule).total_s for matrix in (wide, narrow))
        assert (slower > faster) == gains


def test_baselines_give_ranks_in_the_order_they_take_nodes():
    # 3 x 2 nodes; a column has three consecutive ranks. Free 4, 1, 3.
    job, free, rng = PretrainingJob.from_gpus(48, 8, 2), np.array([4, 1, 3]), np.random.default_rng(0)
    # Fullest first: 1, then 2, 2, 2, then 0, 0.
    assert best_fit(free, job, rng).T.tolist() == [[1, 2, 2], [2, 0, 0]]
    # Roomiest first: all four of 0, and the two left fit in 2.
    assert gpu_packing(free, job, rng).T.tolist() == [[0, 0, 0], [0, 2, 2]]
    drawn = random_fit(free, job, rng)
    assert (np.bincount(drawn.ravel(), minlength=3) <= free).all()
    assert drawn.shape == (3, 2)


@pytest.mark.slow
def test_ablation_of_three_states():
    found = ablate(3, 0)
    small = {(row["gpus"], row["variation"], row["experts"]): row for row in found["scale"]}
    # In minipods of 93 nodes the job of 26 fits one, and packing finds it as Arnold does.
    assert small[208, "Table 1's minipods", 8]["gain"][0] == 0.0
    assert small[208, TEXT, 8]["pp_spread_ratio"] == 2.0
    assert small[208, TEXT, 8]["gain"][0] > small[208, SHIPPED, 8]["gain"][0]
    # Another baseline is as slow: the slowest tier does not tell how far it is spread.
    assert small[208, "baseline best fit", 8]["gain"] == small[208, SHIPPED, 8]["gain"]
    assert small[9600, "larger models", 8]["communication_share"] < 0.5


def test_the_share_of_a_step_that_is_communication():
    step = StepTime(compute_s=6.0, tensor_s=1.0, pipeline_s=2.0, data_s=1.0)
    assert step.total_s == 10.0
    assert step.communication_share == 0.4
