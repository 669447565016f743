"""The commands under a policy that exits or hangs, a process that is killed, and memory that runs out."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from boards import write_board
from error_lines import error_line
from python_process import run_python

from clustergym.commands import collect, evaluate, run
from clustergym.commands.leaderboard import main as leaderboard
from clustergym.results.result_files import UNFINISHED
from clustergym.scenario.registry import entry_points

ROOT = Path(__file__).parents[2]
PLUGIN = """
import os
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from clustergym.policies.fcfs import FirstComeFirstServed


@dataclass
class Odd(FirstComeFirstServed):
    name: ClassVar[str] = "odd"
    act: str = "nothing"

    def schedule(self, view):
        if view.now_s > 0:
            getattr(self, self.act)()
        return super().schedule(view)

    def nothing(self):
        pass

    def leave(self):
        os._exit(0)

    def loop(self):
        while True:
            pass

    def allocate(self):
        kept = []
        while True:
            kept.append(np.empty(1 << 28))
"""
SMALL = ["compare=null", "cluster=arena-16", "trace=philly-like", "trace.jobs=6", "progress=false"]


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    """A policy of a package of its own, in the working directory; returns the environment of a process."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd_policy.py").write_text(PLUGIN)
    info = tmp_path / "odd-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[clustergym.policies]\nodd = odd_policy:Odd\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry_points.cache_clear()
    yield {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "OPENBLAS_NUM_THREADS": "1"}
    entry_points.cache_clear()
    sys.modules.pop("odd_policy", None)


ENDS = [
    ("leave", [], "ended its process with exit status 0"),
    ("loop", ["run.decision_limit_s=0.3"], "took longer than 0.3 s"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("act", "limit", "said"), ENDS)
def test_a_policy_that_ends_the_process_or_loops_is_bad_input_and_leaves_nothing(
    act, limit, said, plugin, capsys
):
    assert run.main(["policy=odd", f"policy.act={act}", "hydra.run.dir=out", *limit, *SMALL]) == 2
    assert f"error: policy odd: {said} in decision 2, at " in error_line(capsys)
    assert not Path("out").exists()


@pytest.mark.slow
def test_a_limit_changes_no_digest_and_nothing_that_decides_whether_a_run_is_finished(plugin, capsys):
    words = ["policy=odd", "hydra.run.dir=out", "report=false", *SMALL]
    assert run.main([*words, "run.decision_limit_s=60"]) == 0
    first = json.loads(Path("out/result.json").read_text())
    assert run.main([*words, "policy=fcfs", "hydra.run.dir=plain"]) == 0
    assert json.loads(Path("plain/result.json").read_text())["digest"] == first["digest"]
    capsys.readouterr()
    assert run.main(words) == 0
    assert "odd: finished already" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_goes_on_after_a_policy_that_ends_the_process(plugin, capsys):
    words = ["-m", "policy=odd", "policy.act=leave,nothing", "hydra.sweep.dir=sweep", *SMALL]
    assert run.main(words) == 2
    assert len(list(Path("sweep").rglob("result.json"))) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert "ended its process with exit status 0" in line


@pytest.mark.slow
def test_an_entry_of_a_policy_that_ends_the_process_or_loops_is_not_written(plugin, capsys):
    folder = write_board(Path("boards")).board.folder
    add = ["--root", "boards", "add", "small", "mine", "policy=odd"]
    for act, _, said in ENDS:
        capsys.readouterr()
        assert leaderboard([*add, f"policy.act={act}", "--decision-limit-s", "0.3"]) == 2
        assert f"error: philly-1: policy odd: {said} in decision 2" in error_line(capsys)
        assert [path.name for path in sorted(folder.iterdir())] == ["board.yaml", "cells.yaml"]


@pytest.mark.slow
def test_evaluate_notices_a_policy_that_ends_the_process(plugin, capsys):
    words = ["policies=[{name: odd, act: leave}]", "windows=2", "processes=1", "scenarios.origin=synthetic"]
    assert evaluate.main(words) == 2
    assert "policy odd: ended its process with exit status 0" in capsys.readouterr().err


@pytest.mark.processes
def test_a_killed_run_is_not_taken_for_finished(plugin, tmp_path, capsys):
    words = ["policy=odd", "hydra.run.dir=out/b", "report=false", *SMALL]
    command = [sys.executable, "-m", "clustergym.run", *words, "policy.act=loop"]
    process = subprocess.Popen(command, env=plugin, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "out" / "b" / UNFINISHED).is_file():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert collect.main(["out"]) == 2
    said = "error: out: holds no result.json, but a run was begun and not finished in out/b (name a folder"
    assert said in error_line(capsys)
    assert run.main(["policy=fcfs", "hydra.run.dir=out/a", "report=false", *SMALL]) == 0
    capsys.readouterr()
    assert collect.main(["out"]) == 0
    assert "note: a run was begun and not finished in out/b\n" in capsys.readouterr().err
    assert run.main(words) == 0
    assert not (tmp_path / "out" / "b" / UNFINISHED).exists()


@pytest.mark.processes
def test_out_of_memory_is_one_line_and_leaves_nothing(plugin, tmp_path):
    words = ["policy=odd", "policy.act=allocate", "hydra.run.dir=out", *SMALL]
    done = run_python("-m", "clustergym.run", *words, most_bytes=5 << 30, cwd=tmp_path, **plugin)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("error: out of memory: Unable to allocate 2.00 GiB")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("step_s", [1e6, -1e6])
def test_a_clock_that_jumps_changes_no_result_and_no_duration(step_s, plugin, monkeypatch, capsys):
    words = ["policy=arena", "run.decision_limit_s=60", *SMALL, "trace.jobs=30", "progress=true"]
    assert run.main([*words, "hydra.run.dir=plain"]) == 0
    now = itertools.count(1.7e9, step_s)
    monkeypatch.setattr(time, "time", lambda: next(now))
    monkeypatch.setattr(time, "time_ns", lambda: int(next(now) * 1e9))
    # Lines of progress at every decision.
    monkeypatch.setattr("clustergym.common.progress.EVERY_LINE_S", 0.0)
    capsys.readouterr()
    assert run.main([*words, "hydra.run.dir=jumped"]) == 0
    assert next(now) != 1.7e9
    told = capsys.readouterr().err.splitlines()
    assert len(told) > 10
    assert all(re.fullmatch(r"arena at [\d,.]+ h: \d+ of 30 jobs have left", line) for line in told)
    plain, jumped = (json.loads(Path(name, "result.json").read_text()) for name in ("plain", "jumped"))
    assert jumped["digest"] == plain["digest"]
    assert jumped["metrics"] == plain["metrics"]
    assert 0 < jumped["wall_s"] < 600
    assert 0 < jumped["decisions"]["seconds_p50"] <= jumped["decisions"]["seconds_p99"] < 60
