"""Fluid fair sharing: Ares Fig. 1's averages, hand-worked arrivals, and a simulation to compare with."""

import numpy as np
import pytest
from fluid_finish import fluid_finish_s, serial_finish_s, virtual_finish
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios import Job, small_scenario

from clustergym.results.metrics.fairness import FluidSharing, finish_time_fairness, simulate_fluid

HOUR = 3600.0


def test_ares_figure_1_averages():
    # Five jobs of linear scaling, submitted together, that take the whole cluster (here 4 GPUs)
    # 1, 1, 1, 1 and 9 h. Shared fairly the four end together after 5 h (each has had 1 h), and
    # the last has 8 h left: 13 h. Mean (4 x 5 + 13) / 5 = 6.6 h.
    # One by one: 1, 2, 3, 4, 13 h. Mean 23 / 5 = 4.6 h, and nobody ends later.
    submit_s, work = np.zeros(5), np.array([1, 1, 1, 1, 9]) * HOUR * 4
    fair = fluid_finish_s(submit_s, work, 4)
    np.testing.assert_allclose(fair / HOUR, [5, 5, 5, 5, 13], rtol=1e-12)
    assert fair.mean() / HOUR == pytest.approx(6.6, rel=1e-12)
    order = np.argsort(virtual_finish(submit_s, work, 4), kind="stable")
    serial = serial_finish_s(order, submit_s, work, 4)
    np.testing.assert_allclose(serial / HOUR, [1, 2, 3, 4, 13], rtol=1e-12)
    assert serial.mean() / HOUR == pytest.approx(4.6, rel=1e-12)
    assert (serial <= fair * (1 + 1e-12)).all()


def test_arrivals_worked_by_hand():
    # 2 GPUs. P of 8 GPU s at 0; Q of 2 GPU s at 2; R of 1 GPU s at 10.
    # P alone for 2 s: 4 left. Both: 1 GPU each; Q ends at 4, P has 2 left, alone: 5. R: 10.5.
    submit_s, work = np.array([0.0, 2.0, 10.0]), np.array([8.0, 2.0, 1.0])
    np.testing.assert_allclose(fluid_finish_s(submit_s, work, 2), [5, 4, 10.5])
    # V grows by 2 a second until 2, by 1 until 4, by 2 until 5: V(2) = 4, V(10) = 8.
    np.testing.assert_allclose(virtual_finish(submit_s, work, 2), [8, 6, 9])
    # In the order Q, P: Q preempts P at 2, runs until 3, and P ends at 5.
    np.testing.assert_allclose(serial_finish_s([1, 0, 2], submit_s, work, 2), [5, 3, 10.5])
    # In order of submission P runs until 4 first.
    np.testing.assert_allclose(serial_finish_s([0, 1, 2], submit_s, work, 2), [4, 5, 10.5])


def test_an_arrival_at_the_instant_of_a_completion():
    # 1 GPU: the first ends at 3 exactly when the second arrives, so each is alone.
    np.testing.assert_allclose(fluid_finish_s(np.array([0.0, 3.0]), np.array([3.0, 3.0]), 1), [3, 6])


def test_sharing_goes_on_from_call_to_call():
    # 4 GPUs; a of 8 GPU s may have 1, b of 12 any. Until 2 s a has 1, b 3: b has 6 left. c comes, of 3 GPU s:
    # 1, 1.5 and 1.5 each. c ends at 4, b, with 3 left, on 3 GPUs at 5, and a at 8.
    sharing = FluidSharing(4.0)
    assert sharing.arrive(0, 8.0, 1.0) == 8.0
    assert sharing.arrive(1, 12.0) == 12.0
    assert (sharing.advance(2.0), sharing.now_s, len(sharing)) == ([], 2.0, 2)
    # The clock of those that may have all stands at 6.
    assert sharing.arrive(2, 3.0, 9.0) == 9.0
    # Who ends at the very instant has ended.
    assert (sharing.advance(4.0), sharing.now_s, len(sharing)) == ([(2, 4.0)], 4.0, 2)
    assert (sharing.advance(4.5), len(sharing)) == ([], 2)
    assert (sharing.advance(np.inf), sharing.now_s, len(sharing)) == ([(1, 5.0), (0, 8.0)], 8.0, 0)
    assert (sharing.advance(10.0), sharing.now_s) == ([], 10.0)


def _simulated(submit_s, work, gpus):
    """Share the GPUs anew after every arrival and every completion, with no virtual time."""
    left, finish, now = np.array(work, dtype=float), np.full(len(work), np.inf), 0.0
    while np.isinf(finish).any():
        active = (submit_s <= now) & np.isinf(finish)
        coming = submit_s[submit_s > now]
        next_s = coming.min() if len(coming) else np.inf
        if active.any():
            share = gpus / active.sum()
            next_s = min(next_s, now + left[active].min() / share)
            left[active] -= share * (next_s - now)
        done = active & (left <= 1e-9 * work)
        finish[done] = next_s
        now = next_s
    return finish


jobs = st.lists(
    st.tuples(st.integers(0, 20) | st.floats(0, 20), st.integers(1, 30) | st.floats(0.1, 30)),
    min_size=1,
    max_size=14,
)


@given(jobs, st.sampled_from([1.0, 3.0, 8.0]))
@settings(max_examples=200, deadline=None)
def test_virtual_time_agrees_with_a_simulation(drawn, gpus):
    submit_s, work = np.array(drawn, dtype=float).T
    np.testing.assert_allclose(
        fluid_finish_s(submit_s, work, gpus), _simulated(submit_s, work, gpus), rtol=1e-7, atol=1e-7
    )


@given(jobs, st.sampled_from([1.0, 3.0, 8.0]))
@settings(max_examples=200, deadline=None)
def test_one_by_one_in_fair_order_ends_no_job_later(drawn, gpus):
    submit_s, work = np.array(drawn, dtype=float).T
    fair = fluid_finish_s(submit_s, work, gpus)
    by_virtual = np.argsort(virtual_finish(submit_s, work, gpus), kind="stable")
    assert (np.diff(fair[by_virtual]) >= -1e-9).all()
    serial = serial_finish_s(by_virtual, submit_s, work, gpus)
    assert (serial <= fair + 1e-9 * (1 + fair)).all()
    # Both keep the cluster busy while there is work, so the last ends at the same time.
    assert serial.max() == pytest.approx(fair.max())


def test_caps_worked_by_hand():
    # 4 GPUs. P: cap 1, 6 GPU s; Q: cap 4, 12 GPU s; both at 0. R: cap 2, 3 GPU s at 2.
    # Until 2 P has 1, Q 3: 4 and 6 left. From 2: level 1.5, so P 1, Q and R 1.5 each: R ends at 4
    # with P at 2 and Q at 3 left. Then P 1, Q 3: Q ends at 5, P has 1 left and ends at 6.
    finish = simulate_fluid(np.array([0.0, 0.0, 2.0]), np.array([6.0, 12.0, 3.0]), np.array([1, 4, 2]), 4)
    np.testing.assert_allclose(finish, [6, 5, 4], rtol=1e-12)


def _water_level(caps, gpus):
    """Pour: raise all shares together, one by one they reach their caps."""
    share, left, open_jobs = np.zeros(len(caps)), float(gpus), list(range(len(caps)))
    while open_jobs and left > 1e-12:
        rise = min(left / len(open_jobs), min(caps[j] - share[j] for j in open_jobs))
        for j in open_jobs:
            share[j] += rise
        left -= rise * len(open_jobs)
        open_jobs = [j for j in open_jobs if share[j] < caps[j] - 1e-12]
    return share


def _simulated_with_caps(submit_s, work, caps, gpus):
    left, finish, now = work.astype(float), np.full(len(work), np.inf), 0.0
    while np.isinf(finish).any():
        active = np.flatnonzero((submit_s <= now) & np.isinf(finish))
        coming = submit_s[submit_s > now]
        next_s = coming.min() if len(coming) else np.inf
        share = _water_level(caps[active], gpus)
        if len(active):
            next_s = min(next_s, now + (left[active] / share).min())
            left[active] -= share * (next_s - now)
        done = active[left[active] <= 1e-9 * work[active]]
        finish[done] = next_s
        now = next_s
    return finish


capped_jobs = st.lists(
    st.tuples(
        st.integers(0, 20) | st.floats(0, 20),
        st.integers(1, 30) | st.floats(0.1, 30),
        st.sampled_from([1, 2, 4, 8, 2.5]),
    ),
    min_size=1,
    max_size=12,
)


@given(capped_jobs, st.sampled_from([1.0, 3.0, 8.0, 100.0]))
@settings(max_examples=200, deadline=None)
def test_caps_agree_with_pouring_anew_at_every_event(drawn, gpus):
    submit_s, work, caps = np.array(drawn, dtype=float).T
    finish = simulate_fluid(submit_s, work, caps, gpus)
    np.testing.assert_allclose(finish, _simulated_with_caps(submit_s, work, caps, gpus), rtol=1e-7, atol=1e-7)
    # No job ends earlier than alone at its cap.
    assert (finish >= submit_s + work / np.minimum(caps, gpus) - 1e-9 * (1 + finish)).all()


@given(jobs, st.sampled_from([1.0, 3.0, 8.0]))
@settings(max_examples=100, deadline=None)
def test_caps_that_never_bind_change_nothing(drawn, gpus):
    submit_s, work = np.array(drawn, dtype=float).T
    free = simulate_fluid(submit_s, work, np.full(len(work), 100.0), gpus)
    np.testing.assert_allclose(free, fluid_finish_s(submit_s, work, gpus), rtol=1e-12)


def test_a_gpu_second_is_one_of_the_mean_type():
    # 4 X at 1 s an iteration and 12 Y at 3 s: mean speed (4 x 1 + 12 x 1/3) / 16 = 1/2 iteration/s.
    # What fits on X only counts at X's speed; what fits nowhere has none.
    times = {"m": {"X": {2: 1.0}, "Y": {2: 3.0}}, "x": {"X": {2: 1.0}}}
    jobs = [
        Job("any", 0, 10, gpus=2),
        Job("onX", 0, 10, gpus=2, gpu_type="X"),
        Job("x", 0, 10, gpus=2, family="x"),
        Job("none", 0, 10, gpus=2, family="none"),
    ]
    scenario = small_scenario(jobs, {"X": (1, 4), "Y": (3, 4)}, times)
    np.testing.assert_allclose(scenario.fair_iteration_time_s, [2, 2, 1, np.nan])


@pytest.mark.parametrize("caps", [[1.0], [1.0, 0.0], [1.0, np.nan]])
def test_senseless_caps_are_refused(caps):
    with pytest.raises(ValueError, match="cap_gpus"):
        simulate_fluid(np.zeros(2), np.ones(2), np.array(caps), 1)


@given(jobs, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_the_rows_does_not_matter(drawn, random):
    submit_s, work = np.array(drawn, dtype=float).T
    mixed = list(range(len(drawn)))
    random.shuffle(mixed)
    np.testing.assert_allclose(
        fluid_finish_s(submit_s[mixed], work[mixed], 4), fluid_finish_s(submit_s, work, 4)[mixed], rtol=1e-12
    )


@pytest.mark.parametrize(
    ("submit_s", "work", "gpus", "message"),
    [
        ([0.0, np.nan], [1.0, 1.0], 1, "submit_s"),
        ([0.0, 1.0], [1.0, 0.0], 1, "work_gpu_s"),
        ([0.0, 1.0], [1.0, np.inf], 1, "work_gpu_s"),
        ([0.0, 1.0], [1.0, 1.0], 0, "^gpus"),
        ([0.0, 1.0], [1.0], 1, "one length"),
    ],
)
def test_senseless_arguments_are_refused(submit_s, work, gpus, message):
    with pytest.raises(ValueError, match=message):
        simulate_fluid(np.array(submit_s), np.array(work), np.ones(2), gpus)


def test_no_jobs():
    assert len(simulate_fluid(np.empty(0), np.empty(0), np.empty(0), 1)) == 0


def test_finish_time_fairness_counts_all_submitted_jobs_as_load():
    # 1 GPU, four jobs of 10 GPU s at 0: the second is unfinished, the third has no known work,
    # the fourth was never submitted. The reference shares between two: both end at 20, whatever
    # their caps.
    rho, fluid = finish_time_fairness(
        np.zeros(4),
        np.array([15.0, np.nan, 5.0, np.nan]),
        np.array([10.0, 10.0, np.nan, 10.0]),
        np.array([1, 4, 1, 1]),
        np.array([True, True, True, False]),
        1,
    )
    np.testing.assert_allclose(rho, [0.75, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(fluid, [20, 20, np.nan, np.nan])
