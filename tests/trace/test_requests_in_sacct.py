"""GPUs of a row of sacct: what it was given, else what it asked for, else what it asked for on each node."""

from __future__ import annotations

from typing import Any, cast

import pytest

from clustergym.trace.readers.sacct import _gpus


class Row:
    """A row of which some cells are known."""

    def __init__(self, **cells: str) -> None:
        self.cells = cells

    def text(self, name: str) -> str:
        return self.cells.get(name, "")

    def count(self, name: str) -> float:
        return float(self.cells.get(name, "0"))


@pytest.mark.parametrize(
    ("cells", "gpus"),
    [
        ({"allocated": "gres/gpu:a100=4,gres/gpu=4", "asked": "gres/gpu=8"}, (4, "A100", False)),
        ({"asked": "cpu=2,gres/gpu=8", "per_node": "gpu:2", "nodes": "3"}, (8, "", True)),
        ({"per_node": "gpu:a100:2", "nodes": "3"}, (6, "A100", True)),
        ({"per_node": "gpu:2"}, (2, "", True)),
        ({"per_node": "gpu:2", "nodes": "1000000"}, (2, "", True)),  # No number of nodes.
        ({"nodes": "3"}, (0, "", False)),
    ],
)
def test_gpus(cells: dict[str, str], gpus: tuple[int, str, bool]) -> None:
    assert _gpus(cast(Any, Row(**cells))) == gpus
