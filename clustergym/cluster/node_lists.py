"""Read the nodes of a cluster as Slurm and Kubernetes list them, and write them as a cluster's file."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from clustergym.cluster.cluster_files import load_gpu_types
from clustergym.cluster.slurm_text import MOST_HOSTS, Gres, host_names, key_values, known_type, parse_gres
from clustergym.common.columns import MAX_GPUS
from clustergym.common.errors import InputError, nearest
from clustergym.common.kubernetes import KubernetesObject, count_gpus, looks_like_objects, read_objects
from clustergym.common.left_out import leave_out, not_modelled, not_read
from clustergym.common.text_files import read_text

PRODUCTS = (
    *("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator"),
    *("gpu.nvidia.com/model", "gpu.intel.com/product", "karpenter.k8s.aws/instance-gpu-name"),
)
"""Labels of Kubernetes nodes that name their GPUs."""
UNNAMED = "gpu"
"""The type of GPUs that no list names."""
REMEDY = "give what `scontrol show node`, `sinfo -N -o '%N|%P|%G|%T'` or `kubectl get nodes -o json` prints"
KEYS = """
nodename arch corespersocket cpualloc cpuerr cpuefctv cputot cpuload availablefeatures activefeatures gres
gresdrain gresused nodeaddr nodehostname port version os realmemory allocmem freemem sockets boards state
threadspercore tmpdisk weight owner mcs_label partitions boottime slurmdstarttime lastbusytime cfgtres
alloctres capwatts currentwatts avewatts extsensorsjoules extsensorswatts extsensorstemp reason
resumeaftertime comment extra instanceid instancetype corespeccount cpuspeclist memspeclimit reservationname
nextstate topology restrictedcorespergpu certflags cpus feature socketsperboard cpubind bcastaddr
"""
SINFO = """
NODELIST PARTITION GRES STATE NODES CPUS AVAIL TIMELIMIT MEMORY TMP_DISK WEIGHT AVAIL_FE REASON S:C:T
GRES_USED CPUS(A/I/O/T) AVAIL_FEATURES ACTIVE_FEATURES FREE_MEM CPU_LOAD
"""
"""Keys of nodes in lower case, as scontrol prints them and slurm.conf has them; and columns of sinfo."""


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
        Each name once for each type of its GPUs.
    Counter
        Nodes that were left out, by reason.
    """
    text, _ = read_text(path)
    if looks_like_objects(text[:4096].splitlines()):
        found: Iterator[Node] = map(_kubernetes_node, read_objects(path, ("Node",)))
    elif "NodeName=" in text:
        found = _slurm_conf(text, path) if _IS_CONF.search(text) else _scontrol_nodes(text, path)
    else:
        found = _sinfo_nodes(text, path)
    kept, left_out = dict[tuple[str, str], Node](), Counter[str]()
    partitions = dict[tuple[str, str], list[str]]()
    for rows, node in enumerate(found):
        if node.gpus:
            kept.setdefault((node.name, node.gpu_type), node)
            partitions.setdefault((node.name, node.gpu_type), []).extend(node.partitions)
        else:
            left_out["node without GPUs"] += 1
        if rows > MOST_HOSTS or node.gpus > MAX_GPUS:
            raise InputError(f"more than {MOST_HOSTS:,} nodes, or GPUs of one", file=path, remedy=REMEDY)
    if not kept:
        raise InputError("names no node with GPUs", file=path, remedy=REMEDY)
    whole = (replace(node, partitions=tuple(dict.fromkeys(partitions[key]))) for key, node in kept.items())
    return list(whole), left_out


def _kubernetes_node(one: KubernetesObject) -> Node:
    held, labels = one.get("status.capacity", dict, {}), one.labels()
    gpus, resource, parts = count_gpus(one, "status.capacity", held)
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


_IS_CONF = re.compile(
    r"^[ \t]*(ClusterName=|SlurmctldHost=|PartitionName=|NodeName=DEFAULT\b|NodeName=\S*\[)", re.M | re.I
)


def _scontrol_nodes(text: str, path: Path) -> Iterator[Node]:
    line, known = 1, frozenset(KEYS.split())
    for block in re.split(r"\b(?=NodeName=)", text):
        keys = key_values(block)
        not_read(f"key {key}" for key in keys if key.lower() not in known)
        if "NodeName" in keys and "FUTURE" not in keys.get("State", "").upper():
            own = {key.lower(): value for key, value in keys.items()}
            yield from _nodes_of(own, own.get("partitions", "").split(","), path, line)
        line += block.count("\n")


def _slurm_conf(text: str, path: Path) -> Iterator[Node]:
    """Yield the nodes of a slurm.conf, with those partitions that name their nodes."""
    usual, nodes = dict[str, str](), list[tuple[int, dict[str, str]]]()
    partitions, mentions, known = dict[str, list[str]](), 0, frozenset(KEYS.split())
    for line, row in enumerate(re.sub(r"\\\r?\n", " ", text).splitlines(), start=1):
        given = {key.lower(): value for key, value in key_values(row.partition("#")[0]).items()}
        if "nodename" in given:
            not_read(f"key {key}" for key in given if key not in known)
            if given["nodename"].upper() == "DEFAULT":
                usual |= given
            else:
                nodes.append((line, usual | given))
        elif "partitionname" in given:
            names = _hosts(given.get("nodes", ""), path, line)
            mentions += len(names)
            if mentions > 10 * MOST_HOSTS:
                raise InputError("names too many nodes", file=path, line=line, remedy=REMEDY)
            for name in names:
                partitions.setdefault(name, []).append(given["partitionname"])
        elif row.split()[:1] and row.split()[0].lower() in ("include", "nodeset"):
            not_read([row.strip()])
    for line, given in nodes:
        for name in _hosts(given["nodename"], path, line):
            own = [one for key in (name, "ALL", "all") for one in partitions.get(key, ())]
            yield from _nodes_of({**given, "nodename": name}, own, path, line)


def _nodes_of(keys: Mapping[str, str], partitions: Sequence[str], path: Path, line: int) -> Iterator[Node]:
    """Yield a node of Slurm, once for each type of its GPUs, or without GPUs."""
    found = {key: _gres(keys.get(key, ""), path, line, key) for key in ("gres", "cfgtres")}
    # The GRES name types and MIG devices, which TRES only do where they are tracked so.
    gres = found["gres"] if found["gres"].gpus or found["gres"].parts else found["cfgtres"]
    for name, count in gres.parts.items():
        leave_out("device", f"{name} is no whole GPU", count)
    within = tuple(name for name in partitions if name)
    for gpu_type, gpus in gres.by_type.items() or [(found["cfgtres"].gpu_type, 0)]:
        named = gpu_type or found["cfgtres"].gpu_type or UNNAMED
        yield Node(keys.get("nodename", ""), named, gpus, within, _down(keys.get("state", "").upper()))


def _gres(text: str, path: Path, line: int, field: str) -> Gres:
    try:
        found = parse_gres(text)
    except ValueError as problem:
        raise InputError(str(problem), file=path, line=line, field=field, remedy=REMEDY) from problem
    not_read(f"resource {name}" for name in found.others)
    return found


def _hosts(text: str, path: Path, line: int) -> list[str]:
    try:
        return host_names(text)
    except ValueError as problem:
        raise InputError(str(problem), file=path, line=line, remedy=REMEDY) from problem


def _sinfo_nodes(text: str, path: Path) -> Iterator[Node]:
    head, *lines = text.splitlines()
    cut = (lambda line: line.split("|")) if "|" in head else str.split
    names = [cell.strip().upper() for cell in cut(head)]
    for column in ("NODELIST", "GRES"):
        if column not in names:
            raise InputError("column missing", file=path, line=1, field=column, remedy=REMEDY)
    not_read(f"column {name}" for name in names if name not in SINFO.split())
    for number, line in enumerate(lines, start=2):
        cells = [cell.strip() for cell in cut(line)]
        if not line.strip():
            continue
        if len(cells) != len(names):
            message = f"the row has {len(cells)} cells, not {len(names)}"
            raise InputError(message, file=path, line=number, remedy=REMEDY)
        row = dict(zip(names, cells, strict=True))
        for name in _hosts(row["NODELIST"], path, number):
            keys = {"nodename": name, "gres": row["GRES"], "state": row.get("STATE", "")}
            yield from _nodes_of(keys, [row.get("PARTITION", "").rstrip("*")], path, number)


def _down(state: str) -> bool:
    return any(word in state for word in ("DOWN", "DRAIN", "FAIL", "MAINT"))


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
    the number of GPUs is right. The key `hosts` has the names and partitions, which a twin reads.

    Parameters
    ----------
    nodes : sequence of Node
    name : str
        Of the cluster.
    like : mapping of str to str
        For types that the catalogue lacks, the type of the catalogue whose data sheet they are given.
    path : Path
        For errors.
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
    alike = dict[tuple[str, int, tuple[str, ...]], list[str]]()
    for node in nodes:
        alike.setdefault((node.gpu_type, node.gpus, node.partitions), []).append(node.name)
    hosts = [
        {"gpu_type": gpu_type, "gpus": gpus, "partitions": list(partitions), "names": names}
        for (gpu_type, gpus, partitions), names in alike.items()
    ]
    return {"name": name, "nodes": groups, **({"gpu_types": own} if own else {}), "hosts": hosts}, +guessed


def cluster_text(keys: Mapping[str, Any], source: str, guessed: Mapping[str, int]) -> str:
    """Return the text of a cluster's YAML file, with comments on its source and guessed values."""
    notes = [f"# From {source}.", *(f"# Guessed: {what} ({count})." for what, count in guessed.items())]
    notes.append("# The lists name no switches: one leaf of 16 nodes each, 8 leaves a minipod (see docs).")
    return "\n".join(notes) + "\n" + yaml.safe_dump(dict(keys), sort_keys=False, default_flow_style=None)
