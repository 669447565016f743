"""Nodes and requests as those of Alibaba's openb cluster, without its files.

Shapes of nodes and shares of requests are those that the GPU cluster trace of 2023 publishes
(https://github.com/alibaba/clusterdata, cluster-trace-gpu-v2023; Weng et al., "Beware of Fragmentation",
USENIX ATC 2023): nodes as listed, requests rounded to half a core and 4 GiB, those below 3 in 1,000 left out.
"""

from __future__ import annotations

import numpy as np

from clustergym.sharing.nodes import Nodes, Requests, empty_nodes

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

KINDS = (
    # No GPU.
    (12.5, 56, 0, 0, 45),
    (32, 48, 0, 0, 35),
    (8, 28, 0, 0, 20),
    (15.5, 48, 0, 0, 15),
    (16.5, 48, 0, 0, 12),
    # A part of a GPU.
    (3, 4, 1, 810, 128),
    (12, 48, 1, 470, 48),
    (8, 28, 1, 470, 44),
    (12, 48, 1, 650, 29),
    (4, 24, 1, 320, 14),
    (4, 28, 1, 230, 10),
    (4, 16, 1, 320, 10),
    (3, 4, 1, 590, 9),
    (8, 28, 1, 320, 9),
    (4, 12, 1, 550, 9),
    (6, 8, 1, 460, 7),
    (4, 16, 1, 160, 7),
    (4, 12, 1, 370, 6),
    (4, 28, 1, 320, 5),
    (4, 12, 1, 810, 4),
    (6, 12, 1, 460, 4),
    (4, 24, 1, 230, 3),
    (6, 16, 1, 460, 3),
    (4, 16, 1, 220, 3),
    (1, 4, 1, 320, 3),
    # Whole GPUs.
    (11.5, 48, 1, 1000, 171),
    (3, 4, 1, 1000, 58),
    (18.5, 64, 1, 1000, 31),
    (10, 40, 1, 1000, 24),
    (12, 48, 1, 1000, 20),
    (12, 24, 1, 1000, 20),
    (15.5, 56, 1, 1000, 19),
    (12, 16, 1, 1000, 18),
    (16, 32, 1, 1000, 14),
    (8, 16, 1, 1000, 13),
    (4, 24, 1, 1000, 13),
    (8, 32, 1, 1000, 12),
    (14, 56, 1, 1000, 11),
    (24, 92, 1, 1000, 10),
    (11.5, 76, 1, 1000, 8),
    (12, 76, 1, 1000, 6),
    (4, 32, 1, 1000, 6),
    (15, 80, 1, 1000, 4),
    (16, 64, 1, 1000, 4),
    (16.5, 124, 1, 1000, 3),
    (16, 64, 2, 1000, 2),
    (32, 128, 4, 1000, 2),
    (64, 256, 8, 1000, 3),
    (88, 320, 8, 1000, 2),
)
"""Cores, GiB, GPUs, thousandths of each, and how many in 1,000 requests are such."""


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
