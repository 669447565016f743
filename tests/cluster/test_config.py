"""Cluster files: what is read, and the one line each mistake ends in."""

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
from refusals import Said, refused

from clustergym.cluster import cluster_files
from clustergym.cluster.cluster_files import (
    canonical_gpu_type,
    cluster_from_config,
    cluster_names,
    load_cluster,
    load_gpu_types,
)
from clustergym.cluster.schema import FabricKeys, GpuTypeKeys, NodesKeys
from clustergym.cluster.spec import Fabric
from clustergym.common.errors import InputError
from clustergym.common.paths import conf_dir

GOOD: dict[str, Any] = {
    "name": "mine",
    "path": None,
    "nodes": [
        {"gpu_type": "A40", "count": 4, "gpus_per_node": 2},
        {"gpu_type": "MyGPU", "count": 2, "gpus_per_node": 8},
    ],
    "fabric": {"nodes_per_leaf": 2, "core_oversubscription": 3},
    "gpu_types": {
        "MyGPU": {
            "fp16_tflops": 100,
            "fp32_tflops": 10.5,
            "memory_gb": 24,
            "memory_gbs": 500,
            "link_kind": "pcie4",
            "link_gbs": 32,
            "nic_gbps": 100,
        }
    },
}


def edited(path: str, value: Any) -> dict[str, Any]:
    """Return GOOD with one key replaced; `path` as in nodes.0.count."""
    mapping = copy.deepcopy(GOOD)
    *above, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    at: Any = mapping
    for key in above:
        at = at[key]
    at[last] = value
    return mapping


def test_a_users_cluster() -> None:
    spec = cluster_from_config(GOOD)
    assert (spec.name, spec.gpu_types, spec.capacity.tolist()) == ("mine", ("A40", "MyGPU"), [8, 16])
    assert spec.groups[1].gpu_type.tf32_tflops is None
    assert (spec.fabric.nodes_per_leaf, spec.fabric.core_oversubscription) == (2, 3)
    assert spec.fabric.leaves_per_minipod == 8  # the default of Fabric


def test_a_fabric_of_no_keys_is_the_default() -> None:
    for given in ({}, {"core_oversubscription": 2.0}, {"nodes_per_leaf": 16}):
        assert cluster_from_config(edited("fabric", given)).fabric == Fabric()


def test_a_users_gpu_type_goes_before_the_catalogue() -> None:
    mapping = copy.deepcopy(GOOD)
    mapping["gpu_types"]["a40"] = {**GOOD["gpu_types"]["MyGPU"], "memory_gb": 96}
    assert cluster_from_config(mapping).groups[0].gpu_type.memory_gb == 96


def test_nodes_may_have_another_network_than_their_gpu_type() -> None:
    mapping = edited("nodes.0", {**GOOD["nodes"][0], "nic_gbps": 25, "nic_per_gpu": True})
    gpu_type = cluster_from_config(mapping).groups[0].gpu_type
    assert (gpu_type.nic_gbps, gpu_type.nic_per_gpu) == (25, True)
    assert load_gpu_types()["A40"].nic_gbps == 100


@refused("cluster-keys")
def test_a_wrong_key_ends_in_one_line(given: dict[str, Any], said: Said) -> None:
    ((path, value),) = given.items()
    with said.of_error():
        cluster_from_config(edited(path, value))


@pytest.mark.parametrize("content", [[], "A40", None, 3])
def test_what_is_no_mapping_is_refused(content: Any) -> None:
    with pytest.raises(InputError, match="must be a mapping of keys"):
        cluster_from_config(content)


@refused("cluster-files")
def test_a_wrong_file_ends_in_one_line(given: str, said: Said, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(given)
    with said.of_error(tmp_path):
        load_cluster(str(tmp_path / "cluster.yaml"))


def test_aliases_that_double_and_double_are_refused_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 80)]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join([*lines, "nodes: *a79"]), encoding="utf-8")
    with pytest.raises(InputError, match=r"laughs.yaml:\d+: stands for more than 100,000 values"):
        load_cluster(str(path))


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown cluster 'arena-simm' \(did you mean arena-sim"):
        load_cluster("arena-simm")


FILE = "nodes:\n  - {gpu_type: rtx, count: 3, gpus_per_node: 8}\n"


def test_a_file_is_named_after_itself_unless_it_has_a_name(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(FILE, encoding="utf-8-sig")
    spec = load_cluster(str(path))
    assert (spec.name, spec.gpu_types, spec.capacity.tolist()) == ("lab", ("RTX2080Ti",), [24])
    path.write_text("name: other\n" + FILE, encoding="utf-8")
    assert load_cluster(str(path)).name == "other"


def test_path_wins_over_the_named_cluster(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(FILE, encoding="utf-8")
    assert cluster_from_config({**GOOD, "path": str(path)}).capacity.tolist() == [24]


@pytest.mark.parametrize("name", [*cluster_names(), "file"])
def test_hydra_composes_every_cluster(name: str, tmp_path: Path) -> None:
    hydra = pytest.importorskip("hydra")
    from omegaconf import OmegaConf

    path = tmp_path / "lab.yaml"
    path.write_text(FILE, encoding="utf-8")
    overrides = [f"+cluster={name}"] + ([f"cluster.path={path}"] if name == "file" else [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Hydra 1.3 wants version_base given, 1.4 wants it left out
        with hydra.initialize_config_dir(str(conf_dir()), version_base=None):
            config = hydra.compose(overrides=overrides)
    mapping = OmegaConf.to_container(config.cluster, resolve=True)
    assert isinstance(mapping, dict)
    expected = load_cluster(str(path) if name == "file" else name)
    assert cluster_from_config(mapping).fingerprint() == expected.fingerprint()


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("a100", "A100"),
        ("dgx-ext", "A100"),
        ("RTX", "RTX2080Ti"),
        ("rtx2080ti", "RTX2080Ti"),
        ("quad", "QuadroRTX6000"),
        ("azure", "V100"),
        ("v100m16", "V100"),
        ("aws", "T4"),
        ("k80", "K80"),
    ],
)
def test_aliases(alias: str, name: str) -> None:
    assert canonical_gpu_type(alias) == name


@pytest.mark.parametrize(("name", "near"), [("v10", "V100"), ("Quadro6000", "QuadroRTX6000"), ("h20", "L20")])
def test_an_unknown_gpu_type_names_the_nearest(name: str, near: str) -> None:
    with pytest.raises(InputError, match=rf"unknown GPU type '{name}' \(did you mean .*{near}"):
        canonical_gpu_type(name)


def test_an_alias_of_no_type_in_the_catalogue_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (conf_dir() / "hardware" / "gpus.yaml").read_text()
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "gpus.yaml").write_text(text.rstrip("\n") + "\n  mine: A10O\n")
    line = len(text.rstrip("\n").splitlines()) + 1
    monkeypatch.setattr(cluster_files, "conf_dir", lambda: tmp_path)
    told = rf"gpus.yaml:{line}: aliases.mine: unknown GPU type 'A10O' \(did you mean .*A100"
    with pytest.raises(InputError, match=told):
        cluster_files._catalogue.__wrapped__()


def test_the_catalogue_is_read_once_and_cannot_be_changed() -> None:
    types = load_gpu_types()
    assert types is load_gpu_types()
    with pytest.raises(TypeError):
        types["A100"] = types["A40"]  # type: ignore[index]
    a100 = types["A100"]
    assert (a100.fp16_tflops, a100.tf32_tflops, a100.memory_gb, a100.link_gbs) == (312, 156, 40, 300)
    assert types["H800"].nic_per_gpu
    assert types["V100"].tf32_tflops is None


def test_each_key_stands_on_the_page_with_its_default() -> None:
    """Of the table in docs/own-trace-and-cluster.md: key, unit, default."""
    page = (conf_dir().parent / "docs" / "own-trace-and-cluster.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    stated = {row[0].strip("`"): row[2] for row in rows if len(row) == 4}
    for prefix, schema in (
        ("nodes[].", NodesKeys),
        ("fabric.", FabricKeys),
        ("gpu_types.NAME.", GpuTypeKeys),
    ):
        for key, field in schema.model_fields.items():
            default = stated.pop(f"{prefix}{key}")
            if field.is_required():
                assert default == "required", key
            elif field.default is not None:
                assert default == str(field.default).lower(), key
            else:
                assert default != "required", key
    assert not [key for key in stated if key.startswith(("nodes[]", "fabric.", "gpu_types."))]
