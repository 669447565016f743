"""Changing the one log of an entry, cell by cell."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clustergym.benchmark.leaderboard.cell_logs import FILE, SCHEMA, read_logs

Lines = list[dict[str, Any]]


def packed_logs(folder: Path) -> list[tuple[str, bytes]]:
    """Return cell and packed log, in the order of the file."""
    return read_logs(folder / FILE)


def write_packed(folder: Path, parts: list[tuple[str, bytes]]) -> None:
    """Write packed logs, of whatever cells, in whatever order."""
    cells = [{"cell": label, "bytes": len(packed)} for label, packed in parts]
    contents = json.dumps({"schema": SCHEMA, "cells": cells}).encode() + b"\n"
    (folder / FILE).write_bytes(gzip.compress(contents, mtime=0) + b"".join(packed for _, packed in parts))


def replace_packed(folder: Path, cell: str, packed: bytes) -> None:
    """Put something else in place of the packed log of a cell."""
    write_packed(folder, [(label, packed if label == cell else one) for label, one in packed_logs(folder)])


def read_log(folder: Path, cell: str) -> Lines:
    """Return the lines of a cell's log."""
    return [json.loads(line) for line in gzip.decompress(dict(packed_logs(folder))[cell]).splitlines()]


def packed(lines: list[Any]) -> bytes:
    """Return lines packed; those that are bytes already as they are."""
    ready = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return gzip.compress(b"\n".join(ready) + b"\n", mtime=0)


def change_log(folder: Path, cell: str, change: Callable[[Lines], list[Any]]) -> None:
    """Change the lines of a cell's log."""
    replace_packed(folder, cell, packed(change(read_log(folder, cell))))


def change_headers(folder: Path, **changes: Any) -> None:
    """Change keys of the first line of every cell's log."""
    for cell, _ in packed_logs(folder):
        change_log(folder, cell, lambda lines: [lines[0] | changes, *lines[1:]])
