"""What handing a micro-batch over between stages costs, by the nodes that both stages lie on."""

import numpy as np
import pytest
from grid_rows import allocation

from clustergym.oracle.grid.layer_costs import GraphAllocations, Machine
from clustergym.oracle.grid.pipelines import Layouts, Pipelines, crossings, price
from clustergym.oracle.models.model_spec import ModelClass

GPT = ModelClass("gpt3", "1.3B", 128)
CUTS = (0, 2, 5, 8)
"""Stages of operators 0 to 1, 2 to 4 and 5 to 7."""


def handed_over(gpus: tuple[int, ...], nodes: int) -> tuple[list[float], list[float], Machine]:
    """Return seconds between stages of three stages, and bytes of a sample at both boundaries."""
    rows, machine = allocation(GPT, gpus=sum(gpus), nodes=nodes, gpu="A40")
    first, last = np.array([CUTS[:-1]]), np.array([CUTS[1:]]) - 1
    one = np.ones((1, 3), dtype=np.int64)
    plans = Pipelines(np.array([3]), first, last, np.array([gpus]), one, 0 * one)
    # 128 samples in 16 micro-batches: 8 samples each.
    seconds = price(rows, machine, Layouts(rows, plans), np.array([16.0])).inter_stage_s[0]
    held = rows.columns["boundary_bytes"][0, 0]
    return seconds.tolist(), [float(held[cut - 1]) for cut in CUTS[1:3]], machine


def test_stages_that_cannot_share_a_node_hand_over_across_nodes() -> None:
    # 2, 4 and 2 GPUs on two nodes of 4. The stage of 4 needs a node for itself, so the others share the other
    # node, and both boundaries lie between nodes, although one after another the first would end amid a node.
    # A micro-batch goes there and its gradient comes back, through the one port of a node.
    (first, second, third), (a, b), machine = handed_over((2, 4, 2), nodes=2)
    port = float(machine.layout.transfer_gbs[0]) * 1e9
    assert port < 2 * float(machine.layout.link_gbs[0]) * 1e9  # else the links of two GPUs would limit it
    assert first == pytest.approx(2 * 8 * a / port)
    assert second == pytest.approx(2 * 8 * (a + b) / port)
    assert third == pytest.approx(2 * 8 * b / port)


def test_stages_on_one_node_hand_over_by_the_links_of_the_smaller() -> None:
    # 4, 2 and 2 on the same nodes: the first boundary is between them, the second inside the second node,
    # where each of two GPUs hands half of the micro-batch over its own link.
    (first, second, third), (a, b), machine = handed_over((4, 2, 2), nodes=2)
    port, link = (float(rate[0]) * 1e9 for rate in (machine.layout.transfer_gbs, machine.layout.link_gbs))
    assert first == pytest.approx(2 * 8 * a / port)
    assert second == pytest.approx(2 * 8 * a / port + 2 * 8 * b / (2 * link))
    assert third == pytest.approx(2 * 8 * b / (2 * link))
    # 2, 4 and 2 on a single node of 8: four GPUs receive no faster than two send.
    (first, second, third), _, machine = handed_over((2, 4, 2), nodes=1)
    assert first == pytest.approx(2 * 8 * a / (2 * link))
    assert second == pytest.approx(first + third)


def test_a_stage_of_several_nodes_receives_as_fast_as_one_node_sends() -> None:
    # 4, 4 and 8 GPUs on four nodes of 4: the last stage has two ports, but all comes through one.
    (_, second, third), (a, b), machine = handed_over((4, 4, 8), nodes=4)
    port = float(machine.layout.transfer_gbs[0]) * 1e9
    assert third == pytest.approx(2 * 8 * b / port)
    assert second == pytest.approx(2 * 8 * (a + b) / port)


@pytest.mark.parametrize(
    ("gpus", "across"),
    [
        ((2, 2, 4), (0, 1)),
        ((2, 4, 2), (1, 1)),
        ((1, 2, 1), (0, 0)),
        ((1, 4, 2, 1), (1, 1, 0)),
        ((8, 2, 4, 2), (1, 1, 1)),
        ((4, 4, 8), (1, 1)),
    ],
)
def test_which_boundaries_cross_nodes_of_four(gpus: tuple[int, ...], across: tuple[int, ...]) -> None:
    total = sum(gpus)
    rows: GraphAllocations = allocation(GPT, gpus=total, nodes=max(1, total // 4), gpu="A40")[0]
    receives, sends = crossings(rows, np.array([gpus]))
    assert tuple(sends[0, :-1]) == across
    assert tuple(receives[0, 1:]) == across
