"""Finds policies and placers by name, wherever they were installed from."""

from __future__ import annotations

import dataclasses
import importlib
import tomllib
import types
import typing
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

from clustergym.errors import InputError, nearest, require
from clustergym.paths import PACKAGE
from clustergym.policy import Placer, Policy


def _check_period(key: str, seconds: float | None) -> None:
    fits = seconds is None or 1e-3 <= seconds < 1e9
    require(fits, key, seconds, "give seconds from 0.001 to below a billion, or null")


T = TypeVar("T", Policy, Placer)


@cache
def entry_points(group: str) -> Mapping[str, str]:
    """Return name -> `module:Class` of an entry-point group.

    A bare clone that was never installed has no entry points of its own; its
    pyproject.toml says what they would be.
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
    """Build a policy from `{name: …, parameter: value, …}`.

    Raises
    ------
    InputError
        For an unknown name or parameter, or a value of the wrong type.
    """
    policy = _make("policy", "clustergym.policies", Policy, parameters)  # type: ignore[type-abstract]
    _check_period("policy.round_s", policy.round_s)
    return policy


def make_placer(parameters: Mapping[str, Any]) -> Placer:
    """Build a placer from `{name: …, parameter: value, …}`; raises as `make_policy`."""
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
            f"{points[name]} is no {base.__name__}", field=f"{kind}.name", remedy="mend the entry point"
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


def build(made_by: type[Any], given: Mapping[str, Any], where: str) -> Any:
    """Build a dataclass from a mapping, checking names and types.

    Raises
    ------
    InputError
        For an unknown key, a missing one, a value of the wrong type, or where there is no mapping.
    """
    require(isinstance(given, Mapping), where, given, "give its keys")
    hints = typing.get_type_hints(made_by)
    known = {f.name: f for f in dataclasses.fields(made_by) if f.init}
    for key in given:
        if key not in known:
            raise InputError(f"unknown key {key!r}", field=f"{where}.{key}", remedy=nearest(key, known))
    values = {key: checked(value, hints[key], f"{where}.{key}") for key, value in given.items()}
    for name, f in known.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise InputError("is missing", field=f"{where}.{name}", remedy=f"give {where}.{name}=…")
    return made_by(**values)


def checked(value: Any, hint: Any, where: str) -> Any:
    """Return `value` as its hint has it: a plain type, literal or dataclass; optional, mapping or tuple."""
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    for option in options:
        origin = typing.get_origin(option) or option
        if value is None and option is type(None):
            return None
        if origin is float and isinstance(value, int | float) and not isinstance(value, bool):
            if value != value:
                break
            return float(value)
        if origin is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        plain = str if origin is typing.Literal else origin
        if plain in (str, bool) and isinstance(value, plain):
            return value if plain is origin else _one_of(typing.get_args(option), value, where)
        if origin is tuple and isinstance(value, list | tuple):
            return tuple(checked(item, typing.get_args(option)[0], where) for item in value)
        if isinstance(origin, type) and dataclasses.is_dataclass(origin) and isinstance(value, Mapping):
            return build(origin, value, where)
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
            inner = typing.get_args(option)[1]
            return {str(key): checked(item, inner, f"{where}.{key}") for key, item in value.items()}
    wanted = " or ".join(_shown(option) for option in options)
    raise InputError(
        f"{value!r} is no {wanted.replace('NoneType', 'null')}",
        field=where,
        remedy=f"give a {wanted.split(' or ')[0]}",
    )


def _one_of(known: tuple[str, ...], value: str, where: str) -> str:
    if value not in known:
        raise InputError(f"unknown value {value!r}", field=where, remedy=nearest(value, known))
    return value


def _shown(option: Any) -> str:
    if dataclasses.is_dataclass(option):
        return f"mapping of {', '.join(f.name for f in dataclasses.fields(option))}"
    return "str" if typing.get_origin(option) is typing.Literal else getattr(option, "__name__", str(option))


def parameters_of(made: Policy | Placer) -> dict[str, Any]:
    """Return the parameters a policy or placer was built with, by name."""
    if not dataclasses.is_dataclass(made):
        return {}
    return {f.name: getattr(made, f.name) for f in dataclasses.fields(made) if f.init}


def default_parameters(kind: str, name: str) -> dict[str, Any]:
    """Return `{name: …}` and the default value of every parameter of a policy or placer."""
    group = {"policy": "clustergym.policies", "placer": "clustergym.placers"}[kind]
    made_by = _load(kind, name, entry_points(group)[name])
    parameters: dict[str, Any] = {"name": name}
    for f in (f for f in dataclasses.fields(made_by) if f.init):
        value = f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        parameters[f.name] = "???" if value is dataclasses.MISSING else value
    return parameters
