"""Writes files: each whole or not at all, and one clear line about one that cannot be written."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.left_out import with_notes

_OPEN = re.compile(r"/(?:dev|proc/self)/(?:fd/(\d{1,6})|(stdin|stdout|stderr))", re.ASCII)
"""Names of files that are open in this process."""


@contextlib.contextmanager
def atomic_path(path: Path, option: str | None = None) -> Iterator[Path]:
    """Give a context with a temporary path that replaces `path` on success and is deleted on failure.

    A link stays, and the file that it points to is replaced. A device or a pipe stays, and is written to.
    """
    try:
        device = _is_device(path, option)
        target = Path(os.path.realpath(path))
        # Of a name as long as a file system allows, no longer one can be made.
        name = f".{zlib.crc32(os.fsencode(target.name)):08x}.{os.getpid()}.tmp"
        folder = Path(tempfile.gettempdir()) if device else target.parent
        folder.mkdir(parents=True, exist_ok=True)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise _unwritable(path, error, option) from error
    temporary = folder / name
    try:
        yield temporary
        try:
            if device:
                _write_through(temporary.read_bytes(), path)
            else:
                temporary.replace(target)
        except OSError as error:
            raise _unwritable(path, error, option) from error
    finally:
        temporary.unlink(missing_ok=True)


def _is_device(path: Path, option: str | None) -> bool:
    """Return whether a path is no regular file but can be written to; raise an `InputError` for a folder."""
    try:
        mode = path.stat().st_mode if path.name else stat.S_IFDIR
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        raise InputError("is a folder", file=path, field=option, remedy="name a file in it")
    return not stat.S_ISREG(mode) or _OPEN.fullmatch(str(path)) is not None


def _write_through(content: bytes, path: Path) -> None:
    if is_open := _OPEN.fullmatch(str(path)):
        # A file that is open here already, which goes on where printing has got to.
        sys.stdout.flush()
        number = os.dup(int(is_open[1] or ("stdin", "stdout", "stderr").index(is_open[2])))
    else:
        # Without waiting for a reader of a named pipe, of which there may be none.
        number = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        os.set_blocking(number, True)
    with os.fdopen(number, "wb") as stream:
        stream.write(content)


def _unwritable(path: Path, error: Exception, option: str | None) -> InputError:
    message = f"cannot be written: {getattr(error, 'strerror', None) or error}"
    return InputError(message, file=path, field=option, remedy="make room, or name another file")


def refuse_overwrite(paths: Iterable[Path], force: bool) -> None:
    """Raise an `InputError` if an output file is a folder, or exists and `force` is not given."""
    for path in paths:
        if path.is_dir():
            raise InputError("is a folder", file=path, field="--output", remedy="name a file")
        if path.exists() and not force:
            raise InputError(
                "exists already", file=path, field="--output", remedy="choose another name, or --force"
            )


def write_files(files: Mapping[Path, bytes], option: str | None = None) -> None:
    """Write several files, or none if one cannot be written.

    Parameters
    ----------
    files : mapping of Path to bytes
        The content of each.
    option : str, optional
        The option or key that names them, for the message.
    """
    where = Path()
    try:
        with contextlib.ExitStack() as stack:
            for where, content in files.items():
                stack.enter_context(atomic_path(where, option)).write_bytes(content)
    except OSError as error:
        raise _unwritable(where, error, option) from error


def write_text(path: Path, text: str, option: str | None = None) -> None:
    """Write a text to a file as UTF-8.

    Raises the errors of `write_files`.
    """
    write_files({path: text.encode("utf-8")}, option)


def write_json(path: Path | None, value: Any, option: str | None = "--json") -> None:
    """Write a value to a file as JSON, unless `path` is None.

    Values are converted by `plain`; what readers did not use is added to those of `--json`. Raises the errors
    of `write_files`.
    """
    if path is not None:
        value = with_notes(value) if option == "--json" else value
        write_text(path, json.dumps(plain(value), indent=2, allow_nan=False) + "\n", option)


def plain(value: Any) -> Any:
    """Convert a value to JSON types: NumPy numbers to Python's, NaN and infinity to None."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
