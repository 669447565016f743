"""Find policies and placers by name, in this package and in installed plugins."""

from __future__ import annotations

import dataclasses
import importlib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

from clustergym.inputs.errors import InputError, nearest, require
from clustergym.inputs.parameters import build
from clustergym.inputs.paths import PACKAGE
from clustergym.interface.policy import Placer, Policy


def _check_period(key: str, seconds: float | None) -> None:
    fits = seconds is None or 1e-3 <= seconds < 1e9
    require(fits, key, seconds, "give seconds from 0.001 to below a billion, or null")


T = TypeVar("T", Policy, Placer)


@cache
def entry_points(group: str) -> Mapping[str, str]:
    """Return the entry points of a group: name -> `module:Class`.

    A clone that was never installed has no entry points of its own, so they are read from its
    pyproject.toml.
    """
    found = dict(_declared(group))
    for point in metadata.entry_points(group=group):
        found[point.name] = point.value
    return found


def _declared(group: str) -> Mapping[str, str]:
    project = PACKAGE.parent / "pyproject.toml"
    if not project.is_file():
        return {}
    tables = tomllib.loads(project.read_text(encoding="utf-8"))
    declared: Mapping[str, str] = tables["project"]["entry-points"].get(group, {})
    return declared


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
    made_by = _load(kind, name, points[name])
    if not (isinstance(made_by, type) and issubclass(made_by, base)):
        raise InputError(
            f"{points[name]} is not a {base.__name__}", field=f"{kind}.name", remedy="mend the entry point"
        )
    made: T = build(made_by, given, kind)
    return made


def _load(kind: str, name: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"{kind} {name!r} cannot be loaded from {target}: {error}",
            field=f"{kind}.name",
            remedy="install what it needs, or mend its entry point",
        ) from error


def parameters_of(made: Policy | Placer) -> dict[str, Any]:
    """Return the parameters of a policy or placer, by name."""
    if not dataclasses.is_dataclass(made):
        return {}
    return {f.name: getattr(made, f.name) for f in dataclasses.fields(made) if f.init}


def default_parameters(kind: str, name: str) -> dict[str, Any]:
    """Return the name of a policy or placer and the defaults of its parameters, as one mapping."""
    group = {"policy": "clustergym.policies", "placer": "clustergym.placers"}[kind]
    made_by = _load(kind, name, entry_points(group)[name])
    parameters: dict[str, Any] = {"name": name}
    for f in (f for f in dataclasses.fields(made_by) if f.init):
        value = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        parameters[f.name] = "???" if value is dataclasses.MISSING else value
    return parameters
