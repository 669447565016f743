"""Checks of an entry's claims against the registry, if this project publishes its policy or placer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from clustergym.benchmark.leaderboard.board import Board, list_texts
from clustergym.benchmark.leaderboard.entry import ELSEWHERE, TUNING, ComponentChoice, Entry
from clustergym.common.errors import InputError, shorten_text
from clustergym.scenario.policy import Placer, Policy

WORD = re.compile(r"[A-Za-z0-9_-]{1,64}( [A-Za-z0-9_-]{1,64}=[A-Za-z0-9_-]{1,64}){0,16}")
"""A parameter that is a word, or a policy with parameters that are: no path, so that nothing is opened for an
entry's sake."""

LEARNED = "learned"
"""The name of the project's own learned policy, and of its learned placer."""
ELSEWHERE_ALONE = (
    "sharing",
    *(f"{known}-newtrace" for known in ("none", "bootstrap", "profiled", "data-parallel")),
)
"""Checkpoints of this project that were trained on nothing that a board has."""
SEEN = ("philly-like", "helios-like", "pai-like", "newtrace-like")
"""How the families of traces begin that its other checkpoints were trained or tuned on."""


def list_training_data(entries: Iterable[ComponentChoice], board: Board) -> list[str]:
    """Return the names of the data on which the learned policies and placers in `entries` were trained."""
    # By families of traces, not by the board's name: a checkpoint that saw traces like Philly's has seen
    # those of every board that has them.
    seen = any(family.startswith(SEEN) for family in board.families)
    usual = [TUNING[0]] if seen else [ELSEWHERE]
    splits = [
        split
        for chosen in entries
        if LEARNED in (chosen.name, str(chosen.parameters.get("within", "")).partition(" ")[0])
        for split in ([ELSEWHERE] if chosen.parameters.get("checkpoint") in ELSEWHERE_ALONE else usual)
    ]
    return [*dict.fromkeys(splits)]


def list_published(component: str) -> frozenset[str]:
    """Return the names of the policies, or of the placers, that this project publishes."""
    from clustergym.scenario.registry import entry_points

    points = entry_points(component)
    return frozenset(name for name, target in points.items() if target.startswith("clustergym."))


def find_unpublished(entry: Entry) -> str:
    """Return the name of an entry's policy or placer that this project does not publish, or an empty text."""
    for component, chosen in entry.choices.items():
        if chosen.name not in list_published(component):
            return chosen.name
    return ""


def can_be_run_again(entry: Entry) -> bool:
    """Return whether a check may run the entry's policy or placer again and expect equal decisions."""
    return not (entry.hindsight or entry.variant or find_unpublished(entry))


def problems(entry: Entry, board: Board) -> Iterator[str]:
    """Yield each claim of an entry about its policy or placer that the published code contradicts.

    The registry knows of a published policy or placer whether it can be built with these parameters, its
    information class, that it is deterministic, and what it was trained on; of others, and of what an
    entry declares a variant, it knows nothing.
    """
    if entry.variant:
        return
    known = {
        component: chosen
        for component, chosen in entry.choices.items()
        if chosen.name in list_published(component)
    }
    if not entry.deterministic and len(known) == len(entry.choices):
        yield f"every {' and '.join(known)} published here is deterministic, this entry says that it is not"
    for chosen in known.values():
        for split in list_training_data([chosen], board):
            if split not in entry.trained_on:
                yield f"{chosen.name} was trained on {split!r}, which trained_on does not say"
    for component, chosen in known.items():
        yield from _find_build_problems(entry, component, chosen)


def _find_build_problems(entry: Entry, component: str, chosen: ComponentChoice) -> Iterator[str]:
    try:
        made = _build_choice(component, chosen)
    except InputError as error:
        # What is not installed here says nothing against the entry; `explain_unchecked` tells it.
        if not isinstance(error.__cause__, ImportError):
            yield str(error)
        return
    except Exception as error:  # The entry's parameters may make the policy raise anything.
        yield f"{type(error).__name__}: {shorten_text(str(error), 60)}"
        return
    if isinstance(made, Placer) and len(entry.choices) > 1:  # Its class is the policy's.
        return
    knows = made.information_class.value if isinstance(made, Policy) else "none"
    if knows != entry.information_class:
        yield f"with these parameters it is of class {knows}, entered as {entry.information_class}"


def explain_unchecked(entry: Entry) -> str:
    """Explain why an entry's parameters and what its policy knows cannot be checked; empty if they can."""
    if entry.hindsight:
        return "found in hindsight: the schedules are replayed, not searched for again"
    if entry.variant:
        return "a variant: class, parameters and decisions are the entry's word, and not those published here"
    unknown = find_unpublished(entry)
    if unknown:
        return f"class and parameters are the entry's word: {unknown!r} is not published here"
    try:
        for component, chosen in entry.choices.items():
            _build_choice(component, chosen)
    except InputError as error:
        return f"class and parameters are not checked: {error}"
    return ""


def read_period(entry: Entry, component: str, key: str) -> tuple[float | None, ...]:
    """Read attribute `key`, in seconds, of an entry's policy or placer into a 1-tuple; () if that fails."""
    chosen = entry.choices[component]
    if chosen.name not in list_published(component):
        return ()
    try:
        return (getattr(_build_choice(component, chosen), key),)
    except Exception:  # `problems` reports it.
        return ()


def _build_choice(component: str, chosen: ComponentChoice) -> Policy | Placer:
    from clustergym.scenario.registry import make_placer, make_policy

    # A parameter could be a path: to build the policy would open what an unknown file names.
    word = next((text for text in list_texts(chosen.parameters) if not WORD.fullmatch(text)), None)
    if word is not None:
        message = f"{shorten_text(word, 60)!r} is not a plain word: a file that an entry names is not opened"
        raise InputError(message, field=f"{component}.parameters", remedy="name what the package has")
    return make_policy(chosen.keys) if component == "policy" else make_placer(chosen.keys)
