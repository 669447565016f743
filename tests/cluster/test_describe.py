"""`python -m clustergym.cluster describe`."""

import json
from pathlib import Path

import pytest

from clustergym.commands.cluster import main


def test_table_and_json_show_the_same_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out.json"
    assert main(["describe", "arnold-ii", "--json", str(target)]) == 0
    shown = json.loads(target.read_text(encoding="utf-8"))
    # 5 minipods of 88 or 87 nodes, leaves of 16: 6 leaves in each.
    assert (shown["gpus"], shown["nodes"], shown["leaves"], shown["minipods"]) == (3504, 438, 30, 5)
    (row,) = shown["gpu_types"]
    assert row["bandwidth_gbs"] == {"node": 200, "leaf": 400, "minipod": 400, "cross": 400}
    text = capsys.readouterr().out
    assert "3,504 GPUs, 438 nodes, 30 leaves, 5 minipods" in text
    assert "H800" in text
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_every_column_is_shown_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "arena-sim"]) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    assert all(word in text for word in ("minipod", "cross", "12.5", "V100"))


def test_names_are_printed_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lab.yaml"
    nodes = "nodes: [{gpu_type: A40, count: 1, gpus_per_node: 2}]\n"
    path.write_text("name: '[red]x[/nothing]'\n" + nodes, encoding="utf-8")
    assert main(["describe", str(path)]) == 0
    assert "[red]x[/nothing]: 2 GPUs" in capsys.readouterr().out
