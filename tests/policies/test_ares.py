"""Ares: doubling, fair order and its delay bound; the work-conserving variant; unknown sizes."""

import numpy as np
import pytest
from clustergym.policies.ares import Ares
from clustergym.policies.placers.buddy import Buddy
from fluid_finish import fluid_finish_s, virtual_finish
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import all_left, random_scenarios
from round_scenarios import first_decided, without_profiles
from scenarios import Job, ends, small_scenario

import clustergym
from clustergym.scenario.policy import InformationClass
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType

# Throughput per GPU against that on 2: 1, 0.833 on 4, 0.625 on 8.
CONCAVE = {"m": {"X": {2: 10.0, 4: 6.0, 8: 4.0}}}
LINEAR = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0}}}


@pytest.mark.parametrize(("alpha", "gpus"), [(0.9, 2), (0.8, 4), (0.75, 4), (0.6, 8)])
def test_a_job_doubles_while_it_is_efficient(alpha, gpus):
    scenario = small_scenario([Job("a", 0, 100, gpus=2)], {"X": (1, 8)}, CONCAVE)
    assert first_decided(scenario, Ares(alpha=alpha)) == {"a": ("X", gpus)}


def test_no_doubling_beyond_one_that_is_not_efficient():
    # Against 1 GPU: 0.5 on 2, 0.9 on 4.
    times = {"m": {"X": {1: 9.0, 2: 9.0, 4: 2.5}}}
    scenario = small_scenario([Job("a", 0, 100)], {"X": (1, 4)}, times)
    assert first_decided(scenario, Ares()) == {"a": ("X", 1)}


def test_the_first_doubles_into_what_there_is_and_the_next_take_the_rest():
    # 7 GPUs in order of size: a doubles to 4, b has 2 of its 4 left, c none of its request.
    jobs = [Job("b", 0, 200, gpus=2), Job("a", 0, 100, gpus=2), Job("c", 0, 300, gpus=2)]
    scenario = small_scenario(jobs, {"X": (1, 7)}, CONCAVE)
    assert first_decided(scenario, Ares()) == {"a": ("X", 4), "b": ("X", 2)}


def test_the_fastest_type_with_room_is_taken_whatever_was_asked_for():
    times = {"m": {"X": {1: 4.0, 2: 2.0}, "Y": {1: 3.0, 2: 1.5}}}
    jobs = [Job("a", 0, 10, gpu_type="X"), Job("b", 0, 20, gpu_type="Y")]
    scenario = small_scenario(jobs, {"X": (1, 2), "Y": (1, 2)}, times)
    assert first_decided(scenario, Ares()) == {"a": ("Y", 2), "b": ("X", 2)}


def test_size_is_by_the_mean_speed_of_the_types():
    # a: 60 iterations at the mean of 1/2 and 1/6, 3 s: 180 GPU s; b: 100 at 1 s: 100 GPU s. On
    # the type that a asks for it would have 120 and 2 s; b goes first: it takes X.
    times = {"m": {"X": {1: 2.0}, "Y": {1: 6.0}}, "n": {"X": {1: 1.0}, "Y": {1: 1.0}}}
    jobs = [Job("a", 0, 60, gpu_type="X"), Job("b", 0, 100, family="n")]
    scenario = small_scenario(jobs, {"X": (1, 1), "Y": (1, 1)}, times)
    policy = Ares()
    assert first_decided(scenario, policy) == {"b": ("X", 1), "a": ("Y", 1)}
    assert policy._queue._finish[:2].tolist() == pytest.approx([180.0, 100.0])


def test_ares_figure_1():
    # On the whole cluster the jobs take 1, 1, 1, 1, 9 h: one by one they end at 1, 2, 3, 4, 13 h.
    hour = 3600
    jobs = [Job(f"j{i}", 0, hours * hour) for i, hours in enumerate((9, 1, 1, 1, 1))]
    scenario = small_scenario(jobs, {"X": (1, 4)}, LINEAR)
    done = ends(simulate(scenario, Ares(round_s=None), Buddy()))
    assert done == {"j0": 13 * hour, "j1": hour, "j2": 2 * hour, "j3": 3 * hour, "j4": 4 * hour}


def test_a_job_of_earlier_virtual_finish_preempts_one_of_a_later():
    # 4 GPUs. P of 100 s on 4 at 0: F = 400. At 20, V = 80. Q of 30 s: F = 80 + 120 = 200 < 400.
    # At 40, V = 80 + 20 x 4/2 = 120. R of 75 s: F = 120 + 300 = 420 > 400: behind P, though it
    # has less left. Q ends at 50, P at 130, R at 205.
    jobs = [Job("P", 0, 100), Job("Q", 20, 30), Job("R", 40, 75)]
    run = simulate(small_scenario(jobs, {"X": (1, 4)}, LINEAR), Ares(round_s=None), Buddy())
    assert ends(run) == {"P": 130.0, "Q": 50.0, "R": 205.0}
    preempted = [event.job for event in run.simulation.log.events if event.event_type == EventType.PREEMPT]
    assert preempted == [0]


def test_doublings_are_of_the_request_as_it_is():
    # Any count is allowed. A request of 3 doubles to 6 (efficiency 0.9) of 8 GPUs, not to 4, 5, 7 or 8;
    # its size is 100 x 3 s x 3 GPUs = 900 GPU s. With 5 GPUs it stays at 3.
    times = {"m": {"X": {3: 3.0, 4: 2.3, 5: 1.9, 6: 1.5 / 0.9, 7: 1.4, 8: 1.2}}}
    for gpus, chosen in ((8, 6), (5, 3)):
        scenario = small_scenario([Job("a", 0, 100, gpus=3)], {"X": (1, gpus)}, times, counts_rule="any")
        policy = Ares()
        assert first_decided(scenario, policy) == {"a": ("X", chosen)}
        assert policy._queue._finish[:1].tolist() == pytest.approx([900.0])


@pytest.mark.parametrize(
    ("checkpoint_s", "guard", "end_s"), [(1.0, True, 61.0), (2.0, True, 100.0), (60.0, False, 120.0)]
)
def test_a_running_job_grows_whatever_the_restart_costs_but_by_the_guard(checkpoint_s, guard, end_s):
    # a holds 2 of 4 GPUs beside b, which ends at 20; then a has 40 iterations left: 80 s on 2, 40 s on 4.
    # As published it restarts even for 60 s, which costs more than it saves. By the guard it has held its
    # GPUs for 20 restarts of 1 s, but not of 2 s, when b ends, and nothing happens after that.
    jobs = [Job("a", 0, 50, gpus=2), Job("b", 0, 10, gpus=2, family="two")]
    times = {**LINEAR, "two": {"X": {2: 2.0}}}
    scenario = small_scenario(jobs, {"X": (1, 4)}, times, checkpoint_s={"m": checkpoint_s})
    done = ends(simulate(scenario, Ares(guard=guard, round_s=None), Buddy(defragment_s=None)))
    assert done == {"b": 20.0, "a": end_s}


@given(random_scenarios())
@settings(max_examples=40, deadline=None)
def test_the_online_clock_is_the_offline_reference(scenario):
    policy = Ares()
    assert all_left(simulate(scenario, policy, Buddy()))
    n, submit_s = len(scenario.trace), scenario.trace.submit_s
    times = scenario.known_times(InformationClass.DATA_PARALLEL)[scenario.class_of]
    level = np.searchsorted(scenario.tables.counts, scenario.request_gpus)
    speed = 1 / times[np.arange(n), :, level]
    capacity = np.where(speed > 0, scenario.cluster.capacity, 0)
    mean = (speed * capacity).sum(axis=1) / capacity.sum(axis=1)
    work = scenario.trace.iterations / mean * scenario.request_gpus
    offline = virtual_finish(submit_s, work, float(scenario.cluster.capacity.sum()))
    np.testing.assert_allclose([policy._queue._finish[row] for row in range(n)], offline, rtol=1e-9)


# The delay bound

M = 8


@st.composite
def _families(draw, alpha):
    """Draw times whose per-GPU efficiency falls from 1 on one GPU to alpha at least on all."""
    families = {}
    for name in "mno":
        efficiency = sorted((draw(st.floats(alpha, 1.0)) for _ in range(3)), reverse=True)
        base = draw(st.floats(1.0, 10.0))
        families[name] = {
            "X": {k: base / (k * e) for k, e in zip((1, 2, 4, 8), (1.0, *efficiency), strict=True)}
        }
    return families


@st.composite
def _bounded(draw):
    alpha = draw(st.sampled_from([0.6, 0.75, 0.9, 1.0]))
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 200),
                st.integers(1, 300),
                st.sampled_from([1, 2, 4, 8]),
                st.sampled_from("mno"),
            ),
            min_size=1,
            max_size=10,
        )
    )
    jobs = [
        Job(f"j{i}", submit, iterations, gpus, family=family)
        for i, (submit, iterations, gpus, family) in enumerate(sorted(rows))
    ]
    return alpha, small_scenario(jobs, {"X": (1, M)}, draw(_families(alpha)))


def _served_up_to(row, submit_s, finish_s, virtual, work):
    """Return the work of jobs of no later virtual finish in the busy period in which a job ends."""
    among = np.flatnonzero(virtual <= virtual[row] * (1 + 1e-12))
    start_s = finish_s[row]
    while (earlier := among[(submit_s[among] < start_s) & (finish_s[among] >= start_s - 1e-9)]).size:
        start_s = submit_s[earlier].min()
    return work[among[submit_s[among] >= start_s]].sum()


@given(_bounded())
@settings(max_examples=120, deadline=None)
def test_no_job_ends_later_than_under_fair_sharing_by_more_than_the_bound(drawn):
    # f - f~ <= (1/alpha - 1) W/M, W the work of jobs of no later virtual finish in its busy period:
    # with efficiency alpha on all M GPUs, one by one, W takes at most W / (alpha M); under fair
    # sharing the same jobs take at least W/M, as all of them end by f~.
    alpha, scenario = drawn
    trace = scenario.trace
    done = ends(simulate(scenario, Ares(alpha=alpha, round_s=None), Buddy()))
    finish_s = np.array([done[job] for job in trace.job_id])
    work = trace.iterations * scenario.reference_iteration_time_s * scenario.request_gpus
    fair_s = fluid_finish_s(trace.submit_s, work, M)
    virtual = virtual_finish(trace.submit_s, work, M)
    for row in range(len(trace)):
        served = _served_up_to(row, trace.submit_s, finish_s, virtual, work)
        assert finish_s[row] - fair_s[row] <= (1 / alpha - 1) * served / M + 1e-3


def test_the_bound_counts_all_work_served_before_not_a_job_of_its_own():
    # Three equal jobs of 8 GPU s whose efficiency on all 8 GPUs is exactly 0.8. Fair sharing ends
    # all at 3 s; one by one they end at 1.25, 2.5, 3.75: the last 0.75 s late, which is
    # (1/0.8 - 1) x 3 s of work before and with it, but more than (1/0.8 - 1) x 1 s of its own.
    times = {"m": {"X": {1: 1.0, 8: 1 / (8 * 0.8)}}}
    scenario = small_scenario([Job(f"j{i}", 0, 8) for i in range(3)], {"X": (1, 8)}, times)
    done = ends(simulate(scenario, Ares(alpha=0.8, round_s=None), Buddy()))
    assert done == {"j0": 1.25, "j1": 2.5, "j2": 3.75}


# The work-conserving variant


def conserving(**parameters):
    return Ares(work_conserving=True, **parameters)


CURVED = {"m": {"X": {1: 8.0, 2: 4.4, 4: 2.6, 8: 1.8}}}


def test_work_conserving_caps_then_hands_out_what_is_left():
    # Per-GPU efficiency 0.91, 0.77, 0.56. One job alone has 4 by alpha, then the 4 left over. Two
    # have at most 2 x 8 / 2 = 8, by alpha 4 each. Eight have at most 2: four get 2, four wait.
    def decided(n):
        jobs = [Job(f"j{i}", 0, 100 + i) for i in range(n)]
        return first_decided(small_scenario(jobs, {"X": (1, 8)}, CURVED), conserving())

    assert decided(1) == {"j0": ("X", 8)}
    assert decided(2) == {"j0": ("X", 4), "j1": ("X", 4)}
    assert decided(8) == {f"j{i}": ("X", 2) for i in range(4)}


def test_work_conserving_shrinks_a_large_request_rather_than_let_it_wait():
    # At most 2 x 10 / 4 = 5 GPUs each. Sizes are 80, 52.8, 1296 and 1600 GPU s: b and a get 4 each,
    # c, which asks for 8, the 2 that are left, and d waits.
    jobs = [Job("a", 0, 10), Job("b", 0, 6, gpus=2), Job("c", 0, 90, gpus=8), Job("d", 0, 200)]
    scenario = small_scenario(jobs, {"X": (1, 10)}, CURVED)
    assert first_decided(scenario, conserving()) == {"b": ("X", 4), "a": ("X", 4), "c": ("X", 2)}


@given(random_scenarios(), st.booleans())
@settings(max_examples=60, deadline=None)
def test_decisions_are_legal_and_all_jobs_end(scenario, work_conserving):
    assert all_left(simulate(scenario, Ares(work_conserving=work_conserving), Buddy()))


# Unknown sizes


@given(random_scenarios(data_parallel_fits=False), st.booleans(), st.sampled_from([0.0, 0.3, 1.0]))
@settings(max_examples=60, deadline=None)
def test_jobs_of_unknown_size_end_too(scenario, work_conserving, pool):
    policy = Ares(work_conserving=work_conserving, unknown_pool=pool)
    assert all_left(simulate(scenario, policy, Buddy()))


@pytest.mark.parametrize(
    ("pool", "decided"), [(0.0, {"known": ("X", 4)}), (0.5, {"unknown": ("X", 2), "known": ("X", 2)})]
)
def test_jobs_of_unknown_size_go_first_on_their_pool(pool, decided):
    # The unknown one counts at the mean of the known, 40 GPU s: it comes second, and known doubles to
    # all 4 GPUs. On a pool of 2 it goes first.
    times = {"m": {"X": {2: 2.0, 4: 1.0}}, "u": {"X": {2: 2.0}}}
    jobs = [Job("known", 0, 10, gpus=2), Job("unknown", 0, 10, gpus=2, family="u")]
    scenario = without_profiles(small_scenario(jobs, {"X": (1, 4)}, times), "u")
    assert first_decided(scenario, Ares(unknown_pool=pool)) == decided


@pytest.mark.slow
def test_jobs_are_preempted_less_than_twice():
    scenario = clustergym.load_scenario("ares")
    for work_conserving in (False, True):
        result = clustergym.simulate(scenario, Ares(work_conserving=work_conserving))
        assert result.metrics["preemptions_mean"] < 2
