"""The disturbances: every file of this folder is one."""

from __future__ import annotations

import importlib
import pkgutil

from clustergym.scenario.disturbance import Disturbance

_FILES = [importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]

DISTURBANCES: dict[str, type[Disturbance]] = {
    found.key: found
    for file in _FILES
    for found in vars(file).values()
    if isinstance(found, type) and issubclass(found, Disturbance) and found is not Disturbance
}
"""All disturbances, by their keys under `scenario` in the configuration; in order of their files' names."""
