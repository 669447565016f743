"""Cluster files: what is read, and the one line each mistake ends in."""

import copy
import os
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

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


def line_of(error: pytest.ExceptionInfo[InputError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


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


@pytest.mark.parametrize(
    ("path", "value", "pattern"),
    [
        ("nodes.0.gpu_type", "A4O", r"nodes\[0\]\.gpu_type: unknown GPU type 'A4O' \(did you mean A40"),
        ("nodes.1.gpu_type", "MyGPV", r"unknown GPU type 'MyGPV' \(did you mean MyGPU"),
        ("nodes.0.cuont", 3, r"nodes\[0\]\.cuont: unknown key \(did you mean count\?"),
        ("node", [], r"node: unknown key \(did you mean nodes or"),
        ("fabric.nodes_per_leef", 3, r"fabric\.nodes_per_leef: unknown key \(did you mean nodes_per_leaf"),
        ("gpu_types.MyGPU.memory", 3, r"gpu_types\.MyGPU\.memory: unknown key \(did you mean memory_gb"),
        ("nodes.0.count", 0, r"nodes\[0\]\.count: must be greater than or equal to 1, not 0"),
        ("nodes.0.count", -3, r"nodes\[0\]\.count: .*not -3"),
        ("nodes.0.count", 10**9, r"nodes\[0\]\.count: must be less than or equal to 1000000"),
        ("nodes.0.count", 10**400, r"nodes\[0\]\.count: must be less than or equal to 1000000"),
        ("nodes.0.count", 1_000_000, r"nodes: 2000016 GPUs are more than the 1000000"),
        ("nodes.0.count", 2.5, r"nodes\[0\]\.count: must be an integer, not 2\.5"),
        ("nodes.0.count", "4", r"nodes\[0\]\.count: must be an integer, not '4'"),
        ("nodes.0.count", True, r"nodes\[0\]\.count: must be an integer, not True"),
        ("nodes.0.gpus_per_node", 0, r"nodes\[0\]\.gpus_per_node: .*not 0"),
        ("nodes.0.gpu_type", 40, r"nodes\[0\]\.gpu_type: must be a string, not 40"),
        ("nodes.0", "A40", r"nodes\[0\]: must be a mapping of keys, not 'A40'"),
        ("nodes.0", {"gpu_type": "A40", "count": 1}, r"nodes\[0\]\.gpus_per_node: is missing"),
        ("nodes.1.gpu_type", "a40", r"nodes\[1\]\.gpu_type: GPU type A40 stands twice"),
        ("nodes", [], r"nodes: a cluster needs nodes"),
        ("nodes", {"A40": 3}, r"nodes: must be a list, not a mapping"),
        ("nodes.0.nic_gbps", float("nan"), r"nodes\[0\]\.nic_gbps: must be a finite number, not nan"),
        ("gpu_types.MyGPU.link_gbs", -32, r"gpu_types\.MyGPU\.link_gbs: must be greater than 0, not -32"),
        ("gpu_types.MyGPU.memory_gbs", float("nan"), r"MyGPU\.memory_gbs: must be a finite number, not nan"),
        ("gpu_types.MyGPU.nic_gbps", float("inf"), r"MyGPU\.nic_gbps: must be a finite number, not inf"),
        ("gpu_types.MyGPU.fp16_tflops", None, r"MyGPU\.fp16_tflops: must be a number, not nothing"),
        ("gpu_types.MyGPU", {}, r"gpu_types\.MyGPU\.fp16_tflops: is missing"),
        ("gpu_types.mygpu", GOOD["gpu_types"]["MyGPU"], r"gpu_types\.mygpu: is 'MyGPU' once more"),
        ("gpu_types", [], r"gpu_types: must be a mapping of keys, not a list"),
        ("fabric.core_oversubscription", float("nan"), r"core_oversubscription: must be a finite number"),
        ("fabric.core_oversubscription", -2.0, r"core_oversubscription: must be greater than or equal to 1"),
        ("fabric.spine_oversubscription", 4, r"fabric\.core_oversubscription: must be at least spine"),
        ("fabric.nodes_per_leaf", 0, r"fabric\.nodes_per_leaf: .*not 0"),
        ("fabric.minipods", 7, r"fabric\.minipods: 7 minipods but only 6 nodes"),
        ("fabric", {"minipods": 2, "leaves_per_minipod": 2}, r"exclude each other"),
        ("name", "", r"name: "),
        ("path", "???", r"path: is missing \(give cluster\.path=FILE\)"),
        ("path", 3, r"path: must be a string, not 3"),
    ],
)
def test_a_wrong_key_ends_in_one_line(path: str, value: Any, pattern: str) -> None:
    with pytest.raises(InputError) as error:
        cluster_from_config(edited(path, value))
    assert re.search(pattern, line_of(error)), str(error.value)


@pytest.mark.parametrize("content", [[], "A40", None, 3])
def test_what_is_no_mapping_is_refused(content: Any) -> None:
    with pytest.raises(InputError, match="must be a mapping of keys"):
        cluster_from_config(content)


WRONG_FILES = {
    "empty": (b"", "is empty"),
    "only a comment": (b"# nothing\n", "is empty"),
    "list": (b"- a\n- b\n", ":1: is a list, not a mapping"),
    "single value": (b"hello\n", ":1: is a single value, not a mapping"),
    "cycle": (b"name: x\nnodes: &a\n  - *a\n", ":2: an anchor refers to itself"),
    "merge key": (b"x: &a {b: 1}\nnodes: {<<: *a}\n", ":2: merge keys (<<) are not allowed"),
    "merge bomb": (
        b"a0: &a0 {k: 1}\n"
        + b"".join(
            b"a%d: &a%d {<<: [%s]}\n" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9)) for n in range(1, 12)
        ),
        ":2: merge keys (<<) are not allowed",
    ),
    "base 60": (b"name: x\nnodes: 12:30:45\n", ":2: 12:30:45 is a number in base 60"),
    "huge base 60": (b"name: 1" + b":59" * 300_000, ":1: 1:59:59:59:59:59:59:... is a number in base 60"),
    "huge number": (b"name: " + b"9" * 1_000_000, ":1: a number of 1,000,000 characters"),
    "tag of python": (b"name: x\nnodes: !!python/object/apply:os.getcwd []\n", ":2: YAML tag"),
    "tag of our own": (b"nodes: !mine [1]\n", ":1: YAML tag '!mine' is not allowed"),
    "latin-1": ("name: ok\n# für\n".encode("latin-1"), ":2: is not UTF-8 text"),
    "utf-16": ("name: x\n".encode("utf-16"), "is not UTF-8 text"),
    "binary": (bytes(range(8)) * 30, "is not valid YAML"),
    "unclosed": (b"nodes: [1, 2\nname: x\n", ":2: is not valid YAML"),
    "two documents": (b"name: x\n---\nname: y\n", "is not valid YAML"),
    "unknown alias": (b"nodes: *nowhere\n", ":1: is not valid YAML"),
    "key twice": (b"name: x\nnodes: []\nname: y\n", ":3: name: key stands twice"),
    "list as key": (b"[1, 2]: x\n", ":1: a list cannot be a key"),
    "impossible date": (b"name: 2020-13-45\n", "is not YAML that can be read"),
    "very deep": (b"nodes: " + b"[" * 200_000, ":1: is nested deeper than"),
    "very large": (b"#" * 4_000_001, "is larger than"),
    "unknown key": (b"name: x\n\nnodse: []\n", ":3: nodse: unknown key (did you mean nodes?)"),
    "no nodes": (b"name: x\n", ": nodes: a cluster needs nodes"),
    "path in a file": (b"path: other.yaml\n", ":1: path: a cluster file cannot point to another"),
    "unknown type": (
        b"nodes:\n  - count: 1\n    gpu_type: H10\n    gpus_per_node: 2\n",
        ":3: nodes[0].gpu_type: unknown GPU type 'H10' (did you mean H100",
    ),
    "number for a name": (b"gpu_types:\n  100: {}\n", ":2: gpu_types"),
}


@pytest.mark.parametrize("kind", WRONG_FILES)
def test_a_wrong_file_ends_in_one_line(kind: str, tmp_path: Path) -> None:
    content, expected = WRONG_FILES[kind]
    path = tmp_path / "cluster.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        load_cluster(str(path))
    text = line_of(error)
    assert text.startswith(str(path))
    assert expected in text
    assert len(text) < 400


def test_aliases_that_double_and_double_are_refused_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 80)]
    path = tmp_path / "laughs.yaml"
    path.write_text("\n".join([*lines, "nodes: *a79"]), encoding="utf-8")
    with pytest.raises(InputError, match=r"laughs.yaml:\d+: stands for more than 100,000 values"):
        load_cluster(str(path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    with pytest.raises(InputError, match=r"pipe\.yaml: is not a regular file"):
        load_cluster(str(tmp_path / "pipe.yaml"))


def test_a_device_is_refused() -> None:
    with pytest.raises(InputError, match="/dev/zero: is not a regular file"):
        load_cluster("/dev/zero")


def test_a_folder_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        load_cluster(str(tmp_path))


def test_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text("name: lab\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"lob\.yaml: no such file \(did you mean lab\.yaml\?\)"):
        load_cluster(str(tmp_path / "lob.yaml"))
    with pytest.raises(InputError, match="there is no folder"):
        load_cluster(str(tmp_path / "nowhere" / "lab.yaml"))


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


def test_the_line_that_is_not_utf_8_is_named(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_bytes(b"name: a\n# two\nnodes: \xff\n# four\n# five\n# six\n")
    with pytest.raises(InputError, match=r"cluster\.yaml:3: is not UTF-8 text"):
        load_cluster(str(path))


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


def test_a_link_of_another_kind_is_refused() -> None:
    wrong = copy.deepcopy(GOOD)
    wrong["gpu_types"]["MyGPU"]["link_kind"] = "NVLink"
    with pytest.raises(InputError, match=r"gpu_types\.MyGPU\.link_kind: must be 'nvlink1', .* not 'NVLink'"):
        cluster_from_config(wrong)
