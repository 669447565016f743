"""Clusters from what Slurm and Kubernetes list of their nodes."""

from pathlib import Path

import pytest
from error_lines import error_line
from hypothesis import given, settings
from hypothesis import strategies as st

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.node_lists import Node, cluster_keys, cluster_text, read_nodes, types_of_partitions
from clustergym.cluster.slurm_text import host_names
from clustergym.commands.cluster import main
from clustergym.common.errors import InputError

LISTS = Path(__file__).parents[1] / "regressions" / "node-list"


@pytest.mark.parametrize(
    ("name", "nodes", "left_out"),
    [
        ("valid-scontrol.txt", {("gpu01", "A100", 8), ("gpu02", "A100", 4)}, 1),
        (
            "valid-sinfo.txt",
            {("gpu01", "V100", 4), ("gpu02", "V100", 4), ("gpu03", "V100", 4), ("gpu04", "H100", 8)},
            1,
        ),
        ("valid-nodes.json", {("n1", "A100-80", 8), ("n2", "T4", 4)}, 1),
    ],
)
def test_lists_of_nodes(name, nodes, left_out):
    found, without = read_nodes(LISTS / name)
    assert {(node.name, node.gpu_type, node.gpus) for node in found} == nodes
    assert without.total() == left_out
    assert sum(node.down for node in found) == 1


def test_one_line_and_several_lines_are_the_same(tmp_path):
    text = (LISTS / "valid-scontrol.txt").read_text()
    flat = "\n".join(" ".join(block.split()) for block in text.split("\n\n"))
    (tmp_path / "flat.txt").write_text(flat)
    assert read_nodes(tmp_path / "flat.txt") == read_nodes(LISTS / "valid-scontrol.txt")


def test_partitions_name_types():
    nodes, _ = read_nodes(LISTS / "valid-sinfo.txt")
    assert types_of_partitions(nodes) == {"gpu": "V100", "long": "V100", "big": "H100"}
    nodes, _ = read_nodes(LISTS / "valid-scontrol.txt")
    assert {node.name: node.partitions for node in nodes} == {"gpu01": ("gpu", "long"), "gpu02": ("gpu",)}
    nodes, _ = read_nodes(LISTS / "valid-nodes.json")
    assert {node.name: node.partitions for node in nodes} == {"n1": (), "n2": ("small",)}


def test_hosts():
    names = ["gpu01", "gpu02", "gpu03", "gpu7", "login1", "x1y", "x2y"]
    assert host_names("gpu[01-03,7],login1,x[1-2]y") == names
    assert host_names("r[1-2]n[01-02],(null)") == ["r1n01", "r1n02", "r2n01", "r2n02", "(null)"]
    assert host_names("(null)") == host_names("None assigned") == []
    for wrong in ("g[²-³]", "g[1-", "g]", "g[[1]]", "g[a]", "g[]"):
        with pytest.raises(ValueError, match="no list of hosts"):
            host_names(wrong)
    for many in ("g[1-200001]", "g[1-1000]n[1-1000]"):
        with pytest.raises(ValueError, match="more than 200,000 hosts"):
            host_names(many)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["A100", "V100"]), st.integers(1, 16)), min_size=1, max_size=12))
def test_the_number_of_gpus_is_kept(tmp_path_factory, sizes):
    nodes = [Node(f"n{at}", kind, gpus, (), False) for at, (kind, gpus) in enumerate(sizes)]
    keys, guessed = cluster_keys(nodes, "mine", {}, Path("x"))
    path = tmp_path_factory.mktemp("cluster") / "mine.yaml"
    path.write_text(cluster_text(keys, "x", guessed))
    cluster = load_cluster(str(path))
    found = dict(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))
    kinds = {name for name, _ in sizes}
    assert found == {kind: sum(gpus for name, gpus in sizes if name == kind) for kind in kinds}


def test_a_type_of_ones_own_has_a_data_sheet_by_name(tmp_path, capsys):
    source, out = tmp_path / "nodes.txt", tmp_path / "mine.yaml"
    source.write_text("NodeName=a Gres=gpu:rtx3090:4 State=IDLE\n")
    assert main(["import", str(source), "-o", str(out)]) == 2
    assert "GPU type 'rtx3090' is not in the catalogue (name one" in error_line(capsys)
    assert main(["import", str(source), "-o", str(out), "--like", "rtx3090=A40"]) == 0
    assert main(["import", str(source), "-o", str(source / "mine.yaml"), "--like", "rtx3090=A40"]) == 2
    assert "mine.yaml: --output: cannot be written" in error_line(capsys)
    cluster = load_cluster(str(out))
    assert (cluster.gpu_types, cluster.groups[0].gpu_type.memory_gb) == (("rtx3090",), 48)


def test_a_file_of_something_else(tmp_path):
    path = tmp_path / "nodes.txt"
    path.write_text("PARTITION AVAIL TIMELIMIT\n")
    with pytest.raises(InputError, match="NODELIST: column missing"):
        read_nodes(path)
    path.write_text("NodeName=a State=IDLE\n")
    with pytest.raises(InputError, match="names no node with GPUs"):
        read_nodes(path)


def test_a_row_of_sinfo_that_is_too_short_is_named(tmp_path):
    path = tmp_path / "sinfo.txt"
    path.write_text("NODELIST GRES STATE\nn1 gpu:a100:4 idle\nn2 idle\n")
    with pytest.raises(InputError, match=r"sinfo\.txt:3: the row has 2 cells, not 3"):
        read_nodes(path)
