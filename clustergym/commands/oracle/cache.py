"""`cache`: shows where the dense tables lie on disk, or deletes them."""

from __future__ import annotations

import argparse
from pathlib import Path

from clustergym.common.errors import InputError
from clustergym.oracle.table_cache import Store, cache_folder

SUMMARY = "show where tables are kept, or clear them"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `clustergym oracle cache` to a parser."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (("where", "print the folder and what lies in it"), ("clear", "delete every table")):
        action = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        action.add_argument("--folder", type=Path, metavar="DIR", help="another folder than the default")


def run(options: argparse.Namespace) -> int:
    """Run `clustergym oracle cache`: show or delete cached iteration times; return the exit status."""
    folder = options.folder if options.folder is not None else cache_folder()
    if folder is None:
        raise InputError("there is no home folder to keep tables in", remedy="set CLUSTERGYM_CACHE")
    if folder.exists() and not folder.is_dir():
        raise InputError("is not a folder", file=folder, field="--folder", remedy="name a folder")
    files = list(Store(folder).files())
    size = sum(path.stat().st_size for path in files)
    told = f"{len(files):,} files, {size / 1e6:.3f} MB"
    if options.action == "where":
        print(f"{folder}: {told}")
        return 0
    for path in files:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            message = f"cannot be deleted: {error.strerror}"
            raise InputError(message, file=path, remedy="check who owns the folder") from None
    print(f"{folder}: deleted {told}")
    return 0
