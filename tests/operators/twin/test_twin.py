"""A twin of a cluster: its log replayed, resampled and priced, on logs of known rules and cases by hand."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from clustergym.operators.commands import twin as twin_command
from clustergym.operators.commands.twin import main
from clustergym.operators.twin.figures import GOODPUT, Prices, UsageCurve, read_power, summarise_run
from clustergym.operators.twin.folder import TwinFolder
from clustergym.operators.twin.waits import JobTable, list_groups, waits
from clustergym.operators.twin.whatif import draw_log, drawn_days
from drawn_logs import draw_jobs, run_log, sacct_text, write_cluster
from error_lines import error_line
from refusals import refused

from clustergym.common.errors import InputError
from clustergym.scenario.by_name import compose
from clustergym.trace.formats import load_trace
from clustergym.trace.log_files import write_log
from clustergym.trace.readers import sacct
from clustergym.trace.trace import Trace

RULES = (
    "SchedulerType = sched/backfill\nPriorityType = priority/basic\nSchedulerParameters = bf_resolution=0\n"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a twin of 32 GPUs whose log Slurm's rules made: 150 jobs in four days, by age."""
    path = tmp_path_factory.mktemp("twin")
    write_cluster(path, A100=2, V100=2)
    rules = path / "config.txt"
    rules.write_text(RULES)
    assert main(["rules", str(rules), "-o", str(path)]) == 0
    log = draw_jobs(path, 150, 3 * 86_400, 5)
    words = TwinFolder(path).policy_words(None)
    text = sacct_text(run_log(path, log, words, str(path / "queues.yaml")))
    (path / "sacct.txt").write_text(text)
    write_log(sacct.read_log(path / "sacct.txt"), path / "log.csv")
    return path


def test_a_log_of_known_rules_comes_back(folder, tmp_path, capsys):
    out = tmp_path / "fit.json"
    assert main(["fit", str(folder), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    whole = found["waits"]["all"]["all jobs"]
    assert whole["logged"]["mean_s"] > 600
    assert whole["simulated"]["mean_s"] == pytest.approx(whole["logged"]["mean_s"], rel=0.02)
    assert whole["close"] >= 0.95
    assert set(found["waits"]) == {"all", "size", "team", "partition", "hour"}
    assert sum(row["logged"]["jobs"] for row in found["waits"]["size"].values()) == 150
    assert "Not explained by the rules" in capsys.readouterr().out


def test_other_rules_do_not_explain_a_log(folder, tmp_path):
    out = tmp_path / "fit.json"
    assert main(["fit", str(folder), "--policy", "sjf", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["waits"]["all"]["all jobs"]["close"] < 0.95
    assert found["unexplained"]["largest"]


def test_jobs_end_as_they_did(folder):
    trace = TwinFolder(folder).log
    logged = sacct.read_log(folder / "sacct.txt")
    assert trace.work_iterations.tolist() == logged.duration_s.tolist()
    assert set(trace.outcome) == {"completed", "failed", "killed"}


def test_a_folder_that_lacks_a_file(tmp_path, capsys):
    assert main(["fit", str(tmp_path)]) == 2
    assert "no such file (write it with clustergym cluster" in error_line(capsys)
    assert main(["fits"]) == 2
    assert "unknown command 'fits' (did you mean fit?" in error_line(capsys)


def test_what_if(folder, tmp_path, capsys):
    out = tmp_path / "asked"
    words = [
        "whatif",
        str(folder),
        "--policy",
        "fcfs",
        "--add",
        "8xA100",
        "--limit",
        "others=24",
        "--days",
        "2",
    ]
    words += ["--resamples", "2", "--price", "2", "--out", str(out), "--json", str(tmp_path / "w.json")]
    assert main(words) == 0
    found = json.loads((tmp_path / "w.json").read_text())
    changed = "8xA100 more and others 24"
    assert list(found["options"]) == ["today", "fcfs", changed, f"{changed}, fcfs"]
    today = found["options"]["today"]
    # Cost is of all GPU-hours, whatever became of them.
    hours = sum(cell["mean"] for cell in today["goodput_gpu_hours"].values())
    assert today["cost"]["all"]["mean"] == pytest.approx(2 * hours)
    assert found["ratios"]["today"]["all"]["all jobs"]["ratio"] == 1.0
    page = (out / "whatif.html").read_text()
    assert "What became of the GPU-hours" in page
    assert "@media print" in page
    capsys.readouterr()
    assert main(words) == 0
    assert "8 runs, 8 finished before" in capsys.readouterr().out


@refused("twin-changes", words=True)
def test_a_question_that_is_wrong(given, said, folder, tmp_path, capsys):
    assert main(["whatif", str(folder), "--out", str(tmp_path / "out"), *given]) == 2
    said.check(error_line(capsys), tmp_path)


def test_a_question_that_changes_nothing(folder, tmp_path, capsys):
    assert main(["whatif", str(folder), "--out", str(tmp_path / "out")]) == 2
    assert "nothing is to be changed (give --policy" in error_line(capsys)


def test_a_policy_that_resizes_jobs_needs_speeds(folder, tmp_path, capsys):
    words = ["whatif", str(folder), "--days", "2", "--resamples", "1", "--out", str(tmp_path), "--policy"]
    assert main([*words, "srtf elastic=true"]) == 2
    assert "a log does not say how fast they are then (add oracle=roofline" in capsys.readouterr().err


def trace_of(submit_s, **columns):
    n = len(submit_s)
    at = np.array(submit_s, dtype=np.float64)
    ones = np.ones(n, dtype=np.int64)
    named = {"model_family": ("m",) * n, "provenance": {"origin": "2026-03-02T00:00:00"}}
    return Trace.from_columns("t", at, 600 * ones, ones, **named | columns)


def test_drawn_days_keep_weekday_and_hour(tmp_path):
    # A job at noon of each day, for 70 days: ten whole weeks.
    trace = trace_of([86_400.0 * day + 43_200 for day in range(71)])
    days = drawn_days(trace, 30, 0)
    assert (days % 7 == np.arange(30) % 7).all()
    weeks = days[:28].reshape(4, 7) // 7
    assert (weeks == weeks[:, :1]).all()
    drawn = draw_log(trace, 30, 0, tmp_path / "log.csv")
    again = load_trace(tmp_path / "log.csv")
    assert drawn.jobs == len(again) == 30
    assert np.diff(again.submit_s).tolist() == [86_400.0] * 29
    assert drawn.origin_s % 86_400 == 43_200
    assert drawn_days(trace, 30, 1).tolist() != days.tolist()


def test_days_of_a_short_log():
    assert (drawn_days(trace_of([0.0, 20 * 86_400.0]), 14, 0) % 7 == np.arange(14) % 7).all()
    with pytest.raises(InputError, match=r"covers 24\.0 h"):
        drawn_days(trace_of([0.0, 86_400.0]), 7, 0)
    # Seconds 0 to 172,799 are two days; without the last one they are a day and a part.
    assert set(drawn_days(trace_of([0.0, 172_799.0]), 40, 0).tolist()) == {0, 1}
    with pytest.raises(InputError, match=r"covers 48\.0 h"):
        drawn_days(trace_of([0.0, 172_798.0]), 7, 0)


def test_waits_by_hand():
    found = waits(np.array([0.0, 60.0, 120.0, np.nan]), np.array([60.0, 60.0, 5.0, 60.0]))
    # Slowdowns 1, 2 and 125 / 10; a job that never started does not count.
    assert (found["jobs"], found["mean_s"], found["p50_s"]) == (3, 60.0, 60.0)
    assert found["slowdown"] == pytest.approx((1 + 2 + 12.5) / 3)
    assert waits(np.array([]), np.array([]))["mean_s"] is None


def test_groups_by_hand():
    table = JobTable(
        np.array([1, 2, 3, 4, 5]),
        np.array([1.0, 1, 1, 1, 9]),
        np.array([0.0, 3600 * 4, 0, 0, 0]),
        0.0,
        ["a", "b", "a", "", "b"],
        [""] * 5,
    )
    assert {name: mine.sum() for name, mine in list_groups(table, "size")} == {
        "1": 1,
        "2": 1,
        "3-4": 2,
        "5-8": 1,
    }
    assert [name for name, _ in list_groups(table, "team")] == ["b", "a", "(none)"]
    assert [name for name, _ in list_groups(table, "hour")] == ["00:00-03:00", "03:00-06:00"]


def test_figures_by_hand():
    # Two GPUs for two hours from 23:30. A completed job holds one for an hour, 6 minutes of it a restart
    # and 12 were undone; then a failed one, submitted at once, holds both for half an hour.
    hours = np.array([0.0, 1.0, 1.5, 2.0]) * 3600
    course = UsageCurve(
        jobs=JobTable(
            np.array([1, 2]), np.array([3600.0, 3600.0]), np.zeros(2), 23.5 * 3600, ["a", "b"], ["", ""]
        ),
        wait_s=np.array([0.0, 3600.0]),
        run_s=np.array([3600.0, 1800.0]),
        jct_s=np.array([3600.0, 5400.0]),
        held_gpu_s=np.array([3600.0, 3600.0]),
        overhead_gpu_s=np.array([360.0, 0.0]),
        lost_gpu_s=np.array([720.0, 0.0]),
        log_outcome=["completed", "failed"],
        time_s=hours,
        queued=np.array([1.0, 0.0, 0.0, 0.0]),
        held={"X": np.array([1.0, 2.0, 0.0, 0.0])},
        capacity={"X": 2},
    )
    carbon = (100.0,) * 23 + (200.0,)
    found = summarise_run(course, Prices(3.0, {"X": (1000.0, 100.0)}, carbon))
    goodput = [found["goodput_gpu_hours"][name] for name in GOODPUT]
    assert goodput == pytest.approx([0.7, 1.0, 0.1, 0.2, 1.0, 1.0])
    assert found["lost"]["team"] == pytest.approx({"a": 0.3, "b": 1.0})
    assert found["cost"]["all"] == pytest.approx(12.0)
    # The first job worked for 42 minutes of its hour; the second took an hour and a half for half an hour.
    assert found["late_jobs"] == 1
    # An hour at 1.1 kW, half at 2, half at 0.2; the first half hour is before midnight.
    assert found["energy_kwh"] == pytest.approx(1.1 + 1.0 + 0.1)
    assert found["carbon_kg"] == pytest.approx((0.55 * 200 + 1.65 * 100) / 1000)
    with pytest.raises(InputError, match=r"no watts are given for X \(give --watts X=BUSY/IDLE"):
        summarise_run(course, Prices(watts={"Y": (1.0, 1.0)}))


def test_watts_at_a_power_limit(tmp_path):
    path = tmp_path / "power.csv"
    path.write_text(
        "network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
        "a,8,adam,100,40,90\na,8,adam,200,10,180\n"
        "b,8,adam,100,10,70\nb,16,adam,100,10,110\nb,8,adam,200,10,100\nc,8,adam,200,5,200\n"
    )
    # At 100 W a takes 90 W, and b 70 and 110, 90 in the mean; a is 4 times as slow as at 200 W, b's batch of
    # 8 as fast, and 16 was not measured there: the geometric mean of 4 and 1 is 2.
    assert read_power(path, 100.0) == pytest.approx((90.0, 2.0, 2))
    assert read_power(path, 200.0) == pytest.approx((160.0, 1.0, 3))
    with pytest.raises(InputError, match=r"nothing was measured at 150 W .*there are 100, 200"):
        read_power(path, 150.0)
    given = SimpleNamespace(price=None, watts=[f"A100={path}@100/40", "V100=300/60"], carbon=None)
    assert twin_command._prices(given).watts == {"A100": (90.0, 40.0), "V100": (300.0, 60.0)}


def test_the_parameters_of_a_policy_file_count(folder):
    content = {"name": "slurm-multifactor", "weight_fair_share": 0.0, "backfill": "easy", "round_s": None}
    (folder / "policy.yaml").write_text(yaml.safe_dump(content))
    words = TwinFolder(folder).policy_words(None)
    # Those that equal the policy's own defaults are given too: a later default changes nothing.
    assert words[0] == "policy=slurm-multifactor"
    given = compose(["scenario=own-log", *words, *TwinFolder(folder).words()])["policy"]
    assert {key: given[key] for key in content} == content
