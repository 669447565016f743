"""Builds the oracle that a configuration names."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from clustergym.common.errors import InputError, nearest
from clustergym.common.parameters import build
from clustergym.oracle.base import Oracle
from clustergym.oracle.models.catalog import Catalog, load_catalog


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Keys of the configuration's group `oracle`; an oracle's own keys are the parameters of its class.

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
        """Return the oracle."""
        made_by = getattr(importlib.import_module(f"clustergym.oracle.{self.module}"), self.made_by)
        own = {key: value for key, value in vars(self).items() if key not in ("name", "models")}
        oracle: Oracle = made_by(catalog=catalog, **own)
        return oracle


@dataclass(frozen=True, kw_only=True)
class RooflineChoice(Choice):
    """Keys of `RooflineOracle`: none of its own."""

    module, made_by = "roofline.roofline_oracle", "RooflineOracle"


@dataclass(frozen=True, kw_only=True)
class TableChoice(Choice):
    """Keys of `TableOracle`."""

    module, made_by = "measured.table_oracle", "TableOracle"
    path: str
    missing: str = "infeasible"


@dataclass(frozen=True, kw_only=True)
class GridChoice(Choice):
    """Keys of `GridOracle`."""

    module, made_by = "grid.grid_oracle", "GridOracle"
    strategy: str = "frontier"
    micro_batches: str | int = "fixed"
    calibration: str | None = None
    schedule: str = "1f1b"
    overlap: bool = False


@dataclass(frozen=True, kw_only=True)
class SiaChoice(Choice):
    """Keys of `SiaProfileOracle`."""

    module, made_by = "measured.sia_oracle", "SiaProfileOracle"
    path: str
    batch: str = "fixed"
    calibrated: bool = True


@dataclass(frozen=True, kw_only=True)
class RecordedChoice(Choice):
    """Keys of `RecordedOracle`: none of its own."""

    module, made_by = "measured.recorded_oracle", "RecordedOracle"


ORACLES: dict[str, type[Choice]] = {
    "roofline": RooflineChoice,
    "sia": SiaChoice,
    "table": TableChoice,
    "grid": GridChoice,
    "recorded": RecordedChoice,
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
