"""Streams of requests on a cluster: those of a folder laid out as openb, or drawn."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import Nodes, Requests, distinct
from clustergym.common.arrays import Ints
from clustergym.envs.sharing import openb
from clustergym.envs.sharing.generated import generated_nodes, generated_requests
from clustergym.sim.parts.fragmentation import Usual, usual_of

NEVER = np.iinfo(np.int64).max
"""In place of the arrival before which a request leaves: it stays."""
TURNOVERS = 3
"""How often the GPUs of a stream with departures are asked for, over its load."""


class Source(NamedTuple):
    """What streams are drawn from.

    Attributes
    ----------
    nodes : Nodes
        Empty.
    rows : Requests
        A list of requests, each as likely as another.
    kinds : Requests
        The distinct ones among them.
    kind : ndarray of int, shape (rows,)
        The kind of each row.
    usual : Usual
    orders : mapping
        Seed -> a published order of arrivals; empty where there is none.
    """

    nodes: Nodes
    rows: Requests
    kinds: Requests
    kind: Ints
    usual: Usual
    orders: Mapping[int, openb.Orders]


class Stream(NamedTuple):
    """Requests that arrive at a cluster, A of them, and leave.

    Attributes
    ----------
    nodes : Nodes
        As they are at the start.
    kinds : Requests
    arrivals : ndarray of int, shape (A,)
        The kind of each.
    leaves_at : ndarray of int, shape (A,)
        The arrival before which it leaves, later than itself, or NEVER.
    usual : Usual
    """

    nodes: Nodes
    kinds: Requests
    arrivals: Ints
    leaves_at: Ints
    usual: Usual


@lru_cache(maxsize=32)
def read_source(folder: Path, workload: str) -> Source:
    """Read the nodes, a list of requests and its orders from a folder laid out as openb."""
    nodes, models = openb.read_nodes(openb.packed(folder / openb.NODES))
    path = openb.packed(folder / "pods" / f"{openb.PODS}{workload}.csv")
    rows, accepted = openb.read_requests(path, models)
    orders = openb.read_orders(folder, workload, len(rows.gpus), len(nodes.devices))
    return Source(nodes, rows, *distinct(rows), usual_of(rows, accepted), orders)


@lru_cache(maxsize=32)
def generated_source(nodes: int) -> Source:
    """Return so many nodes, and requests, as openb's (`clustergym.envs.sharing.generated`)."""
    rows = generated_requests()
    usual = usual_of(rows, [""] * len(rows.gpus))
    return Source(generated_nodes(nodes), rows, *distinct(rows), usual, {})


def published(source: Source, order: openb.Orders) -> Stream:
    """Return the stream of an order of arrivals; no request leaves."""
    arrivals = source.kind[order.arrivals]
    nodes = source.nodes.ranked(order.node_rank)
    return Stream(nodes, source.kinds, arrivals, np.full(len(arrivals), NEVER), source.usual)


def drawn(source: Source, load: float, departures: bool, rng: np.random.Generator) -> Stream:
    """Draw requests one by one, and the ranks of nodes.

    Parameters
    ----------
    source : Source
        Its rows ask for GPUs.
    load : float
        GPUs that the stream asks for, over those installed; with departures, at a time.
    departures : bool
        Whether requests leave: after a number of arrivals that is exponential, with one mean for all. A
        stream is then TURNOVERS times as long.
    rng : numpy.random.Generator
    """
    asked = (source.kinds.gpus * source.kinds.gpu_milli)[source.kind]
    most, mean = load * source.nodes.installed_milli, float(asked.mean())
    number = max(1, round((TURNOVERS if departures else 1) * most / mean))
    rows = rng.integers(len(asked), size=number)
    leaves_at = np.full(number, NEVER)
    if departures:
        leaves_at = np.arange(number) + 1 + rng.exponential(most / mean, number).astype(np.int64)
    rank = rng.permutation(len(source.nodes.devices))
    return Stream(source.nodes.ranked(rank), source.kinds, source.kind[rows], leaves_at, source.usual)
