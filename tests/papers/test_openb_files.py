"""Lists of nodes and pods, and files of orders beside them."""

from pathlib import Path

import numpy as np
import pytest
from clustergym.papers.openb import read_nodes, read_orders, read_requests
from refusals import refused

from clustergym.common.errors import InputError

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


@refused("openb-orders")
def test_orders_of_other_lists_are_one_line(given, said, tmp_path):
    with said.of_error(tmp_path):
        read_orders(written(tmp_path, **(GOOD | given)), "default", 3, 2)


def test_what_is_no_file_of_orders_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"default\.npz: node_rank_7: is missing \(add it to arrivals_7\)"):
        read_orders(written(tmp_path, arrivals_7=[0]), "default", 3, 2)
    (tmp_path / "orders" / "default.npz").write_text("no npz")
    with pytest.raises(InputError, match=r"default\.npz: is not an npz file of arrays"):
        read_orders(tmp_path, "default", 3, 2)


def test_nodes_and_pods_by_hand(tmp_path):
    (tmp_path / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\na,8000,100,2,T4\nb,1000000000,50,0,\nc,9000,70,1,A10\n"
    )
    nodes, models = read_nodes(tmp_path / "nodes.csv")
    assert (models, nodes.model.tolist(), nodes.devices.tolist()) == (("A10", "T4"), [1, 0, 0], [2, 0, 1])
    assert (nodes.cpu_milli.tolist(), nodes.memory_mib.tolist()) == ([8000, 10**9, 9000], [100, 50, 70])
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
        "p,1000,10,1,500,T4|A10\nq,1000000000,0,0,0,\nr,0,5,2,1000,T4\ns,0,5,1,1,A10\n"
    )
    requests, accepted = read_requests(tmp_path / "pods.csv", models)
    assert accepted == ["T4|A10", "", "T4", "A10"]
    assert (requests.gpus.tolist(), requests.gpu_milli.tolist()) == ([1, 0, 2, 1], [500, 0, 1000, 1])
    assert (requests.cpu_milli.tolist(), requests.memory_mib.tolist()) == ([1000, 10**9, 0, 0], [10, 0, 5, 5])
    # A bit for each model.
    assert requests.models.tolist()[::2] == [3, 2]
    assert requests.models.tolist()[3] == 1


@refused("openb-requests")
def test_pods_that_ask_for_what_there_is_not(given, said, tmp_path):
    (tmp_path / "pods.csv").write_text(f"cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n{given}\n")
    with said.of_error(tmp_path):
        read_requests(tmp_path / "pods.csv", ("A10", "T4"))
