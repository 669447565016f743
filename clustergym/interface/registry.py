"""Find policies and placers by name, in this package and in installed plugins."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from clustergym import policies
from clustergym.inputs.errors import InputError, nearest, require
from clustergym.inputs.parameters import build
from clustergym.interface.policy import Placer, Policy


def _check_period(key: str, seconds: float | None) -> None:
    fits = seconds is None or 1e-3 <= seconds < 1e9
    require(fits, key, seconds, "give seconds from 0.001 to below a billion, or null")


T = TypeVar("T", Policy, Placer)

ENTRY_POINT_GROUPS = {"policy": "clustergym.policies", "placer": "clustergym.placers"}


@cache
def entry_points(group: str) -> Mapping[str, str]:
    """Return name -> `module:Class` of an entry-point group; of what is built in, its module alone.

    A file of `policies/` is a policy, and one of `policies/placers/` a placer; other packages name theirs
    in an entry point.
    """
    found = {point.name: point.value for point in metadata.entry_points(group=group)}
    return found | dict(_built_in(group))


def _built_in(group: str) -> Iterator[tuple[str, str]]:
    package = {"clustergym.policies": ["policies"], "clustergym.placers": ["policies", "placers"]}[group]
    for place in policies.__path__:
        for path in sorted(Path(place, *package[1:]).glob("[!_]*.py")):
            yield path.stem, ".".join(["clustergym", *package, path.stem])


def make_policy(parameters: Mapping[str, Any]) -> Policy:
    """Build a policy from its name and parameters, `{name: …, parameter: value, …}`.

    Raises
    ------
    InputError
        If a name or parameter is unknown, or a value has the wrong type.
    """
    policy = _make("policy", "clustergym.policies", Policy, parameters)  # type: ignore[type-abstract]
    _check_period("policy.round_s", policy.round_s)
    return policy


def make_placer(parameters: Mapping[str, Any]) -> Placer:
    """Build a placer from its name and parameters; raises as `make_policy`."""
    placer = _make("placer", "clustergym.placers", Placer, parameters)  # type: ignore[type-abstract]
    _check_period("placer.defragment_s", placer.defragment_s)
    return placer


def _make(kind: str, group: str, base: type[T], parameters: Mapping[str, Any]) -> T:
    given = dict(parameters)
    name = str(given.pop("name", ""))
    points = entry_points(group)
    if name not in points:
        raise InputError(f"unknown {kind} {name!r}", field=f"{kind}.name", remedy=nearest(name, points))
    made: T = build(class_of(kind, name), given, kind)
    return made


def class_of(kind: str, name: str) -> type[Any]:
    """Return the class of a policy or placer that is known by name.

    Raises
    ------
    InputError
        If it cannot be imported, or is of another kind.
    """
    base, group = {"policy": (Policy, "clustergym.policies"), "placer": (Placer, "clustergym.placers")}[kind]
    target = entry_points(group)[name]
    module, _, attribute = target.partition(":")
    try:
        loaded = importlib.import_module(module)
        made_by = getattr(loaded, attribute) if attribute else _only_class(loaded, base)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{kind} {name!r} cannot be loaded from {target}: {error}",
            field=f"{kind}.name",
            remedy="install what it needs, or mend its entry point",
        ) from error
    if not (isinstance(made_by, type) and issubclass(made_by, base)):
        message = f"{target} is not a {base.__name__}"
        raise InputError(message, field=f"{kind}.name", remedy="mend the entry point")
    lacks = ", ".join(sorted(getattr(made_by, "__abstractmethods__", ())))
    if lacks:
        raise InputError(f"{made_by.__name__} lacks {lacks}", field=f"{kind}.name", remedy="define it")
    return made_by


def _only_class(module: ModuleType, base: type[Any]) -> type[Any]:
    """Return the one class of a base that a module defines."""
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ImportError(f"it defines {len(found)} classes of {base.__name__}, not one")
    return found[0]


def parameters_of(made: Policy | Placer) -> dict[str, Any]:
    """Return the parameters of a policy or placer, by name."""
    if not dataclasses.is_dataclass(made):
        return {}
    return {f.name: getattr(made, f.name) for f in dataclasses.fields(made) if f.init}


def default_parameters(kind: str, name: str) -> dict[str, Any]:
    """Return the name of a policy or placer and the defaults of its parameters, as one mapping."""
    made_by = class_of(kind, name)
    parameters: dict[str, Any] = {"name": name}
    for f in (f for f in dataclasses.fields(made_by) if f.init):
        value = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        parameters[f.name] = "???" if value is dataclasses.MISSING else value
    return parameters
