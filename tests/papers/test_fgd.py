"""`clustergym reproduce fgd`: published runs where the data is here, a folder of our own, and bad input."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import published_data
import pytest
from clustergym.papers.reproduce import main
from error_lines import error_line
from published_data import needs

DATA = published_data.DATA / "openb"

NODE_FILE, POD_FILE = "openb_node_list_gpu_node.csv", "pods/openb_pod_list_default.csv"
NODES = "sn,cpu_milli,memory_mib,gpu,model\na,8000,100,2,T4\nb,8000,100,1,G2\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "0,1000,1,1,500,\n"
    "1,1000,1,1,1000,T4\n"
    "2,500,1,0,0,\n"
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder laid out as openb, of two nodes and three pods."""
    made = tmp_path / "mine"
    (made / "pods").mkdir(parents=True)
    (made / "openb_node_list_gpu_node.csv").write_text(NODES)
    (made / "pods" / "openb_pod_list_default.csv").write_text(PODS)
    return made


def rows_of(folder: Path, *given: str) -> list[dict[str, Any]]:
    assert main(["fgd", "--data", str(folder), "--json", "f.json", "--out", "p.md", *given]) == 0
    rows: list[dict[str, Any]] = json.loads(Path("f.json").read_text())["runs"]
    return rows


@needs("openb")
def test_published_runs_come_out_run_by_run() -> None:
    rows = rows_of(DATA, "--workloads", "default,gpuspec33", "--seeds", "42,45")
    for column in ("allocated_pct", "fragmented_pct"):
        off = [abs(row[column] - row["expected"][column]) for row in rows if row["placer"] != "random-fit"]
        assert len(off) == 2 * 2 * 5 * 7
        assert max(off) <= 0.0101
    drawn = [row for row in rows if row["placer"] == "random-fit" and row["arrived_pct"] == 130]
    assert np.mean(
        [row["allocated_pct"] - row["expected"]["allocated_pct"] for row in drawn]
    ) == pytest.approx(0.0, abs=0.6)
    # Rejected pods of default, seed 42, as its facts have them.
    own = [row for row in rows if (row["workload"], row["seed"]) == ("default", 42)]
    rejected = {row["placer"]: row["rejected"] for row in own}
    names = ("dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd")
    assert [rejected[name] for name in names] == [2874, 2797, 2794, 2676, 2532]


def test_an_order_file_is_followed(folder: Path) -> None:
    (folder / "orders").mkdir()
    order = {"arrivals_7": np.array([1, 1, 1, 0], dtype=np.uint16), "node_rank_7": np.array([1, 0])}
    np.savez(folder / "orders" / "default.npz", **order)
    with (folder / "expected_allocation.csv").open("w", newline="") as file:
        header = ("workload", "policy", "seed", "arrived_pct", "allocated_pct")
        csv.writer(file).writerows([header, ("default", "BestFit", 7, 117, 83.33)])
    packed = folder / "pods" / "openb_pod_list_default.csv"
    (folder / "pods" / "openb_pod_list_default.csv.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    rows = {row["arrived_pct"]: row for row in rows_of(folder, "--policies", "best-fit")}
    # Of three pods that ask for a whole T4 the third finds none; the part of a GPU goes to the G2: 2.5 of 3.
    assert rows[100]["allocated_pct"] == 66.67
    assert rows[117]["allocated_pct"] == 83.33
    assert rows[117]["expected"] == {"allocated_pct": 83.33, "fragmented_pct": None}
    assert rows[100]["expected"] is None
    assert main(["fgd", "--data", str(folder), "--seeds", "8", "--out", "p.md"]) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["fgd", "--data", "."], "has no lists of pods"),
        (
            ["fgd", "--data", "mine", "--workloads", "defalt"],
            "--workloads: unknown name 'defalt' (did you mean",
        ),
        (["fgd", "--data", "mine"], "has no orders of arrival"),
        (["fgd", "--data", "mine", "--policies", "sia"], "--policies: unknown name 'sia'"),
    ],
)
def test_bad_arguments_are_one_line(
    folder: Path, given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(given) == 2
    assert words in error_line(capsys)
