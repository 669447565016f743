"""Simulator and benchmark of schedulers for clusters that train large models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clustergym.envs.registration import register_when_gymnasium_loads

if TYPE_CHECKING:
    from clustergym.api import Result, load_scenario, simulate
    from clustergym.policy import Decision, InformationClass, Policy, View

__version__ = "0.1.0"

__all__ = ["Decision", "InformationClass", "Policy", "Result", "View", "load_scenario", "simulate"]

_HOMES = {"Result": "api", "load_scenario": "api", "simulate": "api"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import clustergym` stays light."""
    if name not in __all__:
        raise AttributeError(f"module 'clustergym' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"clustergym.{_HOMES.get(name, 'policy')}"), name)


register_when_gymnasium_loads()
