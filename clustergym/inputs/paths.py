"""Find the configuration and the committed traces, in a checkout or an installed wheel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from clustergym.inputs.errors import InputError

PACKAGE = Path(__file__).resolve().parent.parent


def _data_folder(name: str) -> Path:
    checkout = PACKAGE.parent / name
    if (PACKAGE.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    return PACKAGE / "_data" / name


def conf_dir() -> Path:
    """Return the absolute path of the folder of YAML configuration."""
    return _data_folder("conf")


def traces_dir() -> Path:
    """Return the absolute path of the folder of committed traces."""
    return _data_folder("traces")


@contextlib.contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path that replaces `path` on success and is removed on failure.

    Raises
    ------
    InputError
        If `path` is a folder.
    """
    if not path.name or path.is_dir():
        raise InputError("is a folder", file=path, remedy="name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
