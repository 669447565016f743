"""Simulator and benchmark of schedulers for clusters that train large models."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from clustergym.common.version import __version__
from clustergym.envs.registration import register_when_gymnasium_loads

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

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


class _CommandFinder:
    """Finds `clustergym.COMMAND`, so that `python -m clustergym.COMMAND` runs every command."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        package, _, command = name.removesuffix(".__main__").partition(".")
        if package != "clustergym" or "." in command:
            return None
        from importlib.util import find_spec, spec_from_file_location

        from clustergym.__main__ import find_command

        module = find_command(command)
        own = find_spec(module) if module else None
        # Without its folder a command that is a package can be run: Python runs no package.
        return spec_from_file_location(name, own.origin, submodule_search_locations=None) if own else None


# Last: what has a file of its own is found before.
sys.meta_path.append(_CommandFinder)
register_when_gymnasium_loads()
