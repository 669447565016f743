"""Plans and placements of Morphling's tables: the reader, the figures by hand, and the published rows."""

from pathlib import Path

import published_data
import pytest
from refusals import Said, refused

from benchmarks.oracle_page.placements_page import measure_placements, placements_section
from clustergym.commands.oracle import main
from clustergym.oracle.calibration.placements import placement_figures, read_placements, validate_placements
from clustergym.oracle.models.shape import ParallelPlan

DATA = published_data.DATA / "morphling"


def folder(path: Path, *rows: str, model: str = "bert") -> Path:
    text = "\n".join(("exec_plan,placement,iter_time", *rows)) + "\n"
    (path / f"placements_{model}.csv").write_text(text)
    return path


def test_plans_and_placements_are_read(tmp_path: Path) -> None:
    rows = read_placements(folder(tmp_path, "ga,8,0.5", "gc,35,0.5", "zero-offload,11,0.5", "241,44,0.5"))
    plans = [row.setting.plan for row in rows if row.setting]
    assert plans == [
        ParallelPlan(data=8, micro_batch=4, recompute=0.0, shard_group=1),
        ParallelPlan(data=8, micro_batch=4, recompute=1.0, shard_group=1),
        ParallelPlan(data=2, micro_batch=16, recompute=0.0, sharding="gradients", offload=True),
        ParallelPlan(tensor=4, pipeline=2, micro_batch=32, recompute=0.0, shard_group=1),
    ]
    # A ring has one port less than it has in the fullest node.
    assert [row.setting.machine.domain for row in rows if row.setting] == [8, 3, 1, 4]
    # 32 samples of 512 tokens.
    assert rows[0].measured == pytest.approx(32 * 512 / 0.5 / 8)


def test_figures_by_hand(tmp_path: Path) -> None:
    rows = read_placements(folder(tmp_path, "ga,8,0.20", "gc,8,0.25", "ga,44,0.30", "gc,44,0.27"))
    seconds = {"bert ga 8": 0.22, "bert gc 8": 0.3, "bert ga 44": 0.30, "bert gc 44": 0.36}
    predicted = {row.id: 32 * 512 / seconds[row.id] / 8 for row in rows}
    found = placement_figures(rows, predicted)
    assert found["seconds"]["mape"] == pytest.approx((0.1 + 0.2 + 0 + 1 / 3) / 4)
    # `ga` is chosen twice: right on one node, a ninth slower on two.
    assert found["plans"]["all"] == found["plans"]["bert"]
    lost = {"lost_median": 1 / 18, "lost_mean": 1 / 18, "lost_most": 1 / 9, "within_5_percent": 0.5}
    assert found["plans"]["bert"] == pytest.approx({"placements": 2, **lost})
    # 0.30 / 0.22 against 1.5, and 1.2 against 1.08.
    off = [0.30 / 0.22 / 1.5 - 1, 1.2 / 1.08 - 1]
    assert found["ratios"]["mape"] == pytest.approx((abs(off[0]) + off[1]) / 2)
    assert found["ratios"]["most"] == pytest.approx(off[1])


@refused("placement-rows")
def test_a_bad_row_is_one_clear_line(tmp_path: Path, given: str, said: Said) -> None:
    with said.of_error(tmp_path):
        read_placements(folder(tmp_path, given))


def test_a_plan_of_all_gpus_is_a_row(tmp_path: Path) -> None:
    assert len(read_placements(folder(tmp_path, "241,8,0.5"))) == 1


def test_a_folder_without_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", "--data", str(tmp_path)]) == 2
    assert "has no table of placements" in capsys.readouterr().err


@published_data.needs("morphling")
def test_published_step_times(capsys: pytest.CaptureFixture[str]) -> None:
    rows = read_placements(DATA)
    assert len(rows) == 453
    found = validate_placements(DATA, left_out=False)["deepspeed-2024, usual rows"]
    assert found["seconds"]["median_ape"] < 0.09
    assert found["plans"]["all"]["lost_mean"] < 0.03
    assert found["ratios"]["median_ape"] < 0.12
    assert main(["validate", "--data", str(DATA)]) == 0
    assert "plans and placements" in capsys.readouterr().out
    shown = measure_placements(DATA.parent / "none", print)
    assert shown == {}
    figures = {f"{name}, usual rows": found for name in ("deepspeed-2024", "left out")}
    text = placements_section(figures)
    for line in text.splitlines():
        assert line.count("|") == 0 or line.startswith("| ")
