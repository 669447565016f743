"""What each `clustergym bench` command hands on, prints and writes; stand-ins measure."""

import json
from pathlib import Path
from typing import Any

import clustergym.bench.sharing as sharing
import pytest
from clustergym.bench.command import main
from clustergym.papers.arnold_figures import FEWEST_STATES, QUICK_STATES, STATES
from refusals import Said, refused

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


@refused("bench", words=True)
def test_what_is_not_measured(
    given: list[str], said: Said, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    said.check(err)
    assert not list(tmp_path.iterdir())
