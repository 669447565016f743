"""Gangs in racks that NVLink joins: their placement and moves, the environment."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return `RackEnv`, which Gymnasium finds in this package, when it is first used."""
    if name != "RackEnv":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from clustergym.envs.racks.environment import RackEnv

    return RackEnv
