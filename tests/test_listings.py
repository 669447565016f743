"""What is used where nobody says otherwise: defaults of functions, and numbers that modules name.

A line of `golden/defaults.txt` or `golden/constants.txt` that changes may change results, so each change has
to be meant: `GOLDEN=write python -m pytest -n 0 tests/test_listings.py` writes both files.
"""

import ast
import dataclasses
import enum
import hashlib
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from golden_texts import GOLDEN, check_lines
from pydantic import BaseModel

import clustergym
from clustergym.common.parameters import Parameters

LONGEST = 160
"""A longer value is told by its digest."""
INDEXES = re.compile(r"clustergym\.(sim\.columns|envs\.vector|envs\.sharing\.state|envs\.racks\.step)\b")
"""Modules that name columns of arrays by numbers, which mean nothing outside."""
OPTIONAL = ("clustergym.envs.tenants_parallel",)
"""Modules that cannot be imported without packages that no extra has."""


@cache
def modules() -> tuple[ModuleType, ...]:
    """Return all modules of the package; those whose packages are not installed are left out."""
    pytest.importorskip("torch")
    pytest.importorskip("numba")
    found = []
    for one in pkgutil.walk_packages(clustergym.__path__, "clustergym."):
        if not one.name.endswith(".__main__") and one.name not in OPTIONAL:
            found.append(importlib.import_module(one.name))
    return tuple(sorted(found, key=lambda module: module.__name__))


class UnknownKindError(Exception):
    """Raised for a value that has no text that is the same in every process."""


def told(value: object) -> str:
    """Return the text of a value of numbers, texts, and what is made of them; the same in every process."""
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, np.generic):
        return told(value.item())
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return repr(value)
    if isinstance(value, re.Pattern):
        return repr(value.pattern)
    if inspect.isfunction(value) or inspect.isclass(value):
        return value.__name__
    return told_of_parts(value)


def told_of_parts(value: object) -> str:
    """Return the text of what is made of other values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [(one.name, getattr(value, one.name)) for one in dataclasses.fields(value)]
        return f"{type(value).__name__}({', '.join(f'{name}={told(inner)}' for name, inner in fields)})"
    if isinstance(value, tuple | list):
        name = type(value).__name__ if hasattr(value, "_fields") else ""
        return f"{name}({', '.join(map(told, value))})"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(map(told, value)))}}}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{told(name)}: {told(inner)}' for name, inner in value.items())}}}"
    raise UnknownKindError(type(value))


def shortened(value: object) -> str:
    """Return the text of a value, of a long one its beginning and digest."""
    text = told(value)
    if len(text) <= LONGEST:
        return text
    return f"{text[:60]}… {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def functions(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Yield the functions and methods that a module defines, by qualified name."""
    for name, value in sorted(vars(module).items()):
        if getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for inner, method in sorted(vars(value).items()):
                method = getattr(method, "__func__", method)
                if inspect.isfunction(method):
                    yield f"{name}.{inner}", method


def defaults_of(function: object) -> str:
    """Return what a function's arguments are that are left out."""
    shown = []
    for one in inspect.signature(function).parameters.values():  # type: ignore[arg-type]
        if one.default is not one.empty and one.name != "argv":
            try:
                shown.append(f"{one.name}={shortened(one.default)}")
            except UnknownKindError:
                shown.append(f"{one.name}: {type(one.default).__name__}")
    return ", ".join(shown)


def schemas(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the models of files that a module defines, with what is left out and how strict they are."""
    for name, value in sorted(vars(module).items()):
        own = getattr(value, "__module__", None) == module.__name__
        if own and inspect.isclass(value) and issubclass(value, BaseModel):
            given = value.__pydantic_fields__.items()
            fields = {key: one.default for key, one in given if not one.is_required()}
            shown = [f"{key}={shortened(one)}" for key, one in fields.items() if told_or_none(one)]
            shown += [f"{key}: {one}" for key, one in sorted(value.model_config.items())]
            yield name, ", ".join(shown)


def told_or_none(value: object) -> str | None:
    """Return the text of a value, None if it has none."""
    try:
        return told(value)
    except UnknownKindError:
        return None


def test_what_arguments_are_that_are_left_out() -> None:
    lines = []
    for module in modules():
        inner = []
        for name, function in functions(module):
            of, _, method = name.partition(".")
            known = method == "__init__" and issubclass(vars(module)[of], Parameters)
            known &= module.__name__.startswith(("clustergym.scenario.", "clustergym.envs."))
            if not known and (shown := defaults_of(function)):  # Others are in tests/scenario/defaults.txt.
                inner.append(f"  {name}: {shown}")
        inner += [f"  {name}: {shown}" for name, shown in schemas(module) if shown]
        lines += [module.__name__.removeprefix("clustergym."), *inner] if inner else []
    check_lines("defaults.txt", lines)


def constants(module: ModuleType) -> Iterator[str]:
    """Yield a line for each name that a module gives to numbers, or to what is made of them."""
    path = module.__file__
    tree = ast.parse(Path(path).read_text(encoding="utf-8") if path else "")
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
        names = [node.id for one in targets for node in ast.walk(one) if isinstance(node, ast.Name)]
        for name in names:
            if re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name):
                value = vars(module)[name]
                text = told_or_none(value)
                plain = isinstance(value, str | bytes | re.Pattern) or callable(value)
                composed = hasattr(value, "_fields") or dataclasses.is_dataclass(value)
                if text and not plain and (composed or re.search(r"\d|None|True|False|\w\(", text)):
                    yield f"  {name} = {shortened(value)}"


def test_numbers_that_modules_name() -> None:
    lines = []
    for module in modules():
        inner = [] if INDEXES.match(module.__name__) else list(constants(module))
        lines += [module.__name__.removeprefix("clustergym."), *inner] if inner else []
    check_lines("constants.txt", lines)


@pytest.mark.parametrize("name", ["defaults.txt", "constants.txt"])
def test_a_listing_can_be_read(name: str) -> None:
    assert (GOLDEN / name).stat().st_size < 60_000
