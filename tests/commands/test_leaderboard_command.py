"""What each `clustergym leaderboard` command hands on, prints and writes; stand-ins do the work."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clustergym.benchmark.leaderboard import (
    add,
    agent_board,
    agent_scores,
    best_known,
    board,
    bounds,
    check,
    entry,
    entry_curves,
    render,
    retrain,
    score,
)
from clustergym.commands.leaderboard import main
from clustergym.common.processes import cores
from clustergym.results.metrics.statistics import Aggregate

CELLS = ["light-0", "light-1", "heavy-0"]
BOARD = SimpleNamespace(
    name="little",
    folder=Path("little"),
    version=3,
    metric="jct_mean",
    cells=CELLS,
    scenarios=[SimpleNamespace(name="light"), SimpleNamespace(name="heavy")],
    components=("policy",),
    chooses="policy",
    compose=lambda: None,
)


@dataclass
class Flag:
    """What a check finds."""

    cell: str
    what: str

    def __str__(self) -> str:
        return f"{self.cell}: {self.what}"

    def list_fields(self) -> dict[str, str]:
        return asdict(self)


@pytest.fixture(autouse=True)
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Have one board, whatever it is called; return what was asked for."""
    asked: list[Any] = []

    def load(name: str, root: Path | None) -> Any:
        asked.append((name, root))
        return BOARD

    monkeypatch.setattr(board, "load_board", load)
    monkeypatch.setattr(board, "board_names", lambda root: ["little", "other"])
    monkeypatch.setattr(agent_board, "load_agent_board", load)
    return asked


def noted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, answer: Any) -> list[Any]:
    """Replace a function by one that notes its arguments."""
    calls: list[Any] = []

    def stand_in(*given: Any, **named: Any) -> Any:
        calls.append(given[1:] if not named else (*given[1:], named))
        return answer

    monkeypatch.setattr(module, name, stand_in)
    return calls


def rows_of(text: str) -> list[str]:
    """Return the rows of printed tables, cells apart by |."""
    lines = [line.strip(" │┃").replace("┃", "|").replace("│", "|") for line in text.splitlines()]
    return [" ".join(line.split()) for line in lines if line and line[0] not in "┏┡└"]


def test_score(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = SimpleNamespace(
        name="srtf", division="all, closed", rank=1, rank_all=2, score=Aggregate(1.5, 1.25, 1.75),
        by_scenario={"light": 1.2, "heavy": 1.8}, over_next=Aggregate(0.987, 0.9, 1.0),
        gained=Aggregate(0.5, 0.4, 0.6), relative=Aggregate(1.1, 1.0, 1.2), raw={"jct_mean": 1234.5},
    )  # fmt: skip
    last = SimpleNamespace(
        name="fcfs", division="none, closed", rank=2, rank_all=3, score=Aggregate(1.0, 1.0, 1.0),
        by_scenario={"light": 1.0, "heavy": 1.0}, over_next=None, gained=None, relative=None,
        raw={"jct_mean": None},
    )  # fmt: skip
    monkeypatch.setattr(score, "standings", lambda given: [first, last])
    monkeypatch.setattr(score, "KNOWS", {"all": "everything", "none": "nothing"})
    file = tmp_path / "scores.json"
    assert main(["--root", "boards", "score", "little", "--json", str(file)]) == 0
    assert rows_of(capsys.readouterr().out) == [
        "little version 3",
        "division | rank | rank, all | entry | score | P(better) | gained over chance"
        " | light | heavy | mean JCT, s",
        "all: everything | 1 | 2 | srtf | 1.50 [1.25, 1.75] | 0.99 | 0.50 [0.40, 0.60] | 1.20 | 1.80 | 1,234",
        "none: nothing | 2 | 3 | fcfs | 1.00 [1.00, 1.00] | | - | 1.00 | 1.00 | -",
        f"wrote {file}",
    ]
    assert json.loads(file.read_text()) == [
        {
            "entry": "srtf", "division": "all, closed", "rank": 1, "rank_all": 2,
            "score": first.score._asdict(), "by_scenario": {"light": 1.2, "heavy": 1.8},
            "over_next": first.over_next._asdict(), "gained": first.gained._asdict(),
            "relative": first.relative._asdict(), "jct_mean": 1234.5,
        },
        {
            "entry": "fcfs", "division": "none, closed", "rank": 2, "rank_all": 3,
            "score": last.score._asdict(), "by_scenario": {"light": 1.0, "heavy": 1.0},
            "over_next": None, "gained": None, "relative": None,
            "jct_mean": None,
        },
    ]  # fmt: skip


def test_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, loaded: list[Any], capsys: Any) -> None:
    constants = noted(monkeypatch, check, "check_constants", [])
    every = noted(monkeypatch, check, "check_entries", {"good": [], "bad\n": [Flag("light-0", "is false")]})
    monkeypatch.setattr(check, "describe_unverified", lambda board, name: [f"{name} ran elsewhere"])
    file = tmp_path / "found.json"
    words = [
        "check",
        "little",
        "good",
        "bad",
        "--strict",
        "2",
        "--seed",
        "5",
        "--workers",
        "3",
        "--json",
        str(file),
    ]
    assert main(words) == 2
    assert constants == [(CELLS, 3, {"progress": True})]
    assert every == [(["good", "bad"], 2, 5, 3, {"progress": True, "replayed": None})]
    assert capsys.readouterr().out.splitlines() == [
        "little: baseline and reference run again in 3 cells, equal",
        "little/good: 3 cells replayed, every metric equal",
        "  good ran elsewhere",
        "little/bad\\n: 1 FLAGS",
        "  light-0: is false",
        f"wrote {file}",
    ]
    found = {"little": [], "little/good": [], "little/bad\n": [{"cell": "light-0", "what": "is false"}]}
    assert json.loads(file.read_text()) == found
    monkeypatch.setattr(entry, "entry_names", lambda board: ["good"])
    every = noted(monkeypatch, check, "check_entries", {"good": []})
    assert main(["check"]) == 0
    assert every == [(["good"], 0, 0, cores(), {"progress": True, "replayed": None})] * 2
    assert [name for name, _ in loaded] == ["little", "little", "other"]
    capsys.readouterr()
    assert main(["check", "little", "--cells", "1", "--seed", "3"]) == 0
    assert every[2:] == [(["good"], 0, 3, cores(), {"progress": True, "replayed": 1})]
    assert [len(given[0]) for given in constants] == [3, 3, 3, 1]
    assert capsys.readouterr().out.splitlines()[1] == "little/good: 1 of 3 cells replayed, every metric equal"
    assert main(["check", "little", "--cells", "0"]) == 2
    monkeypatch.setattr(check, "check_constants", lambda *given, **named: [Flag("heavy-0", "differs")])
    assert main(["check", "little"]) == 2
    assert capsys.readouterr().out.splitlines()[-4:-2] == ["little: 1 FLAGS", "  heavy-0: differs"]


def test_render(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(render, "write", lambda board: [Path("a.md"), Path("a.html")])
    monkeypatch.setattr(render, "stale", lambda board: [Path("a.md")])
    assert main(["render", "little"]) == 0
    assert main(["render", "--check"]) == 2
    monkeypatch.setattr(render, "stale", lambda board: [])
    assert main(["render", "--check"]) == 0
    stale = "a.md is not what render writes"
    assert capsys.readouterr().out.splitlines() == ["wrote a.md", "wrote a.html", stale, stale]


def test_retrain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = SimpleNamespace(
        entered=Aggregate(1.5, 1.4, 1.6), found=Aggregate(1.7, 1.6, 1.8), inside=False, seed=4,
        same_traces=True, checkpoint=Path("c.safetensors"), largest_difference=0.012345,
    )  # fmt: skip
    calls, file = noted(monkeypatch, retrain, "retrain", found), tmp_path / "scores.json"
    assert main(["retrain", "little", "mine", "--seed", "4", "--workers", "2", "--json", str(file)]) == 2
    assert calls == [("mine", Path("outputs/retrain/little-mine"), 4, 2, 2)]
    assert capsys.readouterr().out.splitlines() == [
        "little/mine: entered with score 1.50 [1.40, 1.60]",
        "trained anew with seed 4: score 1.70 [1.60, 1.80], OUTSIDE that interval",
        "c.safetensors: the same training traces, weights differ by at most 0.0123",
        f"wrote {file}",
    ]
    assert json.loads(file.read_text()) == {
        "entered": found.entered._asdict(), "found": found.found._asdict(), "inside": False, "seed": 4,
        "same_traces": True, "largest_difference": 0.012345,
    }  # fmt: skip
    found.inside = True
    assert main(["retrain", "little", "mine", "--output", "here", "--workers", "ray"]) == 0
    assert calls[1] == ("mine", Path("here"), None, "ray", "ray")
    found.same_traces = False
    assert main(["retrain", "little", "mine"]) == 2
    printed = capsys.readouterr().out
    assert ", inside that interval" in printed
    assert "OTHER TRAINING TRACES" in printed
    assert main(["retrain", "little", "mine", "--seed", "-1"]) == 2
    assert capsys.readouterr().err == "error: --seed: -1 is no seed (give 0 or more)\n"


def test_best_known(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(best_known, "choose_cells", lambda board, cells: cells or CELLS)
    calls: list[Any] = []

    def search(board: Any, *given: Any) -> Path:
        *given, tell = given
        calls.append(tuple(given))
        for kept, best_entry in ((1000.0, None), (900.0, "srtf")):
            tell(
                SimpleNamespace(
                    cell="light-0", value=1000.0, kept=kept, best_entry=best_entry, best_value=1100.0
                )
            )
        return Path("best")

    monkeypatch.setattr(best_known, "best_known", search)
    words = ["best-known", "little", "--evaluations", "1", "--seed", "0", "--types", "1.0", "--workers", "1"]
    assert main([*words, "--cells", "light-0"]) == 0
    assert main(["best-known", "little", "--types", "0", "--weights", "1", "--step", "0.3"]) == 0
    assert calls == [
        (["light-0"], 1, 0, (1.0, 0.2, 0.05), 1),
        (CELLS, 2000, 0, (0.0, 1.0, 0.3), cores()),
    ]
    assert capsys.readouterr().out.splitlines()[:4] == [
        "light-0: jct_mean 1000",
        "light-0: jct_mean 1000, kept 900; best entry srtf 1100",
        "best/: 1 cells searched; now `leaderboard render little`",
        "light-0: jct_mean 1000",
    ]
    for changed, line in (
        (["--evaluations", "0"], "--evaluations: 0 evaluations, seed 0 (give at least 1, and a seed from 0)"),
        (["--seed", "-1"], "--evaluations: 1 evaluations, seed -1 (give at least 1, and a seed from 0)"),
        (["--types", "1.01"], "--types: 1.01 (give a share from 0 to 1)"),
        (["--types", "-0.01"], "--types: -0.01 (give a share from 0 to 1)"),
        (["--weights", "1.01"], "--weights: 1.01 (give a share from 0 to 1)"),
        (["--step", "0"], "--step: 0.0 (give a positive number)"),
        (["--step", "nan"], "--step: nan (give a positive number)"),
        (["--workers", "0"], "--workers: 0 processes (give at least 1, or ray)"),
        (["--workers", "some"], "--workers: some processes (give at least 1, or ray)"),
    ):
        assert main([*words, *changed]) == 2
        assert capsys.readouterr().err == f"error: {line}\n"


def test_bound_freeze_and_curves(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    proved = noted(monkeypatch, bounds, "add_bounds", Path("bounds.json"))
    assert main(["bound", "little", "heavy", "--workers", "2"]) == 0
    assert proved == [(2, ["heavy"])]
    frozen = noted(monkeypatch, add, "freeze", Path("board.yaml"))
    assert main(["freeze", "little", "--next-version", "--workers", "2"]) == 0
    assert main(["freeze", "little"]) == 0
    assert frozen == [(2, True, {"progress": True}), (cores(), False, {"progress": True})]
    monkeypatch.setattr(entry, "entry_names", lambda board: ["a", "b"])
    monkeypatch.setattr(entry_curves, "write_curves", lambda board, name: Path(f"{board.name}-{name}.npz"))
    assert main(["curves", "little", "--workers", "1"]) == 0
    assert main(["curves", "little", "c", "--workers", "1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote bounds.json", "wrote board.yaml", "wrote board.yaml", "wrote little-a.npz",
        "wrote little-b.npz", "wrote little-c.npz",
    ]  # fmt: skip
    assert main(["bound", "little", "hevy"]) == 2
    assert re.match(r"error: scenario: unknown scenario 'hevy' \(did you mean heavy", capsys.readouterr().err)


def test_agents(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = SimpleNamespace(name="mine", found={"Knobs-16": Aggregate(0.9, 0.8, 1.0)})
    ranked = noted(monkeypatch, agent_scores, "rank_agents", [mine])
    replayed = noted(monkeypatch, agent_scores, "replay_entry", mine)
    measured = noted(monkeypatch, agent_board, "measure_constants", Path("agents.yaml"))
    written = noted(monkeypatch, agent_scores, "write_agent_page", Path("README.md"))
    monkeypatch.setattr(agent_scores, "agent_columns", lambda board: ("entry", "Knobs-16"))
    monkeypatch.setattr(
        agent_scores, "agent_rows", lambda board, found: [(one.name, "0.90") for one in found]
    )
    file = tmp_path / "scores.json"
    assert main(["agents", "little", "--write", "--freeze", "--workers", "2", "--json", str(file)]) == 0
    assert (ranked, replayed, measured, written) == ([(2,)], [], [()], [([mine],)])
    table = ["little version 3", "entry | Knobs-16", "mine | 0.90"]
    assert rows_of(capsys.readouterr().out) == [
        "wrote agents.yaml", *table, "wrote README.md", f"wrote {file}"
    ]  # fmt: skip
    assert json.loads(file.read_text()) == {"mine": {"Knobs-16": {"value": 0.9, "low": 0.8, "high": 1.0}}}
    assert main(["agents", "little", "mine", "yours"]) == 0
    assert replayed == [("mine",), ("yours",)]
    assert (len(ranked), len(measured), len(written)) == (1, 1, 1)
    assert rows_of(capsys.readouterr().out) == [*table, table[-1]]
    assert main(["agents", "little", "mine", "--write"]) == 2
    assert capsys.readouterr().err == "error: --write: is of all entries (name no entry)\n"


def test_add(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = noted(monkeypatch, add, "add", Path("entries/mine"))
    words = ["add", "little", "mine", "policy=fcfs", "--title", "Mine", "--author", "A", "--author", "B"]
    assert main([*words, "--workers", "2", "--run", "x", "--decision-limit-s", "5"]) == 0
    name, parameters, named = calls[0]
    assert (name, parameters["name"]) == ("mine", "fcfs")
    assert named == {
        "title": "Mine", "authors": ["A", "B"], "workers": 2, "words": ["policy=fcfs", "--run=x"],
        "finished": [Path("x")], "decision_limit_s": 5.0,
    }  # fmt: skip
    assert main(["add", "little", "mine", "policy=fcfs"]) == 0
    assert calls[1][2]["authors"] == ["clustergym"]
    assert calls[1][2]["workers"] == 1
    wrote = "wrote entries/mine/: 3 cells; now `leaderboard render little`"
    assert capsys.readouterr().out.splitlines() == [wrote, wrote]
    assert main(["add", "little", "mine", "seed=1"]) == 2
    assert capsys.readouterr().err == (
        "error: 'seed=1' is not of the policy (only the policy is an entry's: policy=NAME"
        " policy.PARAMETER=VALUE)\n"
    )
