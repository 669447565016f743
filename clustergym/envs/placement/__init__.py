"""Placement of a pre-training job over minipods: instances, spread, the environment."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return `PlacementEnv`, which Gymnasium finds in this package, when it is first used."""
    if name != "PlacementEnv":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from clustergym.envs.placement.environment import PlacementEnv

    return PlacementEnv
