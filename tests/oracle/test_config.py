"""Oracles from the configuration."""

from pathlib import Path

import yaml
from refusals import Said, refused

from clustergym.common.paths import conf_dir
from clustergym.oracle.measured.table_oracle import TableOracle
from clustergym.oracle.oracle_config import ORACLES, oracle_from_config
from clustergym.oracle.roofline.roofline_oracle import RooflineOracle

TABLE = (
    "model_family,params,batch_size,gpu_type,num_nodes,gpus_per_node,iteration_time_s\n"
    "gpt3,1.3B,128,A40,1,2,12.5\n"
)
MODEL = (
    "kind: dense\ndtype: fp32\nbatches: [8]\nsize: {parameters: 1.0e+6, forward_flops_per_sample: 1.0e+9, "
    "activation_bytes_per_sample: 1.0e+6, layers: 3}\n"
)


def test_the_shipped_files_name_every_oracle_and_its_keys(tmp_path: Path) -> None:
    (tmp_path / "measured.csv").write_text(TABLE)
    (tmp_path / "cifar10").mkdir()
    for name in ORACLES:
        keys = yaml.safe_load((conf_dir() / "oracle" / f"{name}.yaml").read_text())
        if keys.get("path") == "???":
            keys["path"] = str(tmp_path if name == "sia" else tmp_path / "measured.csv")
        assert oracle_from_config(keys).name == name


def test_keys_reach_the_oracle(tmp_path: Path) -> None:
    (tmp_path / "measured.csv").write_text(TABLE)
    (tmp_path / "mine.yaml").write_text(MODEL)
    table = {"name": "table", "path": str(tmp_path / "measured.csv"), "missing": "estimate"}
    oracle = oracle_from_config(table | {"models": str(tmp_path)})
    assert isinstance(oracle, TableOracle)
    assert oracle.missing == "estimate"
    assert "mine" in oracle.catalog.families
    assert isinstance(oracle_from_config({"name": "roofline"}), RooflineOracle)


@refused("oracle-config")
def test_bad_configuration_ends_in_one_line(given: object, said: Said) -> None:
    with said.of_error():
        oracle_from_config(given)
