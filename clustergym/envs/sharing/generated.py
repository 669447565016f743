"""Nodes and requests as those of Alibaba's openb cluster, without its files.

Shapes of nodes are those that the GPU cluster trace of 2023 lists (https://github.com/alibaba/clusterdata,
cluster-trace-gpu-v2023; Weng et al., "Beware of Fragmentation", USENIX ATC 2023), and requests those of
`clustergym.trace.generators.parts`.
"""

from __future__ import annotations

import numpy as np

from clustergym.cluster.parts import Nodes, Requests, empty_nodes
from clustergym.trace.generators.parts import KINDS

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


def generated_nodes(number: int) -> Nodes:
    """Return empty nodes in the shapes of openb's, as many of each as its share of them comes to.

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


def generated_requests() -> Requests:
    """Return a list of requests, a row each, that any model will do for; each is as likely as another."""
    cores, gib, gpus, milli, number = (np.array(column) for column in zip(*KINDS, strict=True))
    any_model = np.full(len(gpus), (1 << len(MODELS)) - 1)
    kinds = Requests(np.rint(1000 * cores).astype(np.int64), 1024 * gib, gpus, milli, any_model)
    return Requests(*(np.repeat(column, number) for column in kinds))
