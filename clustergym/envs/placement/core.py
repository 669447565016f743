"""Rules for the core switches: how much slower traffic is across minipods than inside one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.scenario.placement_problem import cell_spread


class Across(NamedTuple):
    """Factors by which bandwidth is lower between minipods (groups of nodes) than inside one.

    Attributes
    ----------
    hop : float
        Factor for transfers between neighbouring stages.
    reduction : float
        Factor for the reduction of gradients over a column.
    """

    hop: float
    reduction: float


Core = Callable[[Ints, bool], Across]
"""(Minipod of each node, shape (rows, columns); whether the last stage hands on to the first) -> factors."""

Growth = Literal["power", "logarithm"]

PORTS = 8
"""Network ports of a node, one per GPU."""


def constant(factor: float) -> Core:
    """Return a rule that slows traffic between minipods by the same factor in every placement."""
    return lambda matrix, wraps: Across(factor, factor)


def rising(coefficient: float, exponent: float = 1.0, growth: Growth = "power") -> Core:
    """Return a rule that slows traffic the more, the more minipods a communication group spans.

    1 + coefficient (k - 1)^exponent, or 1 + coefficient log2 k: 1 where k is 1, 1 + coefficient where it is
    2. No source gives the shape; the coefficient is what a measurement with k = 2 ties.
    """

    def factor(k: int) -> float:
        return 1.0 + coefficient * (math.log2(k) if growth == "logarithm" else (k - 1) ** exponent)

    def rule(matrix: Ints, wraps: bool) -> Across:
        found = cell_spread(matrix)
        return Across(factor(found.pp), factor(found.dp))

    return rule


def share_uplinks(uplinks: int) -> Core:
    """Return a rule that slows traffic as the job's own flows share each minipod's uplinks equally.

    Each of the `PORTS` ports of a node that sends to another minipod is a flow at line rate. All uplinks of a
    minipod count as one link, in each direction; under max-min fairness the slowest flow, which all
    wait for, gets the least over links of capacity over flows.

    Parameters
    ----------
    uplinks : int
        Links of a minipod to the core at a port's rate; with as many as ports below, none is oversubscribed.
    """

    def rule(matrix: Ints, wraps: bool) -> Across:
        return Across(*(max(1.0, _busiest(*sends) / uplinks) for sends in _crossings(matrix, wraps)))

    return rule


def static_routes(uplinks: int, flows: int = 1, draws: int = 20, seed: int = 0) -> Core:
    """Return a rule that slows traffic as the job's flows, on fixed routes drawn at random, collide on links.

    The core is not blocking, but flows that meet on a link share it, max-min fair, and all wait for the
    slowest. The factor is the mean over draws of the load of the fullest link; other jobs send nothing.
    Inside a minipod routes are taken to be perfect, as the paper measures at most 0.3 % there.

    Parameters
    ----------
    uplinks : int
        Links of a minipod to the core, as in `share_uplinks`.
    flows : int
        Flows per port, each with its own route and an equal part of the traffic.
    draws, seed : int
        Number of draws of the routes, and their seed.
    """

    def rule(matrix: Ints, wraps: bool) -> Across:
        return _collisions(matrix.tobytes(), matrix.shape, wraps, uplinks, flows, draws, seed)

    return rule


def _crossings(matrix: Ints, wraps: bool) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """Return the minipods that each node sends from and to: to the next stage, and round its column's ring.

    Shape (nodes,); the source is -1 where the message stays in its minipod.
    """
    stages, ring = np.roll(matrix, -1, axis=1), np.roll(matrix, -1, axis=0)
    if not wraps:
        stages[:, -1] = matrix[:, -1]
    hop, reduction = (
        (np.where(after == matrix, -1, matrix).ravel(), after.ravel()) for after in (stages, ring)
    )
    return hop, reduction


def _busiest(source: Ints, destination: Ints) -> int:
    """Return the greatest number of flows out of, or into, any minipod."""
    crosses = source >= 0
    if not crosses.any():
        return 0
    return PORTS * max(int(np.bincount(ends[crosses]).max()) for ends in (source, destination))


@lru_cache(maxsize=1024)
def _collisions(
    content: bytes, shape: tuple[int, int], wraps: bool, uplinks: int, flows: int, draws: int, seed: int
) -> Across:
    matrix = np.frombuffer(content, dtype=np.int64).reshape(shape)
    rng = random_streams.LINK_ROUTES.generator(seed)
    return Across(*(_mean_load(*sends, uplinks, flows, draws, rng) for sends in _crossings(matrix, wraps)))


def _mean_load(
    source: Ints, destination: Ints, uplinks: int, flows: int, draws: int, rng: np.random.Generator
) -> float:
    """Return the load of the fullest link, in ports, averaged over random routes; at least 1."""
    crosses = source >= 0
    ends = [where[crosses] * uplinks for where in (source, destination)]
    most = np.full(draws, flows)
    for draw in range(draws):
        routes = rng.integers(0, uplinks, size=(2, PORTS * flows, len(source)))[..., crosses]
        for first, links in zip(ends, routes, strict=True):
            most[draw] = max(most[draw], np.bincount((first + links).ravel(), minlength=1).max())
    return float(most.mean()) / flows
