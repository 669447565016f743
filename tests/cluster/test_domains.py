"""NVLink domains of several nodes: switches, localities, bandwidths, pictures, files."""

from pathlib import Path

import numpy as np
import pytest

from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.fabric_tree import minipods
from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.commands.cluster import main
from clustergym.common.errors import InputError
from clustergym.oracle.grid.grid_oracle import GridOracle
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle
from clustergym.oracle.stacks.stack_oracle import make_operators_oracle
from clustergym.sim.compiled.scenario_arrays import cluster_arrays

RACKS = """name: racks
nodes:
  - {gpu_type: H100, count: 5, gpus_per_node: 8, nic_gbps: 400.0, nic_per_gpu: true}
  - {gpu_type: GB200, count: 14, gpus_per_node: 4, nodes_per_domain: 6, gang_nodes: 4}
fabric: {nodes_per_leaf: 13, leaves_per_minipod: 8, spine_oversubscription: 1.0, core_oversubscription: 2.0}
"""


@pytest.fixture
def racks(tmp_path: Path) -> ClusterSpec:
    path = tmp_path / "racks.yaml"
    path.write_text(RACKS, encoding="utf-8")
    return load_cluster(str(path))


def test_leaves_hold_whole_domains(racks: ClusterSpec) -> None:
    # Five nodes are domains of their own; then racks of 6, 6 and 2 nodes, two of which fill a leaf of 13.
    assert racks.node_domain.tolist() == [0, 1, 2, 3, 4] + [5] * 6 + [6] * 6 + [7] * 2
    assert racks.node_leaf.tolist() == [0] * 5 + [1] * 12 + [2] * 2
    assert racks.place_in_domain.tolist() == [0] * 5 + [0, 1, 2, 3, 4, 5] * 2 + [0, 1]
    assert racks.domain_gpus.tolist() == [8, 16]


def test_locality_within_and_across_domains(racks: ClusterSpec) -> None:
    assert racks.locality(((5, 4), (10, 4))) == Locality.DOMAIN == Locality.NODE
    assert racks.locality(((5, 4), (11, 4))) == Locality.LEAF
    assert racks.locality(((5, 4), (17, 4))) == Locality.MINIPOD
    assert racks.locality(((0, 8), (1, 8))) == Locality.LEAF
    # A gang may count on 4 nodes of 6, so on 16 GPUs; 32 take two racks of a leaf, and 36 a third one.
    found = [racks.compact_locality(1, gpus) for gpus in (4, 16, 17, 32, 36)]
    assert found == [Locality.NODE, Locality.NODE, Locality.LEAF, Locality.LEAF, Locality.MINIPOD]


def test_clusters_without_domains_have_the_digests_they_had() -> None:
    groups = load_cluster("arena-a").fingerprint()["groups"]
    assert set(groups[0]) == {"gpu_type", "nodes", "gpus_per_node"}
    assert set(groups[0]["gpu_type"]) == {
        "name", "fp16_tflops", "fp32_tflops", "tf32_tflops", "memory_gb", "memory_gbs", "link_kind",
        "link_gbs", "nic_gbps", "nic_per_gpu",
    }  # fmt: skip
    plain = load_cluster("sia-64")
    assert not plain.has_domains
    assert plain.node_domain.tolist() == list(range(len(plain.node_type)))


def test_fingerprint_knows_domains(racks: ClusterSpec) -> None:
    assert racks.fingerprint()["groups"][1]["nodes_per_domain"] == 6
    assert racks.fingerprint()["groups"][1]["gang_nodes"] == 4


@pytest.mark.parametrize("oracle", [RooflineOracle(), make_operators_oracle()], ids=["roofline", "grid"])
def test_a_domain_is_a_node_to_oracles_of_data_sheets(
    racks: ClusterSpec, tmp_path: Path, oracle: RooflineOracle | GridOracle
) -> None:
    whole = tmp_path / "whole.yaml"
    racked = "count: 14, gpus_per_node: 4, nodes_per_domain: 6, gang_nodes: 4"
    whole.write_text(RACKS.replace(racked, "count: 3, gpus_per_node: 16"))
    classes = [ModelClass("gpt3", "6.7B", 256)]
    in_racks = oracle.tables(classes, racks, [4, 16, 32]).execution[0, 1]
    in_nodes = oracle.tables(classes, load_cluster(str(whole)), [4, 16, 32]).execution[0, 1]
    assert np.array_equal(in_racks, in_nodes)
    assert np.isfinite(in_racks[1, Locality.DOMAIN])


def test_the_compiled_engine_knows_no_domains(racks: ClusterSpec) -> None:
    # It is not asked: `check_runnable` refuses such clusters. Its arrays have no domains to be wrong about.
    assert not any("domain" in name for name in cluster_arrays(racks, np.array([1, 2]))._fields)


def test_the_tree_shows_domains(
    racks: ClusterSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = minipods(racks)[0].leaves
    assert [(leaf.nodes, leaf.nodes_per_domain) for leaf in first] == [(5, 1), (12, 6), (2, 6)]
    assert main(["draw", str(tmp_path / "racks.yaml")]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "12 nodes of 4 GB200 in 2 NVLink domains of 24 GPUs" in text
    assert "2 nodes of 4 GB200 in 1 NVLink domain of 8 GPUs" in text
    assert main(["describe", str(tmp_path / "racks.yaml")]) == 0
    assert "domain" in capsys.readouterr().out


def test_more_gang_nodes_than_the_domain_has(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(RACKS.replace("gang_nodes: 4", "gang_nodes: 7"))
    with pytest.raises(InputError, match="more than the 6 nodes of a domain") as caught:
        load_cluster(str(path))
    assert caught.value.line == 4
