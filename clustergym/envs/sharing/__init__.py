"""Placement of requests for parts of GPUs: streams of requests, the environment."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return `SharingEnv`, which Gymnasium finds in this package, when it is first used."""
    if name != "SharingEnv":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from clustergym.envs.sharing.environment import SharingEnv

    return SharingEnv
