"""Find the configuration and the committed traces, in a checkout or an installed wheel, and public data."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from clustergym.common.errors import InputError

PACKAGE = Path(__file__).resolve().parent.parent


def checkout_folders(name: str) -> list[str]:
    """Return the folder of a checkout that is installed below `clustergym`; none in an installed wheel."""
    folder = PACKAGE.parent / name
    return [str(folder)] if (PACKAGE.parent / "pyproject.toml").is_file() and folder.is_dir() else []


@cache
def _data_folder(name: str) -> Path:
    return Path(*(checkout_folders(name) or [str(PACKAGE / "_data" / name)]))


def conf_dir() -> Path:
    """Return the absolute path of the folder of YAML configuration (conf)."""
    return _data_folder("conf")


def traces_dir() -> Path:
    """Return the absolute path of the folder of traces that come with the package."""
    return _data_folder("traces")


def data_folder() -> Path:
    """Return the folder of the public data: $CLUSTERGYM_DATA, or shared/data beside the checkout."""
    named = os.environ.get("CLUSTERGYM_DATA")
    return Path(named) if named else PACKAGE.parent.parent / "shared" / "data"


def install_line(extra: str) -> str:
    """Return the pip command that installs an optional set of dependencies, such as `rl`."""
    root = PACKAGE.parent
    where = f"-e '{root}[{extra}]'" if (root / "pyproject.toml").is_file() else f"'clustergym[{extra}]'"
    return f"pip install {where}"


@contextlib.contextmanager
def require_extra(
    message: str, extra: str, field: str | None, instead: str = "", file: Path | None = None
) -> Iterator[None]:
    """Give a context that turns a failed import into an `InputError` with the line that installs an extra."""
    try:
        yield
    except ImportError as error:
        raise InputError(message, file=file, field=field, remedy=install_line(extra) + instead) from error
