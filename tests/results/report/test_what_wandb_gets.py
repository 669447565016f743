"""What a stand-in for wandb is given of a result: settings, figures, tables, plots and files."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from clustergym.common.errors import InputError
from clustergym.results.report.wandb_logger import LoggerChoice, log_result, read_logger_choice

JOBS = """\
job_id,team,jct_s
0,a,7200
1,,3600
2,b,
"""
TIMELINE = """\
time_s,queued_jobs,running_jobs,throughput,held_gpus_A40,held_gpus_A10
0,2,1,1.5,4,0
3600,1,2,2.5,4,2
"""


class Run:
    """A run of the stand-in: keeps what it is given."""

    def __init__(self, **given):
        self.given, self.summary, self.logged, self.artifacts, self.finished = given, {}, [], [], 0
        self.log, self.log_artifact = self.logged.append, self.artifacts.append

    def finish(self):
        self.finished += 1


class Artifact:
    def __init__(self, name, type):
        self.name, self.type, self.files = name, type, []
        self.add_file = self.files.append


@pytest.fixture
def runs(monkeypatch):
    """The runs that a stand-in for the package has begun."""
    begun = []

    def init(**given):
        begun.append(Run(**given))
        return begun[-1]

    plot = SimpleNamespace(
        line=lambda table, x, y, title: (table, x, y, title),
        line_series=lambda xs, ys, keys, title, xname: (xs, ys, keys, title, xname),
    )
    module = SimpleNamespace(
        init=init,
        Settings=lambda **given: given,
        Table=lambda columns, data: (columns, data),
        Html=lambda text, inject: (text, inject),
        Artifact=Artifact,
        plot=plot,
        errors=SimpleNamespace(Error=RuntimeError),
    )
    monkeypatch.setitem(sys.modules, "wandb", module)
    return begun


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "timeline.csv").write_text(TIMELINE)
    (tmp_path / "page.html").write_text("a page")
    return tmp_path


RESULT = {
    "policy": {"name": "srtf"},
    "scenario": {"name": "small"},
    "seed": 3,
    "metrics": {"jct_mean": 5400.0, "deadline_hits": None},
    "digest": "d" * 64,
    "run_key": "0123456789abcdefff",
    "end_s": 7200.0,
}


def test_a_result_by_hand(runs, folder):
    choice = LoggerChoice(name="wandb", project="p", dir=str(folder / "logs"))
    log_result(choice, {"policy": "srtf"}, RESULT, folder, folder / "page.html")
    [run] = runs
    settings = {"silent": True, "console": "off", "x_disable_stats": True, "disable_git": True}
    assert run.given == {
        "project": "p",
        "group": None,
        "name": "srtf-small-3",
        "mode": "offline",
        "dir": str(folder / "logs"),
        "config": {"policy": "srtf"},
        "reinit": "create_new",
        "settings": settings,
    }
    assert (folder / "logs").is_dir()
    assert run.summary == {"jct_mean": 5400.0, "digest": "d" * 64, "run_key": "0123456789abcdefff"}
    [shown] = run.logged
    assert shown.pop("jobs") == (
        ["job_id", "team", "jct_s"],
        [[0.0, "a", 7200.0], [1.0, "", 3600.0], [2.0, "b", None]],
    )
    table = (["JCT (h)", "share of jobs"], [[1.0, 0.5], [2.0, 1.0]])
    assert shown.pop("jct_cdf") == (table, "JCT (h)", "share of jobs", "Job completion time")
    hours = [0.0, 1.0]
    lines = [[2.0, 1.0], [1.0, 2.0]]
    assert shown.pop("jobs_over_time") == (hours, lines, ["queued_jobs", "running_jobs"], "Jobs", "time (h)")
    throughput = (hours, [[1.5, 2.5]], ["throughput"], "Throughput (samples/s)", "time (h)")
    assert shown.pop("throughput_over_time") == throughput
    gpus = [[4.0, 4.0], [0.0, 2.0]]
    names = ["held_gpus_A40", "held_gpus_A10"]
    assert shown.pop("gpus_over_time") == (hours, gpus, names, "GPUs in use", "time (h)")
    assert shown == {"report": ("a page", False)}
    [artifact] = run.artifacts
    assert (artifact.name, artifact.type) == ("result-0123456789abcdef", "result")
    names = [
        "config.yaml",
        "jobs.csv",
        "timeline.csv",
        "decisions.jsonl.gz",
        "events.jsonl.gz",
        "result.json",
    ]
    assert artifact.files == [str(folder / name) for name in (*names, "page.html")]
    assert run.finished == 1


def test_a_result_without_a_page_or_a_timeline(runs, folder):
    (folder / "timeline.csv").write_text(TIMELINE.splitlines()[0] + "\n")
    log_result(LoggerChoice(name="wandb", group="g"), {}, RESULT, folder, None)
    [run] = runs
    assert set(run.logged[0]) == {"jobs", "jct_cdf"}
    assert [Path(file).name for file in run.artifacts[0].files][-1] == "result.json"
    assert (run.given["group"], run.given["dir"], run.given["project"]) == ("g", str(folder), "clustergym")


@pytest.mark.parametrize("failure", [RuntimeError("no room"), OSError("no room")])
def test_what_wandb_refuses_is_one_line_and_ends_the_run(runs, folder, monkeypatch, failure):
    def refuse(run, shown):
        raise failure

    monkeypatch.setattr(Run, "finish", lambda run: run.summary.update(ended=True))
    monkeypatch.setattr(sys.modules["wandb"], "Html", lambda text, inject: refuse(None, text))
    with pytest.raises(InputError) as caught:
        log_result(LoggerChoice(name="wandb"), {}, RESULT, folder, folder / "page.html")
    line = "logger: wandb: no room (try logger.mode=offline; the result is written)"
    assert str(caught.value) == line
    assert runs[0].summary["ended"]


def test_a_result_in_columns_is_refused_before_a_run_begins(runs, folder):
    (folder / "jobs.csv").rename(folder / "jobs.parquet")
    with pytest.raises(InputError, match="this run's tables are in columns"):
        log_result(LoggerChoice(name="wandb"), {}, RESULT, folder, None)
    assert runs == []


def test_the_choice_of_a_configuration(runs, monkeypatch):
    assert read_logger_choice({}) == LoggerChoice()
    assert read_logger_choice({"logger": {"name": "wandb", "group": "g"}}).group == "g"
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert read_logger_choice({"logger": {"name": "none"}}).name == "none"
    with pytest.raises(InputError, match=r"^logger: wandb is not installed \(.*, or logger=none\)$"):
        read_logger_choice({"logger": {"name": "wandb"}})
