"""Build dataclasses from unchecked mappings, checking their keys and types."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import Any

from clustergym.inputs.errors import InputError, nearest, require

_hints: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)


def build(made_by: type[Any], given: Mapping[str, Any], where: str, beside: Collection[str] = ()) -> Any:
    """Build a dataclass from a mapping, checking names and types; keys in `beside` are left to others.

    Raises
    ------
    InputError
        If a key is unknown or missing, a value has the wrong type, or `given` is not a mapping.
    """
    require(isinstance(given, Mapping), where, given, "give its keys")
    hints = _hints(made_by)
    known = {f.name: f for f in dataclasses.fields(made_by) if f.init}
    for key in given:
        if key not in known and key not in beside:
            remedy = nearest(key, [*known, *beside])
            raise InputError(f"unknown key {key!r}", field=f"{where}.{key}", remedy=remedy)
    values = {key: checked(given[key], hints[key], f"{where}.{key}") for key in given if key in known}
    for name, f in known.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise InputError("is missing", field=f"{where}.{name}", remedy=f"give {where}.{name}=…")
    return made_by(**values)


def checked(value: Any, hint: Any, where: str) -> Any:
    """Check and convert a value to its type hint; raises as `build`.

    A hint is a plain type, a literal or a dataclass, or an optional, mapping or tuple of these.
    """
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
    article = "an" if wanted[0] in "aeiou" else "a"
    raise InputError(
        f"{value!r} is not {article} {wanted.replace('NoneType', 'null')}",
        field=where,
        remedy=f"give {article} {wanted.split(' or ')[0]}",
    )


def _one_of(known: tuple[str, ...], value: str, where: str) -> str:
    if value not in known:
        raise InputError(f"unknown value {value!r}", field=where, remedy=nearest(value, known))
    return value


def _shown(option: Any) -> str:
    if dataclasses.is_dataclass(option):
        return f"mapping of {', '.join(f.name for f in dataclasses.fields(option))}"
    return "str" if typing.get_origin(option) is typing.Literal else getattr(option, "__name__", str(option))
