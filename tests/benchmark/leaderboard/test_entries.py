"""Entries of others: what is written, what a replay gives, and what is said of one that was tampered with."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from boards import claims, enter, write_board
from entry_logs import (
    Lines,
    change_headers,
    change_log,
    packed,
    packed_logs,
    read_log,
    replace_packed,
    write_packed,
)
from error_lines import error_line

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_logs import FILE
from clustergym.benchmark.leaderboard.cells import Place, load_table
from clustergym.benchmark.leaderboard.check_figures import check_board
from clustergym.benchmark.leaderboard.fill import fill, load_fresh_table, take_fingerprints
from clustergym.benchmark.leaderboard.pairs import compare_with_reference
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError

FIRST, SECOND = "philly-1", "philly-2"


def check(root: Path) -> list[str]:
    """Return what a check of the board says is wrong."""
    table = load_table(load_board("small", root))
    return check_board(table, take_fingerprints(table)).wrong


def test_figures_of_an_entry_are_those_of_its_policy_and_stand_in_the_table(root: Path) -> None:
    table = load_table(load_board("small", root))
    fill(table, take_fingerprints(table), 1.0, policies=["srtf"], say=lambda line: None)
    done = load_fresh_table(table.board)
    for seed in range(1, 9):
        mine, row = (done.rows[Place(name, "philly", seed, "")] for name in ("mine", "srtf"))
        assert (mine.digest, dict(mine.metrics)) == (row.digest, dict(row.metrics))
    ratio = compare_with_reference(done, "mine").overall
    assert ratio is not None
    assert (ratio.value, ratio.seeds) == (1.0, 8)
    assert done.policies["placed"].rules == "entered"
    assert compare_with_reference(done, "placed").overall is not None
    assert check(root) == []
    assert sorted(path.name for path in (root / "small" / "mine").iterdir()) == [FILE, "entry.yaml"]


def test_neither_policy_nor_placer_is_run_to_check(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mine", "placed"):
        claims(root / "small" / name, policy={"name": "own", "parameters": {"path": "/dev/zero"}})
        change_headers(root / "small" / name, policy="own")
    claims(root / "small" / "placed", placer={"name": "theirs"})
    change_headers(root / "small" / "placed", placer={"name": "theirs"})
    assert check(root) == []


def column(folder: Path, **changes: Any) -> None:
    """Change keys of the first line of the first log."""
    change_log(folder, FIRST, lambda lines: [lines[0] | changes, *lines[1:]])


def first(**changes: Any) -> Callable[[Path], None]:
    """Change the first decision of the first log."""
    return lambda folder: change_log(folder, FIRST, lambda lines: [lines[0], lines[1] | changes, *lines[2:]])


def launch(change: Callable[[list[Any]], list[Any]]) -> Callable[[Path], None]:
    """Change the launches of the first decision."""

    def changed(folder: Path) -> None:
        first(launch=change(read_log(folder, FIRST)[1]["launch"]))(folder)

    return changed


def idle(lines: Lines) -> Lines:
    """Preempt, in the first decision, a job that does not run then."""
    running = {job for job, _, _ in lines[1]["launch"]}
    later = next(job for line in lines[2:] for job, _, _ in line.get("launch", []) if job not in running)
    return [lines[0], {**lines[1], "preempt": [later]}, *lines[2:]]


def forget(folder: Path) -> None:
    """Leave out what was decided last."""
    change_log(folder, FIRST, lambda lines: lines[:-1])


def text(content: str | bytes, name: str = "entry.yaml") -> Callable[[Path], object]:
    """Write something else into a file."""
    data = content if isinstance(content, bytes) else content.encode()
    return lambda folder: (folder / name).write_bytes(data)


def bomb(size: int) -> bytes:
    return gzip.compress(b'{"schema": "' + b"x" * size, 1)


ALIASES = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9)
)
TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no entry.yaml": (lambda f: (f / "entry.yaml").unlink(), "entry.yaml"),
    "a YAML tag": (text("!!python/object/apply:os.system ['touch /tmp/here']"), "entry.yaml"),
    "YAML aliases that multiply": (text(ALIASES), "entry.yaml"),
    "a YAML file of 100 MB": (text("a: " + "b" * 10**8), "entry.yaml"),
    "an unknown key": (lambda f: claims(f, score=1.0), "score"),
    "a policy that is a module": (lambda f: claims(f, policy={"name": "os:system"}), "policy"),
    "another version of the board": (lambda f: claims(f, board_version=2), "board_version: is of small"),
    "another board": (lambda f: claims(f, board="fair"), "board_version: is of fair"),
    "a title of another": (lambda f: claims(f, title=" srtf "), "title"),
    "a title of another entry": (lambda f: claims(f, title="PLACED"), "title"),
    "another information class": (lambda f: claims(f, information_class="none"), "information_class"),
    "another policy": (lambda f: claims(f, policy={"name": "arena"}), "policy: is not that of the entry"),
    "too many parameters": (
        lambda f: claims(f, policy={"name": "own", "parameters": {"a": list(range(600))}}),
        "more than 500 values",
    ),
    "a file beside": (text("x", "run.py"), "does not belong in an entry"),
    "a link": (lambda f: os.symlink("/etc/passwd", f / "README.md"), "is a link"),
    "a pipe": (lambda f: ((f / FILE).unlink(), os.mkfifo(f / FILE)), "is not a plain file"),
    "the log's seed": (lambda f: column(f, seed=6), "seed: is not that of the entry"),
    "a seed that is true": (lambda f: column(f, seed=True), "seed: is not that of the entry"),
    "the log's placer": (lambda f: column(f, placer={"name": "minipod"}), "placer: is not that"),
    "rounds of a microsecond": (lambda f: column(f, round_s=1e-6), "round_s: 1e-06 is not valid"),
    "rounds of 400 digits": (lambda f: column(f, round_s=10**400), "round_s"),
    "a foreign trace": (lambda f: column(f, scenario_sha256="0" * 64), "was made on another scenario"),
    "a log of another schema": (lambda f: column(f, schema="other/1"), "schema"),
    "no log": (lambda f: (f / FILE).unlink(), "No such file"),
    "a log that is not packed": (text(b"{}", FILE), "cannot be read"),
    "a log cut short": (lambda f: text((f / FILE).read_bytes()[:-20], FILE)(f), "by its contents"),
    "a log that goes on": (lambda f: text((f / FILE).read_bytes() + b"more", FILE)(f), "by its contents"),
    "contents of 200 MB": (text(bomb(2 * 10**8), FILE), "longer than 1,000,000 bytes"),
    "contents that are nested": (text(gzip.compress(b"[" * 10**5), FILE), "not JSON"),
    "no log of a cell": (lambda f: write_packed(f, packed_logs(f)[1:]), "has 0 logs of philly-1"),
    "the log of a cell twice": (
        lambda f: write_packed(f, [*packed_logs(f), packed_logs(f)[0]]),
        "has 2 logs of philly-1",
    ),
    "the log of a foreign cell": (
        lambda f: write_packed(f, [*packed_logs(f), ("philly-9", packed_logs(f)[0][1])]),
        "has 1 logs of philly-9, and 0 are to be there",
    ),
    "cells out of order": (lambda f: write_packed(f, packed_logs(f)[::-1]), "in another order"),
    "logs exchanged": (
        lambda f: replace_packed(f, FIRST, packed(read_log(f, SECOND))),
        "was made on another scenario",
    ),
    "a line that is no JSON": (
        lambda f: change_log(f, FIRST, lambda lines: [lines[0], b"{", *lines[1:]]),
        "is not JSON",
    ),
    "a log of 400 MB": (lambda f: replace_packed(f, FIRST, bomb(4 * 10**8)), FILE),
    "a time beyond floats": (first(time_s=10**400), FILE),
    "a time that is none": (first(time_s=1.5), "1.5"),
    "launches that are no list": (first(launch=7), FILE),
    "a job that is not there": (launch(lambda jobs: [["nobody", *jobs[0][1:]], *jobs[1:]]), "nobody"),
    "a job named twice": (launch(lambda jobs: [jobs[0], *jobs]), FILE),
    "more GPUs than there are": (launch(lambda jobs: [[*jobs[0][:2], 64], *jobs[1:]]), "64"),
    "a number of GPUs beyond 64 bits": (launch(lambda jobs: [[*jobs[0][:2], 10**30]]), FILE),
    "another type": (launch(lambda jobs: [[jobs[0][0], "H900", jobs[0][2]], *jobs[1:]]), "H900"),
    "an idle preemption": (lambda f: change_log(f, FIRST, idle), "decisions that change nothing"),
    "the last decision left out": (forget, ""),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered(name: str, root: Path) -> None:
    change, expected = TAMPERED[name]
    change(root / "small" / "mine")
    (line,) = (found for found in check(root) if found.startswith("mine: "))
    assert expected in line
    assert "\n" not in line


def answer(**changes: Any) -> Callable[[Lines], Lines]:
    """Change the first answer of the placer."""

    def changed(lines: Lines) -> Lines:
        at = next(at for at, line in enumerate(lines) if "nodes" in line)
        return [*lines[:at], lines[at] | changes, *lines[at + 1 :]]

    return changed


def without_answer(lines: Lines) -> Lines:
    at = next(at for at, line in enumerate(lines) if "nodes" in line)
    return [*lines[:at], *lines[at + 1 :]]


PLACED: dict[str, tuple[Callable[[Lines], Lines], str]] = {
    "a node that is not there": (answer(nodes=[[99, 1, 2]]), "99"),
    "nodes up to 2^31": (answer(nodes=[[0, 2**31, 2]]), FILE),
    "half a node": (answer(nodes=[[0.5, 1, 2]]), FILE),
    "no nodes": (answer(nodes=[]), FILE),
    "more GPUs than a node has": (answer(gpus=16, nodes=[[0, 1, 16]]), ""),
    "an answer left out": (without_answer, ""),
    "an answer twice": (lambda lines: [*lines, lines[-1]], ""),
    "a further key": (answer(run="rm -rf /"), FILE),
    "moves in no time": (lambda lines: [lines[0] | {"defragment_s": 1e-9}, *lines[1:]], "defragment_s"),
    "another placer": (lambda lines: [lines[0] | {"placer": {"name": "buddy"}}, *lines[1:]], "placer"),
    "another number of decisions": (lambda lines: [lines[0] | {"decisions": -1}, *lines[1:]], "decisions"),
    "decisions alone": (lambda lines: [lines[0] | {"schema": "clustergym.decisions/1"}, *lines[1:]], FILE),
}


@pytest.mark.parametrize("name", PLACED)
def test_tampered_nodes(name: str, root: Path) -> None:
    change, expected = PLACED[name]
    change_log(root / "small" / "placed", FIRST, change)
    (line,) = check(root)
    assert line.startswith("placed: ")
    assert expected in line


def test_bombs_take_little_memory(root: Path) -> None:
    replace_packed(root / "small" / "mine", FIRST, bomb(4 * 10**8))
    tracemalloc.start()
    assert len(check(root)) == 1
    assert tracemalloc.get_traced_memory()[1] < 3 * 10**8
    tracemalloc.stop()


def test_what_cannot_be_entered_is_one_line(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add = ["--root", str(root), "add", "small"]
    assert main([*add, "other", "seed=1"]) == 2
    assert "'seed=1' is not of the policy or placer" in error_line(capsys)
    for name in ("../x", "srtf", "logs"):
        assert main([*add, name, "policy=srtf"]) == 2
        assert f"{name!r} is not a name for an entry" in error_line(capsys)
    monkeypatch.undo()
    assert main([*add, "other", "policy=srtf"]) == 2
    assert "is of this project, so that it is a row" in error_line(capsys)
    assert sorted(path.name for path in (root / "small").iterdir() if path.is_dir()) == ["mine", "placed"]
    # What is of this project is no entry, whatever its logs say.
    assert [line.partition(" is of this project")[2] != "" for line in check(root)] == [True, True]


def test_the_command_enters_with_as_many_workers_as_one(root: Path, tmp_path: Path) -> None:
    words = ["policy=srtf", "--title", "again", "--workers", "2"]
    assert main(["--root", str(root), "add", "small", "again", *words]) == 0
    folders = [root / "small" / name for name in ("again", "mine")]
    assert len({(folder / FILE).read_bytes() for folder in folders}) == 1
    told = yaml.safe_load((folders[0] / "entry.yaml").read_text())
    assert told["command"] == "clustergym leaderboard add small again policy=srtf"
    assert (told["title"], told["information_class"]) == ("again", "clairvoyant")


def test_what_nobody_sees_is_written_out(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claims(root / "small" / "mine", title="SRTF\u202e\x1b[31m")
    assert main(["--root", str(root), "table", "small"]) == 0
    told = capsys.readouterr().out
    assert "\x1b" not in told
    assert "\u202e" not in told


def test_a_policy_that_stalls_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clustergym.sim.engine import StalledError

    write_board(tmp_path)

    def stalls(*given: object) -> None:
        raise StalledError("jobs wait for ever")

    monkeypatch.setattr("clustergym.benchmark.leaderboard.entries.play", stalls)
    with pytest.raises(InputError, match="philly-1: jobs wait for ever"):
        enter(tmp_path, "mine", policy={"name": "fcfs"})
    assert not (tmp_path / "small" / "mine").exists()
    assert json.dumps(check(tmp_path)) == "[]"
