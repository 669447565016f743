"""Collectives: latency and bandwidth of two protocols, and Vidur's measurements of them."""

import json
from pathlib import Path

import pytest
from published_data import DATA, needs

from clustergym.commands.oracle import main
from clustergym.oracle.models.shape_files import load_accelerator
from clustergym.oracle.stacks.collectives import all_reduce_s, gather_s, ring_s, send_s

H100, A100 = load_accelerator("H100"), load_accelerator("A100-80")
TABLES = DATA / "modern" / "collectives"
needs_data = needs("modern/collectives")


def test_a_message_takes_the_faster_protocol() -> None:
    # 8 GPUs send 2 x 7/8 of the buffer over 450 GB/s, at 0.65 from 27 us on, or at 0.83 from 40 us on.
    assert all_reduce_s(H100, 4096, 8) == pytest.approx(27e-6 + 7168 / 292.5e9)
    large = 64e6
    assert all_reduce_s(H100, large, 8) == pytest.approx(40e-6 + 1.75 * large / 373.5e9)
    # Without switches that add up: 0.64 of 300 GB/s.
    assert all_reduce_s(A100, large, 8) == pytest.approx(78e-6 + 1.75 * large / 192e9)
    assert gather_s(H100, large, 8) == all_reduce_s(H100, large, 8) / 2
    assert gather_s(H100, large, 1) == 0
    assert send_s(H100, 36e6, across=True) == pytest.approx(19e-6 + 1e-3)


def test_a_ring_over_nodes_uses_the_ports_of_its_members() -> None:
    # 16 ranks, 8 a node: 8 ports of 50 GB/s at 0.72, slower than NVLink; 3 times half of 40 us and a hop.
    latency_s = 20e-6 + 19e-6
    assert ring_s(H100, 1e9, 16, 8, 3) == pytest.approx(15 / 16 * 1e9 / 288e9 + 3 * latency_s)
    assert ring_s(H100, 1e9, 16, 1, 1) == pytest.approx(15 / 16 * 1e9 / 36e9 + latency_s)
    assert ring_s(H100, 1e9, 8, 8, 1) == pytest.approx(7 / 8 * 1e9 / 373.5e9 + 20e-6)
    assert ring_s(H100, 1e9, 1, 1, 5) == 0


@needs_data
@pytest.mark.parametrize("gpu_type", ["H100", "A100-80"])
def test_measured_collectives(gpu_type: str, tmp_path: Path) -> None:
    target = tmp_path / "errors.json"
    for name in ("all_reduce", "send_recv"):
        table = TABLES / f"network_{gpu_type[:4].lower()}_dgx_{name}.csv"
        words = ["validate", "--data", str(table), "--gpu-type", gpu_type, "--json", str(target)]
        assert main(words) == 0
        found = json.loads(target.read_text())["collectives"]
        inside = {title: row for title, row in found.items() if "in a node" in title}
        large = [row for title, row in inside.items() if "from 4 MB on" in title]
        assert large
        for row in large:
            assert row["mape"] < 0.12
        # Bandwidth alone is off by the latency, which is all that a small message takes.
        small = [row for title, row in inside.items() if "below 64 kB" in title]
        assert all(row["mape_before"] > 0.95 for row in small)


def test_bad_tables_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.csv"
    path.write_text("collective,num_workers,devices_per_node,size\nbroadcast,2,2,8\n")
    assert main(["validate", "--data", str(path), "--gpu-type", "H100"]) == 2
    assert "has no all-reduce in a node, and no send" in capsys.readouterr().err
    assert main(["validate", "--data", str(path)]) == 2
    assert "--gpu-type: is not given" in capsys.readouterr().err
