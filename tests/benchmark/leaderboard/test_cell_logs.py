"""The one file of an entry's logs: written and read."""

import gzip
import json

from clustergym.benchmark.leaderboard.board import Cell
from clustergym.benchmark.leaderboard.cell_logs import FILE, pack, read_logs, write_logs

CELLS = [Cell("b", 2), Cell("b", 1), Cell("a-1", 7)]


def test_what_is_written_is_read(tmp_path):
    lines = {cell: [{"seed": cell.seed}, {"time_s": 0.5, "launch": []}] for cell in CELLS}
    packed = {cell: pack(lines[cell]) for cell in reversed(CELLS)}
    write_logs(tmp_path / FILE, packed, CELLS)
    logs = read_logs(tmp_path / FILE)
    # In the order of the cells, not in that of the mapping.
    assert [label for label, _ in logs] == ["b-2", "b-1", "a-1-7"]
    for cell, (_, log) in zip(CELLS, logs, strict=True):
        found = [json.loads(line) for line in gzip.decompress(log).splitlines()]
        assert found == lines[cell]
    # Any tool that reads gzip reads all of it, line by line.
    assert len(gzip.decompress((tmp_path / FILE).read_bytes()).splitlines()) == 1 + 2 * len(CELLS)


def test_bytes_are_the_same_whenever_they_are_written(tmp_path):
    write_logs(tmp_path / FILE, {cell: pack([cell]) for cell in CELLS}, CELLS)
    content = (tmp_path / FILE).read_bytes()
    # A header of gzip: no name, no time (RFC 1952, section 2.3).
    for part in (content, *(log for _, log in read_logs(tmp_path / FILE))):
        assert part[:8] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00"
    write_logs(tmp_path / FILE, {cell: pack([cell]) for cell in reversed(CELLS)}, CELLS)
    assert (tmp_path / FILE).read_bytes() == content
