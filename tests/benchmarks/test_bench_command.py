"""What each `clustergym bench` command hands on, prints and writes; stand-ins measure."""

import json
from pathlib import Path
from typing import Any

import clustergym.bench.sharing as sharing
import pytest
from clustergym.bench.command import main
from refusals import Said, refused


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
