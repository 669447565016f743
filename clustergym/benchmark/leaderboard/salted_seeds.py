"""Seeds that follow from a secret salt, and the hash that commits to it."""

from __future__ import annotations

import hashlib
import itertools
from typing import Annotated

from pydantic import Field

from clustergym.cluster.schema import Checked, Text

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class HiddenSplit(Checked):
    """Seeds to be scored on from the release on.

    Attributes
    ----------
    commitment : str
        SHA-256 by which anyone can check the salt once it is known.
    seeds : int
        Number of seeds.
    salt : str, optional
        What the seeds follow from; published with the release.
    """

    commitment: Sha256
    seeds: Annotated[int, Field(ge=1)]
    salt: Text | None = None


def commitment_of(board: str, salt: str) -> str:
    """Return the hash of a salt that a board of that name publishes."""
    return hashlib.sha256(f"clustergym hidden split\0{board}\0{salt}".encode()).hexdigest()


def hidden_seeds(board: str, salt: str, count: int) -> list[int]:
    """Return the different seeds that follow from a salt, each from 10^9 to below 2^39."""
    seeds: list[int] = []
    for number in itertools.count():
        if len(seeds) == count:
            return seeds
        digest = hashlib.sha256(f"clustergym hidden seed\0{board}\0{salt}\0{number}".encode()).digest()
        seed = int.from_bytes(digest[:8], "big") % 2**39
        if seed >= 10**9 and seed not in seeds:
            seeds.append(seed)
    raise AssertionError("counting does not end")
