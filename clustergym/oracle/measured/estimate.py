"""Estimates missing iteration times from measured ones.

The roofline oracle's time is multiplied by a correction: the weighted geometric mean of measured over
roofline times. A measured row weighs exp(-distance), where the distance is a sum over what differs. So the
correction comes from the same model on the same device if that was measured, else mostly from neighbouring
sizes of the family, and further away it becomes one of the device or of all rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import GpuType, Locality
from clustergym.common.arrays import Floats
from clustergym.oracle.measured.iteration_times import Key
from clustergym.oracle.models.catalog import Catalog
from clustergym.oracle.models.model_class import ModelClass
from clustergym.oracle.models.model_spec import ModelSpec
from clustergym.oracle.roofline.devices import Devices, Layout
from clustergym.oracle.roofline.roofline_oracle import best_times
from clustergym.oracle.roofline.work import Work


class Distances(NamedTuple):
    """Distances between a measured row and the cell to estimate; its weight is exp(-their sum).

    Chosen so that the measured rows of Arena's artifact are estimated well from the rows of other models.
    With half or twice any one of the distances, the mean error changes by at most a fortieth of itself.

    Attributes
    ----------
    parameters, batch, gpus : float
        Per doubling.
    nodes, family, gpu_type : float
        One node against several; another family; another GPU type.
    prior : float
        Weight of the roofline itself, the weight of a row at distance 0 being 1.
    """

    parameters: float = 1.0
    batch: float = 0.5
    gpus: float = 2.0
    nodes: float = 2.0
    family: float = 2.0
    gpu_type: float = 3.0
    prior: float = 0.5


DISTANCES = Distances()


@dataclass(frozen=True)
class Corrections:
    """Ratios of measured to roofline times, of n rows.

    Attributes
    ----------
    keys : tuple of Key
    specs : tuple of ModelSpec
    log_ratio : ndarray of float, shape (n,)
        Natural logarithm.
    """

    keys: tuple[Key, ...]
    specs: tuple[ModelSpec, ...]
    log_ratio: Floats

    @staticmethod
    def of(
        seconds: Mapping[Key, float],
        types: Mapping[str, GpuType],
        catalog: Catalog,
        data_parallel: bool = False,
    ) -> Corrections:
        """Compare measured rows with the roofline.

        Parameters
        ----------
        seconds : mapping of Key to float
            Seconds of measured rows; those that do not fit, or whose model is not in the catalogue, do not
            count.
        types : mapping of str to GpuType
            GPU types by the names that the rows use; rows of other types do not count.
        catalog : Catalog
        data_parallel : bool
            Compare with pure data parallelism.
        """
        keys = [
            key
            for key, value in seconds.items()
            if np.isfinite(value) and key.gpu_type in types and catalog.knows(key.model)
        ]
        specs = [catalog.get(key.model) for key in keys]
        work = Work.of(specs, [key.model.global_batch for key in keys])
        gpus = [types[key.gpu_type] for key in keys]
        layout = Layout.of_nodes(gpus, [key.nodes for key in keys], [key.per_node for key in keys])
        roofline = best_times(work, Devices.of(gpus), layout)[2 if data_parallel else 0]
        kept = np.flatnonzero(np.isfinite(roofline))
        measured = np.array([seconds[keys[row]] for row in kept])
        resolved = [keys[row]._replace(gpu_type=gpus[row].name) for row in kept]
        ratio = np.log(measured / roofline[kept]) if len(kept) else np.empty(0)
        return Corrections(tuple(resolved), tuple(specs[row] for row in kept), ratio)

    def factors(
        self,
        classes: Sequence[ModelClass],
        specs: Sequence[ModelSpec],
        gpu_types: Sequence[str],
        counts: Sequence[int],
    ) -> Floats:
        """Return factors that correct roofline times, shape (C, T, K, 4)."""
        other_type = _differs(gpu_types, [key.gpu_type for key in self.keys])
        type_weights = np.exp(-DISTANCES.gpu_type * other_type)
        pairs = self._class_weights(classes, specs)[:, None, :] * type_weights
        near = self._layout_weights(counts)
        sums = np.einsum("ctn,kln->ctkl", pairs * self.log_ratio, near)
        weight = np.einsum("ctn,kln->ctkl", pairs, near)
        factors = np.exp(sums / (weight + DISTANCES.prior))
        return np.asarray(factors[..., [int(tier != Locality.NODE) for tier in Locality]])

    def _class_weights(self, classes: Sequence[ModelClass], specs: Sequence[ModelSpec]) -> Floats:
        size = _doublings([spec.parameters for spec in specs], [spec.parameters for spec in self.specs])
        batch = _doublings([c.global_batch for c in classes], [key.model.global_batch for key in self.keys])
        family = _differs([c.family for c in classes], [key.model.family for key in self.keys])
        d = DISTANCES
        return np.asarray(np.exp(-(d.parameters * size + d.batch * batch + d.family * family)))

    def _layout_weights(self, counts: Sequence[int]) -> Floats:
        """Return weights of counts on one node and on several, shape (K, 2, n)."""
        gpus = _doublings(counts, [key.nodes * key.per_node for key in self.keys])
        several = np.array([key.nodes > 1 for key in self.keys], dtype=np.float64)
        nodes = np.stack([several, 1 - several])
        return np.asarray(np.exp(-(DISTANCES.gpus * gpus[:, None] + DISTANCES.nodes * nodes)))


def _doublings(cells: Sequence[float], rows: Sequence[float]) -> Floats:
    ours, theirs = np.array(cells, dtype=np.float64), np.array(rows, dtype=np.float64)
    return np.asarray(np.abs(np.log2(ours)[:, None] - np.log2(theirs)))


def _differs(cells: Sequence[str], rows: Sequence[str]) -> Floats:
    differ = np.array(cells, dtype=np.str_)[:, None] != np.array(rows, dtype=np.str_)
    return np.asarray(differ, dtype=np.float64)
