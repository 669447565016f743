"""Read unchecked gzip files of JSON lines, such as decision logs and event logs."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from clustergym.common.errors import InputError
from clustergym.common.reading import opened


def read_json_lines(
    path: Path, *, largest_bytes: int, longest_line_bytes: int, remedy: str, packed: bytes | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) of each line of a gzip file, reading one line at a time.

    Parameters
    ----------
    path : Path
    largest_bytes : int
        Limit on the unpacked size.
    longest_line_bytes : int
    remedy : str
        What to do about a file that is damaged or too large.
    packed : bytes, optional
        The gzip stream, where it is only a part of the file.

    Raises
    ------
    InputError
        If the file cannot be read, is cut short or too large, or a line is too long or not a JSON object.
    """
    read, number = 0, 0
    try:
        with _stream(path, packed, remedy) as stream, gzip.GzipFile(fileobj=stream) as unpacked:
            while line := unpacked.readline(longest_line_bytes + 1):
                read, number = read + len(line), number + 1
                if read > largest_bytes or len(line) > longest_line_bytes:
                    what = f"is longer than {longest_line_bytes:,} bytes"
                    if read > largest_bytes:
                        what = f"the log unpacks to more than {largest_bytes:,} bytes"
                    raise InputError(what, file=path, line=number, remedy=remedy)
                yield number, _parse(path, number, line, remedy)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"cannot be read: {error}", file=path, remedy=remedy) from None


def _stream(path: Path, packed: bytes | None, remedy: str) -> AbstractContextManager[BinaryIO]:
    return opened(path, remedy) if packed is None else io.BytesIO(packed)


def _parse(path: Path, number: int, line: bytes, remedy: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError("is not JSON", file=path, line=number, remedy=remedy) from error
    if not isinstance(entry, dict):
        raise InputError("is not a JSON object", file=path, line=number, remedy=remedy)
    return entry
