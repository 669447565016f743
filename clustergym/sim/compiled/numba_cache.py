"""Compiles functions by Numba; without Numba they run as plain Python."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

FOLDERS = (
    "agents",
    "envs",
    "envs/capacity",
    "envs/sharing",
    "envs/vector",
    "results/bounds",
    "results/metrics",
    "scenario",
    "scenario/tenants",
    "sim",
    "sim/compiled",
    "sim/parts",
)
"""Folders of compiled functions; they call each other, so a change in one outdates the code of all."""

DECORATED = re.compile(rb"^@(?:compile|entry)_|^\w+ = compile_fields\(|^ *let_compiled_call\(", re.MULTILINE)
IMPORT = re.compile(rb"^from (clustergym[\w.]*) import (\([^)]*\)|[^(\n]*)", re.MULTILINE)
WORD = re.compile(rb"\w+")

PART = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_numba: Any
_caching: Any
_libraries: Any
try:
    import numba
    import numba.extending
    from numba.core import caching

    from clustergym.sim.compiled import numba_libraries

    _numba, _caching, _libraries = numba, caching, numba_libraries
except ImportError:  # pragma: no cover - the checks run with numba
    _numba = _caching = _libraries = None


def has_numba() -> bool:
    """Return whether Numba is installed; without it functions run as plain Python, far slower."""
    return _numba is not None


def compile_entry(function: F) -> F:
    """Compile a function of scalars and arrays by Numba at its first call, and cache it on disk.

    The compiled function does not hold Python's global lock. It must not call itself: Numba's cache does not
    keep such functions.
    """
    return _compile(function, {"_nrt": True})


def compile_part(function: F) -> F:
    """Compile a function for calls from compiled functions only, in less time than `compile_entry`."""
    return _compile(function, {**PART, "_nrt": True})


def compile_in_place(function: F) -> F:
    """Compile like `compile_part`, faster to call; the function may neither make nor return arrays.

    Counting them, one atomic instruction for each view of an array, took half of the time of a step.
    """
    return _compile(function, {**PART, "_nrt": False})


def entry_in_place(function: F) -> F:
    """Compile like `compile_entry`, faster to call; the function may neither make nor return arrays.

    A call from Python then takes less time too.
    """
    return _compile(function, {"_nrt": False})


def compile_inline(function: F) -> F:
    """Inline a function in the compiled functions that call it; it may return arrays to them."""
    return _compile(function, {"inline": "always"})


def compile_fields(made: Callable[..., T], arguments: str, value: str, **others: str) -> Callable[..., T]:
    """Return a function that makes a NamedTuple `made`, inlined in the compiled functions that call it.

    Numba has neither a loop over the fields of such a tuple nor `_replace`.

    Parameters
    ----------
    made : class of NamedTuple
    arguments : str
        Names of the function's arguments.
    value : str
        Of every field, an expression in which `{}` is the field's name.
    **others : str
        Of single fields, expressions that replace it.
    """
    fields = ", ".join(others.get(name, value).format(name) for name in made._fields)  # type: ignore[attr-defined]
    function = eval(f"lambda {arguments}: made({fields})", {"made": made, "np": np})
    return cast(Callable[..., T], _numba.njit(inline="always")(function) if _numba else function)


def let_compiled_call(function: Callable[..., Any], makes: bool = False) -> None:
    """Register a Python function to be compiled where compiled functions call it.

    Where Python calls it, it stays uncompiled. It must make no arrays or lists, unless it is said that it
    `makes` some.
    """
    if _numba is not None:
        _numba.extending.register_jitable(error_model="numpy", _nrt=makes)(function)


class Direct:
    """A compiled function that is always called with arguments of the same types, which saves time.

    Numba looks up the types of all arrays at each call, which takes longer than what it calls.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function: Any = function
        self._code: Callable[..., Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make a copy; machine code is no part of it."""
        return Direct, (self._function,)

    def __call__(self, *arguments: Any) -> Any:
        """Call the function; the first call chooses its machine code."""
        if self._code is not None:
            return self._code(*arguments)
        found = self._function(*arguments)
        if hasattr(self._function, "overloads"):
            types = tuple(map(_numba.typeof, arguments))
            self._code = self._function.overloads[types].entry_point
        return found


def _compile(function: F, options: dict[str, Any]) -> F:
    if _numba is None:
        return function
    is_part = "no_cpython_wrapper" in options
    options = {**options, "pipeline_class": _libraries.PartCompiler if is_part else _libraries.EntryCompiler}
    folder = _cache_dir()
    compiled = _numba.njit(nogil=True, error_model="numpy", **options)(function)
    if folder is None:
        return cast(F, compiled)
    before, caches = _numba.config.CACHE_DIR, _caching.FunctionCache._impl_class
    _numba.config.CACHE_DIR, caches._locator_classes = str(folder), [_locator()]
    try:
        compiled._cache = _libraries.CodeCache(function)
    finally:
        _numba.config.CACHE_DIR = before
        del caches._locator_classes
    return cast(F, compiled)


@cache
def _locator() -> Any:
    """Return the locator of Numba's machine code: one folder for all checkouts of equal sources."""

    class ByContent(_caching.FunctionCache._impl_class._locator_classes[0]):  # type: ignore[misc]
        @classmethod
        def get_suitable_cache_subpath(cls, py_file: str) -> str:
            return "-".join(Path(py_file).resolve().parts[-3:-1])

        def get_source_stamp(self) -> str:
            # Files outside of `FOLDERS`, as a policy's, have functions of their own.
            return hashlib.sha256(Path(self._py_file).read_bytes()).hexdigest()

    return ByContent


@cache
def announce_compilation(function: Callable[..., Any]) -> None:
    """Tell on stderr that a function is about to be compiled, unless its machine code is cached."""
    folder, name = _cache_dir(), f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}-*.nbi"
    if _numba is not None and (folder is None or not any(folder.rglob(name))):
        print("compiling the simulation, once, for up to a minute", file=sys.stderr, flush=True)


@cache
def _cache_dir() -> Path | None:
    """Return the folder of the machine code of these sources; None if there cannot be one."""
    digest = hashlib.sha256()
    for name, source in sorted(_sources().items()):
        digest.update(name.encode() + source)
    base = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "clustergym" / f"compiled-{digest.hexdigest()[:16]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def _sources() -> dict[str, bytes]:
    """Return the files with compiled functions, and those beside them that these import, by their modules."""
    house = Path(__file__).parents[2]
    found = {
        ".".join(("clustergym", *path.relative_to(house).with_suffix("").parts)): path.read_bytes()
        for name in FOLDERS
        for path in (house / name).glob("*.py")
    }
    own = {name for name, source in found.items() if DECORATED.search(source)}
    imported = {
        module
        for name in own
        for package, names in IMPORT.findall(found[name])
        for module in (package, *(package + b"." + one for one in WORD.findall(names)))
    }
    imported.add(b"clustergym.sim.compiled.numba_libraries")
    return {name: source for name, source in found.items() if name in own or name.encode() in imported}
