"""Oracles by name, from a plain mapping of the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clustergym.errors import InputError, nearest
from clustergym.oracle.base import Oracle
from clustergym.oracle.catalog import Catalog, load_catalog
from clustergym.registry import build


@dataclass(frozen=True)
class RooflineChoice:
    """Configuration of the roofline oracle.

    Attributes
    ----------
    name : str
    models : str or None
        A folder of further model files, or one file.
    """

    name: str
    models: str | None = None


@dataclass(frozen=True)
class TableChoice:
    """Configuration of the table oracle.

    Attributes
    ----------
    name : str
    path : str
        CSV of measured iteration times.
    missing : str
        What an unmeasured cell is: `infeasible` or `estimate`.
    models : str or None
        A folder of further model files, or one file.
    """

    name: str
    path: str
    missing: str = "infeasible"
    models: str | None = None


@dataclass(frozen=True)
class GridChoice:
    """Configuration of the grid oracle.

    Attributes
    ----------
    name : str
    strategy : str
        How a grid is estimated: `frontier`, `least_bias` or `assembly`.
    micro_batches : str or int
        Of the estimate: `fixed`, `stages`, `four_stages`, or a number.
    calibration : str or None
        YAML of fitted constants, `conf/calibration/grid.yaml` by default.
    schedule : str
        Of pipelines: `1f1b` or `gpipe`.
    overlap : bool
        Let the estimate hide transfers between stages behind computation.
    models : str or None
        A folder of further model files, or one file.
    """

    name: str
    strategy: str = "frontier"
    micro_batches: str | int = "fixed"
    calibration: str | None = None
    schedule: str = "1f1b"
    overlap: bool = False
    models: str | None = None


@dataclass(frozen=True)
class SiaChoice:
    """Configuration of the oracle of Sia's profiles.

    Attributes
    ----------
    name : str
    path : str
        Folder of profiles, one folder per model in it.
    batch : str
        Global batch that jobs train at: `fixed`, their own or the one that their policy chooses, or `best`,
        under any policy the one that ends them soonest.
    calibrated : bool
        Lengthen the profiles' times as Sia's isolated run times are.
    models : str or None
        A folder of further model files, or one file.
    """

    name: str
    path: str
    batch: str = "fixed"
    calibrated: bool = True
    models: str | None = None


def _roofline(choice: RooflineChoice, catalog: Catalog) -> Oracle:
    from clustergym.oracle.roofline import RooflineOracle

    return RooflineOracle(catalog)


def _table(choice: TableChoice, catalog: Catalog) -> Oracle:
    from clustergym.oracle.table import TableOracle

    return TableOracle(choice.path, choice.missing, catalog)


def _grid(choice: GridChoice, catalog: Catalog) -> Oracle:
    from clustergym.oracle.grid import GridOracle

    return GridOracle(
        catalog,
        choice.calibration,
        choice.strategy,
        choice.micro_batches,
        choice.schedule,
        choice.overlap,
    )


def _sia(choice: SiaChoice, catalog: Catalog) -> Oracle:
    from clustergym.oracle.sia_oracle import SiaProfileOracle

    return SiaProfileOracle(choice.path, choice.batch, choice.calibrated, catalog)


ORACLES: dict[str, tuple[type[Any], Callable[[Any, Catalog], Oracle]]] = {
    "roofline": (RooflineChoice, _roofline),
    "sia": (SiaChoice, _sia),
    "table": (TableChoice, _table),
    "grid": (GridChoice, _grid),
}
"""Schema and builder by name."""


def oracle_from_config(mapping: Mapping[str, Any], catalog: Catalog | None = None) -> Oracle:
    """Return the oracle of the `oracle` group of the configuration.

    Parameters
    ----------
    mapping : mapping
        `name`, and the keys of that oracle's choice.
    catalog : Catalog, optional
        By default `conf/model`, with the models of the key `models`.

    Raises
    ------
    InputError
        For an unknown name, key or value (names the nearest), and a key that is missing.
    """
    if not isinstance(mapping, Mapping):
        raise InputError("must be a mapping of keys", field="oracle", remedy="give oracle.name")
    name = mapping.get("name")
    if not isinstance(name, str) or name not in ORACLES:
        message = "is missing" if name is None else f"unknown oracle {name!r}"
        raise InputError(message, field="oracle.name", remedy=nearest(str(name or ""), ORACLES))
    schema, make = ORACLES[name]
    given = {key: value for key, value in mapping.items() if value != "???"}
    choice = build(schema, given, "oracle")
    return make(choice, load_catalog(extra=choice.models) if catalog is None else catalog)
