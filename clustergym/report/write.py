"""Writes the page of a report: one file without any other, that opens without a server or a network."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from clustergym.errors import InputError
from clustergym.paths import atomic_path
from clustergym.report.payload import payload
from clustergym.results import read_results
from clustergym.text import visible_all

TEMPLATE = Path(__file__).with_name("page.html")
MARK = "/*DATA*/"
ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(places: Iterable[Path]) -> str:
    """Return the page over all results in or under some folders.

    Raises
    ------
    InputError
        If there is no result, or a file of one cannot be read.
    """
    text = json.dumps(visible_all(payload(read_results(places))), separators=(",", ":"), allow_nan=False)
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return TEMPLATE.read_text(encoding="utf-8").replace(MARK, text)


def write_report(places: Iterable[Path], path: Path) -> None:
    """Write the page over all results in or under some folders; a reader never sees a part of it.

    Raises
    ------
    InputError
        As `page`, or if it cannot be written.
    """
    text = page(places)
    try:
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise InputError(message, file=path, field="--out", remedy="name another file") from None
