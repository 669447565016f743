"""Simulator and benchmark of schedulers for clusters that train large models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clustergym.common.other_names import find_other_names
from clustergym.common.version import __version__
from clustergym.envs.registration import register_when_gymnasium_loads

if TYPE_CHECKING:
    from clustergym.results.measured_run import Result, simulate
    from clustergym.scenario.by_name import load_scenario
    from clustergym.scenario.policy import Decision, InformationClass, Policy, View

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
    "load_scenario": "scenario.by_name",
    "simulate": "results.measured_run",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import clustergym` stays light."""
    if name not in __all__:
        raise AttributeError(f"module 'clustergym' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"clustergym.{_HOMES.get(name, 'scenario.policy')}"), name)


find_other_names()
register_when_gymnasium_loads()
