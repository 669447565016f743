"""Linear programs over shares of time: solved by hand, and against the literal formulation."""

import numpy as np
import pytest
from clustergym.policies.shared import linear_programs
from clustergym.policies.shared.linear_programs import (
    ShareProblem,
    group_like_jobs,
    least_finish_ratio_shares,
    max_min_shares,
    max_total_shares,
    water_filling_shares,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog


def problem(rate, gpus=None, capacity=None, members=None):
    rate = np.array(rate, dtype=np.float64)
    ones = np.ones(len(rate), dtype=np.int64)
    return ShareProblem(
        rate,
        ones if gpus is None else np.array(gpus),
        ones if members is None else np.array(members),
        np.ones(rate.shape[1], dtype=np.int64) if capacity is None else np.array(capacity),
    )


def isolated(p):
    """Return the progress of each job on 1/N of every type."""
    share = p.capacity / (len(p.gpus) * p.gpus[:, None])
    share = np.where(p.rate > 0, share, 0.0)
    return (p.rate * share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)).sum(axis=1)


@st.composite
def problems(draw, most=5):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    jobs, types = draw(st.integers(1, most)), draw(st.integers(1, 3))
    rate = rng.uniform(0.1, 10.0, (jobs, types)) * (rng.random((jobs, types)) < 0.8)
    rate[np.arange(jobs), rng.integers(0, types, jobs)] = rng.uniform(0.1, 10.0, jobs)
    gpus = rng.choice([1, 2, 4], jobs)
    return problem(rate, gpus, rng.integers(1, 9, types)), rng


def literal(p, need, floor, objective, worth=None):
    """Solve one program dense, ungrouped, as written in the paper; variables x[j, t], then z."""
    jobs, types = p.rate.shape
    rows, limits = [], []
    for j in range(jobs):
        at_most = np.zeros((jobs, types))
        at_most[j] = 1
        rows.append([*at_most.ravel(), 0])
        limits.append(1)
        progress = np.zeros((jobs, types))
        progress[j] = p.rate[j]
        rows.append([*-progress.ravel(), need[j]])
        limits.append(-floor[j])
    for t in range(types):
        used = np.zeros((jobs, types))
        used[:, t] = p.gpus
        rows.append([*used.ravel(), 0])
        limits.append(p.capacity[t])
    cost = np.zeros(jobs * types + 1)
    if objective == "level":
        cost[-1] = -1
    else:
        cost[:-1] = -(np.asarray(worth)[:, None] * p.rate).ravel()
    upper = [None if r > 0 else 0 for r in p.rate.ravel()]
    bounds = [(0, u) for u in upper] + [(0, None if objective == "level" else 0)]
    solved = linprog(cost, A_ub=np.array(rows), b_ub=limits, bounds=bounds)
    return -solved.fun if solved.status == 0 else None


def test_max_min_of_three_jobs_on_two_types():
    # a is fast on F, c on S, b alike on both; N = 3, so isolated shares are 1/3 of each type:
    # 5/3, 4/3, 5/3. At level z, a needs (5/3) z / 4 = 5z/12 of F, c the same of S, b 2z/3 of
    # either: 5z/12 + 2z/3 + 5z/12 = 3z/2 = 2 GPUs, so z = 4/3: a has 5/9 of F, c 5/9 of S, b the rest.
    p = problem([[4, 1], [2, 2], [1, 4]])
    need = isolated(p)
    assert need.tolist() == pytest.approx([5 / 3, 4 / 3, 5 / 3])
    share, level = max_min_shares(p, need)
    assert level == pytest.approx(4 / 3)
    assert share.ravel().tolist() == pytest.approx([5 / 9, 0, 4 / 9, 4 / 9, 0, 5 / 9], abs=1e-5)


def test_scale_factors_count_in_capacity():
    # One type of 4 GPUs, gangs of 4 and 1, four small ones: N = 5. 4 x + y = 4 with four equal y:
    # gang: isolated 4/(5*4) = 0.2; each small: 4/5 = 0.8. Level z: 4*0.2z + 4*0.8z = 4 -> z = 1.
    p = problem([[1.0]] * 5, gpus=[4, 1, 1, 1, 1], capacity=[4])
    share, level = max_min_shares(p, isolated(p))
    assert level == pytest.approx(1.0)
    assert share.ravel().tolist() == pytest.approx([0.2, 0.8, 0.8, 0.8, 0.8], abs=1e-5)


def test_what_the_minimum_leaves_idle_is_spent():
    # b runs on S only, which it shares with c: level 1/2. a may have all of F all the same.
    p = problem([[1, 0], [0, 1], [0, 1]])
    share, level = max_min_shares(p, np.ones(3))
    assert level == pytest.approx(0.5)
    assert p.progress(share).tolist() == pytest.approx([1.0, 0.5, 0.5], abs=1e-5)
    share, level = max_min_shares(p, np.ones(3), second_stage=False)
    assert level == pytest.approx(0.5)
    assert (p.progress(share) >= 0.5 - 1e-5).all()


def test_water_filling_raises_those_that_are_no_bottleneck_evenly():
    # S: a and b have 1/2 each, the level. F: c has x, d 2(1 - x): even at x = 2/3, while the
    # greatest total above the level gives c 1/2 and d 1.
    p = problem([[0, 1], [0, 1], [1, 0], [2, 0]])
    filled = p.progress(water_filling_shares(p, np.ones(4)))
    assert filled.tolist() == pytest.approx([0.5, 0.5, 2 / 3, 2 / 3], abs=1e-5)
    total = p.progress(max_min_shares(p, np.ones(4))[0])
    assert total.tolist() == pytest.approx([0.5, 0.5, 0.5, 1.0], abs=1e-5)


def test_finish_ratios_of_two_jobs_that_came_at_different_times(monkeypatch):
    # One GPU. a has waited 100 s and needs 100 s of it, b 300 s; alone on half: 200 and 600 s.
    # (100 + 100/x) / 200 = (300 / (1 - x)) / 600: 1 - x^2 = x, x = (sqrt 5 - 1) / 2; ratio 0.5 / (1 - x).
    solved, solve = [], linear_programs._solve
    monkeypatch.setattr(linear_programs, "_solve", lambda *given: solved.append(1) or solve(*given))
    p = problem([[1.0], [1.0]])
    share, ratio = least_finish_ratio_shares(
        p, np.array([100.0, 0.0]), np.array([100.0, 300.0]), np.array([200.0, 600.0])
    )
    # Newton's method takes a step a digit at the most, and a last program spends what is idle.
    assert len(solved) <= 8
    x = (5**0.5 - 1) / 2
    assert share.ravel().tolist() == pytest.approx([x, 1 - x], abs=1e-4)
    assert ratio == pytest.approx(0.5 / (1 - x), rel=1e-5)


def test_finish_ratios_are_of_those_that_can_finish():
    # As before, with a job that runs nowhere and has waited for long: it counts for nothing.
    p = problem([[1.0], [1.0], [0.0]])
    share, ratio = least_finish_ratio_shares(
        p, np.array([100.0, 0.0, 1e6]), np.array([100.0, 300.0, 5.0]), np.array([200.0, 600.0, np.inf])
    )
    x = (5**0.5 - 1) / 2
    assert share.ravel().tolist() == pytest.approx([x, 1 - x, 0], abs=1e-4)
    assert ratio == pytest.approx(0.5 / (1 - x), rel=1e-5)
    # If none can, none is late, and shares are equal.
    nobody = least_finish_ratio_shares(problem([[0.0], [0.0]]), np.ones(2), np.ones(2), np.full(2, np.inf))
    assert (nobody[0].tolist(), nobody[1]) == ([[0.0], [0.0]], 0.0)


def test_what_the_least_finish_ratio_leaves_idle_goes_where_it_is_worth_most():
    # a needs all of S for a ratio of 1. c and d then need 0.1 and 0.2 of F, and what is left of it is worth
    # twice as much, of what it needs, to c.
    p = problem([[0, 1], [1, 0], [1, 0]])
    given = (p, np.zeros(3), np.array([100.0, 10.0, 20.0]), np.full(3, 100.0))
    share, ratio = least_finish_ratio_shares(*given)
    assert ratio == pytest.approx(1.0, rel=1e-5)
    assert p.progress(share).tolist() == pytest.approx([1.0, 0.8, 0.2], abs=1e-4)
    share, ratio = least_finish_ratio_shares(*given, second_stage=False)
    assert ratio == pytest.approx(1.0, rel=1e-5)
    assert (p.progress(share) >= np.array([1.0, 0.1, 0.2]) * (1 - 1e-5)).all()


def test_water_filling_leaves_out_who_needs_nothing(monkeypatch):
    p = problem([[2.0], [1.0], [1.0]])
    share = water_filling_shares(p, np.array([1.0, 0.0, 1.0]))
    # 2 x = 1 - x.
    assert share[[0, 2], 0].tolist() == pytest.approx([1 / 3, 2 / 3], abs=1e-5)
    monkeypatch.setattr(linear_programs, "SHADOW_PRICE", 2.0)
    with pytest.raises(linear_programs.SolverError, match="no job is a bottleneck"):
        water_filling_shares(p, np.array([1.0, 0.0, 1.0]))


def test_makespan_of_two_jobs():
    # 100 s and 300 s of one GPU: both end at 400 s with shares of 1/4 and 3/4.
    share, level = max_min_shares(problem([[1.0], [1.0]]), np.array([100.0, 300.0]))
    assert 1 / level == pytest.approx(400.0)
    assert share.ravel().tolist() == pytest.approx([0.25, 0.75], abs=1e-5)


def test_total_throughput_of_two_jobs_on_two_types():
    # a on F and b on S: 4 + 2; the other way round 3 + 1.
    share = max_total_shares(problem([[4, 1], [3, 2]]), np.ones(2))
    assert share.ravel().tolist() == pytest.approx([1, 0, 0, 1], abs=1e-9)


def test_a_job_that_runs_nowhere_has_no_share_and_holds_nobody_back():
    p = problem([[2, 0], [0, 0], [1, 0]])
    share, level = max_min_shares(p, np.array([1.0, 0.0, 1.0]))
    # 2 x = 1 - x: x = 1/3, both at 2/3.
    assert level == pytest.approx(2 / 3)
    assert share.ravel().tolist() == pytest.approx([1 / 3, 0, 0, 0, 2 / 3, 0], abs=1e-5)
    assert max_total_shares(p, np.ones(3)).ravel().tolist() == pytest.approx([1, 0, 0, 0, 0, 0], abs=1e-9)


@pytest.mark.parametrize(("factor", "refused"), [(1 + 1e-8, False), (1.001, True)])
def test_a_solution_over_the_limits_is_refused(monkeypatch, factor, refused):
    # Two jobs on one GPU have 1/2 each; a solver that gave each 0.5005 would hand out 1.001 GPUs.
    def inexact(*given, **options):
        solved = linprog(*given, **options)
        solved.x = solved.x * factor
        return solved

    monkeypatch.setattr("scipy.optimize.linprog", inexact)
    p = problem([[1.0], [1.0]])
    if refused:
        with pytest.raises(linear_programs.SolverError, match=r"a limit is exceeded by 0\.00(1|0999)"):
            max_min_shares(p, np.ones(2))
    else:
        assert max_min_shares(p, np.ones(2))[1] == pytest.approx(0.5)


@settings(max_examples=40, deadline=None)
@given(problems())
def test_max_min_is_the_literal_programs_and_gives_all_their_isolated_share(drawn):
    p, _ = drawn
    need = isolated(p)
    share, level = max_min_shares(p, need)
    assert p.measure_violation(share) <= 1e-6
    assert level == pytest.approx(literal(p, need, np.zeros_like(need), "level"), rel=1e-6)
    assert (p.progress(share) >= need * (1 - 1e-5)).all()


@settings(max_examples=30, deadline=None)
@given(problems())
def test_grouping_like_jobs_is_exact(drawn):
    p, rng = drawn
    times = rng.integers(1, 4, len(p.gpus))
    rate, gpus = np.repeat(p.rate, times, axis=0), np.repeat(p.gpus, times)
    single = problem(rate, gpus, p.capacity)
    need = isolated(single)
    first, group, members = group_like_jobs(rate, gpus, need)
    grouped = problem(rate[first], gpus[first], p.capacity, members)
    share, level = max_min_shares(grouped, need[first])
    assert level == pytest.approx(max_min_shares(single, need)[1], rel=1e-6)
    assert single.measure_violation(share[group]) <= 1e-6
    ours = (rate * share[group]).sum() / 1.0
    total = max_total_shares(grouped, np.ones(len(first)))[group]
    assert (rate * total).sum() == pytest.approx(
        max_total_shares(single, np.ones(len(rate))).ravel() @ rate.ravel()
    )
    assert (rate * total).sum() >= ours * (1 - 1e-6)


@settings(max_examples=30, deadline=None)
@given(problems())
def test_total_is_the_literal_programs_and_no_other_objective_has_more(drawn):
    p, rng = drawn
    need, ones = isolated(p), np.ones(len(p.gpus))
    best = p.progress(max_total_shares(p, ones)).sum()
    assert best == pytest.approx(literal(p, ones * 0, ones * 0, "total", ones), rel=1e-6)
    others = [
        max_min_shares(p, need)[0],
        water_filling_shares(p, need),
        least_finish_ratio_shares(p, ones * 0, rng.uniform(1, 100, len(ones)), 100 / need)[0],
    ]
    assert all(p.progress(share).sum() <= best * (1 + 1e-6) for share in others)


def literal_water_filling(p, need):
    """Fill by the definition: a job is a bottleneck if it cannot exceed the level while others keep it."""
    floor, left = np.zeros_like(need), list(range(len(need)))
    while left:
        level = literal(p, [need[j] if j in left else 0.0 for j in range(len(need))], floor, "level")
        at_level = np.array([level * need[j] if j in left else floor[j] for j in range(len(need))])
        stuck = []
        for j in left:
            alone = np.zeros_like(need)
            alone[j] = 1.0
            most = literal(p, alone * 0, at_level * (1 - 1e-9), "total", alone)
            if most <= at_level[j] * (1 + 1e-5):
                stuck.append(j)
        assert stuck
        floor[stuck] = at_level[stuck]
        left = [j for j in left if j not in stuck]
    return floor


@settings(max_examples=25, deadline=None)
@given(problems(most=4))
def test_water_filling_is_that_of_the_definition(drawn):
    p, _ = drawn
    need = isolated(p)
    share = water_filling_shares(p, need)
    assert p.measure_violation(share) <= 1e-6
    assert (p.progress(share) / need).tolist() == pytest.approx(
        (literal_water_filling(p, need) / need).tolist(), rel=1e-4
    )


@settings(max_examples=25, deadline=None)
@given(problems(most=5))
def test_least_finish_ratio_is_that_of_bisection(drawn):
    p, rng = drawn
    n = len(p.gpus)
    remaining, ideal = rng.uniform(1, 1000, n), rng.uniform(100, 1000, n) / isolated(p)
    elapsed = rng.uniform(0, 2000, n) * (rng.random(n) < 0.7)
    share, ratio = least_finish_ratio_shares(p, elapsed, remaining, ideal)
    first, same = least_finish_ratio_shares(p, elapsed, remaining, ideal, second_stage=False)
    assert (same, p.measure_violation(first)) == (ratio, pytest.approx(0.0, abs=1e-6))
    assert p.measure_violation(share) <= 1e-6
    achieved = (elapsed + remaining / p.progress(share)) / ideal
    assert achieved.max() <= ratio * (1 + 1e-4)
    low, high = float((elapsed / ideal).max()), float(ratio) * 10 + 1
    for _ in range(60):
        middle = (low + high) / 2
        room = middle * ideal - elapsed
        attainable = (room > 0).all() and literal(
            p, remaining / np.where(room > 0, room, 1.0), np.zeros(n), "level"
        ) >= 1
        low, high = (low, middle) if attainable else (middle, high)
    assert ratio == pytest.approx(high, rel=1e-4)
