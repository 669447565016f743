"""A file of logs: a line of contents, then the packed log of every cell."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from clustergym.benchmark.leaderboard.board import NAME, Cell
from clustergym.cluster.schema import StrictSchema, validate_content
from clustergym.common.errors import InputError
from clustergym.common.reading import open_regular_file
from clustergym.common.writing import write_files

FILE, SCHEMA = "decisions.jsonl.gz", "clustergym.cells/1"
LARGEST_CONTENTS_BYTES = 1_000_000
LARGEST_PACKED_BYTES = 20_000_000
"""Of the log of one cell."""

GZIP = 31
"""zlib's name for a gzip stream; its header has neither a time nor a name, so that bytes stay the same."""
REMEDY = "make it anew"
Label = Annotated[str, Field(pattern=f"^{NAME}-[0-9]{{1,19}}$")]


class LogPart(StrictSchema):
    """The name of a cell (scenario, seed), and the number of bytes of its compressed log."""

    cell: Label
    bytes: Annotated[int, Field(ge=1, lt=2**40)]


class Contents(StrictSchema):
    """The first line of an entry's log file: names and log sizes of all cells (scenario, seed), in order."""

    schema_name: Annotated[Literal["clustergym.cells/1"], Field(alias="schema")]
    cells: list[LogPart]


@dataclass(frozen=True)
class CellLogs:
    """An entry's log file, with the place in it of the log of each cell (scenario, seed).

    Attributes
    ----------
    path : Path
    labels : tuple of str
        Cells, in the order of the file; a false entry may repeat a cell or name foreign ones.
    starts, sizes : tuple of int
        Bytes.
    """

    path: Path
    labels: tuple[str, ...]
    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    def read_packed(self, cell: Cell) -> bytes:
        """Read the compressed log of a cell (scenario, seed) from the file."""
        if str(cell) not in self.labels:
            raise InputError(f"has no log of {cell}", file=self.path, remedy=REMEDY)
        at = self.labels.index(str(cell))
        if self.sizes[at] > LARGEST_PACKED_BYTES:
            message = f"the log of {cell} is larger than {LARGEST_PACKED_BYTES:,} bytes"
            raise InputError(message, file=self.path, remedy=REMEDY)
        try:
            with open_regular_file(self.path, REMEDY) as stream:
                stream.seek(self.starts[at])
                return stream.read(self.sizes[at])
        except OSError as error:
            raise _unreadable(self.path, error) from None


def pack(lines: Iterable[object]) -> bytes:
    """Return objects as compressed lines of JSON; equal objects give equal bytes."""
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    return zlib.compress(text.encode(), 9, wbits=GZIP)


def write_logs(path: Path, packed: Mapping[Cell, bytes], cells: Sequence[Cell]) -> None:
    """Write compressed logs, one per cell (scenario, seed), to one file in order of `cells`."""
    # A stream for each cell, so that one can be read without unpacking the others.
    parts = [{"cell": str(cell), "bytes": len(packed[cell])} for cell in cells]
    contents = {"schema": SCHEMA, "cells": parts}
    write_files({path: pack([contents]) + b"".join(packed[cell] for cell in cells)})


def read_logs(path: Path) -> CellLogs:
    """Read the table of contents of a file of logs: where each scenario's and seed's log is."""
    try:
        with open_regular_file(path, REMEDY) as stream:
            # What an unknown file unpacks to is limited before it is parsed, not after.
            head = stream.read(LARGEST_CONTENTS_BYTES)
            size = stream.seek(0, 2)
        unpacker = zlib.decompressobj(wbits=GZIP)
        text = unpacker.decompress(head, LARGEST_CONTENTS_BYTES)
        if not unpacker.eof:
            message = f"its contents are cut short, or longer than {LARGEST_CONTENTS_BYTES:,} bytes"
            raise InputError(message, file=path, line=1, remedy=REMEDY)
        contents = validate_content(Contents, json.loads(text), file=path)
    except (OSError, zlib.error) as error:
        raise _unreadable(path, error) from None
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError("its contents are not JSON", file=path, line=1, remedy=REMEDY) from None
    sizes = tuple(part.bytes for part in contents.cells)
    *starts, end = accumulate(sizes, initial=len(head) - len(unpacker.unused_data))
    # Bytes behind the last log would be committed and never read.
    if end != size:
        message = f"has {size:,} bytes, and {end:,} by its contents"
        raise InputError(message, file=path, remedy=REMEDY)
    return CellLogs(path, tuple(part.cell for part in contents.cells), tuple(starts), sizes)


def _unreadable(path: Path, error: Exception) -> InputError:
    what = getattr(error, "strerror", None) or f"cannot be read: {error}"
    return InputError(what, file=path, remedy=REMEDY)
