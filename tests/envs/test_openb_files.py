"""Files of orders beside lists of pods: of arrivals, and of nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from clustergym.common.errors import InputError
from clustergym.envs.sharing.openb import read_orders

GOOD = {"arrivals_7": [0, 2, 2], "node_rank_7": [1, 0], "about": [5]}


def written(folder: Path, **arrays: list[float]) -> Path:
    (folder / "orders").mkdir(exist_ok=True)
    np.savez(folder / "orders" / "default.npz", **{key: np.array(value) for key, value in arrays.items()})
    return folder


def test_orders_are_known_by_their_seeds(tmp_path):
    assert read_orders(tmp_path, "default", 3, 2) == {}
    folder = written(tmp_path, **GOOD, arrivals_3=[1], node_rank_3=[0, 1])
    found = read_orders(folder, "default", 3, 2)
    assert list(found) == [3, 7]
    assert (found[7].arrivals.tolist(), found[7].node_rank.tolist()) == ([0, 2, 2], [1, 0])
    assert (found[3].arrivals.tolist(), found[3].node_rank.tolist()) == ([1], [0, 1])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"arrivals_7": [0, 3]}, r"default\.npz: arrivals_7: names row 3 of 3 \("),
        ({"arrivals_7": [0, -1]}, r"default\.npz: arrivals_7: names row 0 of 3 \("),
        ({"arrivals_7": [0.5]}, r"default\.npz: arrivals_7: is not a row of whole numbers"),
        ({"arrivals_7": []}, r"default\.npz: arrivals_7: is not a row of whole numbers"),
        ({"arrivals_7": [[0, 1]]}, r"default\.npz: arrivals_7: is not a row of whole numbers"),
        ({"node_rank_7": [1, 1]}, r"default\.npz: node_rank_7: is not an order of the 2 nodes"),
        ({"node_rank_7": [0]}, r"default\.npz: node_rank_7: is not an order of the 2 nodes"),
        ({"node_rank_7": [2, 0]}, r"default\.npz: node_rank_7: names row 2 of 2"),
    ],
)
def test_orders_of_other_lists_are_one_line(tmp_path, changed, message):
    with pytest.raises(InputError, match=message):
        read_orders(written(tmp_path, **(GOOD | changed)), "default", 3, 2)


def test_what_is_no_file_of_orders_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"default\.npz: node_rank_7: is missing \(add it to arrivals_7\)"):
        read_orders(written(tmp_path, arrivals_7=[0]), "default", 3, 2)
    (tmp_path / "orders" / "default.npz").write_text("no npz")
    with pytest.raises(InputError, match=r"default\.npz: is not an npz file of arrays"):
        read_orders(tmp_path, "default", 3, 2)
