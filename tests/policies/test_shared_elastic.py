"""What scalings on the virtual cluster are worth, by hand."""

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from clustergym.policies.shared.elastic import Scaling, VirtualCluster
from scenarios import Job, small_scenario

from clustergym.scenario.policy import Decision, InformationClass
from clustergym.sim.engine import Simulation


def view_of(jobs, held, times, checkpoint_s=0.0, gpus=8):
    """Return the View at 60 s of jobs on one type that have held so many GPUs each since 0."""
    table, restarts = {"m": {"X": times}}, {"m": checkpoint_s}
    scenario = small_scenario(jobs, {"X": (1, gpus)}, table, checkpoint_s=restarts, rounds=60.0)
    simulation = Simulation(scenario, Buddy(defragment_s=None), InformationClass.PROFILED)
    simulation.advance()
    simulation.apply(Decision.of([(job, 0, count) for job, count in held.items()]))
    return simulation.advance()


@pytest.mark.parametrize(("checkpoint_s", "repaid_gain"), [(0.0, 2.0), (1759.0, 2.0), (1761.0, 0.0)])
def test_growth_repays_its_restart_by_the_time_it_saves(checkpoint_s, repaid_gain):
    # After 60 s at 4 s an iteration 880 of 895 are left: on 4 GPUs, at 2 s each, 1760 s are saved.
    view = view_of([Job("a", 0, 895, gpus=2)], {0: 2}, {1: 8.0, 2: 4.0, 4: 2.0, 8: 3.0}, checkpoint_s)
    assert view.remaining_iterations.tolist() == [880.0]
    value = np.array([[[1.0, 2.0, 4.0, 5.0]]])
    free = VirtualCluster(view, value, view.iteration_time_s(), 3)
    gain, kind, level = free.growth(np.array([0]))
    assert (gain.tolist(), kind.tolist(), level.tolist()) == (
        [[[0.0, 0.0, 2.0]]],
        [[[0, 0, 0]]],
        [[[0, 1, 2]]],
    )
    repaid = VirtualCluster(view, value, view.iteration_time_s(), 3, repaid=True)
    assert repaid.growth(np.array([0]))[0].tolist() == [[[0.0, 0.0, repaid_gain]]]


def test_what_is_slower_repays_nothing_whatever_it_is_worth():
    view = view_of([Job("a", 0, 900, gpus=2)], {0: 4}, {1: 8.0, 2: 4.0, 4: 2.0, 8: 3.0})
    value = np.array([[[1.0, 2.0, 4.0, 5.0]]])
    assert VirtualCluster(view, value, view.iteration_time_s(), 3).growth(np.array([0]))[0][0, 0, 2] == 1.0
    repaid = VirtualCluster(view, value, view.iteration_time_s(), 3, repaid=True)
    assert repaid.growth(np.array([0]))[0].tolist() == [[[0.0, 0.0, 0.0]]]


def test_the_least_loss_frees_gpus_and_nobody_goes_below_half_his_request():
    # a and b hold 4 of 8 each. Halving a loses 4 - 3 = 1, b 4 - 2 = 2. c wants 2: a gives way. For 4 both
    # do, at two steps; a, who asked for 4, gives 2 at most.
    view = view_of(
        [Job("a", 0, 900, gpus=4), Job("b", 0, 900, gpus=4), Job("c", 0, 900, gpus=2)],
        {0: 4, 1: 4},
        {1: 8.0, 2: 4.0, 4: 2.0},
    )
    value = np.array([[[1.0, 3.0, 4.0, 0.0]], [[1.0, 2.0, 4.0, 0.0]], [[1.0, 2.5, 2.6, 0.0]]])
    cluster = VirtualCluster(view, value, view.iteration_time_s(), 2)
    one, two, four, eight = (cluster.release(0, level) for level in range(4))
    assert one == two == (1.0, [Scaling(0, 0, 1)])
    assert four == (3.0, [Scaling(0, 0, 1), Scaling(1, 0, 1)])
    assert eight is None
    # At a depth of one scaling nobody frees 4.
    assert VirtualCluster(view, value, view.iteration_time_s(), 1).release(0, 2) is None
    assert cluster.first_launch(np.array([2])) == (0, [Scaling(0, 0, 1), Scaling(2, 0, 1)])
    # Preempting takes all that a job has: a, of equal ones the first.
    assert cluster.preemptions(0, 2, np.array([True, True, False])) == (4.0, [Scaling(0, -1, -1)])
    assert cluster.preemptions(0, 2, np.array([False, True, False])) == (4.0, [Scaling(1, -1, -1)])
    assert cluster.preemptions(0, 3, np.array([True, False, False])) is None
    assert cluster.preemptions(0, 3, np.array([True, True, False])) == (
        8.0,
        [Scaling(0, -1, -1), Scaling(1, -1, -1)],
    )


def test_a_launch_is_at_half_to_twice_the_request_of_equal_gains_on_the_fewest():
    times = {1: 8.0, 2: 4.0, 4: 2.0, 8: 1.0}
    view = view_of([Job("a", 0, 900, gpus=2)], {}, times)
    for worth, level in (
        ([1.0, 1.0, 1.0, 9.0], 0),
        ([1.0, 2.0, 2.0, 9.0], 1),
        ([1.0, 2.0, 3.0, 9.0], 2),
        ([0.0, 0.0, 3.0, 9.0], 2),
    ):
        cluster = VirtualCluster(view, np.array([[worth]]), view.iteration_time_s(), 2)
        assert cluster.first_launch(np.array([0])) == (0, [Scaling(0, 0, level)])
    nothing = VirtualCluster(view, np.array([[[0.0, 0.0, 0.0, 9.0]]]), view.iteration_time_s(), 2)
    assert nothing.first_launch(np.array([0])) is None


def test_who_ends_sooner_than_a_restart_takes_is_left_alone():
    # 100 iterations are left, 4 s each on 2 GPUs: 400 s against a restart.
    for checkpoint_s, disturbed in ((399.0, True), (400.0, False)):
        view = view_of([Job("a", 0, 115, gpus=2)], {0: 2}, {1: 8.0, 2: 4.0}, checkpoint_s)
        assert view.remaining_iterations.tolist() == [100.0]
        cluster = VirtualCluster(view, np.ones((1, 1, 4)), view.iteration_time_s(), 2)
        assert cluster.worth_disturbing(np.array([0])).tolist() == [disturbed]
