"""Read a folder laid out as Alibaba's openb data (GPU cluster trace of 2023) with FGD's published runs.

openb_node_list_gpu_node.csv[.gz]           sn, cpu_milli, memory_mib, gpu, model
pods/openb_pod_list_WORKLOAD.csv[.gz]       name, cpu_milli, memory_mib, num_gpu, gpu_milli[, gpu_spec]
orders/WORKLOAD.npz                         arrivals_SEED, node_rank_SEED (where the folder has them)
expected_allocation.csv, expected_fragmentation.csv    workload, policy, seed, arrived_pct, VALUE (likewise)
"""

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.cluster.parts import CLASSES, WHOLE, Nodes, Requests, distinct, empty_nodes, encode_models
from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import check_bounds, integers, numbers, texts
from clustergym.common.errors import InputError, nearest
from clustergym.common.reading import read_regular
from clustergym.common.text_files import TextTable, read_csv
from clustergym.envs.sharing.streams import Source
from clustergym.sim.parts.fragmentation import find_usual_requests

NODES, PODS = "openb_node_list_gpu_node.csv", "openb_pod_list_"
LARGEST_ORDER_BYTES = 2**27
REMEDY = "download it again"
OPTIONAL = ("name", "gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")
"""Further columns of a list of pods; not all of them are read."""
MOST_MILLI = 10**9
Expected = Mapping[tuple[str, str, int, int], float]
"""(Workload, policy, seed, arrived %) -> a published figure, %."""


@dataclass(frozen=True)
class Orders:
    """The order in which requests arrive in a published run, and the nodes' ranks, which break ties."""

    arrivals: Ints
    node_rank: Ints


def find_packed_file(path: Path) -> Path:
    """Return the path of a file, or with `.gz` added if only the compressed file exists."""
    other = path.with_name(f"{path.name}.gz")
    return other if not path.exists() and other.exists() else path


def read_nodes(path: Path) -> tuple[Nodes, tuple[str, ...]]:
    """Read a CSV file of nodes; return the nodes, and the sorted names of their GPU models."""
    table = read_csv(path, ["cpu_milli", "memory_mib", "gpu", "model"], optional=["sn"])
    devices = integers(table, "gpu", low=0, high=CLASSES - 1)
    names = texts(table, "model")
    known = tuple(sorted({name for name, count in zip(names, devices, strict=True) if count}))
    if not known:
        raise InputError("no node has a GPU", file=path, field="gpu", remedy="give a list of GPU nodes")
    model = np.array([known.index(name) if name in known else 0 for name in names])
    cpu = integers(table, "cpu_milli", low=0, high=MOST_MILLI)
    memory = integers(table, "memory_mib", low=0, high=MOST_MILLI)
    return empty_nodes(cpu, memory, devices, model), known


def read_requests(path: Path, models: tuple[str, ...]) -> tuple[Requests, list[str]]:
    """Read a CSV file of pods; return their resource requests, and the GPU models each accepts, as text."""
    needed = ["cpu_milli", "memory_mib", "num_gpu", "gpu_milli"]
    table = read_csv(path, needed, optional=OPTIONAL)
    gpus = integers(table, "num_gpu", low=0, high=CLASSES - 1)
    milli = integers(table, "gpu_milli", low=0, high=WHOLE)
    _refuse(table, (gpus > 1) & (milli < WHOLE), milli, "a part of each of several GPUs", "give 1000")
    _refuse(table, (gpus > 0) & (milli == 0), milli, "nothing of a GPU", "give 1 to 1000")
    _refuse(table, (gpus == 0) & (milli > 0), milli, "a part of no GPU", "give 0, or num_gpu 1")
    accepted = texts(table, "gpu_spec")
    requests = Requests(
        cpu_milli=integers(table, "cpu_milli", low=0, high=MOST_MILLI),
        memory_mib=integers(table, "memory_mib", low=0, high=MOST_MILLI),
        gpus=gpus,
        gpu_milli=milli,
        models=np.array([_models(table, row, cell, models) for row, cell in enumerate(accepted)]),
    )
    return requests, accepted


def _refuse(table: TextTable, wrong: Any, milli: Ints, what: str, remedy: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        message = f"{milli[row]} asks for {what}"
        raise InputError(message, file=table.path, line=table.line[row], field="gpu_milli", remedy=remedy)


def _models(table: TextTable, row: int, cell: str, known: tuple[str, ...]) -> int:
    names = [name for name in cell.split("|") if name]
    for name in names:
        if name not in known:
            message, line = f"no node has the model {name!r}", table.line[row]
            raise InputError(
                message, file=table.path, line=line, field="gpu_spec", remedy=nearest(name, known)
            )
    return encode_models(names, known)


def workloads(folder: Path) -> list[str]:
    """Return the sorted names of the workloads (lists of pods) that the folder has."""
    found = (re.fullmatch(rf"{PODS}(.+)\.csv(\.gz)?", path.name) for path in (folder / "pods").glob("*"))
    names = sorted({match[1] for match in found if match})
    if not names:
        remedy = f"give a folder with {NODES} and pods/{PODS}….csv, as Alibaba published"
        raise InputError("has no lists of pods", file=folder, remedy=remedy)
    return names


def read_orders(folder: Path, workload: str, pods: int, nodes: int) -> dict[int, Orders]:
    """Read the published orders of a workload's arrivals, by seed; none if the folder has no such file.

    Parameters
    ----------
    pods, nodes : int
        Rows of the lists that the orders number.
    """
    path = folder / "orders" / f"{workload}.npz"
    if not path.exists():
        return {}
    content = read_regular(path, LARGEST_ORDER_BYTES, REMEDY)
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"is not an npz file of arrays: {error}", file=path, remedy=REMEDY) from None
    found = {}
    for name in arrays:
        if match := re.fullmatch(r"arrivals_(\d{1,9})", name):
            arrivals = _check_array(path, name, arrays[name], pods)
            rank_name = f"node_rank_{match[1]}"
            if rank_name not in arrays:
                raise InputError("is missing", file=path, field=rank_name, remedy=f"add it to {name}")
            rank = _check_array(path, rank_name, arrays[rank_name], nodes)
            if not np.array_equal(np.sort(rank), np.arange(nodes)):
                message = f"is not an order of the {nodes:,} nodes"
                raise InputError(message, file=path, field=rank_name, remedy="give each rank once")
            found[int(match[1])] = Orders(arrivals, rank)
    return dict(sorted(found.items()))


def _check_array(path: Path, name: str, array: Any, rows: int) -> Ints:
    if array.ndim != 1 or array.dtype.kind not in "iu" or len(array) == 0:
        raise InputError("is not a row of whole numbers", file=path, field=name, remedy="see its README")
    if int(array.max()) >= rows or int(array.min()) < 0:
        message = f"names row {int(array.max())} of {rows:,}"
        raise InputError(message, file=path, field=name, remedy="make the order for this list")
    found: Ints = array.astype(np.int64)
    return found


@lru_cache(maxsize=32)
def read_source(folder: Path, workload: str) -> tuple[Source, Mapping[int, Orders]]:
    """Read nodes and requests from a folder laid out as Alibaba's openb, and published orders of arrival."""
    nodes, models = read_nodes(find_packed_file(folder / NODES))
    rows, accepted = read_requests(find_packed_file(folder / "pods" / f"{PODS}{workload}.csv"), models)
    orders = read_orders(folder, workload, len(rows.gpus), len(nodes.devices))
    return Source(nodes, rows, *distinct(rows), find_usual_requests(rows, accepted)), orders


def read_expected(path: Path, value: str) -> Expected:
    """Read, from column `value`, what percentages of GPUs published runs had allocated (or unusable).

    Their keys are workload, policy, seed and % of GPUs asked for so far; without a file there are none.
    """
    if not path.exists():
        return {}
    table = read_csv(path, ["workload", "policy", "seed", "arrived_pct", value])
    figures: Floats = numbers(table, value)
    check_bounds(figures, path, table.line, value, 0.0, 100.0)
    keys = zip(
        texts(table, "workload"),
        texts(table, "policy"),
        integers(table, "seed", low=0).tolist(),
        integers(table, "arrived_pct", low=0).tolist(),
        strict=True,
    )
    return dict(zip(keys, figures.tolist(), strict=True))
