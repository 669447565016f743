"""Checks of an entry's claims against the registry, if this project publishes its policy or placer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from clustergym.benchmark.leaderboard.board import texts_of
from clustergym.benchmark.leaderboard.entry import ELSEWHERE, TUNING, Chosen, Entry
from clustergym.common.errors import InputError
from clustergym.common.visible_text import shortened
from clustergym.scenario.policy import Placer, Policy

WORD = re.compile(r"[A-Za-z0-9_-]{1,64}( [A-Za-z0-9_-]{1,64}=[A-Za-z0-9_-]{1,64}){0,16}")
"""A parameter that is a word, or a policy with parameters that are: no path, so that nothing is opened for an
entry's sake."""

LEARNED = "learned"
"""The name of the project's own learned policy, and of its learned placer."""
TRAINED = {"sharing": [ELSEWHERE]}
"""What the project's own checkpoints were trained on, where that is not the splits to train on."""


def trained_on(entries: Iterable[Chosen]) -> list[str]:
    """Return what the project's own policies, those within them, and placers were trained on."""
    splits = [
        split
        for chosen in entries
        if LEARNED in (chosen.name, str(chosen.parameters.get("within", "")).partition(" ")[0])
        for split in TRAINED.get(str(chosen.parameters.get("checkpoint")), [TUNING[0]])
    ]
    return [*dict.fromkeys(splits)]


def published(kind: str) -> frozenset[str]:
    """Return the names of the policies, or placers, in this project's own package."""
    from clustergym.scenario.registry import entry_points

    points = entry_points(kind)
    return frozenset(name for name, target in points.items() if target.startswith("clustergym.policies."))


def unpublished(entry: Entry) -> str:
    """Return the name of an entry's policy or placer that is not published here; empty without one."""
    for kind, chosen in entry.choices.items():
        if chosen.name not in published(kind):
            return chosen.name
    return ""


def can_be_run_again(entry: Entry) -> bool:
    """Return whether running what the entry names has to give its decisions."""
    return not (entry.hindsight or entry.variant or unpublished(entry))


def problems(entry: Entry) -> Iterator[str]:
    """Yield the claims of an entry that contradict the registry.

    The registry knows of a published policy or placer whether it can be built with these parameters, its
    information class, that it is deterministic, and what it was trained on; of others, and of what an
    entry declares a variant, it knows nothing.
    """
    if entry.variant:
        return
    known = {kind: chosen for kind, chosen in entry.choices.items() if chosen.name in published(kind)}
    if not entry.deterministic and len(known) == len(entry.choices):
        yield f"every {' and '.join(known)} published here is deterministic, this entry says that it is not"
    for chosen in known.values():
        for split in trained_on([chosen]):
            if split not in entry.trained_on:
                yield f"{chosen.name} was trained on {split!r}, which trained_on does not say"
    for kind, chosen in known.items():
        yield from _built_problems(entry, kind, chosen)


def _built_problems(entry: Entry, kind: str, chosen: Chosen) -> Iterator[str]:
    try:
        made = _built(kind, chosen)
    except InputError as error:
        if not isinstance(error.__cause__, ImportError):
            yield str(error)
        return
    except Exception as error:  # The entry's parameters may make the policy raise anything.
        yield f"{type(error).__name__}: {shortened(str(error), 60)}"
        return
    if isinstance(made, Placer) and len(entry.choices) > 1:  # Its class is the policy's.
        return
    knows = made.information_class.value if isinstance(made, Policy) else "none"
    if knows != entry.information_class:
        yield f"with these parameters it is of class {knows}, entered as {entry.information_class}"


def unchecked(entry: Entry) -> str:
    """Return why an entry's class and parameters cannot be checked; empty if they can."""
    if entry.hindsight:
        return "found in hindsight: the schedules are replayed, not searched for again"
    if entry.variant:
        return "a variant: class, parameters and decisions are the entry's word, and not those published here"
    unknown = unpublished(entry)
    if unknown:
        return f"class and parameters are the entry's word: {unknown!r} is not published here"
    try:
        for kind, chosen in entry.choices.items():
            _built(kind, chosen)
    except InputError as error:
        return f"class and parameters are not checked: {error}"
    return ""


def period_of(entry: Entry, kind: str, key: str) -> tuple[float | None, ...]:
    """Return the value of `key`, a period in seconds, of a published policy or placer; else empty."""
    chosen = entry.choices[kind]
    if chosen.name not in published(kind):
        return ()
    try:
        return (getattr(_built(kind, chosen), key),)
    except Exception:  # `problems` reports it.
        return ()


def _built(kind: str, chosen: Chosen) -> Policy | Placer:
    from clustergym.scenario.registry import make_placer, make_policy

    word = next((text for text in texts_of(chosen.parameters) if not WORD.fullmatch(text)), None)
    if word is not None:
        message = f"{shortened(word, 60)!r} is not a plain word: a file that an entry names is not opened"
        raise InputError(message, field=f"{kind}.parameters", remedy="name what the package has")
    return make_policy(chosen.keys) if kind == "policy" else make_placer(chosen.keys)
