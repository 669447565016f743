"""Progress is a line on stderr now and then, and never changes what is counted."""

import pytest

from clustergym.commands import evaluate
from clustergym.common import progress

FEW = [
    "policies=[fcfs, srtf]", "scenarios.origin=synthetic", "scenarios.jobs=[10,12]", "scenarios.gpus=8",
    "windows=2", "processes=1",
]  # fmt: skip


def test_counted_results_are_the_results(capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY_LINE_S", 0.0)
    assert list(progress.track_results("windows", iter("abc"), 3, wanted=True)) == ["a", "b", "c"]
    assert capsys.readouterr().err.splitlines() == [f"windows: {done} of 3" for done in (1, 2, 3)]
    assert list(progress.track_results("windows", iter("abc"), 3, wanted=False)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


def test_short_work_says_nothing(capsys):
    assert list(progress.track_results("windows", iter("abc"), 3, wanted=True)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""


def test_evaluate_shows_progress_and_says_what_it_wrote(tmp_path, capsys, monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setattr(progress, "EVERY_LINE_S", 0.0)
    report = tmp_path / "report.md"
    assert evaluate.main([*FEW, "loads=[0.5]", f"report={report}"]) == 0
    shown = capsys.readouterr()
    assert "load 0.5, windows: 2 of 2" in shown.err
    assert shown.err.splitlines()[-1] == f"wrote {report}"
    assert report.read_text() == shown.out
