"""What each `clustergym bench` command hands on, prints and writes; stand-ins measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import clustergym.bench.engine as engine
import clustergym.bench.environments as environments
import clustergym.bench.sharing as sharing
import pytest
from clustergym.bench.command import main
from clustergym.papers.arnold_figures import FEWEST_STATES, QUICK_STATES, STATES

from clustergym.bench import command as bench
from clustergym.papers import arnold_report


def test_placement(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(bench, "placement_figures", lambda *given: calls.append(given) or {"scores": [1.0]})
    monkeypatch.setattr(arnold_report, "report", lambda figures: f"{figures['scores'][0]}\n")
    monkeypatch.setattr(arnold_report, "draw", lambda figures, path, option: calls.append((path, option)))
    out, file, plot = tmp_path / "a.md", tmp_path / "a.json", tmp_path / "a.svg"
    assert main(["placement", "--quick", "--seed", "3"]) == 0
    assert capsys.readouterr().out == "1.0\n"
    assert main(["placement", "-o", str(out), "--json", str(file), "--plot", str(plot)]) == 0
    assert main(["placement", "--states", str(FEWEST_STATES), "--quick"]) == 0
    assert calls == [(True, QUICK_STATES, 3), (False, STATES, 0), (plot, "--plot"), (True, FEWEST_STATES, 0)]
    assert (out.read_text(), json.loads(file.read_text())) == ("1.0\n", {"scores": [1.0]})
    assert capsys.readouterr().out == "1.0\n"  # Of the last; with -o the report is in the file alone.
    few = FEWEST_STATES - 1
    for words, line in (
        (["--states", str(few)], f"--states: {few} is not valid (give a number from {FEWEST_STATES})"),
        (["--seed", "-1"], "--seed: -1 is not valid (give a number from 0)"),
        (["-o", str(tmp_path)], f"{tmp_path}: --output: is a folder (give a file)"),
        (["--json", str(tmp_path)], f"{tmp_path}: --json: is a folder (give a file)"),
        (["--plot", "a.xyz"], "a.xyz: --plot: '.xyz' is no format of a picture (end it in .svg, .png, .pdf)"),
    ):
        assert main(["placement", *words]) == 2
        assert capsys.readouterr().err == f"error: {line}\n"
    assert len(calls) == 4


def test_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    asked: list[Any] = []

    def rows(options: Any) -> Any:
        asked.append(options)
        yield from ({"policy": "fcfs"}, {"policy": "srtf"})

    monkeypatch.setattr(engine, "engine_rows", rows)
    monkeypatch.setattr(engine, "line", lambda row: f"line of {row['policy']}")
    monkeypatch.setattr(engine, "bare_simpy_events_per_s", lambda: 5.0)
    file = tmp_path / "e.json"
    words = ["engine", "--gpus", "64", "1", "--policies", "fcfs", "{name: elasticflow, mode: loosened}"]
    assert main([*words, "--hours", "0.5", "--contention", "--repeat", "1", "--json", str(file)]) == 0
    assert asked == [
        engine.EngineOptions(
            [64, 1], [{"name": "fcfs"}, {"name": "elasticflow", "mode": "loosened"}], 0.5, True, False, 1
        )
    ]
    assert capsys.readouterr().out.splitlines() == [
        *engine.HEADING.splitlines(), "line of fcfs", "line of srtf"
    ]  # fmt: skip
    assert json.loads(file.read_text()) == {
        "schema": engine.SCHEMA, "bare_simpy_events_per_s": 5.0,
        "rows": [{"policy": "fcfs"}, {"policy": "srtf"}],
    }  # fmt: skip
    for words, line in (
        (["--gpus", "8", "0"], "--gpus: 0 is not valid (give numbers from 1)"),
        (["--hours", "0"], "--hours: 0.0 is not valid (give hours above 0)"),
        (["--hours", "1e6"], "--hours: 1000000.0 is not valid (give hours above 0)"),
        (["--repeat", "0"], "--repeat: 0 is not valid (give a number from 1)"),
        (["--policies", "[1]"], "--policies: unreadable policy '[1]' (give a name, or a mapping such as"
         " '{name: arena, span: 2}')"),
        (["--policies", "{1: a}"], "--policies: unreadable policy '{1: a}' (give a name, or a mapping such as"
         " '{name: arena, span: 2}')"),
        (["--policies", "{"], "--policies: unreadable policy '{' (give a name, or a mapping such as"
         " '{name: arena, span: 2}')"),
    ):  # fmt: skip
        assert main(["engine", *words]) == 2
        assert capsys.readouterr().err == f"error: {line}\n"


def test_environments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    asked: list[Any] = []

    def measure(options: Any, tell: Any) -> dict[str, Any]:
        asked.append(options)
        tell("elastic is measured")
        return {"rows": 1}

    monkeypatch.setattr(environments, "environment_figures", measure)
    monkeypatch.setattr(environments, "report", lambda figures: f"{figures}\n")
    file = tmp_path / "e.json"
    words = ["environments", "--only", "elastic-16"]
    assert main([*words, "--numbers", "1", "17", "--seconds", "5", "--json", str(file)]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("{'rows': 1}\n", "elastic is measured\n")
    assert json.loads(file.read_text()) == {"rows": 1}
    assert main([*words, "--quick"]) == 0
    assert main([*words, "--quick", "--numbers", "17"]) == 0
    made = environments.EnvironmentOptions
    assert asked == [
        made("elastic-16", [1, 17], 5.0), made("elastic-16", [1, 16], 0.1), made("elastic-16", [17], 0.1)
    ]  # fmt: skip
    capsys.readouterr()
    for words, line in (
        (["--seconds", "0"], "--seconds: 0.0 is not valid (give seconds above 0)"),
        (["--seconds", "1e4"], "--seconds: 10000.0 is not valid (give seconds above 0)"),
        (["--numbers", "0"], "--numbers: 0 is not valid (give numbers from 1)"),
        (["--only", "elastik"], "--only: no id has 'elastik' in it (give elastic-16, or less)"),
    ):
        assert main(["environments", *words]) == 2
        assert capsys.readouterr().err == f"error: {line}\n"


def test_sharing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    asked: list[Any] = []

    def compare(options: Any, tell: Any) -> dict[str, Any]:
        asked.append(options)
        tell("fgd")
        return {"fgd": 1.0}

    monkeypatch.setattr(sharing, "comparison", compare)
    monkeypatch.setattr(sharing, "report", lambda figures: f"{figures}\n")
    file = tmp_path / "s.json"
    assert main(["sharing", "--nodes", "1", "--streams", "1", "--json", str(file)]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("{'fgd': 1.0}\n", "done: fgd\n")
    assert asked == [
        sharing.SharingOptions(nodes=1, streams=1, data=None, workloads=["default"], checkpoint="sharing")
    ]
    assert json.loads(file.read_text()) == {"fgd": 1.0}
    for words, line in (
        (["--nodes", "0"], "--nodes: 0 is not valid (give a number from 1)"),
        (["--streams", "0"], "--streams: 0 is not valid (give a number from 1)"),
    ):
        assert main(["sharing", *words]) == 2
        assert capsys.readouterr().err == f"error: {line}\n"
