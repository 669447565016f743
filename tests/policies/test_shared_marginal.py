"""Allotments built up in an order, by hand."""

import numpy as np
import pytest
import scenarios
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.marginal import Target, per_gpu_efficiency, times_or_guess
from round_scenarios import without_profiles
from scenarios import Job, small_scenario

from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.engine import Simulation

TIMES = {"fast": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}, "slow": {"X": {1: 8.0, 2: 4.0, 4: 3.0}}}


def view_of(jobs, groups, held=None, times=TIMES, checkpoint_s=0.0):
    """Return the first View, or the one at 60 s of jobs that have held {job: (type, GPUs)} since 0."""
    restarts = dict.fromkeys(times, checkpoint_s)
    scenario = small_scenario(jobs, groups, times, checkpoint_s=restarts, rounds=60.0)
    simulation = Simulation(scenario, Buddy(defragment_s=None), InformationClass.PROFILED)
    view = simulation.advance()
    if held is None:
        return view
    simulation.apply(Decision.of([(job, *allotment) for job, allotment in held.items()]))
    return simulation.advance()


def allotments(target):
    return scenarios.allotments(target.decision())


def every(view):
    return np.ones(view.feasible.shape, dtype=np.bool_)


def one_gpu(view):
    return every(view) & (view.setting.counts == 1)


@pytest.mark.parametrize(
    ("gpus", "weight", "held"),
    [(3, [1.0, 1.0], [2, 1]), (3, [1.0, 3.0], [1, 2]), (4, [1.0, 1.0], [2, 2]), (5, [1.0, 1.0], [4, 1])],
)
def test_gpus_left_over_go_where_a_gpu_brings_most(gpus, weight, held):
    # A second GPU brings fast 1/2 - 1/4 = 0.25 and slow 1/4 - 1/8 = 0.125 iterations a second; the third and
    # fourth bring fast (1 - 1/2) / 2 = 0.25 each, slow (1/3 - 1/4) / 2 = 0.042. Of 4 GPUs two are left over:
    # after one of them fast has no room for two more, and slow gets the other. Of 5 fast gets all three.
    jobs = [Job("fast", 0, 100, family="fast"), Job("slow", 0, 100, family="slow")]
    view = view_of(jobs, {"X": (1, gpus)})
    target = Target(view, view.iteration_time_s())
    target.place(np.array([0, 1]), one_gpu(view))
    assert allotments(target) == {0: (0, 1), 1: (0, 1)}
    target.grow(np.array(weight))
    assert [count for _, count in allotments(target).values()] == held


def test_jobs_are_placed_in_order_on_the_fastest_with_room():
    # fast takes 4 X; on what is left, 2 X, slow is as fast as it can be; the third finds none.
    jobs = [
        Job("fast", 0, 100, family="fast"),
        Job("slow", 0, 100, family="slow"),
        Job("c", 0, 9, family="slow"),
    ]
    view = view_of(jobs, {"X": (1, 6)})
    for order, expected in (([0, 1, 2], {0: (0, 4), 1: (0, 2)}), ([2, 1, 0], {2: (0, 4), 1: (0, 2)})):
        target = Target(view, view.iteration_time_s())
        target.place(np.array(order), every(view))
        assert allotments(target) == expected
    two = Target(view, view.iteration_time_s())
    two.place(np.array([0, 1, 2]), every(view) & (view.setting.counts == 2))
    assert allotments(two) == {0: (0, 2), 1: (0, 2), 2: (0, 2)}


def test_who_has_an_allotment_is_not_placed_again():
    jobs = [Job("fast", 0, 100, family="fast"), Job("slow", 0, 100, family="slow")]
    view = view_of(jobs, {"X": (1, 4)})
    target = Target(view, view.iteration_time_s())
    target.give(0, 0, 0)
    target.place(np.array([0, 1]), every(view))
    assert allotments(target) == {0: (0, 1), 1: (0, 2)}
    target.give(0, -1, -1)
    assert (allotments(target), target.free.tolist()) == ({1: (0, 2)}, [2])


@pytest.mark.parametrize(
    ("checkpoint_s", "guard", "moves"), [(169.0, True, True), (170.0, True, False), (170.0, False, True)]
)
def test_by_the_guard_a_running_job_moves_where_that_repays_its_restart(checkpoint_s, guard, moves):
    # On 2 X since 0, 2 s an iteration: at 60 s 170 of 200 are left. On 4 X each takes a second less: 170 s.
    jobs = [Job("fast", 0, 200, family="fast")]
    view = view_of(jobs, {"X": (1, 4)}, {0: (0, 2)}, checkpoint_s=checkpoint_s)
    assert view.remaining_iterations.tolist() == [170.0]
    target = Target(view, view.iteration_time_s(), guard)
    assert target.repays(0, 0, 2) == moves
    target.place(np.array([0]), every(view))
    assert allotments(target) == {0: (0, 4 if moves else 2)}
    # Growing what it holds asks the same; keeping it undoes a growth that does not repay.
    grown = Target(view, view.iteration_time_s(), guard)
    grown.give(0, 0, 1)
    grown.grow(np.ones(1))
    assert allotments(grown) == {0: (0, 4 if moves else 2)}
    kept = Target(view, view.iteration_time_s(), guard)
    kept.give(0, 0, 2)
    kept.keep_running(np.array([0]))
    assert allotments(kept) == {0: (0, 4 if moves else 2)}


def test_what_runs_is_kept_where_there_is_room():
    # Both hold 2 of 4 X. a's target is nothing, then 1 of b's: b has 2 or 4 in the target.
    jobs = [Job("a", 0, 200, family="fast"), Job("b", 0, 200, family="fast")]
    view = view_of(jobs, {"X": (1, 4)}, {0: (0, 2), 1: (0, 2)}, checkpoint_s=1e6)
    for b_level, expected in ((1, {0: (0, 2), 1: (0, 2)}), (2, {1: (0, 4)})):
        target = Target(view, view.iteration_time_s())
        target.give(1, 0, b_level)
        target.keep_running(np.array([0]))
        assert allotments(target) == expected


def test_efficiency_per_gpu_is_relative_to_the_request():
    # slow asks for 2: a GPU yields 1/8 on one or on two, 1/12 on four. huge runs on 4 only, its reference.
    times = {**TIMES, "huge": {"X": {4: 5.0}}}
    jobs = [Job("slow", 0, 9, gpus=2, family="slow"), Job("huge", 0, 9, gpus=4, family="huge")]
    view = view_of(jobs, {"X": (1, 4)}, times=times)
    found = per_gpu_efficiency(view.setting.counts, view.requested_gpus, view.iteration_time_s())
    assert found[:, 0].tolist() == [[1.0, 1.0, pytest.approx(2 / 3)], [0.0, 0.0, 1.0]]


def test_only_a_job_of_which_no_time_is_known_is_guessed():
    # b takes 40 x 4 s; c has 20 iterations: 8 s each at its request of 2 is as long. It has no other time.
    jobs = [Job("b", 0, 40, gpus=2, family="slow"), Job("c", 0, 20, gpus=2, family="fast")]
    scenario = without_profiles(small_scenario(jobs, {"X": (1, 4)}, TIMES), "fast")
    view = Simulation(scenario, Buddy(), InformationClass.DATA_PARALLEL).advance()
    inf = np.inf
    assert times_or_guess(view)[:, 0].tolist() == [[8.0, 4.0, 3.0], [inf, 8.0, inf]]
    assert view.iteration_time_s()[1, 0].tolist() == [inf, inf, inf]
