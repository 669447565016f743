"""The one log of an entry: written, read, and what is said of one that is not as it must be."""

import gzip
import json
import shutil

import pytest
from checked_entries import check
from entry_logs import change_log, packed_logs, replace_packed, write_packed

from clustergym.benchmark.leaderboard.board import Cell, load_board
from clustergym.benchmark.leaderboard.cell_logs import FILE, pack, read_logs, write_logs
from clustergym.commands.leaderboard import main
from clustergym.common.errors import InputError

CELLS = [Cell("b", 2), Cell("b", 1), Cell("a-1", 7)]


def test_what_is_written_is_read(tmp_path):
    lines = {cell: [{"seed": cell.seed}, {"time_s": 0.5, "launch": []}] for cell in CELLS}
    packed = {cell: pack(lines[cell]) for cell in reversed(CELLS)}
    write_logs(tmp_path, packed, CELLS)
    logs = read_logs(tmp_path)
    # In the order of the cells, not in that of the mapping.
    assert logs.labels == ("b-2", "b-1", "a-1-7")
    for cell in CELLS:
        found = [json.loads(line) for line in gzip.decompress(logs.read_packed(cell)).splitlines()]
        assert found == lines[cell]
    # Any tool that reads gzip reads all of it, line by line.
    assert len(gzip.decompress((tmp_path / FILE).read_bytes()).splitlines()) == 1 + 2 * len(CELLS)


def test_bytes_are_the_same_whenever_they_are_written(tmp_path):
    write_logs(tmp_path, {cell: pack([cell]) for cell in CELLS}, CELLS)
    content = (tmp_path / FILE).read_bytes()
    # A header of gzip: no name, no time (RFC 1952, section 2.3).
    logs = read_logs(tmp_path)
    for start in (0, *logs.starts):
        assert content[start : start + 8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"
    write_logs(tmp_path, {cell: pack([cell]) for cell in reversed(CELLS)}, CELLS)
    assert (tmp_path / FILE).read_bytes() == content


def test_cells_that_are_missing_are_left_out(tmp_path):
    write_logs(tmp_path, {CELLS[2]: pack([1]), CELLS[0]: pack([0])}, CELLS)
    logs = read_logs(tmp_path)
    assert logs.labels == ("b-2", "a-1-7")
    with pytest.raises(InputError, match=r"decisions\.jsonl\.gz: has no log of b-1"):
        logs.read_packed(CELLS[1])
    write_logs(tmp_path, {}, CELLS)
    assert read_logs(tmp_path).labels == ()


def test_many_workers_write_the_same_log(root):
    words = ["--root", str(root), "add", "small", "first", "policy=fcfs", "--title", "First come"]
    before = (root / "small" / "first" / FILE).read_bytes()
    shutil.rmtree(root / "small" / "first")
    assert main([*words, "--workers", "2"]) == 0
    assert (root / "small" / "first" / FILE).read_bytes() == before


FIRST, SECOND = "philly-5", "philly-6"
WRONG = {
    "a cell left out": (
        lambda folder: write_packed(folder, packed_logs(folder)[:1]),
        ["missing cell: philly-6: has no log in decisions.jsonl.gz"],
    ),
    "a cell twice": (
        lambda folder: write_packed(folder, [*packed_logs(folder), packed_logs(folder)[0]]),
        ["duplicate cell: philly-5: has 2 logs in decisions.jsonl.gz"],
    ),
    "a cell that the board has not": (
        lambda folder: write_packed(folder, [*packed_logs(folder), ("helios-5", pack([{}]))]),
        ["foreign cell: helios-5: is not a cell of the board, but has a log in decisions.jsonl.gz"],
    ),
    "cells out of order": (
        lambda folder: write_packed(folder, packed_logs(folder)[::-1]),
        ["decision log: philly-6: its log stands where that of philly-5 must in decisions.jsonl.gz"],
    ),
    "a line that is no JSON": (
        lambda folder: change_log(folder, SECOND, lambda lines: [lines[0], b"{", *lines[1:]]),
        ["decision log: philly-6: {file}:2: is not JSON (give the decision log of a finished run)"],
    ),
    "a cell that is no gzip": (
        lambda folder: replace_packed(folder, FIRST, b"junk"),
        ["decision log: philly-5: {file}: cannot be read: Not a gzipped file (b'ju') (give the decision log"],
    ),
    "bytes that no cell has": (
        lambda folder: (folder / FILE).write_bytes((folder / FILE).read_bytes() + b"."),
        ["decision log: decisions.jsonl.gz: {file}: has {more} bytes, and {size} by its contents (make it"],
    ),
    "no file": (
        lambda folder: (folder / FILE).unlink(),
        ["decision log: decisions.jsonl.gz: {file}: cannot be read: No such file or directory (make it anew"],
    ),
    "another schema": (
        lambda folder: (folder / FILE).write_bytes(pack([{"schema": "clustergym.decisions/1", "cells": []}])),
        ["decision log: decisions.jsonl.gz: {file}: schema: "],
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_one_line_with_file_and_cell(name, root):
    change, expected = WRONG[name]
    folder = root / "small" / "first"
    size = (folder / FILE).stat().st_size
    change(folder)
    found = [str(flag) for flag in check(load_board("small", root), "first")]
    assert len(found) == len(expected)
    for line, start in zip(found, expected, strict=True):
        assert line.startswith(start.format(file=folder / FILE, size=f"{size:,}", more=f"{size + 1:,}"))
        assert "\n" not in line


def test_what_is_said_does_not_hang_on_the_number_of_workers(root, capsys, tmp_path):
    replace_packed(root / "small" / "first", SECOND, b"junk")
    said = []
    for workers in ("1", "5"):
        words = ["check", "small", "--workers", workers, "--json", str(tmp_path / "flags.json")]
        assert main(["--root", str(root), *words]) == 2
        said.append((capsys.readouterr().out, (tmp_path / "flags.json").read_text()))
    assert said[0] == said[1]
    assert said[0][0].splitlines()[:2] == [
        "small: baseline and reference run again in 2 cells, equal",
        "small/first: 1 FLAGS",
    ]
    assert main(["--root", str(root), "check", "small", "--workers", "0"]) == 2
    assert "--workers: 0 processes (give at least 1, or ray)" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["check", "small"], ["curves", "small"], ["freeze", "small", "--next-version"]]
)
def test_progress_is_on_stderr(words, root, capsys, monkeypatch):
    monkeypatch.setattr("clustergym.common.progress.EVERY_LINE_S", 0.0)
    assert main(["--root", str(root), *words, "--workers", "1"]) == 0
    said = capsys.readouterr()
    assert "small: 2 of 2\n" in said.err
    assert "2 of 2" not in said.out
