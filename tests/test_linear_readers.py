"""Readers take time in proportion to a file: four times each repeated piece takes four times the CPU time."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from readers import READERS

from clustergym.common.errors import InputError
from clustergym.common.left_out import recording


def lines(head: str, row: str) -> Callable[[int], str]:
    """Return a text of a head and n rows, which are numbered where they say `%d`."""
    return lambda n: head + "".join(row.replace("%d", str(number)) for number in range(n))


def listed(head: str, row: str, tail: str) -> Callable[[int], str]:
    """Return a text of a head, n rows with commas between them, and a tail."""
    return lambda n: head + ",".join(row.replace("%d", str(number)) for number in range(n)) + tail


GPU = (
    "{fp16_tflops: 1, fp32_tflops: 1, memory_gb: 1, memory_gbs: 1, link_kind: pcie4, link_gbs: 1,"
    " nic_gbps: 1}"
)
TYPE, NODES = f"  T%d: {GPU}\n", "  - {gpu_type: T%d, count: 1, gpus_per_node: 2}\n"
WORKLOAD = "- {kind: Workload, metadata: {name: a%d, creationTimestamp: '2026-03-02T09:00:00Z'}}\n"
NATIVE = "job_id,submit_s,model_family,model_size,global_batch,iterations,gpus\n"
POWER = "network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
SHAPE = "  s%d: {hidden: 8, layers: 2, heads: 2, vocabulary: 9, feed_forward: 8}\n"
NODE = "- {kind: Node, metadata: {name: n%d}, status: {capacity: {nvidia.com/gpu: '4'}}}\n"
QUEUE = '{"kind": "ClusterQueue", "metadata": {"name": "q%d"}, "spec": {"cohort": "all"}}'
CHAIN = '{"kind": "Cohort", "metadata": {"name": "q%d"}, "spec": {"parent": "q1%d"}}'
PHILLY = '{"jobid": "a%d", "attempts": [], "submitted_time": "2017-10-07 01:00:00", "xq%d": 1}'
PAIR = '"(\'ResNet-18 (batch size 64)\', 1%d)": {"null": 4.0}'
LLAMA = (
    '{"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,'
    ' "intermediate_size": 256, "vocab_size": 1000, '
)
PIECES = {
    "trace-kueue": [(500, lines("kind: List\nitems:\n", WORKLOAD)), (500, lines("",
        "---\nkind: LocalQueue\n"))],
    "node-list": [(500, lines("kind: List\nitems:\n", NODE))],
    "kueue-rules": [(500, listed('{"items": [', QUEUE, "]}")), (500, listed('{"items": [', CHAIN, "]}"))],
    "trace-philly-json": [(4000, listed("[", PHILLY, "]"))],
    "hugging-face": [(8000, listed(LLAMA, '"xq%d": 1', "}")), (8000, listed(LLAMA + '"layer_types": [',
        '"a"', "]}"))],
    "trace-durations": [(8000, lines("submit_time,duration,gpus\n", "%d,5,1\n")), (200, lambda n: "a," * n)],
    "trace-swf": [(8000, lines("", "; a\n")), (8000, lines("",
        "%d 5 3 6 1 -1 -1 1 7 -1 1 -1 2 -1 1 -1 -1 -1\n"))],
    "trace-gavel": [(8000, lines("", "ResNet-18 (batch size 128)\tc\tw\t-n\t1\t1000\t4\t1\t-1.0\t%d\n"))],
    "trace-native": [
        (4000, lines(NATIVE, "%d,0,gpt3,760M,8,9,4\n"))
    ],
    "trace-pai": [(4000, lines("", "j%d,i,u,Terminated,10,20\n"))],
    "cluster": [
        (300, lambda n: lines("gpu_types:\n", TYPE)(n) + lines("nodes:\n", NODES)(n)),
        (2000, lines("nodes:\n", "  - &a%d {gpu_type: A40, count: 1, gpus_per_node: 2}\n")),
    ],
    "queues": [(1000, lines("queues:\n", "  q%d: {quota: null}\n"))],
    "models": [(500, lines("kind: dense\ndtype: fp16\nbatches: [8]\nsizes:\n", "  s%d: {layers: 2}\n"))],
    "transformers": [(500, lines("transformers:\n", SHAPE))],
    "pairs-gavel": [(8000, listed('{"v100": {', PAIR, "}}"))],
    "twin-power": [(4000, lines(POWER, "a%d,8,adam,150,40,90\n"))],
    "failures": [(8000, lines("time_s,node,repair_s\n", "%d,0,0.5\n"))],
    "switch-failures": [(8000, lines("time_s,tier,number,repair_s\n", "%d,leaf,0,0.5\n"))],
}  # fmt: skip
"""Reader -> numbers of pieces to begin with, and the texts of so many."""


def cpu_s(name: str, text: str, folder: Path) -> float:
    """Return the least CPU seconds of three readings."""
    times = []
    for number in range(3):
        (folder / str(number)).mkdir(parents=True)
        began = time.process_time()
        with contextlib.suppress(InputError), recording():
            READERS[name](text.encode(), folder / str(number))
        times.append(time.process_time() - began)
    return min(times)


@pytest.mark.parametrize(
    ("name", "at"), [(name, at) for name, pieces in PIECES.items() for at in range(len(pieces))]
)
def test_reading_takes_linear_time(name: str, at: int, tmp_path: Path) -> None:
    """Linear time is four times as long, the square sixteen times: ten is between."""
    many, text = PIECES[name][at]
    cpu_s(name, text(8), tmp_path / "first")
    once, four = cpu_s(name, text(many), tmp_path / "once"), cpu_s(name, text(4 * many), tmp_path / "four")
    assert four < 10 * once + 0.02, f"{many} pieces take {once:.3f} s, {4 * many} take {four:.3f} s"
