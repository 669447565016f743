"""Read the nodes of a cluster as Slurm and Kubernetes list them, and write them as a cluster's file."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.cluster.slurm_text import gpus_of_gres, gpus_of_tres, known_type
from clustergym.common.columns import MAX_GPUS
from clustergym.common.errors import InputError, nearest
from clustergym.common.kubernetes import KubernetesObject, gpus_of, looks_like_objects, read_objects
from clustergym.common.left_out import leave_out, not_modelled
from clustergym.common.text_files import read_text

PRODUCTS = (
    *("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator"),
    *("gpu.nvidia.com/model", "gpu.intel.com/product", "karpenter.k8s.aws/instance-gpu-name"),
)
"""Labels of Kubernetes nodes that name their GPUs."""
MOST_NODES = 200_000
UNNAMED = "gpu"
"""The type of GPUs that no list names."""
REMEDY = "give what `scontrol show node`, `sinfo -N -o '%N|%P|%G|%T'` or `kubectl get nodes -o json` prints"
_HOSTS = re.compile(r"([^,\[\]]*)(?:\[([^\]]*)\])?([^,\[\]]*)", re.ASCII)


@dataclass(frozen=True)
class Node:
    """A node with GPUs: its name, their type and number, its partitions, and whether it is down."""

    name: str
    gpu_type: str
    gpus: int
    partitions: tuple[str, ...]
    down: bool


def read_product(labels: Mapping[str, str], name: str) -> str:
    """Return the GPU type that a Kubernetes object's labels give, or if none does, the one in `name`."""
    return known_type(next((labels[label] for label in PRODUCTS if label in labels), name))


def read_nodes(path: Path) -> tuple[list[Node], Counter[str]]:
    """Read nodes with GPUs from a file that Slurm or Kubernetes printed; count the nodes left out.

    Returns
    -------
    list of Node
        Each name once.
    Counter
        Nodes that were left out, by reason.

    Raises
    ------
    InputError
        If the file is none of these, or no node has GPUs.
    """
    text, _ = read_text(path)
    if looks_like_objects(text[:4096].splitlines()):
        found: Iterator[Node] = map(_kubernetes_node, read_objects(path, ("Node",)))
    elif "NodeName=" in text:
        found = _scontrol_nodes(text)
    else:
        found = _sinfo_nodes(text, path)
    by_name, left_out = dict[str, Node](), Counter[str]()
    for node in found:
        if not node.gpus:
            left_out["node without GPUs"] += 1
        elif node.name in by_name:
            first = by_name[node.name]
            by_name[node.name] = Node(**vars(first) | {"partitions": first.partitions + node.partitions})
        else:
            by_name[node.name] = node
        if len(by_name) > MOST_NODES or node.gpus > MAX_GPUS:
            raise InputError(f"more than {MOST_NODES:,} nodes, or GPUs of one", file=path, remedy=REMEDY)
    if not by_name:
        raise InputError("names no node with GPUs", file=path, remedy=REMEDY)
    return list(by_name.values()), left_out


def _kubernetes_node(one: KubernetesObject) -> Node:
    held, labels = one.get("status.capacity", dict, {}), one.labels()
    gpus, resource, parts = gpus_of(one, "status.capacity", held)
    product = next((labels[label] for label in PRODUCTS if label in labels), UNNAMED)
    for part in parts:
        leave_out("node", f"its {part} are parts of GPUs, which are not counted")
    if "-mig-" in product.lower():
        # With MIG's `single` strategy a MIG device is called a GPU, and the product names its profile.
        leave_out("node", f"its {resource} are MIG devices ({product}), no whole GPUs")
        gpus = 0
    shared = labels.get(f"{resource}.replicas", "1")
    if gpus and shared.isascii() and shared.isdigit() and 1 < int(shared[:4]) <= gpus:
        # Each GPU is offered to several pods at a time.
        not_modelled([f"{resource}.replicas (shares in time: {gpus // int(shared[:4])} GPUs)"])
        gpus //= int(shared[:4])
    pool = labels.get("cloud.google.com/gke-nodepool", "")
    return Node(
        one.name, known_type(product), gpus, (pool,) if pool else (), one.flag("spec", "unschedulable")
    )


def _scontrol_nodes(text: str) -> Iterator[Node]:
    for block in re.split(r"\bNodeName=", text)[1:]:
        name, _, rest = block.partition(" ")
        keys = dict(re.findall(r"\b(\w+)=(\S+)", rest))
        gpus, gpu_type = gpus_of_tres(keys.get("CfgTRES", ""))
        of_gres, named = gpus_of_gres(keys.get("Gres", ""))
        partitions = tuple(one for one in keys.get("Partitions", "").split(",") if one)
        state = keys.get("State", "").upper()
        if "FUTURE" not in state:
            yield Node(name.strip(), gpu_type or named or UNNAMED, gpus or of_gres, partitions, _down(state))


def _sinfo_nodes(text: str, path: Path) -> Iterator[Node]:
    head, *lines = text.splitlines()
    cut = (lambda line: line.split("|")) if "|" in head else str.split
    names = [cell.strip().upper() for cell in cut(head)]
    for column in ("NODELIST", "GRES"):
        if column not in names:
            raise InputError("column missing", file=path, line=1, field=column, remedy=REMEDY)
    for number, line in enumerate(lines, start=2):
        cells = [cell.strip() for cell in cut(line)]
        if not line.strip():
            continue
        if len(cells) != len(names):
            message = f"the row has {len(cells)} cells, not {len(names)}"
            raise InputError(message, file=path, line=number, remedy=REMEDY)
        row = dict(zip(names, cells, strict=True))
        gpus, gpu_type = gpus_of_gres(row["GRES"])
        partition = row.get("PARTITION", "").rstrip("*")
        for name in host_names(row["NODELIST"]):
            down = _down(row.get("STATE", "").upper())
            yield Node(name, gpu_type or UNNAMED, gpus, (partition,) if partition else (), down)


def _down(state: str) -> bool:
    return any(word in state for word in ("DOWN", "DRAIN", "FAIL", "MAINT"))


def host_names(text: str) -> list[str]:
    """Return the names in a Slurm host list such as `gpu[01-03,07],login1`."""
    found: list[str] = []
    for before, inside, after in _HOSTS.findall(text):
        if not (before or inside or after):
            continue
        for part in inside.split(",") if inside else [""]:
            first, dash, last = part.partition("-")
            if dash and first.isdigit() and last.isdigit() and len(last) <= 9:
                numbers = range(int(first), min(int(last), int(first) + MOST_NODES) + 1)
                found += [f"{before}{number:0{len(first)}}{after}" for number in numbers]
            else:
                found.append(f"{before}{part}{after}")
            if len(found) > MOST_NODES:
                return found
    return found


def types_of_partitions(nodes: Sequence[Node]) -> dict[str, str]:
    """Return the GPU type of each Slurm partition whose GPU nodes all have the same type."""
    gpu_types = dict[str, set[str]]()
    for node in nodes:
        for partition in node.partitions:
            gpu_types.setdefault(partition, set()).add(node.gpu_type)
    return {name: next(iter(of)) for name, of in gpu_types.items() if len(of) == 1}


def cluster_keys(
    nodes: Sequence[Node], name: str, like: Mapping[str, str], path: Path
) -> tuple[dict[str, Any], Counter[str]]:
    """Return nodes as content of a cluster's YAML file, and counts of guesses; `like` maps unknown GPU types.

    A type whose nodes have different numbers of GPUs gets nodes of their greatest common divisor, so that
    the number of GPUs is right.

    Parameters
    ----------
    nodes : sequence of Node
    name : str
        Of the cluster.
    like : mapping of str to str
        For types that the catalogue lacks, the type of the catalogue whose data sheet they are given.
    path : Path
        For errors.

    Raises
    ------
    InputError
        For a type that neither the catalogue nor `like` has.
    """
    catalogue, guessed = load_gpu_types(), Counter[str]()
    groups, own = list[dict[str, Any]](), dict[str, Any]()
    likes = {given.lower(): gpu_type for given, gpu_type in like.items()}
    for gpu_type in sorted({node.gpu_type for node in nodes}):
        counts = [node.gpus for node in nodes if node.gpu_type == gpu_type]
        each = math.gcd(*counts)
        guessed[f"{gpu_type}: nodes of {each} GPUs, as their numbers differ"] += len(set(counts)) > 1
        groups.append({"gpu_type": gpu_type, "count": sum(counts) // each, "gpus_per_node": each})
        if gpu_type in catalogue:
            continue
        sheet = likes.get(gpu_type.lower())
        if sheet not in catalogue:
            message = f"GPU type {gpu_type!r} is not in the catalogue"
            close = nearest(gpu_type, catalogue)
            remedy = f"name one whose data sheet it is to have: --like {gpu_type}=A100 ({close})"
            raise InputError(message, file=path, field="--like", remedy=remedy)
        figures = asdict(catalogue[str(sheet)])
        own[gpu_type] = {key: value for key, value in figures.items() if key != "name" and value is not None}
        guessed[f"{gpu_type}: data sheet of {sheet}"] += 1
    guessed["nodes that are down or drained, taken as up"] += sum(node.down for node in nodes)
    return {"name": name, "nodes": groups, **({"gpu_types": own} if own else {})}, +guessed


def cluster_text(keys: Mapping[str, Any], source: str, guessed: Mapping[str, int]) -> str:
    """Return the text of a cluster's YAML file, with comments on its source and guessed values."""
    notes = [f"# From {source}.", *(f"# Guessed: {what} ({count})." for what, count in guessed.items())]
    notes.append("# The lists name no switches: one leaf of 16 nodes each, 8 leaves a minipod (see docs).")
    return "\n".join(notes) + "\n" + yaml.safe_dump(dict(keys), sort_keys=False, default_flow_style=None)
