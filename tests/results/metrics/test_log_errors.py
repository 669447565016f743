"""A log that contradicts itself, its trace, or the conservation of work is refused by job and event."""

import numpy as np
import pytest
from scenarios import Job, small_cluster, small_trace

from clustergym.results.metrics.intervals import LogError, read_intervals
from clustergym.results.metrics.jobs import check_work_conserved
from clustergym.results.metrics.metrics import measure
from clustergym.sim.log import Event, EventType

K = EventType
TRACE = small_trace([Job("one", 0.0, 10), Job("two", 5.0, 10)])
SUBMIT = [Event(0.0, K.SUBMIT, 0), Event(5.0, K.SUBMIT, 1)]


def run(time_s: float, kind: EventType = K.START, job: int = 0, **changes) -> Event:
    return Event(time_s, kind, job, 0, 1, ((0, 1),), 0, 0.0, 1.0)._replace(**changes)


CASES = {
    "before its submission": ([run(0.0, job=1), *SUBMIT], r"job two: .*before the job's submission"),
    "submitted late": ([SUBMIT[0], Event(6.0, K.SUBMIT, 1)], "job two: .*not at the submit time"),
    "submitted twice": ([SUBMIT[0], SUBMIT[0], SUBMIT[1]], "job one: event 1 .*does not follow"),
    "never submitted": ([SUBMIT[0]], "job two: due at 5.0 s but never submitted"),
    "starts unsubmitted": ([SUBMIT[0], run(5.0, job=1)], "job two: event 1 .*does not follow"),
    "resumes without a preemption": ([*SUBMIT, run(6.0, K.RESUME)], "job one: event 2 .*does not follow"),
    "starts while running": ([*SUBMIT, run(6.0), run(7.0)], "job one: event 3 .*does not follow"),
    "starts again after a preemption": (
        [*SUBMIT, run(6.0), Event(7.0, K.PREEMPT, 0), run(8.0)],
        "job one: event 4 .*does not follow",
    ),
    "preempted while queued": ([*SUBMIT, Event(6.0, K.PREEMPT, 1)], "job two: event 2 .*does not follow"),
    "completes while queued": ([*SUBMIT, Event(6.0, K.COMPLETE, 1)], "job two: event 2 .*does not follow"),
    "runs after completion": (
        [*SUBMIT, run(5.0), Event(15.0, K.COMPLETE, 0), run(16.0, K.RESUME)],
        "job one: event 4 .*does not follow",
    ),
    "goes back in time": ([*SUBMIT, run(9.0), run(8.0, job=1)], "job two: event 3 .*before the event above"),
    "after the end": ([*SUBMIT, run(101.0)], "job one: .*after the end of the run"),
    "time not a number": ([*SUBMIT, run(float("nan"))], "job one: .*after the end of the run"),
    "no such row": ([*SUBMIT, run(6.0, job=2)], "row 2: .*no such row"),
    "negative row": ([*SUBMIT, run(6.0, job=-1)], "row -1: .*no such row"),
    "no GPUs": ([*SUBMIT, run(6.0, gpus=0)], "job one: .*holds no GPUs"),
    "no GPU type": ([*SUBMIT, run(6.0, gpu_type=-1)], "job one: .*holds no GPUs"),
    "no speed": ([*SUBMIT, run(6.0, iteration_time_s=0.0)], "job one: .*iteration time"),
    "infeasible": ([*SUBMIT, run(6.0, iteration_time_s=float("inf"))], "job one: .*iteration time"),
    "negative overhead": ([*SUBMIT, run(6.0, overhead_s=-1.0)], "job one: .*negative overhead"),
    "profile end without a start": (
        [*SUBMIT, Event(6.0, K.PROFILE_END, 0, 0, 1)],
        "job one: event 2 .*had not",
    ),
    "profile end on another type": (
        [*SUBMIT, Event(6.0, K.PROFILE_START, 0, 0, 1), Event(7.0, K.PROFILE_END, 0, 1, 1)],
        "job one: event 3 .*had not started",
    ),
    "profile end of another job": (
        [*SUBMIT, Event(6.0, K.PROFILE_START, 0, 0, 1), Event(7.0, K.PROFILE_END, 1, 0, 1)],
        "job two: event 3 .*had not started",
    ),
    "profile ends before it starts": (
        [*SUBMIT, Event(6.0, K.PROFILE_END, 0, 0, 1), Event(7.0, K.PROFILE_START, 0, 0, 1)],
        "job one: event 2 .*had not started",
    ),
    "profiled before its submission": (
        [Event(0.0, K.PROFILE_START, 1, 0, 1), *SUBMIT],
        "job two: .*before the job's",
    ),
    "profiled after it left": (
        [*SUBMIT, Event(6.0, K.DROP, 0), Event(7.0, K.PROFILE_START, 0, 0, 1)],
        "job one: .*after the job left",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_refused(name):
    events, message = CASES[name]
    with pytest.raises(LogError, match=message):
        read_intervals(events, TRACE, 100.0)


def test_two_profilings_of_one_type_are_matched_in_order():
    times = [(6.0, K.PROFILE_START), (7.0, K.PROFILE_START), (9.0, K.PROFILE_END), (12.0, K.PROFILE_END)]
    log = [*SUBMIT, *(Event(time_s, kind, 0, 1, 1) for time_s, kind in times)]
    profiles = read_intervals(log, TRACE, 100.0).profiles
    assert profiles.start_s.tolist() == [6.0, 7.0]
    assert profiles.stop_s.tolist() == [9.0, 12.0]


def _one(*events: Event, end_s: float) -> None:
    check_work_conserved(read_intervals([SUBMIT[0], *events], TRACE.take([0]), end_s))


def test_a_job_that_completes_too_early_or_too_late_is_named():
    start = run(0.0)
    _one(start, Event(10.0, K.COMPLETE, 0), end_s=10.0)
    # 10 iterations of 1 s: at 9.9 s only 9.9 are done.
    with pytest.raises(LogError, match=r"job one: finished with 9\.9 of 10 iterations"):
        _one(start, Event(9.9, K.COMPLETE, 0), end_s=10.0)
    with pytest.raises(LogError, match=r"job one: finished with 10\.1 of 10 iterations"):
        _one(start, Event(10.1, K.COMPLETE, 0), end_s=11.0)
    with pytest.raises(LogError, match=r"job one: unfinished with 12\.0 of 10 iterations"):
        _one(start, end_s=12.0)


def test_progress_revalued_at_a_new_speed_is_found_out():
    # At half time the speed doubles; 5 + 10 s is not enough if 5 s of 1 s were worth 10 of 0.5 s.
    faster = run(5.0, K.RESCALE, gpus=2, iteration_time_s=0.5)
    _one(run(0.0), faster, Event(7.5, K.COMPLETE, 0), end_s=8.0)
    with pytest.raises(LogError, match=r"job one: finished with 5\.0 of 10"):
        _one(run(0.0), faster, Event(5.0, K.COMPLETE, 0), end_s=8.0)


def test_a_tick_of_the_clock_is_no_lost_work():
    # 10 iterations of 1/3 ms end at 3.333... ms, which the clock gives as 3333 microseconds.
    third = run(0.0, iteration_time_s=0.001 / 3)
    _one(third, Event(0.003333, K.COMPLETE, 0), end_s=1.0)
    with pytest.raises(LogError, match="job one"):
        _one(third, Event(0.003331, K.COMPLETE, 0), end_s=1.0)


def test_metrics_check_the_conservation_of_work():
    log = [SUBMIT[0], run(0.0), Event(9.0, K.COMPLETE, 0)]
    with pytest.raises(LogError, match=r"9\.0 of 10"):
        measure(log, TRACE.take([0]), small_cluster({"X": (1, 4)}), np.array([1.0]), 9.0)
