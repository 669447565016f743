"""What a run prints before it: the heading, and what became of the GPUs that jobs asked for, job by job."""

from dataclasses import replace

import numpy as np
import pytest
from clustergym.policies.placers.buddy import Buddy
from scenarios import Job, small_scenario

from clustergym.results.report.run_text import print_heading, print_request_changes, print_results
from clustergym.scenario.registry import make_policy
from clustergym.scenario.request_changes import RequestChanges, request_changes
from clustergym.scenario.scenario import Scenario

NOTHING = RequestChanges(0, 0, 0, (0, 0), 0, 0, 0, 0)
# Model m fits on every count of X and on none of Y; model n needs 4 GPUs of X; model o runs nowhere.
TIMES = {"m": {"X": {1: 4.0, 2: 2.0, 4: 1.0, 8: 0.5}}, "n": {"X": {4: 1.0, 8: 0.5}}, "o": {}}


def scenario(jobs: list[Job], horizon_s: float | None = None) -> Scenario:
    return small_scenario(jobs, {"X": (2, 4), "Y": (1, 2)}, TIMES, oversize="drop", horizon_s=horizon_s)


JOBS = [
    Job("as asked", 0.0, 10, gpus=4),
    Job("3 to 4", 0.0, 10, gpus=3),
    Job("5 to 8", 1.0, 10, gpus=5),
    Job("needs 4", 2.0, 10, gpus=2, family="n"),
    Job("moved", 3.0, 10, gpus=1, gpu_type="Y"),
    Job("too large", 4.0, 10, gpus=16),
    Job("nowhere", 5.0, 10, gpus=1, family="o"),
]


def test_each_job_is_counted_once() -> None:
    found = request_changes(scenario(JOBS))
    # 3 + 5 GPUs became 4 + 8; the second was rounded up by most.
    assert found == RequestChanges(2, 8, 12, (5, 8), raised=1, moved=1, too_large=1, no_time=1)
    assert found.dropped == 2
    assert found.counts == {"rounded": 2, "raised": 1, "moved": 1, "too_large": 1, "no_time": 1}
    assert request_changes(scenario(JOBS[:1])) == NOTHING
    assert NOTHING.counts == {}


def test_what_a_log_asked_for_counts_where_reading_rounded_it() -> None:
    made = scenario(JOBS[:2])
    read = replace(made, trace=replace(made.trace, asked_gpus=np.array([3, 3])))
    assert request_changes(read) == RequestChanges(2, 6, 8, (3, 4), 0, 0, 0, 0)


def test_the_heading(capsys: pytest.CaptureFixture[str]) -> None:
    policies = [make_policy({"name": name}) for name in ("srtf", "fcfs")]
    print_heading(scenario(JOBS), policies, 7, Buddy(defragment_s=3600.0))
    assert capsys.readouterr().out.splitlines() == [
        "srtf against fcfs on scenario small v0: trace small (7 jobs), cluster small (8 X + 2 Y),"
        " seed 7, to completion",
        "note: each 3,600 s placer buddy may move running jobs to closer nodes, under any policy"
        " (never: placer.defragment_s=null)",
        "note: 2 of 7 GPU counts were rounded up to powers of two, 8 GPUs to 12 in all (at most 5 to 8;"
        " keep them: trace.counts=keep)",
        "note: jobs that do not fit in memory as they ask: 1 were raised to the least count that fits,"
        " 1 moved to another GPU type (see jobs.csv)",
        "note: 2 of 7 jobs are dropped: 1 ask for more GPUs than the cluster has,"
        " 1 have no iteration time on any of its GPUs (see jobs.csv)",
    ]
    print_heading(scenario(JOBS[:1], horizon_s=7200.0), policies[1:], 0, Buddy(defragment_s=None))
    assert capsys.readouterr().out.splitlines() == [
        "fcfs on scenario small v0: trace small (1 jobs), cluster small (8 X + 2 Y), seed 0, for 7,200 s"
    ]


def test_only_what_changed_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for changes, line in (
        (replace(NOTHING, raised=1), "1 were raised to the least count that fits, 0 moved"),
        (replace(NOTHING, moved=1), "0 were raised to the least count that fits, 1 moved"),
        (
            replace(NOTHING, too_large=1),
            "1 of 9 jobs are dropped: 1 ask for more GPUs than the cluster has (see",
        ),
        (
            replace(NOTHING, no_time=1),
            "1 of 9 jobs are dropped: 1 have no iteration time on any of its GPUs (see",
        ),
    ):
        print_request_changes(changes, 9)
        printed = capsys.readouterr().out
        assert line in printed
        assert printed.count("note:") == 1
    print_request_changes(NOTHING, 9)
    assert capsys.readouterr().out == ""


def test_the_mean_alone(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    metrics = {"jct_mean": 1234.6, "jct_mean_censored": 2000.4, "jobs_dropped": 0, "jobs_total": 7}
    print_results([{"metrics": metrics}], scenario(JOBS), tmp_path / "a", in_full=False)
    print_results(
        [{"metrics": metrics | {"jobs_dropped": 2}}], scenario(JOBS, 9.0), tmp_path / "a", in_full=False
    )
    print_results([{"metrics": metrics | {"jct_mean": None}}], scenario(JOBS), tmp_path / "a", in_full=False)
    assert capsys.readouterr().out.splitlines() == [
        "mean JCT 1,235 s; wrote a/",
        "mean JCT 2,000 s, unfinished jobs counted to the horizon without 2 of 7 jobs,"
        " which were dropped; wrote a/",
        "mean JCT -; wrote a/",
    ]
