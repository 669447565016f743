"""Builds the oracle that a configuration names, and splits its times into free links and traffic."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameters import build
from clustergym.oracle.base import Oracle, OracleTables, six_digits
from clustergym.oracle.models.catalog import Catalog, load_catalog


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Base class of an oracle's settings, given as keys of the configuration's group `oracle`.

    Attributes
    ----------
    module, made_by : str
        The oracle's class, which is imported only when it is asked for.
    name : str
    models : str or None
        A folder of further model files, or one file.
    """

    module: ClassVar[str]
    made_by: ClassVar[str]
    name: str
    models: str | None = None

    def oracle(self, catalog: Catalog) -> Oracle:
        """Build the chosen oracle."""
        made_by = getattr(importlib.import_module(f"clustergym.oracle.{self.module}"), self.made_by)
        own = {key: value for key, value in vars(self).items() if key not in ("name", "models")}
        oracle: Oracle = made_by(catalog=catalog, **own)
        return oracle


@dataclass(frozen=True, kw_only=True)
class RooflineChoice(Choice):
    """The configuration of the roofline oracle, which has no keys of its own."""

    module, made_by = "roofline.roofline_oracle", "RooflineOracle"


@dataclass(frozen=True, kw_only=True)
class TableChoice(Choice):
    """The configuration of the oracle that reads measured times from a CSV file."""

    module, made_by = "measured.table_oracle", "TableOracle"
    path: str
    missing: str = "infeasible"


@dataclass(frozen=True, kw_only=True)
class SiaChoice(Choice):
    """The configuration of the oracle that reads iteration times published with the scheduler Sia."""

    module, made_by = "measured.sia_oracle", "SiaProfileOracle"
    path: str
    batch: str = "fixed"
    calibrated: bool = True


@dataclass(frozen=True, kw_only=True)
class RecordedChoice(Choice):
    """The configuration of the oracle by which every iteration takes one second; it has no keys."""

    module, made_by = "measured.recorded_oracle", "RecordedOracle"


@dataclass(frozen=True, kw_only=True)
class GridChoice(Choice):
    """The configuration of the grid-based estimates of adaptive parallelism (Arena, EuroSys '26)."""

    module, made_by = "stacks.stack_oracle", "make_operators_oracle"
    stack: str = "alpa-2022"
    strategy: str = "frontier"
    overlap: bool = False


@dataclass(frozen=True, kw_only=True)
class StackChoice(Choice):
    """The configuration of the oracle that has for each model and GPU type a measured software stack."""

    module, made_by = "stacks.stack_oracle", "StackOracle"
    stack: str = "auto"
    year: int | None = None
    precision: str = "bf16"
    sequence_length: int | None = None
    segment: int | None = None
    strategy: str = "frontier"


ORACLES: dict[str, type[Choice]] = {
    "grid": GridChoice,
    "roofline": RooflineChoice,
    "sia": SiaChoice,
    "table": TableChoice,
    "recorded": RecordedChoice,
    "stack": StackChoice,
}
"""Keys by name."""


def oracle_from_config(mapping: Mapping[str, Any]) -> Oracle:
    """Build the oracle of iteration times from the configuration's group `oracle`: its name and keys.

    Parameters
    ----------
    mapping : mapping
        `name`, and the keys of that oracle's choice.
    """
    if not isinstance(mapping, Mapping):
        raise InputError("must be a mapping of keys", field="oracle", remedy="give oracle.name")
    name = mapping.get("name")
    if not isinstance(name, str) or name not in ORACLES:
        message = "is missing" if name is None else f"unknown oracle {name!r}"
        raise InputError(message, field="oracle.name", remedy=nearest(str(name or ""), ORACLES))
    given = {key: value for key, value in mapping.items() if value != "???"}
    choice: Choice = build(ORACLES[name], given, "oracle")
    return choice.oracle(load_catalog(extra=choice.models))


PROBE = 2.0
"""Least factor by which the network is slowed down to find how much of an iteration is traffic."""


def require_fabric(oracle: Oracle) -> None:
    """Raise an `InputError` if an oracle's times do not depend on the bandwidths of the cluster's network."""
    if not oracle.sees_fabric:
        raise InputError(
            f"the {oracle.name} oracle does not know how much of an iteration is traffic between nodes",
            field="scenario.contention",
            remedy="choose oracle=stack or oracle=roofline, or leave contention off",
        )


def with_oversubscription(cluster: ClusterSpec, spine: float, core: float) -> ClusterSpec:
    """Return a copy of the cluster with other oversubscription factors above its leaf switches."""
    fabric = replace(cluster.fabric, spine_oversubscription=spine, core_oversubscription=core)
    return replace(cluster, fabric=fabric)


def on_free_links(
    tables_of: Callable[[ClusterSpec], OracleTables], cluster: ClusterSpec
) -> tuple[OracleTables, Floats]:
    """Return iteration times without contention, and the seconds of each spent on traffic between switches.

    On free links a node's network is as fast across minipods as inside a leaf. To find the traffic, the
    tables are built again with the network above the leaves slowed down by a factor: the fabric's own
    oversubscription over that of a leaf, at least `PROBE`. Traffic is the increase of the iteration time
    divided by (factor - 1). So free time + (factor - 1) x traffic is the oracle's time at that factor; at
    another factor the oracle might choose another plan.

    Parameters
    ----------
    tables_of : callable
        Builds the tables of a cluster.
    cluster : ClusterSpec

    Returns
    -------
    OracleTables, ndarray of float, shape (C, T, K, 4)
        The traffic is in seconds per iteration at execution speed; 0 inside a leaf, and where infeasible.
    """
    leaf = cluster.fabric.leaf_oversubscription
    slow = [
        max(PROBE * leaf, factor)
        for factor in (cluster.fabric.spine_oversubscription, cluster.fabric.core_oversubscription)
    ]
    free = tables_of(with_oversubscription(cluster, leaf, leaf))
    slower = tables_of(with_oversubscription(cluster, *slow)).execution
    traffic_s = np.zeros_like(free.execution)
    for tier, factor in zip((Locality.MINIPOD, Locality.CROSS), slow, strict=True):
        fits = np.isfinite(free.execution[..., tier]) & np.isfinite(slower[..., tier])
        longer = np.where(fits, slower[..., tier], 0.0) - np.where(fits, free.execution[..., tier], 0.0)
        traffic_s[..., tier] = np.maximum(longer, 0.0) / (factor / leaf - 1.0)
    return free, six_digits(traffic_s)
