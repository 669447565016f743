"""The curves of an entry: what they say, how they are written and read."""

import json

import numpy as np
import pytest
from checked_entries import check
from error_lines import error_line
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_replay import FlagReason
from clustergym.benchmark.leaderboard.entry import read_results
from clustergym.benchmark.leaderboard.entry_curves import RANKS, STEPS, read_curves
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError
from clustergym.results.report.series import means


def test_means_by_hand():
    # 0 until 1, 4 until 2, 2 until 4: over [0, 2] (0 + 4) / 2, over [2, 4] 2.
    assert means(np.array([1.0, 2.0]), np.array([4.0, 2.0]), 4.0, 2).tolist() == [2.0, 2.0]
    # Intervals shorter than a step repeat it.
    assert means(np.array([0.0, 2.0]), np.array([3.0, 5.0]), 4.0, 4).tolist() == [3.0, 3.0, 5.0, 5.0]


# The machine may be busy.
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 1000)), min_size=1, max_size=30),
    st.floats(0, 50),
    st.integers(1, 40),
)
def test_means_keep_the_integral(steps, start_s, intervals):
    lasting, values = (np.array(part) for part in zip(*steps, strict=True))
    times = start_s + np.concatenate([[0.0], np.cumsum(lasting)])
    found = means(times[:-1], values, times[-1], intervals)
    assert found.shape == (intervals,)
    assert found.sum() * times[-1] / intervals == pytest.approx(np.dot(values, lasting), rel=1e-9, abs=1e-6)


def test_curves_agree_with_the_results(root):
    board = load_board("small", root)
    for name in ("first", "short"):
        (curves,) = read_curves(board, root / "small" / name).values()
        row = next(row for row in read_results(root / "small" / name) if row.cell == board.cells[0])
        assert (len(curves.held_gpus), len(curves.queued_jobs), len(curves.jct_s)) == (
            STEPS,
            STEPS,
            RANKS + 1,
        )
        assert curves.gpus == 16 >= max(curves.held_gpus)
        assert curves.end_s == pytest.approx(row.metrics["makespan"], rel=0.01)
        assert curves.jct_s == sorted(curves.jct_s)
        # A mean of 61 ranks of 24 jobs is near that of the jobs.
        assert np.mean(curves.jct_s) == pytest.approx(row.metrics["jct_mean"], rel=0.1)
        # What the cluster's GPUs did but hold for profiling: work and standing still.
        first_s = board.scenario(board.cells[0]).trace.submit_s.min()
        worked = row.metrics["gpu_utilization"] * 16 * (curves.end_s - first_s) / 3600
        hours = np.mean(curves.held_gpus) * curves.end_s / 3600
        assert hours == pytest.approx(worked + row.metrics["overhead_gpu_hours"], rel=0.01)


def test_the_command_writes_the_same_bytes(root, capsys):
    path = root / "small" / "first" / "curves.json"
    before = path.read_bytes()
    path.unlink()
    assert main(["--root", str(root), "curves", "small", "first"]) == 0
    assert capsys.readouterr().out == f"wrote {path}\n"
    assert path.read_bytes() == before
    assert len(before) < 4000


def test_last_digits_do_not_matter(root, capsys):
    path = root / "small" / "first" / "curves.json"
    content = json.loads(path.read_text())
    for curves in content["scenarios"].values():
        curves["jct_s"] = [value * (1 + 1e-4) for value in curves["jct_s"]]
    path.write_text(json.dumps(content))
    assert main(["--root", str(root), "check", "small", "first"]) == 0


def test_bad_input_is_one_line(root, capsys):
    (root / "small" / "first" / "decisions.jsonl.gz").write_bytes(b"junk")
    before = (root / "small" / "first" / "curves.json").read_bytes()
    for words in (["curves", "small", "first"], ["curves", "small", "frist"], ["curves", "smal"]):
        assert main(["--root", str(root), *words]) == 2, words
        error_line(capsys)
    assert (root / "small" / "first" / "curves.json").read_bytes() == before


def test_curves_of_another_board_are_refused(root):
    path = root / "small" / "first" / "curves.json"
    content = json.loads(path.read_text())
    for changed in ({"seed": 6}, {"scenarios": {}}, {"scenarios": {"pai": content["scenarios"]["philly"]}}):
        path.write_text(json.dumps(content | changed))
        with pytest.raises(InputError, match="scenarios"):
            read_curves(load_board("small", root), path.parent)
    (path.parent / "decisions.jsonl.gz").unlink()
    path.unlink()
    assert read_curves(load_board("small", root), path.parent) == {}


def test_the_entry_of_a_placer_has_curves(placers):
    board = load_board("placers", placers)
    path = placers / "placers" / "moving" / "curves.json"
    assert [*read_curves(board, path.parent)] == [scenario.name for scenario in board.scenarios]
    assert check(board, "moving") == []
    path.write_text(path.read_text().replace('"jct_s":[', '"jct_s":[1,', 1))
    assert {flag.reason for flag in check(board, "moving")} == {FlagReason.CURVES}
