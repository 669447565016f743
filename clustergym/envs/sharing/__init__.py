"""Placement of requests for parts of GPUs: streams of requests, the environment."""

from __future__ import annotations

from importlib import import_module
from typing import Any

MODULES = {"SharingEnv": "environment", "SharingVectorEnv": "vector"}
"""Class that Gymnasium finds in this package -> its module, which is imported when it is first used."""


def __getattr__(name: str) -> Any:
    """Return one of `MODULES`' classes."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
