"""A file of logs: a line of contents, then the packed log of every cell."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
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
    bytes: Annotated[int, Field(ge=1, le=LARGEST_PACKED_BYTES)]


class Contents(StrictSchema):
    """The first line of an entry's log file: names and log sizes of all cells (scenario, seed), in order."""

    schema_name: Annotated[Literal["clustergym.cells/1"], Field(alias="schema")]
    cells: list[LogPart]


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


def read_logs(path: Path) -> list[tuple[str, bytes]]:
    """Read a file of logs: the name of each cell, which a false entry may repeat, and its compressed log."""
    try:
        with open_regular_file(path, REMEDY) as stream:
            # What an unknown file unpacks to is limited before it is parsed, not after.
            head = stream.read(LARGEST_CONTENTS_BYTES)
            unpacker = zlib.decompressobj(wbits=GZIP)
            text = unpacker.decompress(head, LARGEST_CONTENTS_BYTES)
            if not unpacker.eof:
                message = f"its contents are cut short, or longer than {LARGEST_CONTENTS_BYTES:,} bytes"
                raise InputError(message, file=path, line=1, remedy=REMEDY)
            parts = validate_content(Contents, json.loads(text), file=path).cells
            start, size = len(head) - len(unpacker.unused_data), stream.seek(0, 2)
            end = start + sum(part.bytes for part in parts)
            # Bytes behind the last log would be committed and never read.
            if end != size:
                message = f"has {size:,} bytes, and {end:,} by its contents"
                raise InputError(message, file=path, remedy=REMEDY)
            stream.seek(start)
            return [(part.cell, stream.read(part.bytes)) for part in parts]
    except (OSError, zlib.error) as error:
        what = getattr(error, "strerror", None) or f"cannot be read: {error}"
        raise InputError(what, file=path, remedy=REMEDY) from None
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError("its contents are not JSON", file=path, line=1, remedy=REMEDY) from None
