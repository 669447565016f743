"""Slurm's multifactor priority: a weighted sum of a job's age, size, fair share and other factors.

Sources: SchedMD, priority_multifactor, fair_tree and tres.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

FACTORS = ("age", "association", "fair_share", "job_size", "partition", "qos", "tres")


def priority(factors: Mapping[str, float], weights: Mapping[str, float], nice: float = 0.0) -> float:
    """Return the sum of weight times factor over `FACTORS`, less `nice`."""
    return sum(weights.get(name, 0.0) * factors.get(name, 0.0) for name in FACTORS) - nice


def age_factor(wait_s: float, longest_s: float = 7 * 86_400.0) -> float:
    """Return the wait relative to `PriorityMaxAge`, at most 1."""
    return min(1.0, wait_s / longest_s)


def classic_fair_share(shares: float, usage: float, damping: float = 1.0) -> float:
    """Return the factor of the older rule: 2^(-(usage / shares) / damping)."""
    return float(2.0 ** (-usage / shares / damping)) if shares else 0.0


def effective_usage(own: float, above: float, shares: float) -> float:
    """Return the usage that counts in the older rule: own use, and a part of what siblings have used.

    Parameters
    ----------
    own, above : float
        Part of all use that is the account's own; the effective one of the account above it.
    shares : float
        Part of the shares beside it that are its own.
    """
    return own + (above - own) * shares


@dataclass(frozen=True)
class Account:
    """An account with accounts or users in it, or a user (without any).

    Attributes
    ----------
    name : str
    shares : float
        Raw shares, against its siblings'.
    usage : float
        Decayed use of a user; of an account the sum over what is in it counts.
    members : tuple of Account
    """

    name: str
    shares: float
    usage: float = 0.0
    members: tuple[Account, ...] = ()

    @property
    def used(self) -> float:
        """Decayed use of all users in it."""
        return sum(one.used for one in self.members) if self.members else self.usage


def fair_tree(accounts: Sequence[Account]) -> dict[str, float]:
    """Return the fair-share factor of each user, above 0, up to 1.

    At each level siblings go by shares over use, both as parts of the level's; the best account's users come
    before those of the next. Accounts that tie are merged, users that tie share a rank.
    """
    ranked: list[list[str]] = []
    _visit(accounts, ranked)
    users = sum(map(len, ranked))
    found: dict[str, float] = {}
    rank = users
    for tied in ranked:
        found |= dict.fromkeys(tied, rank / users)
        rank -= len(tied)
    return found


def _visit(siblings: Sequence[Account], ranked: list[list[str]]) -> None:
    for tied in _group_tied(siblings):
        users = [one.name for one in tied if not one.members]
        if users:
            ranked.append(users)
        merged = [member for one in tied for member in one.members]
        if merged:
            _visit(merged, ranked)


def _group_tied(siblings: Sequence[Account]) -> Iterator[list[Account]]:
    """Yield the siblings of each level, shares over use, the highest first; as parts they order alike."""
    rounded: dict[float, list[Account]] = {}
    for one in siblings:
        used = one.used
        rounded.setdefault(one.shares / used if used else math.inf, []).append(one)
    for _, beside in sorted(rounded.items(), key=lambda item: -item[0]):
        # Division rounds in order, so that only what it makes equal is to be compared exactly.
        levels: dict[Fraction | float, list[Account]] = {}
        for one in beside if len(beside) > 1 else ():
            level = Fraction(one.shares) / Fraction(one.used) if one.used else math.inf
            levels.setdefault(level, []).append(one)
        yield from (levels[level] for level in sorted(levels, reverse=True)) if levels else [beside]


def billing(amounts: Iterable[tuple[float, float]], largest_only: bool = False) -> float:
    """Return the sum of amounts times weights that a job counts, or with `MAX_TRES` the largest."""
    counted = [amount * weight for amount, weight in amounts]
    return max(counted, default=0.0) if largest_only else sum(counted)
