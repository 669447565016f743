"""Builds the oracle that a configuration names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clustergym.inputs.errors import InputError, nearest
from clustergym.inputs.parameters import build
from clustergym.models.catalog import Catalog, load_catalog
from clustergym.oracle.base import Oracle


@dataclass(frozen=True, kw_only=True)
class Choice(ABC):
    """Keys of the configuration's group `oracle`; an oracle's own keys are described in its class.

    Attributes
    ----------
    name : str
    models : str or None
        A folder of further model files, or one file.
    """

    name: str
    models: str | None = None

    @abstractmethod
    def oracle(self, catalog: Catalog) -> Oracle:
        """Return the oracle."""


@dataclass(frozen=True, kw_only=True)
class RooflineChoice(Choice):
    """Keys of `roofline.RooflineOracle`."""

    def oracle(self, catalog: Catalog) -> Oracle:
        """Return the oracle."""
        from clustergym.oracle.roofline.roofline_oracle import RooflineOracle

        return RooflineOracle(catalog)


@dataclass(frozen=True, kw_only=True)
class TableChoice(Choice):
    """Keys of `table.TableOracle`."""

    path: str
    missing: str = "infeasible"

    def oracle(self, catalog: Catalog) -> Oracle:
        """Return the oracle."""
        from clustergym.oracle.measured.table_oracle import TableOracle

        return TableOracle(self.path, self.missing, catalog)


@dataclass(frozen=True, kw_only=True)
class GridChoice(Choice):
    """Keys of `grid.GridOracle`."""

    strategy: str = "frontier"
    micro_batches: str | int = "fixed"
    calibration: str | None = None
    schedule: str = "1f1b"
    overlap: bool = False

    def oracle(self, catalog: Catalog) -> Oracle:
        """Return the oracle."""
        from clustergym.oracle.grid.grid_oracle import GridOracle

        estimate = (self.strategy, self.micro_batches, self.schedule, self.overlap)
        return GridOracle(catalog, self.calibration, *estimate)


@dataclass(frozen=True, kw_only=True)
class SiaChoice(Choice):
    """Keys of `sia_oracle.SiaProfileOracle`."""

    path: str
    batch: str = "fixed"
    calibrated: bool = True

    def oracle(self, catalog: Catalog) -> Oracle:
        """Return the oracle."""
        from clustergym.oracle.measured.sia_oracle import SiaProfileOracle

        return SiaProfileOracle(self.path, self.batch, self.calibrated, catalog)


ORACLES: dict[str, type[Choice]] = {
    "roofline": RooflineChoice,
    "sia": SiaChoice,
    "table": TableChoice,
    "grid": GridChoice,
}
"""Keys by name."""


def oracle_from_config(mapping: Mapping[str, Any]) -> Oracle:
    """Return the oracle of the `oracle` group of the configuration.

    Parameters
    ----------
    mapping : mapping
        `name`, and the keys of that oracle's choice.

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
    given = {key: value for key, value in mapping.items() if value != "???"}
    choice: Choice = build(ORACLES[name], given, "oracle")
    return choice.oracle(load_catalog(extra=choice.models))
