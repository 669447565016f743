"""The kinds of disturbances: every file of this folder is one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from clustergym.scenarios.disturbance import Disturbance


def _kinds() -> Iterator[type[Disturbance]]:
    for file in sorted(pkgutil.iter_modules(__path__), key=lambda file: file.name):
        module = importlib.import_module(f"{__name__}.{file.name}")
        for found in vars(module).values():
            own = isinstance(found, type) and found.__module__ == module.__name__
            if own and issubclass(found, Disturbance):
                yield found


KINDS = {kind.key: kind for kind in _kinds()}
"""All kinds, by their keys under `scenario` in the configuration."""
