"""Entries that go to the limits of what is read: huge numbers, crowds, idle decisions."""

import gzip
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from boards import claims_throughout, kinds
from entry_logs import Lines, change_log, read_log, replace_packed
from python_process import run_python

from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_replay import FlagReason
from clustergym.benchmark.leaderboard.render import markdown
from clustergym.benchmark.leaderboard.score import optimum, standings

ROOT = Path(__file__).parents[3]
CELL = "philly-5"


def _with_launch(lines: Lines, launch: list[Any]) -> Lines:
    return [lines[0], {**lines[1], "launch": launch}, *lines[2:]]


def _gpus(number: int) -> Callable[[Lines], Lines]:
    return lambda lines: _with_launch(lines, [[*lines[1]["launch"][0][:2], number], *lines[1]["launch"][1:]])


def _idle(lines: Lines) -> Lines:
    """Preempt, in the first decision, a job that does not run then."""
    running = {job for job, _, _ in lines[1]["launch"]}
    later = next(job for line in lines[2:] for job, _, _ in line.get("launch", []) if job not in running)
    return [lines[0], {**lines[1], "preempt": [later]}, *lines[2:]]


TAMPERED: dict[str, tuple[Callable[[Lines], Lines], FlagReason]] = {
    "a number of GPUs beyond 64 bits": (_gpus(10**30), FlagReason.DECISION_LOG),
    "a number of GPUs below them": (_gpus(-(10**30)), FlagReason.DECISION_LOG),
    "a time beyond floats": (
        lambda lines: [lines[0], {**lines[1], "time_s": 10**400}],
        FlagReason.DECISION_LOG,
    ),
    "rounds beyond floats": (lambda lines: [{**lines[0], "round_s": 1e308}, *lines[1:]], FlagReason.HEADER),
    "rounds of 400 digits": (lambda lines: [{**lines[0], "round_s": 10**400}, *lines[1:]], FlagReason.HEADER),
    "a round that is true": (lambda lines: [{**lines[0], "round_s": True}, *lines[1:]], FlagReason.HEADER),
    "a job named twice": (
        lambda lines: _with_launch(lines, [lines[1]["launch"][0], *lines[1]["launch"]]),
        FlagReason.DECISION_LOG,
    ),
    "a job that is no name": (lambda lines: _with_launch(lines, [[{}, "A40", 1]]), FlagReason.DECISION_LOG),
    "launches that are no list": (
        lambda lines: [lines[0], {**lines[1], "launch": 7}],
        FlagReason.DECISION_LOG,
    ),
    "an idle preemption": (_idle, FlagReason.DECISION_LOG),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered(name: str, root: Path) -> None:
    change, expected = TAMPERED[name]
    change_log(root / "small" / "first", CELL, change)
    assert kinds(root, "first") == {expected}


def test_one_decision_too_many_is_flagged(root: Path) -> None:
    path = root / "small" / "first" / "results.csv"
    header, first, *rest = path.read_text().splitlines()
    row = first.split(",")
    at = header.split(",").index("decisions")
    row[at] = str(int(row[at]) + 1)
    path.write_text("\n".join([header, ",".join(row), *rest]) + "\n")
    assert kinds(root, "first") == {FlagReason.DECISION_TIMES}


@pytest.mark.parametrize("name", ["results.csv", "entry.yaml", "README.md", "decisions.jsonl.gz"])
def test_a_pipe_is_not_opened(name: str, root: Path) -> None:
    path = root / "small" / "first" / name
    path.unlink()
    os.mkfifo(path)
    assert kinds(root, "first") == {FlagReason.SCHEMA}


@pytest.mark.parametrize(
    "parameters",
    [{"round_s": float("inf")}, {"round_s": 1e308}, {"round_s": -1.0}, {"nothing": 1}, {"round_s": "x"}],
)
def test_a_policy_that_cannot_run_is_flagged(parameters: dict[str, Any], root: Path) -> None:
    claims_throughout(root / "small" / "short", policy={"name": "srtf", "parameters": parameters})
    assert kinds(root, "short") & {FlagReason.PUBLISHED, FlagReason.SCHEMA}


def test_a_title_stays_in_its_cell(root: Path) -> None:
    claims_throughout(root / "small" / "short", title="a\n\n# b | [c](d) <img src=x>")
    board = load_board("small", root)
    (line,) = (
        line for line in markdown(board, standings(board), optimum(board)).splitlines() if "# b" in line
    )
    assert line.startswith("| 1 | 1 | [a\\n\\n# b &#124; &#91;c&#93;(d) &lt;img src=x&gt;](short/)")


def _crowd(jobs: int) -> Iterator[bytes]:
    """One decision that names a job again and again, line after line."""
    one = b",".join([b'["%s","A40",1]'] * jobs)
    for second in range(60):
        yield b'{"time_s":%d,"launch":[%s]}\n' % (second, one)


def _queue(decisions: int) -> Iterator[bytes]:
    for second in range(decisions):
        yield b'{"time_s":%d}\n' % second


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (lambda: _crowd(150_000), "names a job twice"),
        pytest.param(lambda: _queue(600_000), "more than 500,000 decisions", marks=pytest.mark.nightly),
    ],
)
def test_crowds_take_little_memory(lines: Callable[[], Iterator[bytes]], found: str, root: Path) -> None:
    folder, log = root / "small" / "first", io.BytesIO()
    header, first, *_ = read_log(folder, CELL)
    job, kind, _ = first["launch"][0]
    with gzip.open(log, "wb", compresslevel=1) as packed:
        packed.write(json.dumps(header).encode() + b"\n")
        for line in lines():
            packed.write(line.replace(b"%s", job.encode()).replace(b"A40", kind.encode()))
    replace_packed(folder, CELL, log.getvalue())
    words = ("-m", "clustergym.leaderboard", "--root", root, "check", "small", "first")
    done = run_python(*words, most_bytes=10**9)
    assert done.returncode == 2, done.stderr
    assert re.search(f"decision log: philly-5: .*{found}", done.stdout)
