"""Parts of GPUs: scores, fragments and accounting, by hand and over random requests."""

import os
from itertools import pairwise

import numpy as np
import pytest
from clustergym.papers.fgd import at_arrived_pct
from clustergym.papers.filling import fill

from clustergym.cluster.parts import Nodes, Requests, distinct, empty_nodes
from clustergym.common.errors import InputError
from clustergym.sim.parts.fragmentation import UsualRequests, find_usual_requests
from clustergym.sim.parts.placement import PlacedRequest, compute_fragments, place, release, score_nodes
from clustergym.sim.parts.placers import PLACERS

HALF, WHOLE, CPU_ONLY, SMALL, RESIDENT = range(5)
REQUESTS = Requests(
    cpu_milli=np.array([1000, 8000, 2000, 1000, 4000]),
    memory_mib=np.zeros(5, dtype=np.int64),
    gpus=np.array([1, 1, 0, 1, 1]),
    gpu_milli=np.array([500, 1000, 0, 200, 700]),
    models=np.ones(5, dtype=np.int64),
)
USUAL = UsualRequests(
    cpu_milli=REQUESTS.cpu_milli[:3],
    gpus=REQUESTS.gpus[:3],
    gpu_milli=REQUESTS.gpu_milli[:3],
    models=REQUESTS.models[:3],
    share=np.array([0.5, 0.25, 0.25]),
)


def one_node_in_use() -> Nodes:
    """Return a node of 8 cores and 2 GPUs: 4 cores and 700 thousandths of GPU 0 are taken."""
    nodes = empty_nodes(np.array([8000]), np.array([100]), np.array([2]), np.array([0]))
    assert place(nodes, REQUESTS, RESIDENT, "best-fit", USUAL) == PlacedRequest(0, 0b01)
    return nodes


@pytest.mark.slow
def test_fragments_of_a_node() -> None:
    nodes = one_node_in_use()
    assert nodes.gpu_milli.tolist() == [[300, 1000]]
    # 1,300 are idle. HALF fits and cannot use the 300; CPU_ONLY uses none of 1,300; WHOLE lacks CPU.
    assert compute_fragments(nodes, USUAL).tolist() == [0.5 * 300 + 0.25 * 1300 + 0.25 * 1300]
    # With HALF on GPU 1, 800 are idle, of which HALF cannot use 300, and WHOLE and CPU_ONLY nothing.
    place(nodes, REQUESTS, HALF, "fgd", USUAL)
    assert nodes.gpu_milli.tolist() == [[300, 500]]
    assert compute_fragments(nodes, USUAL).tolist() == [0.5 * 300 + 0.25 * 800 + 0.25 * 800]


@pytest.mark.parametrize(
    ("placer", "kind", "score", "device"),
    [
        # Free: 4 of 8 cores, 1.3 of 2 GPUs. 100 (1 - (4/8 x 1/8 + 1.3/2 x 0.5/2) / 2) = 88.75.
        ("dot-product", HALF, 88, 1),
        # Left: 3 of 8 cores, 0.8 of 2 GPUs. 100 (1 - (0.5 x 3/8 + 0.5 x 0.8/2)) = 61.25.
        ("best-fit", HALF, 61, 1),
        # 25 x 700 / 2000 = 8.75; a node of parts of GPUs alone: 75 more.
        ("gpu-clustering", HALF, 83, 1),
        ("gpu-clustering", CPU_ONLY, 0, -1),
        # HALF needs the untouched GPU; SMALL fits beside what is there: 100 - 300 / 100.
        ("gpu-packing", HALF, 49, 1),
        ("gpu-packing", SMALL, 97, 0),
        ("random-fit", HALF, 0, 1),
        # Fragments fall from 800 to 550: 100 / (1 + exp(-0.25)) = 56.2.
        ("fgd", HALF, 56, 1),
        # 4 cores are left, and WHOLE asks for 8.
        ("fgd", WHOLE, -1, -1),
    ],
)
def test_scores_by_hand(placer: str, kind: int, score: int, device: int) -> None:
    value, chosen = score_nodes(one_node_in_use(), REQUESTS, kind, placer, USUAL)
    assert (value.tolist(), chosen.tolist()) == ([score], [device])


def test_equal_scores_go_to_the_lowest_rank() -> None:
    both = np.array([8000, 8000])
    nodes = empty_nodes(both, both, np.array([1, 1]), np.array([0, 0])).with_ranks(np.array([1, 0]))
    assert place(nodes, REQUESTS, WHOLE, "best-fit", USUAL) == PlacedRequest(1, 1)
    assert place(nodes, REQUESTS, WHOLE, "best-fit", USUAL) == PlacedRequest(0, 1)
    assert place(nodes, REQUESTS, SMALL, "best-fit", USUAL) is None


def test_unknown_placer_is_one_line() -> None:
    with pytest.raises(InputError, match=r"unknown placer 'fdg'.*fgd"):
        score_nodes(one_node_in_use(), REQUESTS, HALF, "fdg", USUAL)


def test_usual_requests_cover_95_per_cent() -> None:
    # 19 of 20 are of the two commoner kinds: 10 + 9 = 95 %.
    kinds = np.repeat([HALF, WHOLE, CPU_ONLY], [9, 10, 1])
    usual = find_usual_requests(Requests(*(column[kinds] for column in REQUESTS)), [""] * 20)
    assert usual.gpu_milli.tolist() == [1000, 500]
    assert usual.share == pytest.approx([10 / 19, 9 / 19])


def test_the_curve_is_a_mean_over_each_per_cent() -> None:
    # 1,000 installed: 4 and 4.4 round to 4 % and 4 %, 12 to 1 %: nothing at 2 and 3 %.
    arrived, used = np.array([12, 40, 44]), np.array([10, 20, 40])
    curve = at_arrived_pct(arrived, used, 1000)
    assert curve[[1, 4]].tolist() == [1.0, 3.0]
    # 2 % takes the mean of 1 to 3 %, 3 % that of 2 to 4 %; 0 % has a neighbour as well.
    assert curve[[0, 2, 3, 5]].tolist() == [1.0, 1.0, 3.0, 3.0]
    assert np.isnan(curve[6])


def _random_cluster(rng: np.random.Generator) -> tuple[Nodes, Requests, UsualRequests]:
    number = 12
    cpu, memory = rng.integers(1, 64, (2, number)) * 1000
    nodes = empty_nodes(cpu, memory, rng.integers(0, 9, number), rng.integers(0, 3, number))
    gpus = rng.choice([0, 1, 1, 1, 2, 4, 8], 40)
    milli = np.where(
        gpus == 0, 0, np.where((gpus == 1) & (rng.random(40) < 0.7), rng.integers(1, 1000, 40), 1000)
    )
    rows = Requests(rng.integers(0, 9000, 40), rng.integers(0, 9000, 40), gpus, milli, rng.integers(1, 8, 40))
    return nodes, rows, find_usual_requests(rows, ["" for _ in range(40)])


def test_nothing_is_booked_twice_and_all_is_given_back() -> None:
    """Random requests come and go; `SHARING_ACTIONS=100000` takes more of them."""
    rng = np.random.default_rng(0)
    nodes, rows, usual = _random_cluster(rng)
    before, resident = nodes.copy(), []
    for _ in range(int(os.environ.get("SHARING_ACTIONS", "2000"))):
        if resident and rng.random() < 0.45:
            kind, placed = resident.pop(int(rng.integers(len(resident))))
            release(nodes, rows, kind, placed)
        else:
            kind = int(rng.integers(len(rows.gpus)))
            value, _ = score_nodes(nodes, rows, kind, "best-fit", usual)
            placed = place(nodes, rows, kind, PLACERS[int(rng.integers(len(PLACERS)))], usual)
            assert (placed is None) == bool((value < 0).all())
            resident += [(kind, placed)] if placed else []
        _check(before, nodes, rows, resident)
    for kind, placed in resident:
        release(nodes, rows, kind, placed)
    for name in ("cpu_milli", "memory_mib", "gpu_milli", "hosted"):
        assert np.array_equal(getattr(nodes, name), getattr(before, name)), name


def _check(before: Nodes, nodes: Nodes, rows: Requests, resident: list[tuple[int, PlacedRequest]]) -> None:
    """What is free and what residents have are all there is; whole devices are nobody else's."""
    cpu, memory, gpu = before.cpu_milli.copy(), before.memory_mib.copy(), before.gpu_milli.copy()
    for kind, (at, devices) in resident:
        cpu_milli, memory_mib, gpus, milli, models = rows.unpack_row(kind)
        assert bin(devices).count("1") == gpus
        assert gpus == 0 or (models >> int(nodes.model[at])) & 1
        cpu[at] -= cpu_milli
        memory[at] -= memory_mib
        gpu[at] -= [milli * ((devices >> place) & 1) for place in range(gpu.shape[1])]
    assert min(cpu.min(), memory.min(), gpu.min()) >= 0
    assert np.array_equal(nodes.cpu_milli, cpu)
    assert np.array_equal(nodes.memory_mib, memory)
    assert np.array_equal(nodes.gpu_milli, gpu)


@pytest.mark.parametrize("placer", PLACERS)
def test_known_scores_change_nothing(placer: str) -> None:
    # `fill` keeps scores until a node changes; `place` scores every node anew.
    rng = np.random.default_rng(1)
    nodes, rows, usual = _random_cluster(rng)
    kinds, kind = distinct(rows)
    arrivals = kind[rng.integers(len(kind), size=120)]
    found = fill(nodes.copy(), kinds, arrivals, usual, placer, 0)
    assert (np.diff(found.used_milli, prepend=0) >= 0).all()
    assert np.array_equal(found.node >= 0, (np.diff(found.used_milli, prepend=0) > 0) | (found.node >= 0))
    if placer == "random-fit":
        again = [fill(nodes.copy(), kinds, arrivals, usual, placer, seed).node.tolist() for seed in (0, 0, 1)]
        assert [first == second for first, second in pairwise(again)] == [True, False]
        return
    for at, one in enumerate(arrivals.tolist()):
        placed = place(nodes, kinds, one, placer, usual) or PlacedRequest(-1, 0)
        assert placed == (found.node[at], found.devices[at])
        assert compute_fragments(nodes, usual).sum() == pytest.approx(found.fragments_milli[at])
