"""Compares what environments return."""

from typing import Any

import numpy as np


def assert_same(mine: Any, other: Any, where: str) -> None:
    """Compare what two environments return, exactly."""
    if isinstance(other, dict):
        assert set(mine) == set(other), where
        for name in other:
            assert_same(mine[name], other[name], f"{where}.{name}")
    elif isinstance(other, tuple | list):
        assert len(mine) == len(other), where
        for at, value in enumerate(other):
            assert_same(mine[at], value, f"{where}[{at}]")
    elif isinstance(other, np.ndarray) and other.dtype == object:
        for at, value in enumerate(other):
            assert_same(mine[at], value, f"{where}[{at}]")
    elif isinstance(other, np.ndarray):
        assert mine.dtype == other.dtype, where
        np.testing.assert_array_equal(mine, other, err_msg=where)
    else:
        assert mine == other or (mine != mine and other != other), where
