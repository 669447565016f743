"""The interface of every performance oracle, and the dense tables the simulator reads."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from clustergym.cluster.spec import ClusterSpec
from clustergym.workload.trace import ModelClass

if TYPE_CHECKING:
    from clustergym.oracle.catalog import Catalog

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OracleTables:
    """Seconds per iteration of C model classes; inf where the class does not fit in memory.

    Values carry six significant digits, so that a last-bit difference between two
    machines' mathematics cannot change a simulation.

    Attributes
    ----------
    classes : tuple of ModelClass
        Axis C.
    gpu_types : tuple of str
        Axis T, in the cluster's order.
    counts : ndarray of int, shape (K,)
        GPU counts, ascending.
    execution : ndarray of float, shape (C, T, K, 4)
        What jobs run at: the best adaptive parallelism; last axis `Locality`.
    profiled : ndarray of float, shape (C, T, K, 4)
        Estimates of the same, after profiling; inf exactly where `execution` is.
    data_parallel : ndarray of float, shape (C, T, K, 4)
        Profiles of pure data parallelism, with its own memory limit.
    """

    classes: tuple[ModelClass, ...]
    gpu_types: tuple[str, ...]
    counts: Ints
    execution: Floats
    profiled: Floats
    data_parallel: Floats

    @property
    def sha256(self) -> str:
        """Digest of axes and values."""
        digest = hashlib.sha256(repr((self.classes, self.gpu_types, self.counts.tolist())).encode())
        for table in (self.execution, self.profiled, self.data_parallel):
            digest.update(np.ascontiguousarray(table, dtype="<f8").tobytes())
        return digest.hexdigest()


class Oracle(ABC):
    """Knows how fast a model class trains on an allocation of one cluster.

    Attributes
    ----------
    name : str
    catalog : Catalog
        The models it knows by their dimensions.
    worth_caching : bool
        Whether its tables take so long to build that they are kept on disk.
    sees_fabric : bool
        Whether its times follow from the bandwidths of the cluster's fabric.
    """

    name: str
    catalog: Catalog
    worth_caching: bool = False
    sees_fabric: bool = False

    @abstractmethod
    def tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Return the dense tables of the classes.

        Raises
        ------
        InputError
            If a class is unknown to the oracle; names the nearest known ones.
        """

    @abstractmethod
    def fingerprint(self) -> dict[str, object]:
        """Return what the tables depend on besides the arguments, as plain JSON values."""


def six_digits(values: Floats) -> Floats:
    """Round to six significant decimal digits; inf stays inf."""
    flat = [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64).ravel()]
    return np.array(flat, dtype=np.float64).reshape(np.shape(values))
