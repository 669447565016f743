"""`python -m clustergym.cluster draw`."""

from pathlib import Path

import pytest
from error_lines import error_line
from refusals import Said, refused

from clustergym.cluster.cluster_files import cluster_names, load_cluster
from clustergym.cluster.fabric_tree import MOST_COLUMNS, columns, minipods
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
def test_every_cluster_adds_up_and_fits(name: str) -> None:
    spec = load_cluster(name)
    runs = minipods(spec)
    for shown in (runs, columns(runs)):
        assert sum(run.minipods * run.nodes for run in shown) == len(spec.node_type)
        assert sum(run.minipods * run.gpus for run in shown) == spec.capacity.sum()
        assert sum(run.minipods for run in shown) == spec.node_minipod[-1] + 1
    assert sum(len(run.leaves) for run in columns(runs)) <= MOST_COLUMNS


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_pictures_are_the_same_each_time(
    suffix: str, mixed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="Matplotlib is not installed: pip install 'clustergym[report]'")
    first, second = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}"
    assert main(["draw", mixed, "-o", str(first)]) == main(["draw", mixed, "-o", str(second)]) == 0
    assert first.read_bytes() == second.read_bytes()
    assert capsys.readouterr().out == f"wrote {first}\nwrote {second}\n"
    if suffix == "svg":
        text = first.read_text(encoding="utf-8")
        assert all(shown in text for shown in ("lab: 38 GPUs", "16 down", "8 up", "4:1", "2 nodes of"))


@refused("cluster-command", words=True)
def test_bad_input_is_one_line(
    given: list[str],
    said: Said,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if any("/" in word or word == "f.svg" for word in given):
        pytest.importorskip(
            "matplotlib", reason="Matplotlib is not installed: pip install 'clustergym[report]'"
        )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.svg").mkdir()
    (tmp_path / "no").mkdir()
    (tmp_path / "no" / "x.svg").write_text("")
    # Every leaf has nodes of another type.
    types = [f"{{gpu_type: {kind}, count: 2, gpus_per_node: 2}}" for kind in ("A40", "A10", "A100", "V100")]
    own = "\n".join(
        f"  T{number}: {{fp16_tflops: 1.0, fp32_tflops: 1.0, memory_gb: 1.0, memory_gbs: 1.0, "
        "link_kind: pcie4, link_gbs: 1.0, nic_gbps: 1.0}"
        for number in range(20)
    )
    types += [f"{{gpu_type: T{number}, count: 2, gpus_per_node: 2}}" for number in range(20)]
    (tmp_path / "many.yaml").write_text(f"nodes: [{', '.join(types)}]\ngpu_types:\n{own}\n", encoding="utf-8")
    before = sorted(tmp_path.iterdir())
    assert main(given) == 2
    said.check(error_line(capsys))
    assert sorted(tmp_path.iterdir()) == before
