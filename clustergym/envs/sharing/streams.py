"""Drawn streams of requests for parts of GPUs on a cluster.

Requests arrive one by one and never leave: each is placed at once, or rejected for good. Drawn nodes and
requests are like those of Alibaba's openb cluster, without its files: the shapes of nodes are those that the
GPU cluster trace of 2023 lists (https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023; Weng et al.,
"Beware of Fragmentation", USENIX ATC 2023), and the requests are those of
`clustergym.trace.generators.parts`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import Nodes, Requests, distinct, empty_nodes
from clustergym.common.arrays import Ints
from clustergym.sim.parts.fragmentation import UsualRequests, find_usual_requests
from clustergym.trace.generators.parts import REQUESTS


class Source(NamedTuple):
    """The nodes and requests from which episodes are made.

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
    """

    nodes: Nodes
    rows: Requests
    requests: Requests
    request: Ints
    usual: UsualRequests


class Stream(NamedTuple):
    """A sequence of A requests that arrive at a cluster's nodes, and stay.

    Attributes
    ----------
    nodes : Nodes
        As they are at the start.
    requests : Requests
    arrivals : ndarray of int, shape (A,)
        Index of the distinct request of each.
    usual : UsualRequests
    """

    nodes: Nodes
    requests: Requests
    arrivals: Ints
    usual: UsualRequests


@lru_cache(maxsize=32)
def generate_source(nodes: int) -> Source:
    """Generate nodes and requests with the sizes and proportions of Alibaba's openb trace."""
    rows = generate_requests()
    usual = find_usual_requests(rows, [""] * len(rows.gpus))
    return Source(generate_nodes(nodes), rows, *distinct(rows), usual)


def draw_stream(source: Source, load: float, rng: np.random.Generator) -> Stream:
    """Sample requests that ask for `load` times the installed GPUs, and an order of the nodes to break ties.

    Parameters
    ----------
    source : Source
        Its rows ask for GPUs.
    load : float
        GPUs that the stream asks for, over those installed.
    rng : numpy.random.Generator
    """
    asked = (source.requests.gpus * source.requests.gpu_milli)[source.request]
    number = max(1, round(load * source.nodes.installed_milli / float(asked.mean())))
    rows = rng.integers(len(asked), size=number)
    rank = rng.permutation(len(source.nodes.devices))
    return Stream(source.nodes.with_ranks(rank), source.requests, source.request[rows], source.usual)


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
