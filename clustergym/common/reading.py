"""Open unchecked files: only regular ones, never more bytes than a limit; gzip of JSON lines too."""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from clustergym.common.errors import InputError

MOST_DIGITS = 300
"""Most digits of a whole number in JSON; more may not fit in a float."""


@contextmanager
def open_regular_file(path: Path, remedy: str) -> Iterator[BinaryIO]:
    """Open a regular file for reading; refuse devices, and pipes, which could block the reader."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise say_unreadable(path, error, remedy) from None
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        what = "cannot be read: Is a directory" if stat.S_ISDIR(mode) else "is not a regular file"
        raise InputError(what, file=path, remedy=remedy)
    with os.fdopen(number, "rb") as stream:
        yield stream


def say_unreadable(path: Path, error: Exception, remedy: str = "give a file that can be read") -> InputError:
    """Return the error of a file that cannot be read, with the system's reason."""
    reason = getattr(error, "strerror", None) or error
    return InputError(f"cannot be read: {reason}", file=path, remedy=remedy)


def read_regular(path: Path, largest_bytes: int, remedy: str) -> bytes:
    """Return a regular file's bytes; raise an `InputError` if they are more than `largest_bytes`."""
    try:
        with open_regular_file(path, remedy) as stream:
            content = stream.read(largest_bytes + 1)
    except OSError as error:
        raise say_unreadable(path, error, remedy) from None
    if len(content) > largest_bytes:
        raise InputError(f"is larger than {largest_bytes:,} bytes", file=path, remedy=remedy)
    return content


def read_json(path: Path, largest_bytes: int, remedy: str) -> Any:
    """Read the value in a JSON file; raises the errors of `read_regular` and `parse_json`."""
    return parse_json(read_regular(path, largest_bytes, remedy), path, remedy)


def parse_json(content: bytes, path: Path, remedy: str) -> Any:
    """Parse untrusted JSON; refuse numbers too large for a float.

    Raises
    ------
    InputError
        If the content is not UTF-8 text or not JSON, is nested too deep, or has NaN, infinity, or a number
        beyond a float.
    """
    try:
        text = content.decode("utf-8-sig")
        return json.loads(text, parse_constant=_no_constant, parse_int=_whole, parse_float=_finite)
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", file=path, remedy=remedy) from None
    except json.JSONDecodeError as error:
        message = f"not JSON, or cut short: {error.msg}"
        raise InputError(message, file=path, line=error.lineno, remedy=remedy) from None
    except (ValueError, RecursionError) as error:
        message = f"not JSON that can be read: {type(error).__name__}: {error}"
        raise InputError(message, file=path, remedy=remedy) from None


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:20]}… is a number of more than {MOST_DIGITS} digits")
    return int(text)


def _finite(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise ValueError(f"{text[:20]} is beyond the largest number")
    return found


def read_json_lines(
    path: Path, *, largest_bytes: int, longest_line_bytes: int, remedy: str, packed: bytes | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line number and object of each line of a gzip file of JSON lines.

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
    return open_regular_file(path, remedy) if packed is None else io.BytesIO(packed)


def _parse(path: Path, number: int, line: bytes, remedy: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError("is not JSON", file=path, line=number, remedy=remedy) from error
    if not isinstance(entry, dict):
        raise InputError("is not a JSON object", file=path, line=number, remedy=remedy)
    return entry
