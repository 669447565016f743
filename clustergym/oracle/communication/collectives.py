"""Seconds that collectives take on a cluster: measured where they were measured, alpha-beta elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from clustergym.cluster.config import load_gpu_types
from clustergym.cluster.spec import ClusterSpec, GpuType, Locality
from clustergym.errors import InputError, nearest
from clustergym.oracle.communication.constants import Constants, load_constants
from clustergym.oracle.communication.hardware import Bandwidth, Hardware
from clustergym.oracle.communication.measured import CollectiveTable, Curve, Group
from clustergym.oracle.communication.primitives import Primitive

Floats = npt.NDArray[np.float64]
NAMES = frozenset(primitive.value for primitive in Primitive)
Numbers = float | npt.NDArray[np.float64] | npt.NDArray[np.int64]


class Collectives:
    """Latency of communication primitives by volume and topology.

    Parameters
    ----------
    hardware : dict of str to Hardware
        By GPU type.
    table : CollectiveTable, optional
        Measured latencies. They hold for the bandwidths of the catalogue's nodes; on a slower or
        faster medium a volume takes as long as the proportionally larger or smaller one did.
    """

    def __init__(self, hardware: Mapping[str, Hardware], table: CollectiveTable | None = None) -> None:
        self.hardware = dict(hardware)
        self.table = table
        self._curves: Mapping[Group, Curve] = {} if table is None else table.curves

    @classmethod
    def from_cluster(
        cls, cluster: ClusterSpec, table: CollectiveTable | None = None, constants: Constants | None = None
    ) -> Collectives:
        """Return the collectives of a cluster's GPU types, at the bandwidths of its fabric.

        Raises
        ------
        InputError
            For a bandwidth that is not positive, and what `load_constants` raises.
        """
        known = load_constants() if constants is None else constants
        hardware = {}
        for index, group in enumerate(cluster.groups):
            rates = tuple(cluster.bandwidth_gbs(index, tier) for tier in Locality)
            gpu = group.gpu_type
            actual = Bandwidth(gpu.link_gbs, rates, gpu.nic_per_gpu, group.gpus_per_node)
            hardware[gpu.name] = _hardware(gpu, actual, known)
        return cls(hardware, table)

    @classmethod
    def from_gpu_types(
        cls,
        gpu_types: Sequence[GpuType],
        table: CollectiveTable | None = None,
        constants: Constants | None = None,
        gpus_per_node: int = 8,
    ) -> Collectives:
        """Return the collectives of nodes in a network that is not oversubscribed.

        `gpus_per_node` counts only where every GPU has a network port of its own.
        """
        known = load_constants() if constants is None else constants
        return cls(
            {gpu.name: _hardware(gpu, Bandwidth.of_type(gpu, gpus_per_node), known) for gpu in gpu_types},
            table,
        )

    def latency_s(
        self,
        primitive: Primitive,
        volume_bytes: Numbers,
        gpu_type: str,
        group_size: Numbers,
        nodes_per_group: Numbers,
        concurrent_groups: Numbers = 1,
        locality: Numbers = Locality.LEAF,
    ) -> Floats:
        """Return seconds of one call; everything but `primitive` and `gpu_type` broadcasts.

        Parameters
        ----------
        primitive : Primitive
        volume_bytes : float or ndarray
            As `Primitive` names it. Zero costs nothing.
        gpu_type : str
        group_size : int or ndarray
            Ranks of the group. A group of one costs nothing.
        nodes_per_group : int or ndarray
            Nodes they lie on, evenly.
        concurrent_groups : int or ndarray
            Groups of this kind that run at once on the same nodes and share their network.
        locality : Locality or ndarray
            The lowest tier that joins the nodes; does not count inside a node.

        Raises
        ------
        InputError
            For an unknown GPU type or primitive, a volume that is negative or not finite, and a group that
            cannot be.
        """
        found = self.hardware.get(gpu_type)
        if found is None:
            raise InputError(f"unknown GPU type {gpu_type!r}", remedy=nearest(gpu_type, self.hardware))
        if primitive not in NAMES:
            raise InputError(f"unknown primitive {str(primitive)!r}", remedy=nearest(str(primitive), NAMES))
        given = (volume_bytes, group_size, nodes_per_group, concurrent_groups, locality)
        volume, ranks, nodes, sharing, tier = (np.asarray(value, dtype=np.float64) for value in given)
        _check(volume, ranks, nodes, sharing, tier)
        seconds = found.alpha_beta_s(primitive, volume, ranks, nodes, sharing, tier)
        if self._curves:
            seconds = self._measured(found, gpu_type, primitive, seconds, volume, ranks, nodes, sharing, tier)
        return np.asarray(np.where((volume > 0) & (ranks > 1), seconds, 0.0))

    def fingerprint(self) -> dict[str, object]:
        """Return what latencies depend on, as plain JSON values."""
        return {
            "table": None if self.table is None else self.table.sha256,
            "hardware": {name: repr(hardware) for name, hardware in sorted(self.hardware.items())},
        }

    def _measured(
        self,
        hardware: Hardware,
        gpu_type: str,
        primitive: Primitive,
        seconds: Floats,
        *axes: Floats,
    ) -> Floats:
        """Replace seconds where there is a measured curve of the group."""
        shape = np.broadcast_shapes(*(axis.shape for axis in axes))
        volume, ranks, nodes, sharing, tier = (np.broadcast_to(axis, shape) for axis in axes)
        out = np.broadcast_to(seconds, shape).copy()
        kinds = {(int(r), int(n), int(s)) for r, n, s in _unique(*axes[1:4])}
        for kind in sorted(kinds):
            curve = self._curve(Group(gpu_type, primitive, *kind))
            if curve is None:
                continue
            here = (ranks == kind[0]) & (nodes == kind[1]) & (sharing == kind[2]) & (volume > 0)
            scale = np.broadcast_to(hardware.scale_to_reference(*kind, tier), shape)
            out[here] = curve.at(volume[here] * scale[here])
        return out

    def _curve(self, group: Group) -> Curve | None:
        """Return the curve of a group; inside a node, of the nearest number of groups at once."""
        found = self._curves.get(group)
        if found is not None or group.nodes > 1:
            return found
        alike = [other for other in self._curves if other[:4] == group[:4]]
        nearest_one = min(alike, key=lambda other: (abs(other.sharing - group.sharing), other), default=None)
        return None if nearest_one is None else self._curves[nearest_one]


def _unique(*axes: Floats) -> Floats:
    if all(axis.ndim == 0 for axis in axes):
        return np.array([axes])
    columns = [axis.ravel() for axis in np.broadcast_arrays(*axes)]
    return np.unique(np.stack(columns, axis=1), axis=0)


def _hardware(gpu: GpuType, actual: Bandwidth, constants: Constants) -> Hardware:
    if not (actual.link_gbs > 0 and min(actual.network_gbs) > 0):
        raise InputError(
            f"bandwidths of {gpu.name} must be above 0, not {actual.link_gbs:g} and "
            f"{min(actual.network_gbs):g} GB/s",
            field="link_gbs" if actual.link_gbs <= 0 else "nic_gbps",
            remedy="correct the GPU type",
        )
    reference = load_gpu_types().get(gpu.name, gpu)
    return Hardware(
        actual,
        Bandwidth.of_type(reference, actual.gpus_per_node),
        constants.link(gpu),
        constants.network(gpu),
    )


def _check(volume: Floats, ranks: Floats, nodes: Floats, sharing: Floats, tier: Floats) -> None:
    problems = (
        (~np.isfinite(volume) | (volume < 0), volume, "volume_bytes", "give bytes of at least 0"),
        (~(ranks >= 1), ranks, "group_size", "give at least 1"),
        (~(nodes >= 1), nodes, "nodes_per_group", "give at least 1"),
        (~(sharing >= 1), sharing, "concurrent_groups", "give at least 1"),
        (~((tier >= 0) & (tier <= max(Locality))), tier, "locality", "give a Locality"),
    )
    for wrong, values, field, remedy in problems:
        if wrong.any():
            raise InputError(f"{values[wrong].flat[0]:g} is not valid", field=field, remedy=remedy)
    if (nodes > ranks).any():
        raise InputError(
            "a group lies on more nodes than it has ranks",
            field="nodes_per_group",
            remedy="give at most group_size",
        )
