"""Latencies of collectives for many allocations at once, as a profiler looks them up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clustergym.cluster.config import load_gpu_types
from clustergym.cluster.spec import GpuType, Locality
from clustergym.oracle.communication.collectives import Collectives
from clustergym.oracle.communication.constants import load_constants
from clustergym.oracle.communication.hardware import Bandwidth, Hardware
from clustergym.oracle.communication.measured import CollectiveTable, read_collectives
from clustergym.oracle.communication.primitives import Primitive

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CALIBRATED = "calibrated"
"""Instead of a table's path: alpha-beta constants alone."""


class Lookups:
    """Collectives of several kinds of node, each by its number.

    Parameters
    ----------
    gpu_types : sequence of GpuType
        Of each kind of node.
    network_gbs : sequence of float
        Line rate of such a node, all of which one group has to itself.
    table : CollectiveTable, optional
        Measured latencies, which are interpolated where there are any.
    """

    def __init__(
        self,
        gpu_types: Sequence[GpuType],
        network_gbs: Sequence[float],
        table: CollectiveTable | None = None,
    ) -> None:
        self._kinds = [
            (gpu.name, Collectives({gpu.name: _hardware(gpu, rate)}, table))
            for gpu, rate in zip(gpu_types, network_gbs, strict=True)
        ]

    def seconds(
        self, primitive: Primitive, kind: Ints, volume_bytes: Floats, inside: Floats, across: Floats
    ) -> Floats:
        """Return the latency of one call by one group; all arguments broadcast.

        Parameters
        ----------
        primitive : Primitive
        kind : ndarray of int, shape (R, 1, 1)
        volume_bytes : ndarray of float
            Of a rank's buffer.
        inside, across : ndarray of float
            Members of the group on a node, and nodes it spans.
        """
        shape = np.broadcast_shapes(kind.shape, volume_bytes.shape, inside.shape, across.shape)
        volume, per_node, nodes = (np.broadcast_to(part, shape) for part in (volume_bytes, inside, across))
        out = np.empty(shape)
        for number in np.unique(kind).tolist():
            rows = np.flatnonzero(kind[:, 0, 0] == number)
            name, collectives = self._kinds[number]
            ranks, hosts = per_node[rows] * nodes[rows], nodes[rows]
            out[rows] = collectives.latency_s(primitive, volume[rows], name, ranks, hosts)
        return out


def _hardware(gpu: GpuType, network_gbs: float) -> Hardware:
    known, reference = load_constants(), load_gpu_types().get(gpu.name, gpu)
    return Hardware(
        Bandwidth(gpu.link_gbs, (network_gbs,) * len(Locality)),
        Bandwidth.of_type(reference),
        known.link(gpu),
        known.network(gpu),
    )


@lru_cache(maxsize=4)
def table_of(source: str) -> CollectiveTable | None:
    """Return the measured table of a path, or None for `calibrated`.

    Raises
    ------
    InputError
        As `read_collectives`.
    """
    return None if source == CALIBRATED else read_collectives(Path(source))
