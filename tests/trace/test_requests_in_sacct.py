"""GPUs of a row of sacct: what it was given, else what it asked for, else what it asked for on each node."""

from pathlib import Path

import pytest

from clustergym.trace.readers.sacct import NO_TRES, _gpus, _Row

PARTS = "MIG devices or shares, no whole GPUs"


@pytest.mark.parametrize(
    ("cells", "gpus"),
    [
        ({"allocated": "gres/gpu:a100=4,gres/gpu=4", "asked": "gres/gpu=8"}, (4, "A100", False, "")),
        ({"asked": "cpu=2,gres/gpu=8", "per_node": "gpu:2", "nodes": "3"}, (8, "", True, "")),
        ({"per_job": "gres/gpu:4", "per_node": "N/A", "nodes": "3"}, (4, "", True, "")),
        ({"per_node": "gpu:a100:2", "nodes": "3"}, (6, "A100", True, "")),
        ({"per_node": "gres:gpu:3090:2", "nodes": "2-4"}, (4, "3090", True, "")),
        ({"per_node": "gpu:2"}, (2, "", True, "")),
        ({"per_node": "gpu:2", "nodes": "1000000"}, (2, "", True, "")),  # No number of nodes.
        ({"nodes": "3"}, (0, "", False, "CPU job")),
        ({"per_node": "N/A", "allocated": "cpu=8", "nodes": "3"}, (0, "", False, "CPU job")),
        ({"per_node": "N/A", "nodes": "3"}, (0, "", False, NO_TRES)),
        ({"allocated": "cpu=8,gres/gpu:a100_1g.5gb=1,gres/gpu=1"}, (0, "", False, PARTS)),
        ({"per_node": "gres/shard:2"}, (0, "", False, PARTS)),
    ],
)
def test_gpus(cells: dict[str, str], gpus: tuple[int, str, bool, str]) -> None:
    at = {name: place for place, name in enumerate(cells)}
    assert _gpus(_Row(Path("sacct.txt"), 2, list(cells.values()), at)) == gpus
