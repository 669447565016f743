"""Checks of an entry's claims against the registry, if this project publishes its policy or placer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from clustergym.inputs.errors import InputError
from clustergym.inputs.visible_text import shortened
from clustergym.interface.policy import Placer, Policy
from clustergym.leaderboard.board import Board
from clustergym.leaderboard.entry import Entry

WORD = re.compile(r"[A-Za-z0-9_-]{1,64}( [A-Za-z0-9_-]{1,64}=[A-Za-z0-9_-]{1,64}){0,16}")
"""A parameter that is a word, or a policy with parameters that are: no path, so that nothing is opened for an
entry's sake."""

TRAINED = {"learned": ["train"]}
"""What the project's own policies use and were trained on, by policy name."""


def trained_on(name: str, parameters: Mapping[str, Any]) -> list[str]:
    """Return what a policy of this project was trained on, or the policy that it has within."""
    within = str(parameters.get("within", "")).partition(" ")[0]
    return [*TRAINED.get(name, []), *TRAINED.get(within, [])]


def published(kind: str) -> frozenset[str]:
    """Return the names of the policies, or placers, in this project's own package."""
    from clustergym.interface.registry import entry_points

    points = entry_points(kind)
    return frozenset(name for name, target in points.items() if target.startswith("clustergym.policies."))


def problems(board: Board, entry: Entry) -> Iterator[str]:
    """Yield the claims of an entry that contradict the registry.

    The registry knows of a published policy or placer whether it can be built with these parameters, its
    information class, that it is deterministic, and what it was trained on; of others it knows nothing.
    """
    if entry.chosen.name not in published(board.chooses):
        return
    if not entry.deterministic:
        yield f"every {board.chooses} published here is deterministic, this entry says that it is not"
    for split in trained_on(entry.chosen.name, entry.chosen.parameters):
        if split not in entry.trained_on:
            yield f"{entry.chosen.name} was trained on {split!r}, which trained_on does not say"
    try:
        made = _built(board, entry)
    except InputError as error:
        if not isinstance(error.__cause__, ImportError):
            yield str(error)
        return
    except Exception as error:  # The entry's parameters may make the policy raise anything.
        yield f"{type(error).__name__}: {shortened(str(error), 60)}"
        return
    knows = made.information_class.value if isinstance(made, Policy) else "none"
    if knows != entry.information_class:
        yield f"with these parameters it is of class {knows}, entered as {entry.information_class}"


def unchecked(board: Board, entry: Entry) -> str:
    """Return why an entry's class and parameters cannot be checked; empty if they can."""
    chosen = entry.chosen.name
    if entry.hindsight:
        return "found in hindsight: the schedules are replayed, not searched for again"
    if chosen not in published(board.chooses):
        return f"class and parameters are the entry's word: {chosen!r} is not published here"
    try:
        _built(board, entry)
    except InputError as error:
        return f"class and parameters are not checked: {error}"
    return ""


def period_of(board: Board, entry: Entry, key: str) -> tuple[float | None, ...]:
    """Return the value of `key`, a period in seconds, of a published policy or placer; else empty."""
    if entry.chosen.name not in published(board.chooses):
        return ()
    try:
        return (getattr(_built(board, entry), key),)
    except Exception:  # `problems` reports it.
        return ()


def _built(board: Board, entry: Entry) -> Policy | Placer:
    word = next((text for text in _texts(entry.chosen.parameters) if not WORD.fullmatch(text)), None)
    if word is not None:
        message = f"{shortened(word, 60)!r} is not a plain word: a file that an entry names is not opened"
        raise InputError(message, field=f"{board.chooses}.parameters", remedy="name what the package has")
    return board.contestants(entry.keys)[0 if board.chooses == "policy" else 1]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(inner)
