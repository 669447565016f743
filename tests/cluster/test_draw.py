"""`python -m clustergym.cluster draw`."""

from pathlib import Path

import pytest
from error_lines import error_line
from refusals import Said, refused

from clustergym.cluster.cluster_files import cluster_names, load_cluster
from clustergym.cluster.fabric_tree import minipods
from clustergym.commands.cluster import main

DIVISIBLE = "openb-like"
MIXED = """name: lab
nodes:
  - {gpu_type: H800, count: 4, gpus_per_node: 8}
  - {gpu_type: A40, count: 3, gpus_per_node: 2, nic_gbps: 100.0, nic_per_gpu: false}
fabric: {nodes_per_leaf: 2, leaves_per_minipod: 2, spine_oversubscription: 2.0, core_oversubscription: 4.0}
"""


@pytest.fixture
def mixed(tmp_path: Path) -> str:
    path = tmp_path / "lab.yaml"
    path.write_text(MIXED, encoding="utf-8")
    return str(path)


def test_tiers_ports_and_bandwidths_solved_by_hand(mixed: str) -> None:
    first, second = minipods(load_cluster(mixed))
    # Two H800 nodes with 8 ports each below each of two leaves; half as many ports up, at 2:1.
    (leaf,) = first.leaves
    assert (first.minipods, first.nodes, first.gpus) == (1, 4, 32)
    assert (leaf.leaves, leaf.nodes, leaf.down_ports, leaf.up_ports) == (2, 2, 16, 8.0)
    # 4 nodes x 8 ports x 400 Gbit/s, a quarter of it into the core.
    assert first.up_gbps(4.0) == 4 * 8 * 400 / 4
    # Three A40 nodes with one port of 100 Gbit/s fill a leaf of two and one of one.
    assert [(leaf.leaves, leaf.nodes, leaf.down_ports) for leaf in second.leaves] == [(1, 2, 2), (1, 1, 1)]


def test_a_last_minipod_of_one_node_and_equal_ones_beside_each_other(tmp_path: Path) -> None:
    # Leaves of 2 nodes, minipods of 2 leaves: nine nodes fill two minipods, and one is left for a third.
    path = tmp_path / "nine.yaml"
    nodes, _, fabric = MIXED.replace("count: 4", "count: 9").partition("  - {gpu_type: A40")
    path.write_text(nodes + fabric.partition("\n")[2], encoding="utf-8")
    found = [(run.minipods, run.nodes, len(run.leaves)) for run in minipods(load_cluster(str(path)))]
    assert found == [(2, 4, 1), (1, 1, 1)]


def test_the_tree_in_the_terminal(mixed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", mixed]) == 0
    text = capsys.readouterr().out
    assert "lab: 38 GPUs; core 4:1, 3.125 to 100 GB/s a node" in text
    assert "1 minipod: 4 nodes, 32 GPUs; spine 2:1, 6.25 to 200 GB/s a node; 3.2 Tbit/s up" in text
    assert "2 leaves of 2 nodes of 8 H800; ports of 400 Gbit/s: 16 down, 8 up" in text
    assert "1 leaf: 1 node of 2 A40; ports of 100 Gbit/s: 1 down, 0.5 up" in text


def test_a_divisible_cluster_has_no_switches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["draw", DIVISIBLE]) == 2
    assert "openb-like has no switches to draw" in error_line(capsys)


@pytest.mark.parametrize("name", [name for name in cluster_names() if name != DIVISIBLE])
def test_every_cluster_adds_up(name: str) -> None:
    spec = load_cluster(name)
    runs = minipods(spec)
    assert sum(run.minipods * run.nodes for run in runs) == len(spec.node_type)
    assert sum(run.minipods * run.gpus for run in runs) == spec.capacity.sum()
    assert sum(run.minipods for run in runs) == spec.node_minipod[-1] + 1


@refused("cluster-command", words=True)
def test_bad_input_is_one_line(
    given: list[str],
    said: Said,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "many.yaml").write_text("nodes: []\n")
    before = sorted(tmp_path.iterdir())
    assert main(given) == 2
    said.check(error_line(capsys))
    assert sorted(tmp_path.iterdir()) == before
