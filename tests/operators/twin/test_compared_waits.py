"""A replay's starts beside those of a log, and drawn logs and changed files of a question, by hand."""

import csv
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from clustergym.operators.twin.folder import TwinFolder
from clustergym.operators.twin.waits import JobTable, compare, list_groups
from clustergym.operators.twin.whatif import Question, changed_cluster, changed_queues, draw_log, make_label

from clustergym.common.errors import InputError
from clustergym.trace.formats import load_trace
from clustergym.trace.trace import Trace

DAY_S = 86_400.0


def log_of(submit_s: Sequence[float], run_s: Sequence[float], **columns: object) -> Trace:
    ones = np.ones(len(submit_s), dtype=np.int64)
    given = {"job_id": tuple(f"j{row}" for row in range(len(submit_s))), "gpus": ones} | columns
    job_id, gpus = given.pop("job_id"), given.pop("gpus")
    return Trace.from_columns("t", np.array(submit_s), np.array(run_s), gpus, job_id=job_id, **given)


def test_starts_beside_those_of_a_log():
    # Logged waits: 0, then 100 s each. Simulated: as logged, a minute later, 61 s earlier, 200 s later,
    # and never.
    trace = log_of(
        [0.0, 10.0, 20.0, 30.0, 40.0],
        [100, 100, 100, 100, 100],
        gpus=np.array([1, 1, 2, 2, 4]),
        start_s=np.array([0.0, 110.0, 120.0, 130.0, 140.0]),
        virtual_cluster=("a", "a", "a", "b", "b"),
    )
    fit = compare(trace, np.array([0.0, 170.0, 59.0, 330.0, np.nan]))
    whole = fit["waits"]["all"]["all jobs"]
    assert (whole["logged"]["jobs"], whole["logged"]["mean_s"]) == (5, 80.0)
    assert (whole["simulated"]["jobs"], whole["simulated"]["mean_s"]) == (4, (0 + 160 + 39 + 300) / 4)
    assert whole["close"] == 0.4
    assert {name: one["close"] for name, one in fit["waits"]["team"].items()} == {"a": 2 / 3, "b": 0.0}
    assert {name: one["close"] for name, one in fit["waits"]["size"].items()} == {
        "1": 1.0,
        "2": 0.0,
        "3-4": 0.0,
    }
    largest = [
        {"job_id": "j3", "gpus": 2, "late_s": 200.0},
        {"job_id": "j2", "gpus": 2, "late_s": -61.0},
    ]
    assert fit["unexplained"] == {
        "mean_error_of_starts_s": (0 + 60 + 61 + 200) / 4,
        "earlier_than_logged": 0.25,
        "later_than_logged": 0.25,
        "never_started": 1,
        "largest": largest,
    }


def test_nothing_started():
    trace = log_of([0.0, 10.0], [100, 100], start_s=np.array([0.0, 10.0]))
    fit = compare(trace, np.array([np.nan, np.nan]))
    assert fit["waits"]["all"]["all jobs"]["close"] == 0.0
    assert fit["unexplained"] == {
        "mean_error_of_starts_s": None,
        "earlier_than_logged": None,
        "later_than_logged": None,
        "never_started": 2,
        "largest": [],
    }


def test_ten_jobs_are_told_of_those_that_differ_most():
    trace = log_of([0.0] * 12, [100] * 12, start_s=np.zeros(12))
    told = compare(trace, 61.0 + np.arange(12.0))["unexplained"]["largest"]
    assert [one["late_s"] for one in told] == [72.0 - place for place in range(10)]


def test_the_teams_of_least_gpu_time_are_one_group():
    names = [f"t{number:02d}" for number in range(14)]
    gpu_s = np.arange(14.0)
    gpu_s[3] = 2.0  # As much as t02: the first by name is shown.
    table = JobTable(np.ones(14, dtype=np.int64), gpu_s, np.zeros(14), 0.0, names, [""] * 14)
    found = {name: np.flatnonzero(mine).tolist() for name, mine in list_groups(table, "team")}
    assert list(found) == [*(f"t{number:02d}" for number in range(13, 3, -1)), "t02", "t03", "2 others"]
    assert found["2 others"] == [0, 1]
    assert found["t13"] == [13]


def test_a_drawn_log_has_the_columns_and_times_of_day_of_the_log(tmp_path):
    # Three days of two jobs, of which the third begins at 06:00 after the first one.
    submit_s = [DAY_S * day + second for day in range(3) for second in (0.0, 21_600.0)]
    named = {"virtual_cluster": tuple("abcdef"), "user": tuple("uvwxyz"), "partition": tuple("klmnop")}
    named |= {"provenance": {"origin": "1970-01-08T00:00:00"}}
    trace = log_of(submit_s, [60, 70, 80, 90, 100, 110], gpus=np.arange(1, 7), **named)
    drawn = draw_log(trace, 2.2, 3, tmp_path / "log.csv")
    again = load_trace(tmp_path / "log.csv")
    # 2.2 days are two whole ones, and the jobs of a third's first 4.8 hours.
    assert drawn.jobs == len(again) == 5
    assert again.submit_s.tolist() == [0.0, 21_600.0, DAY_S, DAY_S + 21_600.0, 2 * DAY_S]
    assert drawn.origin_s == again.clock_start_s == 7 * DAY_S
    assert drawn.path == tmp_path / "log.csv"
    rows = [int(one.removeprefix("j").partition("~")[0]) for one in again.job_id]
    assert [one.partition("~")[2] for one in again.job_id] == ["0", "0", "1", "1", "2"]
    assert [row % 2 for row in rows] == [0, 1, 0, 1, 0]
    lines = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    assert [float(line["duration"]) for line in lines] == [60.0 + 10 * row for row in rows]
    assert [int(line["gpus"]) for line in lines] == [1 + row for row in rows]
    for name in ("virtual_cluster", "user", "partition"):
        assert list(getattr(again, name)) == [named[name][row] for row in rows]


@pytest.fixture
def twin(tmp_path):
    """A folder of 2 nodes of 8 A100, and the queues a and b."""
    folder, out = tmp_path / "twin", tmp_path / "out"
    folder.mkdir()
    out.mkdir()
    nodes = [{"gpu_type": "A100", "count": 2, "gpus_per_node": 4}]
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"name": "c", "nodes": nodes}))
    queues = {"a": {"quota": 3}, "b": None}
    (folder / "queues.yaml").write_text(yaml.safe_dump({"queues": queues}))
    return TwinFolder(folder), out


def test_gpus_are_added_as_whole_nodes(twin):
    folder, out = twin
    path = changed_cluster(folder, ["8xa100", "16xV100", "8xV100"], out)
    assert path == out / "cluster.yaml"
    nodes = [
        (one["gpu_type"], one["count"], one["gpus_per_node"])
        for one in yaml.safe_load(path.read_text())["nodes"]
    ]
    assert nodes == [("A100", 4, 4), ("V100", 3, 8)]


def test_quotas_and_limits_are_those_of_the_question(twin):
    folder, out = twin
    path = changed_queues(folder, Question(quotas={"b": 2.0}, limits={"a": 6.0}), out)
    assert yaml.safe_load(path.read_text())["queues"] == {
        "a": {"quota": 3, "limit": 6.0},
        "b": {"quota": 2.0},
    }
    with pytest.raises(InputError, match=r"^--limit: no queue 'aa' \(did you mean"):
        changed_queues(folder, Question(limits={"aa": 6.0}), out)


def test_labels_of_options():
    study = SimpleNamespace(reference_policy="today's rules")
    assert make_label(study, "today", "today's rules") == "today"
    assert make_label(study, "16xA100 more", "today's rules") == "16xA100 more"
    assert make_label(study, "today", "srtf") == "srtf"
    assert make_label(study, "16xA100 more", "srtf") == "16xA100 more, srtf"
