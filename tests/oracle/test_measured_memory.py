"""Memory of pure data parallelism against measurements."""

from pathlib import Path

import pytest
from published_data import find_published
from refusals import Said, refused

from clustergym.oracle.calibration.validation import validate_memory


def test_data_parallel_memory_against_measurements() -> None:
    found = validate_memory(find_published("arena/arena_dp_memory.csv"))
    # Measured medians: 4.7 % of 90 rows; 5.8 (bert), 11.1 (moe), 2.5 (wide_resnet).
    assert found["rows"] >= 90
    assert found["median_ape"] < 0.055
    assert found["by_family"]["bert"]["median_ape"] < 0.07
    assert found["by_family"]["moe"]["median_ape"] < 0.13
    assert found["by_family"]["wide_resnet"]["median_ape"] < 0.035


def test_memory_of_one_row_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "memory.csv"
    # Wide ResNet of 500M on 16 ranks: 12.25 bytes for each of its 0.487e9 parameters make 5.97 GB, and one of
    # 256 / 16 / 16 images about 1.04 GB: 7.0 GB. Against 14 GB that is an error of 50 %.
    path.write_text("model_family,params,batch_size,dp_degree,memory_gb\nwide_resnet,500M,256,16,14.0\n")
    assert validate_memory(path)["median_ape"] == pytest.approx(0.5, abs=0.01)


@refused("arena-memory")
def test_malformed_memory(tmp_path: Path, given: str, said: Said) -> None:
    path = tmp_path / "memory.csv"
    path.write_text(f"model_family,params,batch_size,dp_degree,memory_gb,recorded\n{given}\n")
    with said.of_error(tmp_path):
        validate_memory(path)
