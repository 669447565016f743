"""`clustergym bench environments`."""

import json
from pathlib import Path

import pytest
from clustergym.bench.command import main

from clustergym.bench import environments as figures

SHARES = ("share_core", "share_features", "share_masks", "share_python")


def test_figures_of_an_environment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "figures.json"
    given = [
        "environments",
        "--only",
        "elastic-16,absent",
        "--numbers",
        "2",
        "--seconds",
        "0.01",
        "--json",
        str(file),
    ]
    assert main(given) == 0
    shown = capsys.readouterr()
    found = json.loads(file.read_text())
    (row,) = found["rows"]
    assert (row["id"], row["environments"]) == ("ClusterGym/Elastic-16-v1", 2)
    assert sum(row[name] for name in SHARES) == pytest.approx(1.0)
    assert min(row["copies_per_s"], row["steps_per_s"], found["single"][0]["simpy"]) > 0
    assert row["bytes"] > 1000
    steps = float(f"{row['steps_per_s']:.3g}")  # as the table has them
    assert f"| ClusterGym/Elastic-16-v1 | 2 | {steps:,.0f} |" in shown.out
    assert "CartPole-v1" in shown.out
    assert "ClusterGym/Elastic-16-v1, 2: " in shown.err


def test_environments_in_which_things_are_placed_have_the_speed_of_many_together(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    given = ["environments", "--only", "placement-small", "--numbers", "2", "--seconds", "0.01"]
    assert main([*given, "--json", str(file)]) == 0
    row = next(row for row in json.loads(file.read_text())["others"] if "Placement" in row["id"])
    assert row["environments"] == 2
    assert min(row["steps_per_s"], row["vector_steps_per_s"]) > 0


def test_a_package_that_is_not_installed_is_left_out_with_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from clustergym.bench.environments import report

    monkeypatch.setitem(__import__("sys").modules, "minigrid", None)
    row = figures.other_row("MiniGrid-Empty-8x8-v0", figures.EnvironmentOptions(seconds=0.01))
    assert row == {"id": "MiniGrid-Empty-8x8-v0", "steps_per_s": None}
    assert "MiniGrid-Empty-8x8-v0 is not installed." in report({"rows": [], "single": [], "others": [row]})


def test_a_rate_is_of_one_run_of_at_least_that_long() -> None:
    # Every repetition takes two seconds of this clock: one half a second.
    now = [0.0]

    def play(times: int) -> None:
        now[0] += 2.0 * times

    assert figures.rate(play, 100.0, lambda: now[0]) == pytest.approx(0.5)
