"""`logger=wandb` without a network: what an offline run holds, and that nothing needs it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
from wandb_log import artifacts, run_of

from clustergym.results.result_writing import FILES

ROOT = Path(__file__).parents[3]
SHORT = ("compare=null", "progress=false", "table=false", "horizon_s=4000")


def command(*overrides, cwd):
    # A process of its own: wandb starts a service and threads.
    line = [sys.executable, "-m", "clustergym.run", *SHORT, *overrides]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "PYTHONPATH": str(ROOT)}
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.mark.processes
def test_a_sweep_is_one_group_of_offline_runs(tmp_path):
    pytest.importorskip("wandb", reason="pip install 'clustergym[wandb]'")
    done = command(
        "-m", "policy=fcfs,srtf", "logger=wandb", f"hydra.sweep.dir={tmp_path / 'sweep-of-two'}", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    logs = sorted((tmp_path / "sweep-of-two").glob("*/wandb/offline-run-*/run-*.wandb"))
    runs = [run_of(path) for path in logs]
    assert [one.run_group for one in runs] == ["sweep-of-two"] * 2
    assert [one.display_name for one in runs] == ["fcfs-testbed+horizon-0", "srtf-testbed+horizon-0"]
    for path in logs:
        result = path.parents[2]
        assert b"jct_mean" in path.read_bytes()
        assert artifacts(path)["result"] == sorted([*FILES, "report.html"])
        media = path.parent / "files" / "media"
        [page] = media.glob("html/report_*.html")
        assert page.read_bytes() == (result / "report.html").read_bytes()
        check_tables(media / "table", result)


def check_tables(tables, result):
    """Every plot has its table, of the same figures as the files."""
    with (result / "jobs.csv").open(newline="") as file:
        jobs = list(csv.DictReader(file))
    shown = table_of(tables, "jobs")
    assert shown["columns"] == list(jobs[0])
    jct_s = [float(row["jct_s"]) for row in jobs if row["jct_s"]]
    at = shown["columns"].index("jct_s")
    assert [row[at] for row in shown["data"] if row[at] is not None] == jct_s
    curve = table_of(tables, "jct_cdf_table")["data"]
    assert curve == [[value / 3600, at / len(jct_s)] for at, value in enumerate(sorted(jct_s), start=1)]
    with (result / "timeline.csv").open(newline="") as file:
        timeline = list(csv.DictReader(file))
    for key, names in (
        ("jobs_over_time", ["queued_jobs", "running_jobs"]),
        ("throughput_over_time", ["throughput"]),
        ("gpus_over_time", ["held_gpus_A40", "held_gpus_A10"]),
    ):
        lines = table_of(tables, f"{key}_table")["data"]
        for name in names:
            wanted = [[float(row["time_s"]) / 3600, float(row[name])] for row in timeline]
            assert [[x, y] for x, line, y in lines if line == name] == wanted


def table_of(folder, key):
    [path] = folder.glob(f"{key}_0_*.table.json")
    return json.loads(path.read_text())


@pytest.mark.processes
def test_disabled_writes_the_result_alone(tmp_path):
    pytest.importorskip("wandb", reason="pip install 'clustergym[wandb]'")
    done = command("policy=fcfs", "logger=wandb", "logger.mode=disabled", "hydra.run.dir=out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "result.json").is_file()
    assert not list(tmp_path.rglob("*.wandb"))


@pytest.mark.processes
def test_a_run_without_it_does_not_import_it(tmp_path):
    code = (
        "import sys; from clustergym.commands import run; assert run.main(sys.argv[1:]) == 0; "
        "assert 'wandb' not in sys.modules"
    )
    line = [sys.executable, "-c", code, *SHORT, "policy=fcfs", f"hydra.run.dir={tmp_path / 'out'}"]
    subprocess.run(line, check=True, cwd=ROOT, capture_output=True)
