"""Four jobs, two GPU types, costs included, worked out job by job."""

import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, Script, small_scenario

from clustergym.results.measured_run import measure_run
from clustergym.scenario.costs import Costs
from clustergym.sim.drive import simulate
from clustergym.sim.log import NO_JOB, Event, EventType

# Cluster: X, one node of 4 GPUs; Y, one node of 2. Decision points at events.
# Restart: checkpoint A 30 s, B 20 s, C 5 s, D 10 s, and a search of 10 s a GPU, at most 40 s,
# for an allotment the job has not had before.
TIMES = {
    "a": {"X": {1: 8.0, 2: 4.0, 4: 2.0}, "Y": {2: 10.0}},
    "b": {"X": {1: 9.0, 2: 5.0, 4: 3.0}, "Y": {1: 12.0, 2: 6.0}},
    "c": {"X": {1: 4.0}, "Y": {1: 7.0}},
    "d": {"X": {2: 4.0, 4: 2.5}},
}
JOBS = [
    Job("A", 0.0, 100, gpus=4, gpu_type="X", family="a"),
    Job("B", 50.0, 60, gpus=2, gpu_type="X", family="b"),
    Job("C", 100.0, 10, gpus=1, gpu_type="Y", family="c"),
    Job("D", 100.0, 30, gpus=2, gpu_type="X", family="d"),
]
SCRIPT = {
    # A starts on 4 X: search 40 s, works from 40 at 2 s.
    0.0: {"A": ("X", 4)},
    # A has done (50-40)/2 = 5, 95 left; to 2 X: 30 + 20 = 50 s, works from 100 at 4 s.
    # B starts on 2 X: search 20 s, works from 70 at 5 s.
    50.0: {"A": ("X", 2), "B": ("X", 2)},
    # B has done (100-70)/5 = 6, 54 left; preempted for D: search 20 s, works from 120 at 4 s,
    # 30 x 4 = 120 s: ends at 240. C on 1 Y: search 10 s, works from 110, 10 x 7 = 70 s: ends at 180.
    100.0: {"A": ("X", 2), "C": ("Y", 1), "D": ("X", 2)},
    # C has ended. B resumes on 2 Y: 20 + 20 = 40 s, works from 220, 54 x 6 = 324 s: ends at 544.
    180.0: {"A": ("X", 2), "D": ("X", 2), "B": ("Y", 2)},
    # D has ended. A has done (240-100)/4 = 35, 60 left; back to 4 X, searched before: 30 s,
    # works from 270, 60 x 2 = 120 s: ends at 390.
    240.0: {"A": ("X", 4), "B": ("Y", 2)},
}


def make_scenario():
    return small_scenario(
        JOBS,
        {"X": (1, 4), "Y": (1, 2)},
        TIMES,
        checkpoint_s={"a": 30.0, "b": 20.0, "c": 5.0, "d": 10.0},
        costs=Costs(search="pruned", profile={}),
    )


@pytest.fixture
def run():
    scenario = make_scenario()
    return simulate(scenario, Script(scenario, SCRIPT), Buddy(defragment_s=None))


def test_every_job_ends_when_worked_out(run):
    ends = {e.job: e.time_s for e in run.simulation.log.events if e.event_type == EventType.COMPLETE}
    assert ends == {0: 390.0, 1: 544.0, 2: 180.0, 3: 240.0}


def test_an_event_has_what_is_said_of_its_kind_and_no_more(run):
    waiting = [e for e in run.simulation.log.events if not e.iteration_time_s]
    assert {e.event_type for e in waiting} == {EventType.SUBMIT, EventType.PREEMPT, EventType.COMPLETE}
    nothing = (-1, 0, (), -1, 0.0, 0.0, "", 0.0, 0.0, 0, 0, NO_JOB, "", 0.0)
    assert {e[3:] for e in waiting} == {nothing}
    assert Event(0.0, EventType.SUBMIT, 0)[3:] == nothing
    first = next(e for e in run.simulation.log.events if e.event_type == EventType.START)
    assert first[3:] == (0, 4, ((0, 4),), 0, 40.0, 2.0, "", 0.0, 0.0, 0, 0, NO_JOB, "", 0.0)


def test_a_run_says_how_long_it_took(run):
    assert 0 < run.decision_times.percentile(0.99) <= run.wall_s * 1.02


def test_nobody_trains_at_another_batch(run):
    assert {event.batch for event in run.simulation.log.events} == {0}


def test_every_launch_costs_what_was_worked_out(run):
    launches = [
        (e.time_s, e.event_type.value, "ABCD"[e.job], e.gpu_type, e.gpus, e.overhead_s, e.iteration_time_s)
        for e in run.simulation.log.events
        if e.iteration_time_s
    ]
    assert launches == [
        (0.0, "start", "A", 0, 4, 40.0, 2.0),
        (50.0, "rescale", "A", 0, 2, 50.0, 4.0),
        (50.0, "start", "B", 0, 2, 20.0, 5.0),
        (100.0, "start", "D", 0, 2, 20.0, 4.0),
        (100.0, "start", "C", 1, 1, 10.0, 7.0),
        (180.0, "resume", "B", 1, 2, 40.0, 6.0),
        (240.0, "rescale", "A", 0, 4, 30.0, 2.0),
    ]


def test_metrics_are_those_worked_out(run):
    metrics = measure_run(run.simulation).metrics
    assert metrics["jobs_finished"] == 4
    # JCT: A 390, B 544-50 = 494, C 80, D 140; mean 1104/4.
    assert metrics["jct_mean"] == pytest.approx(276.0)
    assert metrics["makespan"] == pytest.approx(544.0)
    # B alone waits without GPUs, from 100 to 180.
    assert metrics["queue_mean"] == pytest.approx(80.0 / 4)
    # A is rescaled twice, B resumed once; the first launches are no restarts.
    assert metrics["restarts_mean"] == pytest.approx(3 / 4)
    assert metrics["preemptions_mean"] == pytest.approx(1 / 4)
    # Standstill x GPUs: A 40x4 + 50x2 + 30x4 = 380, B 20x2 + 40x2 = 120, C 10, D 40; 550 GPU-s.
    assert metrics["overhead_gpu_hours"] == pytest.approx(550 / 3600)
    # Held: A 50x4 + 190x2 + 150x4 = 1180, B 50x2 + 364x2 = 828, C 80, D 280: 2368 GPU-s, of which
    # 550 at a standstill; of 6 GPUs for 544 s.
    assert metrics["gpu_utilization"] == pytest.approx((2368 - 550) / (6 * 544))


def test_a_view_shows_progress_at_its_own_speed():
    scenario = make_scenario()
    script = Script(scenario, SCRIPT)
    simulate(scenario, script, Buddy(defragment_s=None))
    at = {view.now_s: view for view in script.views}
    assert at[50.0].remaining_iterations[0] == pytest.approx(95.0)
    assert at[100.0].remaining_iterations.tolist() == pytest.approx([95.0, 54.0, 10.0, 30.0])
    # A was rescaled at 50, B resumes at 180; D starts for the first time at 100.
    assert (at[180.0].job.tolist(), at[180.0].restarts.tolist()) == ([0, 1, 3], [1, 0, 0])
    assert (at[240.0].job.tolist(), at[240.0].restarts.tolist()) == ([0, 1], [1, 1])
    # Nobody stands still: A works again from 100 on, B since 70, and C and D wait.
    assert at[100.0].standstill_s.tolist() == [0.0] * 4
    # Held so far at 100: A 4 GPUs for 50 s, then 2 for 50 s; B 2 GPUs for 50 s.
    assert at[100.0].attained_gpu_s.tolist() == pytest.approx([300.0, 100.0, 0.0, 0.0])
    assert at[240.0].remaining_iterations.tolist() == pytest.approx([60.0, 54.0 - 20.0 / 6.0])
