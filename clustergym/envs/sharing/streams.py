"""Streams of requests for parts of GPUs on a cluster: those of a folder laid out as openb, or drawn ones.

Requests arrive one by one and never leave: each is placed at once, or rejected for good. Drawn nodes and
requests are like those of Alibaba's openb cluster, without its files: the shapes of nodes are those that the
GPU cluster trace of 2023 lists (https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023; Weng et al.,
"Beware of Fragmentation", USENIX ATC 2023), and the requests are those of
`clustergym.trace.generators.parts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import Nodes, Requests, distinct, empty_nodes
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.envs.sharing import openb
from clustergym.sim.compiled.numba_cache import compile_entry
from clustergym.sim.parts.fragmentation import UsualRequests, find_usual_requests, fragments
from clustergym.sim.parts.placers import (
    PLACERS,
    RANDOM_FIT,
    UNFIT,
    KnownScores,
    best,
    draw_device,
    draw_node,
    no_scores,
    refresh,
    take,
)
from clustergym.trace.generators.parts import REQUESTS

NEVER = np.iinfo(np.int64).max
"""In place of the arrival before which a request leaves: it stays."""
TURNOVERS = 3
"""How often the GPUs of a stream with departures are asked for, over its load."""


class Source(NamedTuple):
    """The nodes and requests from which episodes are made, and published orders in which requests arrive.

    Attributes
    ----------
    nodes : Nodes
        Empty.
    rows : Requests
        A list of requests, each as likely as another.
    requests : Requests
        The distinct ones among them.
    request : ndarray of int, shape (rows,)
        Index of the distinct request of each row.
    usual : UsualRequests
    orders : mapping
        Seed -> a published order of arrivals; empty where there is none.
    """

    nodes: Nodes
    rows: Requests
    requests: Requests
    request: Ints
    usual: UsualRequests
    orders: Mapping[int, openb.Orders]


class Stream(NamedTuple):
    """A sequence of A requests that arrive at a cluster's nodes, and when each leaves again, if it does.

    Attributes
    ----------
    nodes : Nodes
        As they are at the start.
    requests : Requests
    arrivals : ndarray of int, shape (A,)
        Index of the distinct request of each.
    leaves_at : ndarray of int, shape (A,)
        The arrival before which it leaves, later than itself, or NEVER.
    usual : UsualRequests
    """

    nodes: Nodes
    requests: Requests
    arrivals: Ints
    leaves_at: Ints
    usual: UsualRequests


@lru_cache(maxsize=32)
def read_source(folder: Path, workload: str) -> Source:
    """Read nodes, requests and published orders of arrival from a folder laid out as Alibaba's openb."""
    nodes, models = openb.read_nodes(openb.find_packed_file(folder / openb.NODES))
    path = openb.find_packed_file(folder / "pods" / f"{openb.PODS}{workload}.csv")
    rows, accepted = openb.read_requests(path, models)
    orders = openb.read_orders(folder, workload, len(rows.gpus), len(nodes.devices))
    return Source(nodes, rows, *distinct(rows), find_usual_requests(rows, accepted), orders)


@lru_cache(maxsize=32)
def generate_source(nodes: int) -> Source:
    """Generate nodes and requests with the sizes and proportions of Alibaba's openb trace."""
    rows = generate_requests()
    usual = find_usual_requests(rows, [""] * len(rows.gpus))
    return Source(generate_nodes(nodes), rows, *distinct(rows), usual, {})


def make_published_stream(source: Source, order: openb.Orders) -> Stream:
    """Make the sequence of requests of a published run, in which no request leaves."""
    arrivals = source.request[order.arrivals]
    nodes = source.nodes.with_ranks(order.node_rank)
    return Stream(nodes, source.requests, arrivals, np.full(len(arrivals), NEVER), source.usual)


def draw_stream(source: Source, load: float, departures: bool, rng: np.random.Generator) -> Stream:
    """Sample requests that ask for `load` times the installed GPUs, and an order of the nodes to break ties.

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
    asked = (source.requests.gpus * source.requests.gpu_milli)[source.request]
    most, mean = load * source.nodes.installed_milli, float(asked.mean())
    number = max(1, round((TURNOVERS if departures else 1) * most / mean))
    rows = rng.integers(len(asked), size=number)
    leaves_at = np.full(number, NEVER)
    if departures:
        leaves_at = np.arange(number) + 1 + rng.exponential(most / mean, number).astype(np.int64)
    rank = rng.permutation(len(source.nodes.devices))
    return Stream(
        source.nodes.with_ranks(rank), source.requests, source.request[rows], leaves_at, source.usual
    )


MODELS = ("A10", "G2", "G3", "P100", "T4", "V100M16", "V100M32")
"""GPU models; G2 and G3 are not disclosed."""

SHAPES = (
    ("G2", 8, 96, 384, 549),
    ("T4", 2, 104, 512, 387),
    ("P100", 2, 16, 120, 107),
    ("G3", 8, 128, 768, 39),
    ("V100M16", 4, 32, 128, 28),
    ("P100", 2, 64, 256, 22),
    ("V100M32", 8, 96, 768, 21),
    ("V100M16", 1, 8, 32, 19),
    ("T4", 4, 96, 384, 17),
    ("V100M32", 4, 48, 368, 9),
    ("V100M16", 8, 64, 256, 7),
    ("P100", 1, 8, 60, 3),
    ("P100", 2, 8, 60, 2),
    ("A10", 1, 128, 1024, 2),
    ("V100M16", 8, 82, 336, 1),
)
"""Model, GPUs, cores, GiB of memory, and the number of such nodes."""


def generate_nodes(number: int) -> Nodes:
    """Generate empty nodes with the sizes and proportions of those in Alibaba's openb trace.

    Shares are rounded by largest remainders: 1,213 nodes are those of openb.
    """
    weights = np.array([shape[-1] for shape in SHAPES], dtype=np.float64)
    exact = number * weights / weights.sum()
    counts = np.floor(exact).astype(np.int64)
    last = np.argsort(counts - exact, kind="stable")[: number - int(counts.sum())]
    counts[last] += 1
    model = np.array([MODELS.index(shape[0]) for shape in SHAPES])
    gpus, cores, gib = np.array([shape[1:4] for shape in SHAPES]).T
    return empty_nodes(*(np.repeat(column, counts) for column in (1000 * cores, 1024 * gib, gpus, model)))


def generate_requests() -> Requests:
    """Generate a list of requests with usual sizes, each equally probable, that accept any GPU model."""
    cores, gib, gpus, milli, number = (np.array(column) for column in zip(*REQUESTS, strict=True))
    any_model = np.full(len(gpus), (1 << len(MODELS)) - 1)
    requests = Requests(np.rint(1000 * cores).astype(np.int64), 1024 * gib, gpus, milli, any_model)
    return Requests(*(np.repeat(column, number) for column in requests))


class Filling(NamedTuple):
    """Where each of A arriving requests was placed, if it was, and how much GPU was in use after it.

    Attributes
    ----------
    node : ndarray of int, shape (A,)
        Where each was placed; -1: rejected.
    devices : ndarray of int, shape (A,)
        Bits of the devices it has.
    used_milli : ndarray of int, shape (A,)
        Thousandths of GPUs allocated after each arrival.
    fragments_milli : ndarray of float, shape (A,)
        Expected thousandths of idle GPU that a usual request cannot use, after each arrival.
    """

    node: Ints
    devices: Ints
    used_milli: Ints
    fragments_milli: Floats


def fill(
    nodes: Nodes, requests: Requests, arrivals: Ints, usual: UsualRequests, placer: str, seed: int
) -> Filling:
    """Place or reject arriving requests by a named placer; track idle GPU that `usual` requests cannot use.

    Parameters
    ----------
    nodes : Nodes
        Receive the requests.
    requests : Requests
        K distinct requests.
    arrivals : ndarray of int, shape (A,)
        Index of each arrival among the distinct requests.
    usual : UsualRequests
    placer : str
        One of `clustergym.sim.parts.placers.PLACERS`.
    seed : int
        Of `random-fit`.
    """
    number = len(arrivals)
    chances = random_streams.RANDOM_FIT.generator(seed).random((number if placer == "random-fit" else 1, 2))
    scores = no_scores(requests, nodes)
    found = Filling(
        np.full(number, UNFIT), np.zeros(number, np.int64), np.zeros(number, np.int64), np.zeros(number)
    )
    place_arrivals(nodes, requests, arrivals, usual, PLACERS.index(placer), chances, scores, found)
    return found


@compile_entry
def place_arrivals(
    nodes: Nodes,
    requests: Requests,
    arrivals: Ints,
    usual: UsualRequests,
    placer: int,
    chances: Floats,
    scores: KnownScores,
    found: Filling,
) -> None:
    """Place requests by a placer's scores, or at random for `random-fit`; write the outcomes into `found`.

    `chances` are the random numbers of `random-fit`; the `usual` requests define what a fragment is.
    """
    own, device = np.empty(len(nodes.devices)), np.empty(1, np.int64)
    for at in range(len(nodes.devices)):
        own[at] = fragments(nodes, at, usual)
    used = 0
    for arrival in range(len(arrivals)):
        request = arrivals[arrival]
        refresh(nodes, requests, request, placer, usual, scores, device)
        if placer == RANDOM_FIT:
            at = draw_node(scores.value[request], chances[arrival, 0])
        else:
            at = best(scores.value[request], nodes.rank)
        if at >= 0:
            place = scores.device[request, at]
            if placer == RANDOM_FIT and place >= 0:
                place = draw_device(nodes, at, requests.gpu_milli[request], chances[arrival, 1])
            found.node[arrival] = at
            found.devices[arrival] = take(nodes, at, requests, request, place)
            used += requests.gpus[request] * requests.gpu_milli[request]
            own[at] = fragments(nodes, at, usual)
        found.used_milli[arrival] = used
        found.fragments_milli[arrival] = own.sum()
