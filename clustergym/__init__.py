"""Simulator and benchmark of schedulers for clusters that train large models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clustergym.envs.registration import register_when_gymnasium_loads
from clustergym.inputs.version import __version__

if TYPE_CHECKING:
    from clustergym.interface.policy import Decision, InformationClass, Policy, View
    from clustergym.results.measured_run import Result, simulate
    from clustergym.scenarios.by_name import load_scenario

__all__ = [
    "Decision",
    "InformationClass",
    "Policy",
    "Result",
    "View",
    "__version__",
    "load_scenario",
    "simulate",
]

_HOMES = {
    "Result": "results.measured_run",
    "load_scenario": "scenarios.by_name",
    "simulate": "results.measured_run",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import clustergym` stays light."""
    if name not in __all__:
        raise AttributeError(f"module 'clustergym' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"clustergym.{_HOMES.get(name, 'interface.policy')}"), name)


register_when_gymnasium_loads()
