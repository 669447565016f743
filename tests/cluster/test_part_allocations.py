"""Parts of nodes: who holds what, and what is refused without a trace."""

import numpy as np
import pytest

from clustergym.cluster.allocation import AllocationError, PartAllocations
from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.parts import Parts, Place, Requests

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,100,2,T4\nb,4000,50,1,A10\n"
HALF, WHOLE, TWO, CPU, LARGE, ROOMY, ON_A10 = range(7)


@pytest.fixture
def held(tmp_path):
    """Two nodes: 8 cores, 100 MiB and 2 T4; 4 cores, 50 MiB and an A10. A row for each request above."""
    (tmp_path / "nodes.csv").write_text(NODES)
    cluster = load_cluster(str(tmp_path / "nodes.csv"))
    requests = Requests(
        cpu_milli=np.array([1000, 1000, 1000, 2000, 8001, 0, 0]),
        memory_mib=np.array([10, 10, 10, 0, 0, 101, 0]),
        gpus=np.array([1, 1, 2, 0, 0, 0, 1]),
        gpu_milli=np.array([500, 1000, 1000, 0, 0, 0, 1000]),
        models=np.array([3, 3, 3, 3, 3, 3, 1 << cluster.models.index("A10")]),
    )
    parts = Parts(requests, np.arange(7), ("",) * 6 + ("A10",), np.ones(7, dtype=np.bool_))
    return PartAllocations(cluster, parts)


def free_of(held):
    nodes = held.nodes
    return nodes.cpu_milli.tolist(), nodes.memory_mib.tolist(), nodes.gpu_milli.tolist()


def give(held, row, node, device=-1):
    held.allocate(row, held.intend(row, Place(node, device)))


def test_what_is_held_is_gone_and_comes_back(held):
    whole = free_of(held)
    give(held, HALF, 0, 1)
    give(held, WHOLE, 0)
    give(held, CPU, 1)
    # The half is of the second device, so the first is the untouched one.
    assert free_of(held) == ([6000, 2000], [80, 50], [[0, 500], [1000, 0]])
    assert held.node_of[[HALF, WHOLE, CPU]].tolist() == [0, 0, 1]
    assert held.devices_of[[HALF, WHOLE, CPU]].tolist() == [2, 1, 0]
    assert [held.count_gpus(row) for row in (HALF, TWO, CPU)] == [1, 2, 1]
    for row in (HALF, WHOLE, CPU):
        held.release(row)
        assert held.node_of[row] == -1
    assert free_of(held) == whole


@pytest.mark.parametrize(
    ("row", "node", "device", "message"),
    [
        (HALF, 2, 0, "holder 0: no node 2 is in use"),
        (HALF, -1, 0, "holder 0: no node -1 is in use"),
        (LARGE, 0, -1, "holder 4: node 0 has too little CPU or memory"),
        (ROOMY, 0, -1, "holder 5: node 0 has too little CPU or memory"),
        (ON_A10, 0, -1, "holder 6: node 0 has GPUs of a model that it does not accept"),
        (HALF, 0, 2, "holder 0: GPU 2 of node 0 has not 500 free"),
        (HALF, 1, 1, "holder 0: GPU 1 of node 1 has not 500 free"),
        (HALF, 0, -1, "holder 0: GPU -1 of node 0 has not 500 free"),
        (TWO, 1, -1, "holder 2: 2 GPUs on node 1, 1 are free"),
    ],
)
def test_a_place_that_does_not_do_changes_nothing(held, row, node, device, message):
    before = free_of(held)
    with pytest.raises(AllocationError, match=f"^{message}$"):
        held.intend(row, Place(node, device))
    assert free_of(held) == before


def test_a_device_in_part_is_no_whole_one(held):
    give(held, HALF, 0, 0)
    with pytest.raises(AllocationError, match="2 GPUs on node 0, 1 are free"):
        held.intend(TWO, Place(0, -1))
    with pytest.raises(AllocationError, match="holder 0 already holds a part of node 0"):
        give(held, HALF, 0, 1)


def test_only_a_chosen_place_is_given(held):
    for chosen, given in ((None, (0, ((0, 1),))), (0, (1, ((0, 1),))), (0, (0, ((1, 1),)))):
        if chosen is not None:
            held.intend(chosen, Place(0, 0))
        with pytest.raises(AllocationError, match="which no placer chose for it"):
            held.allocate(*given)
    with pytest.raises(AllocationError, match="holder 0 holds nothing to release"):
        held.release(HALF)
    with (
        pytest.raises(AllocationError, match="divisible nodes cannot be kept for planned jobs"),
        held.hidden([0]),
    ):
        pass
    with held.hidden([]):
        pass


def test_a_failed_node_has_nothing_until_it_is_repaired(held):
    give(held, HALF, 0, 0)
    with pytest.raises(AllocationError, match="node 0 cannot be taken out of use: a job holds a part of it"):
        held.fail(0)
    held.release(HALF)
    whole, version = free_of(held), int(held.nodes.version[0])
    held.fail(0)
    assert free_of(held) == ([0, 4000], [0, 50], [[0, 0], [1000, 0]])
    with pytest.raises(AllocationError, match="no node 0 is in use"):
        held.intend(HALF, Place(0, 0))
    held.repair(0)
    assert free_of(held) == whole
    assert int(held.nodes.version[0]) == version + 2
