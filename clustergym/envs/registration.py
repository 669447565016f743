"""The registration of environments with Gymnasium.

`import clustergym` must stay light, and Gymnasium imports NumPy. So where Gymnasium's registry
is loaded already the table is entered at once, and where it is not, as soon as it is loaded.
Gymnasium itself is never imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from clustergym.common.errors import InputError, nearest
from clustergym.scenario.environments import ENVIRONMENTS

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    import gymnasium

REGISTRY_MODULE = "gymnasium.envs.registration"


def register_envs() -> None:
    """Register this package's environments with Gymnasium, except those that are registered already."""
    from importlib import import_module

    _enter(import_module(REGISTRY_MODULE))


def register_when_gymnasium_loads() -> None:
    """Have the environments registered as soon as Gymnasium is imported, without importing it."""
    if not any(getattr(finder, "registers_clustergym", False) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())
    if REGISTRY_MODULE in sys.modules:
        register_envs()


def make_env(mapping: Mapping[str, Any], render_mode: str | None = None) -> gymnasium.Env[Any, Any]:
    """Make the environment that a mapping `{id: …, parameter: value, …}` describes."""
    import gymnasium

    register_envs()
    given = dict(mapping)
    name = given.pop("id", None)
    known = [row.id for row in ENVIRONMENTS]
    if name not in known:
        message = "is missing" if name is None else f"unknown environment {name!r}"
        raise InputError(message, field="env.id", remedy=nearest(str(name), known))
    made: gymnasium.Env[Any, Any] = gymnasium.make(name, render_mode=render_mode, **given)
    return made


def _enter(registration: ModuleType) -> None:
    for row in ENVIRONMENTS:
        if row.id not in registration.registry:
            registration.register(
                row.id,
                entry_point=row.entry_point,
                vector_entry_point=row.vector_entry_point,
                kwargs=dict(row.kwargs),
                reward_threshold=row.reward_threshold,
            )


class _AfterGymnasium:
    """An import hook: when another finder loads Gymnasium's registry, it enters the table."""

    registers_clustergym = True

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != REGISTRY_MODULE:
            return None
        # Which loader it is, is for the others to say: this hook only adds to what that one executes.
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    # On the instance: its class, and all else the loader can do, stay as they are.
                    spec.loader.exec_module = _then_enter(spec.loader.exec_module)  # type: ignore[assignment, method-assign]
                return spec
        return None


def _then_enter(execute: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
    def execute_and_enter(module: ModuleType) -> None:
        execute(module)
        # A loader may serve several modules, as those of archives do.
        if module.__name__ == REGISTRY_MODULE:
            _enter(module)

    return execute_and_enter
