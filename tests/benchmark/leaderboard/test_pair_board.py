"""A board whose entries are a policy and a placer: the log has what both decided."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from boards import claims, claims_throughout, flags, frozen, kinds
from clustergym.policies.fcfs import FirstComeFirstServed
from clustergym.policies.placers.parts import PartPlacer
from clustergym.policies.sjf import ShortestJobFirst
from entry_logs import Lines, change_headers, change_log, read_log
from error_lines import error_line

from clustergym.benchmark.leaderboard.add import add
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_logs import FILE
from clustergym.benchmark.leaderboard.cell_replay import FlagReason
from clustergym.benchmark.leaderboard.render import pages
from clustergym.benchmark.leaderboard.score import standings
from clustergym.commands.leaderboard import main

CELL = "parts-6"
RANDOM_FIT, FGD = {"name": "minipod", "algorithm": "random_fit"}, {"name": "parts", "score": "fgd"}
NODES = "cluster.nodes=[{gpu_type: G2, count: 2, gpus_per_node: 8, cpu_milli: 96000, memory_mib: 393216}]"
BOARD = {
    "name": "pairs",
    "version": 1,
    "title": "A small board of pairs",
    "summary": "Parts of GPUs, one seed.",
    "metric": "jct_mean",
    "better": "lower",
    "split": "test",
    "seeds": [6],
    "chooses": "policy and placer",
    "baseline": {"policy": {"name": "fcfs"}, "placer": RANDOM_FIT},
    "reference": {"policy": {"name": "sjf"}, "placer": FGD},
    "shows": ["gpu_allocation", "jct_p99"],
    "scenarios": [{"name": "parts", "overrides": ["scenario=sharing", NODES, "trace.jobs=60"]}],
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("pairs")
    board = frozen(root, BOARD)
    add(board, "first", {"policy": {"name": "fcfs"}, "placer": RANDOM_FIT}, title="First come")
    add(board, "short", {"policy": {"name": "sjf"}, "placer": FGD})
    return root


@pytest.fixture
def root(made, tmp_path) -> Path:
    """A copy of the board that a test may change."""
    shutil.copytree(made, tmp_path / "pairs")
    return tmp_path / "pairs"


def test_baseline_and_reference_score_0_and_1(root):
    found = {one.name: one for one in standings(load_board("pairs", root))}
    assert found["first"].score == pytest.approx((0.0, 0.0, 0.0))
    assert found["short"].score == pytest.approx((1.0, 1.0, 1.0))
    assert {one.name: one.division for one in found.values()} == {
        "first": "none, closed",
        "short": "clairvoyant, closed",
    }
    entry = yaml.safe_load((root / "pairs" / "short" / "entry.yaml").read_text())
    assert entry["policy"]["name"] == "sjf"
    assert entry["placer"] == {"name": "parts", "parameters": {"defragment_s": None, "score": "fgd"}}


def test_what_was_not_tampered_with_has_no_flag(root):
    assert flags(root, "first", 1) == flags(root, "short", strict=1) == []
    header, *lines = read_log(root / "pairs" / "short", CELL)
    decisions = lines[: header["decisions"]]
    assert all("gpu_type" not in line for line in decisions)
    assert all({"gpu_type", "gpus"} <= line.keys() for line in lines[header["decisions"] :])
    # Every launch asks the placer.
    assert sum(len(line.get("launch", [])) for line in decisions) == len(lines) - len(decisions)


def test_neither_policy_nor_placer_of_a_variant_is_needed_to_check(root, monkeypatch):
    def never(*args: Any) -> None:
        raise AssertionError("the entry's own was asked")

    for owner, name in (
        (FirstComeFirstServed, "schedule"),
        (ShortestJobFirst, "schedule"),
        (PartPlacer, "place_part"),
    ):
        monkeypatch.setattr(owner, name, never)
    for name in ("first", "short"):
        claims(root / "pairs" / name, variant=True, title=f"{name}, a variant")
        assert flags(root, name) == []


@pytest.mark.parametrize(
    ("kind", "own"),
    [
        ("policy", {"name": "my.own-policy", "parameters": {}}),
        ("placer", {"name": "my.own-placer", "parameters": {"depth": 3}}),
    ],
)
def test_what_is_not_published_is_replayed_and_never_run(kind, own, root):
    claims_throughout(root / "pairs" / "short", **{kind: own})
    assert flags(root, "short") == []
    (line,) = flags(root, "short", 1)
    assert (
        line == f"re-run differs: entry.yaml: {own['name']!r} is not published here and cannot be run again"
    )


def test_the_answers_of_another_placer_are_found_by_running_it_again(root):
    parameters = {"defragment_s": None, "score": "best-fit"}
    claims_throughout(root / "pairs" / "short", placer={"name": "parts", "parameters": parameters})
    assert kinds(root, "short") == kinds(root, "short", strict=1) == {FlagReason.RERUN}


CLAIMED: dict[str, tuple[dict[str, Any], str]] = {
    "no placer": ({"placer": None}, "placer: is missing: entries of pairs choose a policy and placer"),
    "no policy": ({"policy": None}, "policy: is missing: entries of pairs choose a policy and placer"),
    "another policy": ({"policy": {"name": "nobody"}}, "header: parts-6: policy is not that of the entry"),
    "another placer": ({"placer": {"name": "nobody"}}, "header: parts-6: placer is not that of the entry"),
    "another class": ({"information_class": "none"}, "it is of class clairvoyant, entered as none"),
    "a parameter that is not taken": (
        {"placer": {"name": "parts", "parameters": {"depth": 3}}},
        "not as published: entry.yaml: placer.depth: unknown key 'depth'",
    ),
    "a path": (
        {
            "placer": {"name": "learned", "parameters": {"checkpoint": "/etc/passwd"}},
            "trained_on": ["elsewhere"],
        },
        "'/etc/passwd' is not a plain word: a file that an entry names is not opened",
    ),
    "training left out": (
        {"placer": {"name": "learned", "parameters": {"checkpoint": "sharing"}}},
        "learned was trained on 'elsewhere', which trained_on does not say",
    ),
}


@pytest.mark.parametrize("name", CLAIMED)
def test_tampered_entry(name: str, root: Path) -> None:
    changes, expected = CLAIMED[name]
    claims(root / "pairs" / "short", **changes)
    assert expected in flags(root, "short")[0]


def _last(**changes: Any) -> Callable[[Lines], Lines]:
    return lambda lines: [*lines[:-1], {**lines[-1], **changes}]


def _no_device(lines: Lines) -> Lines:
    """Give the last part of a GPU the ninth GPU of its node, which has eight."""
    at = max(row for row, line in enumerate(lines) if "device" in line)
    return [*lines[:at], {**lines[at], "device": 8}, *lines[at + 1 :]]


LOGGED: dict[str, tuple[Callable[[Lines], Lines], FlagReason]] = {
    "a node that is not there": (_last(nodes=[[2, 1, 1]]), FlagReason.DECISION_LOG),
    "no GPU of this number": (_no_device, FlagReason.ILLEGAL_DECISION),
    "an answer left out": (lambda lines: lines[:-1], FlagReason.DIVERGED),
    "an answer twice": (lambda lines: [*lines, lines[-1]], FlagReason.DIVERGED),
    "a decision left out": (lambda lines: [lines[0], *lines[2:]], FlagReason.DECISION_LOG),
    "a move": (
        lambda lines: [*lines, {"time_s": lines[-1]["time_s"] + 1, "move": [["0", [[0, 1, 1]]]]}],
        FlagReason.DECISION_LOG,
    ),
    "too many decisions": (
        lambda lines: [lines[0] | {"decisions": 10**6}, *lines[1:]],
        FlagReason.DECISION_LOG,
    ),
    "half a decision": (lambda lines: [lines[0] | {"decisions": 0.5}, *lines[1:]], FlagReason.DECISION_LOG),
    "no decisions": (lambda lines: [lines[0] | {"decisions": 0}, *lines[1:]], FlagReason.DECISION_LOG),
    "an answer as a decision": (
        lambda lines: [lines[0] | {"decisions": lines[0]["decisions"] + 1}, *lines[1:]],
        FlagReason.DECISION_LOG,
    ),
}


@pytest.mark.parametrize("name", LOGGED)
def test_tampered_log(name: str, root: Path) -> None:
    change, kind = LOGGED[name]
    change_log(root / "pairs" / "short", CELL, change)
    assert kinds(root, "short") == {kind}


def test_moves_of_parts_are_refused(root):
    """Nothing moves on nodes that can be divided; a log of a placer of one's own may say otherwise."""
    folder = root / "pairs" / "short"
    claims_throughout(folder, placer={"name": "my.own", "parameters": {}})
    change_headers(folder, defragment_s=30.0)
    _, *lines = read_log(folder, CELL)
    placed = next(at for at, line in enumerate(lines) if line.get("nodes"))
    first = lines[placed]["time_s"]
    job = lines[0]["launch"][0][0]
    at = next(n for n, line in enumerate(lines[placed:], placed) if line["time_s"] > first // 30 * 30 + 30)
    move = {"time_s": float(first // 30 * 30 + 30), "move": [[job, [[0, 1, 1]]]]}
    change_log(folder, CELL, lambda lines: [*lines[: at + 1], move, *lines[at + 1 :]])
    (line,) = flags(root, "short")
    assert line.startswith(("illegal decision: parts-6", "replay diverged: parts-6"))


@pytest.mark.parametrize(("key", "value"), [("round_s", 1e-3), ("defragment_s", 600.0), ("seed", 7)])
def test_a_header_of_another_run(key, value, root):
    change_headers(root / "pairs" / "short", **{key: value})
    assert flags(root, "short") == [f"header: parts-6: {key} is not that of the entry or the board"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["policy=fcfs"], "no placer is named, and entries of pairs choose both"),
        (["placer=fgd"], "no policy is named, and entries of pairs choose both"),
        (["policy=fcfs", "placer=fgd", "seed=3"], "'seed=3' is not of the policy and placer"),
        (["policy=gavel", "placer=fgd"], "choose policy=fcfs, sjf, srtf, las or tiresias"),
        (["policy=fcfs", "placer=buddy"], "choose placer=fgd, best-fit"),
    ],
)
def test_what_cannot_be_entered_is_one_line(words, expected, root, capsys):
    assert main(["--root", str(root), "add", "pairs", "x", *words]) == 2
    assert expected in error_line(capsys)
    assert not (root / "pairs" / "x").exists()


BAD_BOARDS: dict[str, tuple[dict[str, Any], str]] = {
    "a policy of its own": ({"policy": {"name": "sjf"}}, "policy: is what entries choose"),
    "a placer of its own": ({"placer": FGD}, "placer: is what entries choose"),
    "a baseline without placer": (
        {"baseline": {"policy": {"name": "fcfs"}}},
        "give baseline: {policy: {name",
    ),
    "no baseline": ({"baseline": None}, "baseline: is not a policy and a placer"),
    "a reference that is a policy": (
        {"reference": {"name": "sjf"}},
        "reference: is not a policy and a placer",
    ),
    "an unknown column": ({"shows": ["gpu_alocation"]}, "shows: unknown metric 'gpu_alocation'"),
}


@pytest.mark.parametrize("name", BAD_BOARDS)
def test_a_bad_board_is_one_line(name, root, capsys):
    changes, expected = BAD_BOARDS[name]
    path = root / "pairs" / "board.yaml"
    content = yaml.safe_load(path.read_text()) | changes
    path.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not None}))
    assert main(["--root", str(root), "score", "pairs"]) == 2
    assert expected in error_line(capsys)


def test_no_schedules_are_searched_for(root, capsys):
    assert main(["--root", str(root), "best-known", "pairs", "--evaluations", "1", "--workers", "1"]) == 2
    assert "board pairs: the search plans schedules for" in error_line(capsys)


def test_the_command_of_an_entry_makes_the_same(root):
    folder = root / "pairs" / "short"
    command = shlex.split(yaml.safe_load((folder / "entry.yaml").read_text())["command"])
    before = (folder / FILE).read_bytes()
    shutil.rmtree(folder)
    assert main(["--root", str(root), *command[3:]]) == 0
    assert (folder / FILE).read_bytes() == before


def test_the_pages_have_the_columns_of_the_board(root):
    readme, page = pages(load_board("pairs", root)).values()
    assert "the baseline (fcfs on minipod algorithm=random_fit)" in readme
    assert "reference (sjf on parts score=fgd)" in readme
    heads = (
        "rank | rank, all | entry | score | P(better) | gained over chance | baseline = 1 | gap to optimum"
    )
    assert f"| {heads} | gpu allocation | p99 JCT, s | decision p99, ms |" in readme
    # Both entries play random fit or better: chance is the baseline.
    assert "| random play |" in readme
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    facts = {entry["name"]: entry["facts"] for entry in data["entries"]}
    assert facts["short"]["placer"] == "parts defragment_s=None score=fgd"
    assert facts["short"]["policy"].startswith("sjf")
    assert data["beside"] == "first"
