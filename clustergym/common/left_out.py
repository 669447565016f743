"""What a reader of other people's files does not use: rows, keys and words, counted by reason and named.

A reader notes it with `leave_out`, `not_modelled` or `not_read`. Every command prints the notes on stderr,
and `--json` has them under the key `not_used`. A caller of the library gets them with `recording`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

MOST_NAMES, MOST_SHOWN, LONGEST_NAME = 1000, 12, 80
"""Names kept, names shown on a line, and characters of a name: a file may have as many as it likes."""


class Notes:
    """What was not used, each with its count.

    Attributes
    ----------
    left_out : Counter
        (what, reason): rows, such as jobs, that count for nothing.
    not_modelled, not_read : Counter
        Keys and words whose meaning is known but not followed, and those that are not known.
    sources : set
        Files whose notes were added; a file that is read again counts once.
    """

    def __init__(self) -> None:
        self.left_out: Counter[tuple[str, str]] = Counter()
        self.not_modelled: Counter[str] = Counter()
        self.not_read: Counter[str] = Counter()
        self.sources: set[str] = set()

    def add(self, more: Notes) -> None:
        """Count what other notes have, too."""
        self.left_out += more.left_out
        self.not_modelled += more.not_modelled
        self.not_read += more.not_read

    def lines(self) -> list[str]:
        """Return a line for each reason, and one for the names that are not modelled, and not read."""
        rows = [
            f"left out {count:,} {what}{'s' if count > 1 and not what.endswith('s') else ''}: {reason}"
            for (what, reason), count in self.left_out.items()
        ]
        for heading, names in (("not modelled", self.not_modelled), ("not read", self.not_read)):
            if names:
                shown = ", ".join([*names][:MOST_SHOWN])
                more = f" and {len(names) - MOST_SHOWN:,} more" if len(names) > MOST_SHOWN else ""
                rows.append(f"{heading}: {shown}{more}")
        return rows

    def figures(self) -> dict[str, dict[str, int]]:
        """Return the counts as JSON values, without those of which there is none."""
        out = {f"{what}: {reason}": count for (what, reason), count in self.left_out.items()}
        found = {"left_out": out, "not_modelled": dict(self.not_modelled), "not_read": dict(self.not_read)}
        return {name: counts for name, counts in found.items() if counts}


_NOTES: ContextVar[Notes | None] = ContextVar("notes", default=None)


@contextlib.contextmanager
def recording(source: str = "") -> Iterator[Notes]:
    """Give a context whose readers' notes are counted, for the context around it as well.

    Those of a file, its `source`, are counted there once, however often it is read.
    """
    notes, around = Notes(), _NOTES.get()
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)
        if around is not None and source not in around.sources:
            around.add(notes)
            around.sources |= {source} - {""}


def is_recording() -> bool:
    """Return whether a command, or another caller, counts what readers note."""
    return _NOTES.get() is not None


def leave_out(what: str, reason: str, count: int = 1) -> None:
    """Note rows that count for nothing, such as 2 of `what="job"`; none if `count` is 0."""
    notes = _NOTES.get()
    if notes is not None and count:
        _count(notes.left_out, (what, _short(reason, 2 * LONGEST_NAME)), count)


def not_modelled(names: Iterable[str]) -> None:
    """Note keys and words whose meaning is known, and which nothing here follows."""
    if (notes := _NOTES.get()) is not None:
        for name in names:
            _count(notes.not_modelled, _short(name))


def not_read(names: Iterable[object], known: Collection[str] = ()) -> None:
    """Note keys and words that a reader does not know: those of `names` that are not in `known`."""
    if (notes := _NOTES.get()) is not None:
        for name in names:
            if name not in known:
                _count(notes.not_read, _short(str(name) or "''"))


def with_notes(value: Any) -> Any:
    """Return a value for `--json`, with what was not used until now if it has keys and there is any."""
    notes = _NOTES.get()
    figures = {} if notes is None else notes.figures()
    return {**value, "not_used": figures} if figures and isinstance(value, Mapping) else value


def _count(counts: Counter[Any], name: Any, count: int = 1) -> None:
    if name in counts or len(counts) < MOST_NAMES:
        counts[name] += count


def _short(name: str, longest: int = LONGEST_NAME) -> str:
    # Names come from files of others, and go to terminals and pages.
    words = " ".join(name.split())
    text = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in words)
    return text if len(text) <= longest else f"{text[:longest]}…"
