"""An explanation as figures, tables and a plot, of plans with every number given."""

import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clustergym.cluster.spec import Locality
from clustergym.commands.oracle import explanation_text as explain
from clustergym.common.errors import InputError
from clustergym.common.figures import check_figure
from clustergym.common.paths import install_line
from clustergym.common.tables import print_table
from clustergym.common.writing import plain
from clustergym.oracle.grid.plans import (
    Cost,
    Explanation,
    Frontier,
    Grid,
    OutOfMemory,
    Plan,
    ProxyPlan,
    Stage,
)
from clustergym.oracle.models.model_spec import ModelClass

OPERATORS = ("embedding", "layers 1-2", "layers 3-4", "head")
ONE, TWO = Grid("A40", 4, 1), Grid("A40", 4, 2)


def stage(first: int, last: int, data: int, tensor: int, memory_gb: float = 20.0) -> Stage:
    return Stage(first, last, data * tensor, data, tensor, memory_gb * 1e9, 0.05, 0.02, 0.01, 0.3)


def plan(grid: Grid, stages: tuple[Stage, ...], iteration_s: float) -> Plan:
    # Half compute, a fifth in either communication, a tenth bubble.
    parts = [share * iteration_s for share in (0.5, 0.2, 0.2, 0.1)]
    return Plan(grid, stages, 16, 8, iteration_s, *parts)


WHOLE = plan(ONE, (stage(0, 3, 2, 2),), 5.0)
EVEN = plan(TWO, (stage(0, 1, 2, 1, 30), stage(2, 3, 1, 2, 36)), 4.0)
UNEVEN = plan(TWO, (stage(0, 0, 1, 1), stage(1, 3, 1, 2)), 4.5)
FOUND = Explanation(
    model=ModelClass("gpt3", "2.6B", 128),
    gpu_type="A40",
    gpus=4,
    nodes=2,
    locality=Locality.LEAF,
    memory_limit_bytes=40e9,
    operators=OPERATORS,
    frontiers=(
        Frontier(ONE, (ProxyPlan(WHOLE, 0.0, 0.9),), 1, ProxyPlan(WHOLE, 0.0, 0.9)),
        Frontier(
            TWO,
            (ProxyPlan(EVEN, 0.25, 0.7), ProxyPlan(UNEVEN, 0.75, 0.4)),
            5,
            ProxyPlan(EVEN, 0.25, 0.7),
        ),
    ),
    infeasible={4: OutOfMemory(3, 3, 1, 2.5e9)},
    proxy=ProxyPlan(EVEN, 0.25, 0.7),
    chosen=replace(EVEN, iteration_s=4.2),
    pruned=EVEN,
    profiling=Cost(60.0, 120.0, 7),
    search=Cost(3600.0, 14400.0, 54),
    pruned_search=Cost(600.0, 2400.0, 9),
)
NOWHERE = Explanation(
    model=ModelClass("gpt3", "39B", 128),
    gpu_type="A10",
    gpus=2,
    nodes=1,
    locality=Locality.NODE,
    memory_limit_bytes=20e9,
    operators=OPERATORS,
    frontiers=(),
    infeasible={1: OutOfMemory(0, 3, 2, 100.4e9), 2: OutOfMemory(2, 3, 1, 90e9)},
    reason=OutOfMemory(2, 3, 1, 90e9),
)


def printed(found: Explanation, capsys: pytest.CaptureFixture[str]) -> str:
    for table in explain.tables(found):
        print_table(table)
    return capsys.readouterr().out


def row(text: str, *cells: str) -> list[str]:
    """Return the cells of the first printed row that starts with the given ones."""
    for line in text.splitlines():
        found = [cell.strip() for cell in line.strip("│┃ ").replace("┃", "│").split("│")]
        if found[: len(cells)] == list(cells):
            return found
    raise AssertionError(f"no row {cells} in\n{text}")


def test_every_grid_is_a_row_with_its_proxy_plan_or_why_it_does_not_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(FOUND, capsys)
    assert row(text, "1") == ["1", "1", "1", "0.000", "0.9", "5", "(2x2)"]
    assert row(text, "2", "5") == ["2", "5", "2", "0.250", "0.7", "4", "(2x1) + (1x2)  <- best estimate"]
    reason = "stage of operators 3 to 3 on 1 GPU is 2.5 GB over the memory of a GPU"
    assert row(text, "4") == ["4", "0", "-", "-", "-", "does not fit", reason]


def test_the_frontier_of_the_best_grid(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(FOUND, capsys)
    assert "Pareto frontier of the grid of 2 stages" in text
    assert row(text, "1 proxy") == ["1 proxy", "0.2500", "0.7", "4", "2 2", "2 2"]
    assert row(text, "2", "0.7500") == ["2", "0.7500", "0.4", "4.5", "1 2", "1 3"]


def test_stage_by_stage_with_memory_against_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(FOUND, capsys)
    assert "Plan proxy (estimated), stage by stage: 16 micro-batches of 8 samples" in text
    first = ["1", "embedding .. layers 1-2", "2", "2", "1", "30.0", "75 %", "50", "20", "10", "300"]
    assert row(text, "1", "embedding .. layers 1-2") == first
    assert row(text, "2", "layers 3-4 .. head")[5:7] == ["36.0", "90 %"]
    assert "memory limit 40.0 GB" in text


def test_where_the_time_goes(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(FOUND, capsys)
    # 128 samples in 4 s; half of the time is compute, a fifth each kind of communication, a tenth bubble.
    times = ["4", "32", "2 (50 %)", "0.8 (20 %)", "0.8 (20 %)", "0.4 (10 %)", "36.0 of 40.0", "(2x1) + (1x2)"]
    assert row(text, "proxy (estimated)") == ["proxy (estimated)", *times]
    assert row(text, "chosen", "4.2")[2] == "30.48"
    assert "data-parallel" not in text
    assert row(text, "pruned search", "600") == ["pruned search", "600", "2,400", "9"]


def test_equal_neighbours_are_counted() -> None:
    stages = (stage(0, 0, 2, 1), stage(1, 1, 2, 1), stage(2, 2, 1, 2), stage(3, 3, 2, 1))
    assert explain.shape(plan(TWO, stages, 1.0)) == "2 x (2x1) + (1x2) + (2x1)"


def test_figures_are_plain_json_and_the_same_unrounded() -> None:
    shown = explain.figures(FOUND)
    assert json.loads(json.dumps(plain(shown), allow_nan=False)) == plain(shown)
    assert (shown["iteration_time_s"], shown["estimated_iteration_time_s"]) == (4.2, 4.0)
    assert (shown["feasible"], shown["reason"], shown["memory_bytes"]) == (True, None, 36e9)
    assert [grid["stages"] for grid in shown["grids"]] == [1, 2]
    assert [point["bias"] for point in shown["grids"][1]["frontier"]] == [0.25, 0.75]
    assert shown["grids"][1]["proxy"] == 0
    assert shown["infeasible_grids"][0]["excess_bytes"] == 2.5e9
    assert list(shown["plans"]) == ["proxy", "chosen", "pruned"]
    assert shown["plans"]["chosen"]["stages"][1]["tensor"] == 2
    assert shown["costs"]["search"] == {"seconds": 3600.0, "gpu_seconds": 14400.0, "trials": 54}


def test_what_fits_nowhere_says_which_stage_and_by_how_much(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(NOWHERE, capsys)
    assert row(text, "1")[-1] == "stage of operators 0 to 3 on 2 GPUs is 100.4 GB over the memory of a GPU"
    least = "stage of operators 2 to 3 on 1 GPU is 90.0 GB over the memory of a GPU"
    assert explain.verdict(NOWHERE) == f"infeasible: {least}"
    shown = explain.figures(NOWHERE)
    assert (shown["feasible"], shown["iteration_time_s"], shown["reason"]) == (False, None, least)


def test_a_grid_whose_stages_cannot_be_split_says_so() -> None:
    assert explain.why(OutOfMemory(0, 3, 64, float("inf"))) == "operators 0 to 3 cannot be split over 64 GPUs"
    assert explain.why(OutOfMemory(2, 2, 1, float("inf"))) == "operators 2 to 2 cannot be split over 1 GPU"


def test_the_chosen_plan_on_one_line() -> None:
    assert explain.verdict(FOUND) == "chosen: (2x1) + (1x2), 4.2 s an iteration, 36.0 of 40.0 GB a GPU"
    assert explain.title(FOUND) == "gpt3-2.6B, global batch 128, on 4 x A40 (2 nodes, locality leaf)"


@pytest.mark.slow
@pytest.mark.parametrize("found", [FOUND, NOWHERE], ids=["feasible", "infeasible"])
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_a_plot_is_whole_and_the_same_every_time(found: Explanation, suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra `report`")
    start = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}
    paths = [tmp_path / f"{name}{suffix}" for name in ("one", "two")]
    for path in paths:
        explain.write_plot(found, path)
    content = [path.read_bytes() for path in paths]
    assert content[0].startswith(start[suffix])
    assert len(content[0]) > 5000
    assert content[0] == content[1]
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_plans_and_grids_can_be_told_apart_without_colour() -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra `report`")
    from matplotlib.figure import Figure

    figure = Figure()
    explain._fill(figure, FOUND)
    left, right = figure.axes
    markers = {line.get_marker() for line in left.get_lines()}
    assert len(markers) == 2
    hatches = {patch.get_hatch() for patch in right.patches}
    assert len(hatches) == 4
    # Proxy, chosen and pruned, each a stack of four parts; the proxy's parts sum up to 4 s.
    assert sum(patch.get_height() for patch in right.patches[::3]) == pytest.approx(4.0)


def test_another_file_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"a\.pgn: --plot: '\.pgn' is no format of a picture \(end it in \.svg, \.png"
    ):
        check_figure(tmp_path / "a.pgn", "--plot")


def test_without_matplotlib_there_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError) as caught:
        check_figure(tmp_path / "a.png", "--plot")
    wanted = f"--plot: needs Matplotlib, which is not installed ({install_line('report')})"
    assert str(caught.value) == wanted


def test_a_plot_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="plots need the extra `report`")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="--plot: cannot be written"):
        explain.write_plot(FOUND, tmp_path / "file" / "a.png")
