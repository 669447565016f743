"""Sealed tests: a learned or tuned policy is run on seeds that are drawn after it.

The seeds of an entry hang on its artefact and on a public random value that was announced with it: nobody,
who makes the boards too, can know them before. Those of a row of policies.yaml hang on its parameters and
weights alone: who trains anew draws again, and the best of a hundred draws gains some two and a half standard
errors.
"""

from __future__ import annotations

from collections.abc import Iterator

from clustergym.benchmark.leaderboard.cells import BOUND, FigureTable, Place
from clustergym.benchmark.leaderboard.fingerprint import hash_weights
from clustergym.benchmark.leaderboard.pairs import compare_with_reference
from clustergym.common.errors import InputError
from clustergym.common.random_streams import derive_seeds
from clustergym.scenario.registry import list_parameters

PUBLISHED = ("published", "guarded", "simple")


def draw_sealed_seeds(table: FigureTable, name: str) -> list[int]:
    """Return a row's least number of seeds, by the SHA-256 of lines: board, version, and what decides.

    That is the SHA-256 of the artefact and the later value; of a row without, parameters and weights.
    """
    if name in table.agents:
        beacon = table.agents[name].entry.beacon
        if beacon.value is None:
            remedy = f"give --beacon, that of {beacon.source}, {beacon.round}, on {beacon.due}"
            raise InputError("the value is not known yet", field=name, remedy=remedy)
        what = [table.agents[name].sha256, beacon.value]
    else:
        weights = [found for made in table.contestants(name) for found in hash_weights(list_parameters(made))]
        what = [table.policies[name].keys, *weights]
    return derive_seeds([table.board.name, str(table.board.version), *what], table.keys.least)


def list_foreign_seeds(table: FigureTable) -> Iterator[str]:
    """Yield a line on each row of a sealed test whose seed was not drawn for it: somebody chose it."""
    for name in table.keys.policies:
        label = table.keys.sealed_label(name)
        rows = [place for place in sorted(table.rows) if (place.policy, place.condition) == (name, label)]
        seeds = draw_sealed_seeds(table, name) if rows else []
        yield from (f"{place}: its seed was not drawn" for place in rows if place.seed not in seeds)


def find_rivals(table: FigureTable, name: str) -> list[str]:
    """Return the reference, and the policy of a paper that is best in the table, as published or guarded."""
    known = {
        rival: found.value
        for rival in table.keys.policies
        if rival not in (name, BOUND)
        and table.policies[rival].rules in PUBLISHED
        and (found := compare_with_reference(table, rival).overall) is not None
    }
    best = min(known, key=lambda rival: table.board.sign * known[rival], default=table.keys.reference)
    return [*dict.fromkeys((table.keys.reference, best))]


def list_sealed_places(table: FigureTable, name: str) -> list[Place]:
    """Return the places of a sealed test, seed by seed, the reference first."""
    if name not in table.keys.policies or name == BOUND or table.policies[name].rules in PUBLISHED:
        message = f"{name!r} is no learned or tuned policy of {table.board.name}"
        raise InputError(message, field="entry", remedy="name a row of cells.yaml whose rules are `learned`")
    label = table.keys.sealed_label(name)
    return [
        Place(rival, family, seed, label)
        for seed in draw_sealed_seeds(table, name)
        for family in table.keys.scenarios
        for rival in [*find_rivals(table, name), name]
    ]
