"""Writes files: each whole or not at all, and one clear line about one that cannot be written."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.left_out import with_notes


@contextlib.contextmanager
def atomic_path(path: Path, option: str | None = None) -> Iterator[Path]:
    """Give a context with a temporary path that replaces `path` on success and is deleted on failure.

    Raises
    ------
    InputError
        If `path`, which `option` gave, is a folder.
    """
    if not path.name or path.is_dir():
        raise InputError("is a folder", file=path, field=option, remedy="name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_files(files: Mapping[Path, bytes], option: str | None = None) -> None:
    """Write several files, or none if one cannot be written.

    Parameters
    ----------
    files : mapping of Path to bytes
        The content of each.
    option : str, optional
        The option or key that names them, for the message.

    Raises
    ------
    InputError
        If one cannot be written.
    """
    where: Path | None = None
    try:
        with contextlib.ExitStack() as stack:
            for where, content in files.items():
                stack.enter_context(atomic_path(where, option)).write_bytes(content)
    except OSError as error:
        message = f"cannot be written: {error.strerror or error}"
        remedy = "make room, or name another file"
        raise InputError(message, file=where, field=option, remedy=remedy) from error


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
