"""Every placement of the published experiment against plain Python loops without code of the placers."""

import csv
import gzip
import json
import math
import os
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from clustergym.papers.fgd import PUBLISHED, draw_orders
from clustergym.papers.reproduce import main
from published_data import find_published

from clustergym.cluster.parts import Requests, empty_nodes
from clustergym.envs.sharing import openb, streams
from clustergym.envs.sharing.streams import read_source

PLACERS = ("dot-product", "gpu-clustering", "gpu-packing", "best-fit", "fgd")
SEEDS = (3, 47, 101)
NODES, PODS = int(os.environ.get("FGD_NODES", "60")), int(os.environ.get("FGD_PODS", "400"))


class Pod(NamedTuple):
    cpu: int
    memory: int
    gpus: int
    milli: int
    spec: str


class Node(NamedTuple):
    """What is free on a node, its model, and the classes of the pods with GPUs on it, sorted."""

    cpu: int
    memory: int
    devices: tuple[int, ...]
    model: str
    hosted: tuple[int, ...] = ()


class Slow:
    """FGD's experiment (ATC '23, sections 4 and 6), one node and one device after the other."""

    def __init__(self, nodes: list[Node], listed: list[Pod], most_cpu: int, most_gpu: int) -> None:
        self.nodes, self.usual = list(nodes), usual(listed)
        self.most_cpu, self.most_gpu = most_cpu, most_gpu
        self.fragments = cache(self._fragments)
        self.score = cache(self._score)

    def _fragments(self, cpu: int, devices: tuple[int, ...], model: str) -> float:
        idle, sums = sum(devices), [0.0] * 7
        for pod, share in self.usual:
            fits = sum(free >= pod.milli for free in devices) >= pod.gpus
            if pod.gpus == 0:
                sums[4 if cpu >= pod.cpu else 5] += share * idle
            elif pod.spec and model not in pod.spec.split("|"):
                sums[6] += share * idle
            elif not fits:
                sums[1 if cpu >= pod.cpu else 0] += share * idle
            elif cpu < pod.cpu:
                sums[3] += share * idle
            else:
                sums[1] += share * sum(free for free in devices if free < pod.milli)
        total = 0.0
        for part in sums:
            total += part
        return total

    def put(self, node: Node, pod: Pod, device: int | None) -> tuple[Node, list[int]]:
        devices, taken = list(node.devices), []
        if device is not None:
            taken = [device]
        elif pod.gpus:
            taken = [at for at, free in enumerate(devices) if free == 1000][: pod.gpus]
        for at in taken:
            devices[at] -= pod.milli
        hosted = (*node.hosted, kind(pod)) if pod.gpus else node.hosted
        cpu, memory = node.cpu - pod.cpu, node.memory - pod.memory
        return Node(cpu, memory, tuple(devices), node.model, tuple(sorted(hosted))), taken

    def _score(self, placer: str, node: Node, pod: Pod) -> tuple[int, int | None] | None:
        if node.cpu < pod.cpu or node.memory < pod.memory:
            return None
        room = [at for at, free in enumerate(node.devices) if free >= pod.milli]
        if pod.gpus and (len(room) < pod.gpus or (pod.spec and node.model not in pod.spec.split("|"))):
            return None
        part = 0 < pod.milli < 1000
        tightest = min(room, key=lambda at: (node.devices[at], at)) if part else None
        if placer == "fgd":
            tried = [(self.gradient(node, pod, at), -at) for at in room] if part else []
            best = max(tried) if part else (self.gradient(node, pod, None), 0)
            return best[0], (-best[1] if part else None)
        return self.simple(placer, node, pod), tightest

    def gradient(self, node: Node, pod: Pod, device: int | None) -> int:
        after, _ = self.put(node, pod, device)
        grown = self.fragments(after.cpu, after.devices, node.model) - self.fragments(
            node.cpu, node.devices, node.model
        )
        return int(100 * (1 / (1 + math.exp(grown / 1000))))

    def simple(self, placer: str, node: Node, pod: Pod) -> int:
        idle, asked = sum(node.devices), pod.gpus * pod.milli
        cpu, gpu = self.most_cpu, self.most_gpu
        if placer == "dot-product":
            return int(100 * (1 - (node.cpu / cpu * (pod.cpu / cpu) + idle / gpu * (asked / gpu)) / 2))
        if placer == "best-fit":
            return int(100 * (1 - (0.5 * ((node.cpu - pod.cpu) / cpu) + 0.5 * ((idle - asked) / gpu))))
        if not pod.gpus:
            return 0
        if placer == "gpu-clustering":
            used, own = 25 * (gpu - idle) // gpu, kind(pod)
            if not node.hosted:
                return 25 + used
            if own not in node.hosted:
                return used
            return used + (75 if set(node.hosted) == {own} else 50)
        free = [left for left in node.devices if left == 1000]
        if len(free) == len(node.devices):
            return max(33 - len(free), len(free))
        taken = sorted(left for left in node.devices if left >= pod.milli)[: pod.gpus]
        untouched = sum(left == 1000 for left in taken)
        if untouched:
            return max(50 - untouched, 33)
        return max(100 - sum(left * 100 // 1000 for left in taken) // 10, 50)

    def run(self, placer: str, pods: Iterable[Pod], rank: list[int]) -> list[tuple[int, list[int]]]:
        """Return the node, -1: rejected, and the devices of each pod."""
        found = []
        for pod in pods:
            best = None
            for at, node in enumerate(self.nodes):
                scored = self.score(placer, node, pod)
                if scored is not None and (best is None or (scored[0], -rank[at]) > best[0]):
                    best = (scored[0], -rank[at]), at, scored[1]
            if best is None:
                found.append((-1, []))
                continue
            _, at, device = best
            self.nodes[at], taken = self.put(self.nodes[at], pod, device)
            found.append((at, taken))
        return found


def kind(pod: Pod) -> int:
    return 0 if pod.milli < 1000 else pod.gpus


def usual(listed: list[Pod]) -> list[tuple[Pod, float]]:
    """The commonest kinds that cover 95 % of the pods, with their shares."""
    number = Counter((pod.cpu, pod.milli, pod.gpus, pod.spec) for pod in listed)
    chosen, covered = [], 0
    for key in sorted(number, key=lambda key: (number[key], key), reverse=True):
        chosen.append(key)
        covered += number[key]
        if covered >= 0.95 * len(listed):
            break
    total = len(listed)
    return [
        (Pod(cpu, 0, gpus, milli, spec), (number[cpu, milli, gpus, spec] / total) / (covered / total))
        for cpu, milli, gpus, spec in chosen
    ]


def columns(asked: list[int], value: list[float], installed: int) -> dict[int, float]:
    """The mean of round(value, 2) over the arrivals at each whole per cent of GPUs that arrived."""
    bins: dict[int, list[float]] = {}
    total = 0
    for milli, one in zip(asked, value, strict=True):
        total += milli
        bins.setdefault(round(100 * total / installed), []).append(round(100 * one / installed, 2))
    return {at: sum(found) / len(found) for at, found in bins.items()}


def drawn_files() -> tuple[list[list[Any]], list[list[Any]]]:
    """Nodes and pods of all kinds: small and large, parts, several GPUs, some that name models."""
    rng = np.random.default_rng(5)
    shapes = [(96000, 393216, 8, "G2"), (104000, 524288, 2, "T4"), (16000, 122880, 2, "P100")]
    shapes += [(64000, 262144, 4, "V100M16"), (128000, 786432, 8, "G3")]
    nodes = [[f"n{at}", *shapes[rng.choice(5, p=[0.4, 0.3, 0.15, 0.1, 0.05])]] for at in range(NODES)]
    kinds = []
    for at in range(40):
        gpus, milli = ((0, 0), (1, int(rng.integers(1, 20)) * 50), (1, 1000), (2 ** (at % 3 + 1), 1000))[
            at % 4
        ]
        spec = ("", "", "T4", "G2|G3", "P100|V100M16")[at % 5] if gpus else ""
        kinds.append([int(rng.integers(1, 24)) * 500, int(rng.integers(1, 16)) * 4096, gpus, milli, spec])
    weight = rng.dirichlet(np.full(len(kinds), 0.6)) * np.array([3, 6, 6, 1] * 10)
    rows = rng.choice(len(kinds), size=PODS, p=weight / weight.sum())
    return nodes, [[f"{at:04d}", *kinds[row]] for at, row in enumerate(rows)]


def openb_files(workload: str) -> tuple[list[list[Any]], list[list[Any]]]:
    """Nodes and pods of openb, of each a random choice; all its models are among the nodes."""
    data = find_published("openb")
    rng = np.random.default_rng(9)
    with gzip.open(data / "openb_node_list_gpu_node.csv.gz", "rt") as file:
        nodes = list(csv.reader(file))[1:]
    with gzip.open(data / f"pods/openb_pod_list_{workload}.csv.gz", "rt") as file:
        pods = [[*row[:5], row[5] if len(row) > 5 else ""] for row in list(csv.reader(file))[1:]]
    one_each = {row[4]: at for at, row in enumerate(nodes)}.values()
    chosen = sorted({*one_each, *rng.choice(len(nodes), NODES - len(one_each), replace=False).tolist()})
    listed = sorted(rng.choice(len(pods), PODS, replace=False).tolist())
    return [nodes[at] for at in chosen], [pods[at] for at in listed]


def folder_of(place: Path, nodes: list[list[Any]], pods: list[list[Any]]) -> Path:
    """A folder laid out as openb, without orders and without published figures."""
    (place / "pods").mkdir(parents=True)
    for path, header, rows in (
        (place / openb.NODES, "sn,cpu_milli,memory_mib,gpu,model", nodes),
        (
            place / "pods/openb_pod_list_renamed.csv",
            "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec",
            pods,
        ),
    ):
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([header.split(","), *rows])
    return place


def test_drawn_orders_add_pods_by_one_gpu_each_and_leave_out_whole_pods() -> None:
    # 16 GPUs, so 20.8 are to arrive. One pod of 8: a second and a third come, for 8 + 1 and 16 + 1 are not
    # above 20.8; then 24 have arrived. Three pods of 8 ask for 24: one is left out.
    nodes = empty_nodes(*(np.array(column) for column in ([9, 9], [9, 9], [8, 8], [0, 0])))
    for pods, arrive in ((1, 3), (3, 2)):
        one = np.ones(pods, dtype=np.int64)
        asked = Requests(one, one, 8 * one, 1000 * one, one)
        for seed in range(5):
            order = draw_orders(nodes, asked, seed)
            assert len(order.arrivals) == arrive
            assert sorted(order.node_rank.tolist()) == [0, 1]


@pytest.mark.parametrize("files", ["drawn", "gpuspec25", "multigpu40", "cpu250"])
def test_every_placement_agrees_with_plain_loops(
    files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    nodes, pods = drawn_files() if files == "drawn" else openb_files(files)
    folder = folder_of(tmp_path / "mine", nodes, pods)
    listed = [Pod(*map(int, row[1:5]), row[5]) for row in pods]
    empty = [Node(int(row[1]), int(row[2]), (1000,) * int(row[3]), row[4]) for row in nodes]
    most_cpu, most_gpu = max(node.cpu for node in empty), max(sum(node.devices) for node in empty)
    installed = sum(sum(node.devices) for node in empty)
    source, curves = read_source(folder, "renamed"), {}
    for seed in SEEDS:
        order = draw_orders(source.nodes, source.rows, seed)
        came = [listed[row] for row in order.arrivals.tolist()]
        for placer in PLACERS:
            slow = Slow(empty, listed, most_cpu, most_gpu)
            expected = slow.run(placer, came, order.node_rank.tolist())
            ranked = source.nodes.with_ranks(order.node_rank)
            kinds = source.request[order.arrivals]
            ours = streams.fill(ranked, source.requests, kinds, source.usual, placer, seed)
            bits = [sum(1 << device for device in devices) for _, devices in expected]
            assert ours.node.tolist() == [at for at, _ in expected], (placer, seed)
            assert ours.devices.tolist() == bits, (placer, seed)
            assert (ours.node < 0).any()
            used = np.cumsum(
                [pod.gpus * pod.milli * (at >= 0) for pod, (at, _) in zip(came, expected, strict=True)]
            )
            asked = [pod.gpus * pod.milli for pod in came]
            curves[placer, seed] = columns(asked, used.tolist(), installed)
            left = sum(slow.fragments(node.cpu, node.devices, node.model) for node in slow.nodes)
            assert ours.fragments_milli[-1] == pytest.approx(left, rel=1e-12)
    seeds = ",".join(map(str, SEEDS))
    given = ["--workloads", "renamed", "--seeds", seeds, "--policies", ",".join(PLACERS), "--out", "p.md"]
    assert main(["fgd", "--data", str(folder), *given, "--json", "f.json"]) == 0
    rows = json.loads(Path("f.json").read_text())["runs"]
    assert len({(row["placer"], row["seed"]) for row in rows}) == len(PLACERS) * len(SEEDS)
    for row in rows:
        assert (row["workload"], row["policy"], row["expected"]) == (
            "renamed",
            PUBLISHED[row["placer"]],
            None,
        )
        curve = curves[row["placer"], row["seed"]]
        if row["arrived_pct"] in curve:
            assert row["allocated_pct"] == pytest.approx(curve[row["arrived_pct"]], abs=0.0051)
