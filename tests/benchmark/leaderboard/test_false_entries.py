"""Entries that say what is not true of a published policy, or that are made to be misread."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
from boards import claims_throughout, flags, kinds
from entry_logs import change_headers

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_replay import FlagReason
from clustergym.benchmark.leaderboard.render import markdown, page
from clustergym.benchmark.leaderboard.score import optimum, standings
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError


def srtf(**parameters: Any) -> dict[str, Any]:
    return {"policy": {"name": "srtf", "parameters": parameters}}


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


FALSE: dict[str, tuple[dict[str, Any], str]] = {
    "a clairvoyant log sold as class none": ({"information_class": "none"}, "it is of class clairvoyant"),
    "the same, said not to be deterministic": (
        {"information_class": "none", "deterministic": False},
        "it is of class clairvoyant",
    ),
    "said not to be deterministic": ({"deterministic": False}, "is deterministic"),
    "another policy, said not to be deterministic": (
        {"policy": {"name": "sjf", "parameters": {}}, "deterministic": False},
        "is deterministic",
    ),
    "a name among the parameters": (srtf(name="fcfs") | {"information_class": "none"}, "parameter `name`"),
    "a parameter that it does not have": (srtf(nothing=1), "unknown key 'nothing'"),
    "a parameter of another type": (srtf(elastic="yes"), "'yes' is not a bool"),
    "a parameter out of range": (srtf(round_s=-1.0), "policy.round_s: -1.0 is not valid"),
    "a round beyond floats": (srtf(round_s=1e308), "policy.round_s"),
    "another round than the log's": (srtf(round_s=600.0), "round_s is not that of the entry"),
    "a number that is infinite": (srtf(round_s=float("inf")), "not a finite number"),
    "a parameter that is a date": (srtf(since="2026-01-01T00:00:00"), "not a plain word"),
    "a checkpoint that is a file": (
        {"policy": {"name": "learned", "parameters": {"checkpoint": "/dev/zero"}}, "trained_on": ["train"]},
        "a file that an entry names is not opened",
    ),
    "a checkpoint in the working directory": (
        {
            "policy": {"name": "learned", "parameters": {"checkpoint": "evil.safetensors"}},
            "trained_on": ["train"],
        },
        "a file that an entry names is not opened",
    ),
    "a learned policy that was trained on nothing": (
        {"policy": {"name": "learned", "parameters": {}}},
        "was trained on 'train'",
    ),
    "a list of 10,000": (srtf(sizes=[1] * 10_000), "more than 500 values"),
    "a nested list": (srtf(sizes=nested(20)), "more than 6 levels"),
    "a text of 1 MB": (srtf(note="x" * 10**6), "a text of over 200 characters"),
    "a number of 90 digits": (srtf(seed=10**90), "not a finite number"),
    "a key that is true": (srtf(sizes={True: 1}), "true is not text to YAML"),
    "a key that is a number": (srtf(sizes={1: 1}), "a name that is not text"),
    "trained on Test": ({"trained_on": ["Test"]}, "did you mean test?"),
    "trained on test and a space": ({"trained_on": ["test "]}, "not a split of small"),
    "trained on test in wide letters": ({"trained_on": ["\uff54\uff45\uff53\uff54"]}, "not a split of small"),
    "trained on something else": ({"trained_on": ["the board's own traces"]}, "not a split of small"),
    "another's title": ({"title": "First come"}, "may be taken for that of first"),
    "another's title in capitals": ({"title": "FIRST  COME"}, "may be taken for that of first"),
    "another's title in wide letters": (
        {"title": "\uff26\uff49\uff52\uff53\uff54\u3000\uff43ome"},
        "may be taken for that of first",
    ),
    "another's title with a fixed space": ({"title": "First\u00a0come"}, "may be taken for that of first"),
    "another's title with a zero-width space": (
        {"title": "Fi\u200brst come\u2060"},
        "may be taken for that of first",
    ),
}


@pytest.mark.parametrize("name", FALSE)
def test_false(name: str, root: Path) -> None:
    changes, said = FALSE[name]
    claims_throughout(root / "small" / "short", **changes)
    found = flags(root, "short")
    assert any(said in flag for flag in found), found


def test_a_truthful_entry_is_believed(root: Path) -> None:
    assert flags(root, "short") == flags(root, "short", 1) == []
    claims_throughout(root / "small" / "short", trained_on=["test", "elsewhere"])
    assert flags(root, "short") == []
    board = load_board("small", root)
    assert {one.division for one in standings(board)} == {"none, closed", "clairvoyant, open"}


def test_trained_on_the_board_is_open(root: Path) -> None:
    claims_throughout(root / "small" / "short", trained_on=["small"])
    assert "clairvoyant, open" in {one.division for one in standings(load_board("small", root))}


def test_render_refuses_what_it_does_not_know(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claims_throughout(root / "small" / "short", trained_on=["Test"])
    assert main(["--root", str(root), "render", "small"]) == 2
    assert "trained_on: 'Test' is not a split of small" in capsys.readouterr().err


def test_what_is_not_published_stays_its_own_word(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claims_throughout(root / "small" / "short", policy={"name": "os.system", "parameters": {"of": ["a/b"]}})
    assert main(["--root", str(root), "check", "small", "short"]) == 0
    assert "class and parameters are the entry's word" in capsys.readouterr().out


HIDDEN = "a\x1b]0;owned\x07\x1b[2J\u202eevil\u2066\u200b\u200d\ufeff\u00ad\u3164\u2028\x9b31m"


def test_what_nobody_sees_is_written_out(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = root / "small" / "short"
    lines = dict.fromkeys(("version", "hardware", "licence", "limits", "solver", "command"), HIDDEN)
    claims_throughout(folder, **lines, title=HIDDEN, authors=[HIDDEN], search_budget=HIDDEN)
    claims_throughout(folder, policy={"name": "mine", "parameters": {HIDDEN: HIDDEN}})
    assert main(["--root", str(root), "check", "small", "short"]) == 0
    assert main(["--root", str(root), "score", "small"]) == 0
    assert main(["--root", str(root), "render", "small"]) == 0
    board = load_board("small", root)
    shown = capsys.readouterr().out + markdown(board, standings(board), optimum(board))
    shown += page(board, standings(board), optimum(board)) + (root / "small" / "README.md").read_text()
    assert not set(HIDDEN[1:]) - {c for c in HIDDEN if c.isascii() and c.isprintable()} & set(shown)
    # In the page the backslash of `\u202e` is doubled, as JSON has it: a browser shows six characters.
    assert "\\\\u202eevil" in page(board, standings(board), optimum(board))
    assert re.search(r"\\u[0-9a-f]{4}", html.unescape(markdown(board, standings(board), optimum(board))))


def test_an_error_is_one_line_without_escapes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "small" / "short" / "entry.yaml"
    path.write_text(path.read_text() + '"\\e[2J\\u202eevil": 1\n')
    assert main(["--root", str(root), "check", "small", "short"]) == 2
    shown = capsys.readouterr().out
    assert "\\x1b[2J\\u202eevil" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    with pytest.raises(InputError) as error:
        raise InputError("x" * 10**6, remedy="y")
    assert len(str(error.value)) <= 2001


def test_a_folder_named_with_escapes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "small" / "\x1b[2J\u202eevil").mkdir()
    assert main(["--root", str(root), "check", "small"]) == 2
    assert main(["--root", str(root), "render", "small"]) == 2
    shown = capsys.readouterr()
    assert "small/\\x1b[2J\\u202eevil: 1 FLAGS" in shown.out
    assert not {"\x1b", "\u202e"} & {*shown.out, *shown.err}


def test_nothing_that_an_entry_names_is_imported(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil.py").write_text("open('was-here', 'w')\nclass Evil: pass\n")
    change_headers(root / "small" / "short", policy="evil")
    claims_throughout(
        root / "small" / "short", policy={"name": "evil", "parameters": {"_target_": "evil:Evil"}}
    )
    for words in (["check", "small", "--strict", "2"], ["score", "small"], ["render", "small"]):
        main(["--root", str(root), *words])
    assert not (tmp_path / "was-here").exists()


def test_a_log_may_not_be_sold_as_another_round(root: Path) -> None:
    # The log of an event-driven policy, presented as that of one with rounds, and the other way round.

    change_headers(root / "small" / "first", round_s=60.0)
    assert kinds(root, "first") == {FlagReason.HEADER}
