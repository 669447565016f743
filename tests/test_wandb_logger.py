"""`logger=wandb` without a network: what an offline run holds, and that nothing needs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from clustergym import run

ROOT = Path(__file__).parent.parent
SHORT = ("compare=null", "progress=false", "table=false", "horizon_s=4000")


def command(*overrides, cwd):
    # A process of its own: wandb starts a service and threads.
    line = [sys.executable, "-m", "clustergym.run", *SHORT, *overrides]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd), "PYTHONPATH": str(ROOT)}
    return subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=120)


def test_a_sweep_is_one_group_of_offline_runs(tmp_path):
    pytest.importorskip("wandb", reason="pip install 'clustergym[wandb]'")
    done = command(
        "-m", "policy=fcfs,srtf", "logger=wandb", f"hydra.sweep.dir={tmp_path / 'sweep-of-two'}", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    logs = sorted((tmp_path / "sweep-of-two").glob("*/wandb/offline-run-*/run-*.wandb"))
    assert len(logs) == 2
    for path, name in zip(logs, ("fcfs", "srtf"), strict=True):
        content = path.read_bytes()
        for word in (b"sweep-of-two", f"{name}-testbed".encode(), b"jct_mean", b"jobs.csv", b"report.html"):
            assert word in content, word


def test_disabled_writes_the_result_alone(tmp_path):
    pytest.importorskip("wandb", reason="pip install 'clustergym[wandb]'")
    done = command("policy=fcfs", "logger=wandb", "logger.mode=disabled", "hydra.run.dir=out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "result.json").is_file()
    assert not list(tmp_path.rglob("*.wandb"))


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["logger=wandb"], "pip install 'clustergym[wandb]'"),
        (["logger=wandb", "logger.mode=ofline"], "did you mean offline"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_run(overrides, line, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert run.main([*SHORT, "policy=fcfs", f"hydra.run.dir={tmp_path / 'out'}", *overrides]) == 2
    shown = capsys.readouterr()
    assert line in shown.err
    assert len(shown.err.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_run_without_it_does_not_import_it(tmp_path):
    code = (
        "import sys; from clustergym import run; assert run.main(sys.argv[1:]) == 0; "
        "assert 'wandb' not in sys.modules"
    )
    line = [sys.executable, "-c", code, *SHORT, "policy=fcfs", f"hydra.run.dir={tmp_path / 'out'}"]
    subprocess.run(line, check=True, cwd=ROOT, capture_output=True, timeout=60)
