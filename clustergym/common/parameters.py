"""Check parameters against the types of dataclass fields, which carry their bounds, by pydantic.

What pydantic refuses becomes one line here: the key, the value, and a remedy made from the type.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Collection, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

from clustergym.common.errors import InputError, UnknownKeywordError, nearest, require, require_known
from clustergym.common.parameter_types import Condition, OneOf

UNITS = {
    "gpu_s": "GPU-seconds",
    "s": "seconds",
    "seconds": "seconds",
    "rounds": "seconds",
    "h": "hours",
    "gbs": "GB/s",
}
"""Units by what the name of a key has in it."""
NOUNS: dict[Any, tuple[str, str]] = {
    float: ("a number", "numbers"),
    int: ("a whole number", "whole numbers"),
    str: ("a text", "texts"),
    bool: ("true or false", "truth values"),
}
BOUNDS = {"gt": "above", "ge": "from", "lt": "below", "le": "up to"}


class Parameters:
    """Base of dataclasses that check their fields' types and bounds when they are created."""

    config_key: ClassVar[str]
    """Where the configuration has them, as errors name it."""

    def __post_init__(self) -> None:
        check_fields(self, self.config_key)


def build(made_by: Any, given: Mapping[str, Any], where: str, beside: Collection[str] = ()) -> Any:
    """Make a dataclass instance from a mapping; check names, types, bounds; ignore the keys in `beside`."""
    require(isinstance(given, Mapping), where, given, "give its keys")
    known = {f.name: f for f in dataclasses.fields(made_by) if f.init}
    for key in given:
        require_known(key, [*known, *beside], "key", f"{where}.{key}")
    hints = _hints(made_by)
    values = {key: check_value(given[key], hints[key], f"{where}.{key}") for key in given if key in known}
    for name, f in known.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in values:
            key = f"{where}.{name}".strip(".")
            raise InputError("is missing", field=key, remedy=f"give {key}=…")
    return made_by(**values)


def build_from_keywords(made_by: Any, given: Mapping[str, Any], where: str) -> Any:
    """Make a dataclass instance from keyword arguments, with the checks of `build`.

    Raises
    ------
    UnknownKeywordError
        If there is no such keyword.
    InputError
        As of `build`.
    """
    known = [f.name for f in dataclasses.fields(made_by) if f.init]
    for key in given:
        if key not in known:
            message = f"unexpected keyword argument {key!r}"
            raise UnknownKeywordError(message, field=f"{where}.{key}", remedy=nearest(key, known))
    return build(made_by, given, where)


def check_fields(made: Any, where: str) -> None:
    """Raise an `InputError` for the first field of a dataclass whose value does not match its type."""
    hints = _hints(made.__class__)
    for f in dataclasses.fields(made):
        if f.init:
            check_value(getattr(made, f.name), hints[f.name], f"{where}.{f.name}")


def check_value(value: Any, hint: Any, where: str) -> Any:
    """Check that a value has a type, and convert it: a whole number to a float, a list to a tuple."""
    if hint is Any:
        return value
    options = _options(hint)
    only = options[0] if len(options) == 1 else None
    if isinstance(only, type) and dataclasses.is_dataclass(only):
        if isinstance(value, Mapping):
            return build(only, value, where)
        if isinstance(value, only):
            check_fields(value, where)
        if isinstance(value, only) or (value is None and only is not hint):
            return value
        raise _make_type_error(value, hint, where, {"dataclass_type"})
    if isinstance(value, Mapping) and typing.get_origin(only) in (Mapping, dict):
        inner = typing.get_args(only)[1]
        return {str(key): check_value(item, inner, f"{where}.{key}") for key, item in value.items()}
    from pydantic import ValidationError

    listed = isinstance(value, list) and tuple in (typing.get_origin(_bare(option)) for option in options)
    plain = tuple(value) if listed else value
    try:
        return _adapter(hint).validate_python(plain)
    except ValidationError as error:
        told = error.errors(include_url=False, include_context=False)
    error_types, at = {each["type"] for each in told}, told[0]["loc"]
    if only is not None and at and isinstance(at[0], int) and isinstance(plain, list | tuple):
        value, hint, error_types = plain[at[0]], typing.get_args(_bare(only))[0], {told[0]["type"]}
    raise _make_type_error(value, hint, where, error_types)


def describe_type(hint: Any, key: str = "") -> str:
    """Describe in words what a type accepts, such as "a number above 0, up to 1", with its unit."""
    *first, last = [word for option in _options(hint) for word in _names(option) or [_words(option, key)]]
    words = f"{', '.join(map(str, first))} or {last}" if first else str(last)
    return words + (", or null" if type(None) in typing.get_args(hint) else "")


def _make_type_error(value: Any, hint: Any, where: str, error_types: set[str]) -> InputError:
    options, remedy = _options(hint), f"give {describe_type(hint, where)}"
    names = [name for option in options for name in _names(option)]
    if any(type(value) is type(name) for name in names):
        remedy = nearest(str(value), map(str, names)) if len(options) == 1 else remedy
        return InputError(f"unknown value {value!r}", field=where, remedy=remedy)
    if all(
        error_type.endswith("_type") or error_type in ("literal_error", "is_instance_of")
        for error_type in error_types
    ):
        shown = " or ".join(_name_type(option) for option in options)
        article = "an" if shown[0] in "aeiou" else "a"
        return InputError(f"{value!r} is not {article} {shown}", field=where, remedy=remedy)
    return InputError(f"{value} is not valid", field=where, remedy=remedy)


@cache
def _hints(made_by: Any) -> dict[str, Any]:
    """Return the types of a dataclass's fields; any, if they name what only type checkers import."""
    try:
        return typing.get_type_hints(made_by, include_extras=True)
    except NameError:
        return dict.fromkeys((f.name for f in dataclasses.fields(made_by)), Any)


@cache
def _adapter(hint: Any) -> Any:
    """Return pydantic's validator of a type, or of any value if it does not know the type."""
    from pydantic import ConfigDict, PydanticUserError, TypeAdapter

    config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    try:
        return TypeAdapter(hint, config=config)
    except PydanticUserError:
        return TypeAdapter(Any)


@cache
def _options(hint: Any) -> tuple[Any, ...]:
    """Return the types of a union, without None."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    options = typing.get_args(hint) if union else (hint,)
    return tuple(option for option in options if option is not type(None))


def _bare(option: Any) -> Any:
    return typing.get_args(option)[0] if typing.get_origin(option) is Annotated else option


def _marks(option: Any) -> list[Any]:
    """Return the markers of an annotated type, such as its bounds."""
    given = typing.get_args(option)[1:] if typing.get_origin(option) is Annotated else ()
    return [mark for marker in given for mark in getattr(marker, "metadata", [marker])]


def _names(option: Any) -> tuple[Any, ...]:
    if typing.get_origin(option) is Literal:
        return typing.get_args(option)
    return tuple(name for mark in _marks(option) if isinstance(mark, OneOf) for name in mark.names)


def _name_type(option: Any) -> str:
    bare = typing.get_origin(_bare(option)) or _bare(option)
    if dataclasses.is_dataclass(bare):
        return f"mapping of {', '.join(f.name for f in dataclasses.fields(bare))}"
    if bare is Literal:
        return type(_names(option)[0]).__name__
    names: dict[Any, str] = {tuple: "list", Mapping: "mapping"}
    return names.get(bare) or str(getattr(bare, "__name__", bare))


def _words(option: Any, key: str) -> str:
    bare, marks = _bare(option), _marks(option)
    several = typing.get_origin(bare) is tuple
    if several:
        bare, marks = _bare(typing.get_args(bare)[0]), [*marks, *_marks(typing.get_args(bare)[0])]
    singular, plural = NOUNS.get(bare, (f"a {_name_type(bare)}", f"values of {_name_type(bare)}"))
    if any(hasattr(mark, "min_length") for mark in marks):
        noun = f"at least one {singular.removeprefix('a ')}"
    else:
        unit = next((unit for end, unit in UNITS.items() if f"_{end}_" in f"_{key.replace('.', '_')}_"), None)
        noun = unit if unit and bare is float else plural if several else singular
    return " ".join([noun, *_bounds(marks)])


def _bounds(marks: list[Any]) -> list[str]:
    given = ((name, getattr(mark, name, None)) for name in BOUNDS for mark in marks)
    limits = {name: f"{limit:,}".removesuffix(".0") for name, limit in given if limit is not None}
    if limits.keys() == {"ge", "le"}:
        return [f"from {limits['ge']} to {limits['le']}"]
    told = ", ".join(f"{BOUNDS[name]} {limit}" for name, limit in limits.items())
    return [*filter(None, [told]), *(mark.words for mark in marks if isinstance(mark, Condition))]
