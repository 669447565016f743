"""Numba where it is installed; the same functions as plain Python where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

try:
    from numba import njit as _njit
except ImportError:  # pragma: no cover - the checks run with numba
    _njit = None


def compiled(function: F) -> F:
    """Compile a function of scalars and arrays on its first call; machine code is kept on disk."""
    if _njit is None:
        return function
    return cast(F, _njit(cache=True)(function))
