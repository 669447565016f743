"""Collectives: latency and bandwidth of two protocols."""

import pytest

from clustergym.oracle.models.shape_files import load_accelerator
from clustergym.oracle.stacks.collectives import all_reduce_s, gather_s, ring_s

H100, A100 = load_accelerator("H100"), load_accelerator("A100-80")


def test_a_message_takes_the_faster_protocol() -> None:
    # 8 GPUs send 2 x 7/8 of the buffer over 450 GB/s, at 0.65 from 27 us on, or at 0.83 from 40 us on.
    assert all_reduce_s(H100, 4096, 8) == pytest.approx(27e-6 + 7168 / 292.5e9)
    large = 64e6
    assert all_reduce_s(H100, large, 8) == pytest.approx(40e-6 + 1.75 * large / 373.5e9)
    # Without switches that add up: 0.64 of 300 GB/s.
    assert all_reduce_s(A100, large, 8) == pytest.approx(78e-6 + 1.75 * large / 192e9)
    assert gather_s(H100, large, 8) == all_reduce_s(H100, large, 8) / 2
    assert gather_s(H100, large, 1) == 0


def test_a_ring_over_nodes_uses_the_ports_of_its_members() -> None:
    # 16 ranks, 8 a node: 8 ports of 50 GB/s at 0.72, slower than NVLink; 3 times half of 40 us and a hop.
    latency_s = 20e-6 + 19e-6
    assert ring_s(H100, 1e9, 16, 8, 3) == pytest.approx(15 / 16 * 1e9 / 288e9 + 3 * latency_s)
    assert ring_s(H100, 1e9, 16, 1, 1) == pytest.approx(15 / 16 * 1e9 / 36e9 + latency_s)
    assert ring_s(H100, 1e9, 8, 8, 1) == pytest.approx(7 / 8 * 1e9 / 373.5e9 + 20e-6)
    assert ring_s(H100, 1e9, 1, 1, 5) == 0
