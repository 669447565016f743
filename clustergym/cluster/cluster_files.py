"""Load clusters and GPU types from conf/ and from a user's own YAML files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.common.errors import InputError, nearest
from clustergym.common.paths import conf_dir

if TYPE_CHECKING:
    from clustergym.cluster.schema import ClusterKeys, FabricKeys, GpuTypeKeys, NodesKeys
    from clustergym.common.yaml_file import YamlMapping


def cluster_names() -> list[str]:
    """Return the sorted names of the clusters in the folder conf/cluster."""
    return sorted(path.stem for path in (conf_dir() / "cluster").glob("*.yaml") if path.stem != "file")


def load_cluster(name_or_path: str) -> ClusterSpec:
    """Load a cluster by its name in conf/cluster, or from a YAML file or a CSV list of nodes."""
    if name_or_path in cluster_names():
        return _from_file(conf_dir() / "cluster" / f"{name_or_path}.yaml")
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml", ".csv", ".gz") or os.sep in name_or_path or path.exists():
        return _from_file(path)
    remedy = nearest(name_or_path, cluster_names())
    raise InputError(f"unknown cluster {name_or_path!r}", remedy=f"{remedy} or give a YAML file")


def cluster_from_config(mapping: Mapping[str, Any]) -> ClusterSpec:
    """Build the cluster that a mapping with the keys of conf/cluster/*.yaml describes.

    Parameters
    ----------
    mapping : dict
        Plain values: keys `name`, `path`, `nodes`, `fabric`, `gpu_types`. A `path` other than
        None wins over all the rest: the cluster is read from that file, YAML or a CSV list of nodes.
    """
    path = mapping.get("path") if isinstance(mapping, Mapping) else None
    if path == "???":
        raise InputError("is missing", field="path", remedy="give cluster.path=FILE")
    if isinstance(path, (str, os.PathLike)) and str(path):
        return _from_file(Path(path))
    return _Builder(mapping).cluster()


def canonical_gpu_type(name: str) -> str:
    """Return the catalogue's spelling of a GPU type's name or alias."""
    catalogue = load_gpu_types()
    found = _canonical_names().get(name.lower())
    if found is None:
        raise InputError(f"unknown GPU type {name!r}", remedy=nearest(name.upper(), catalogue))
    return found


def gpu_type_names(*clusters: ClusterSpec) -> Callable[[str], str]:
    """Return a function that gives a GPU type's name as the clusters, or else the catalogue, spell it.

    It takes a name in upper or lower case, and raises an `InputError` with the nearest names for one that is
    neither.
    """
    own = {name.lower(): name for cluster in reversed(clusters) for name in cluster.named_types}

    def type_name(name: str) -> str:
        if name.lower() in own:
            return own[name.lower()]
        try:
            return canonical_gpu_type(name)
        except InputError as error:
            remedy = nearest(name.upper(), {*own.values(), *load_gpu_types()})
            raise InputError(error.message, remedy=remedy) from error

    return type_name


@lru_cache(maxsize=1)
def load_gpu_types() -> Mapping[str, GpuType]:
    """Load the data sheets of the GPU types in conf/hardware/gpus.yaml, by name."""
    return _catalogue()[0]


@lru_cache(maxsize=1)
def _canonical_names() -> dict[str, str]:
    types, aliases = _catalogue()
    return {name.lower(): name for name in types} | {alias.lower(): name for alias, name in aliases.items()}


@lru_cache(maxsize=1)
def _catalogue() -> tuple[Mapping[str, GpuType], Mapping[str, str]]:
    from clustergym.cluster.schema import CatalogueKeys, validate_content
    from clustergym.common.yaml_file import read_mapping

    path = conf_dir() / "hardware" / "gpus.yaml"
    source = read_mapping(path)
    keys = validate_content(CatalogueKeys, source.content, file=path, source=source)
    types = {name: _gpu_type(name, given) for name, given in keys.gpu_types.items()}
    for alias, name in keys.aliases.items():
        if name not in types:
            line = source.line(("aliases", alias))
            remedy = nearest(name, types)
            raise InputError(
                f"unknown GPU type {name!r}", file=path, line=line, field=f"aliases.{alias}", remedy=remedy
            )
    return MappingProxyType(types), MappingProxyType(keys.aliases)


def _gpu_type(name: str, keys: GpuTypeKeys) -> GpuType:
    return GpuType(name=name, **keys.model_dump())


def _from_file(path: Path) -> ClusterSpec:
    if path.name.endswith((".csv", ".csv.gz")):
        from clustergym.cluster.parts import read_divisible

        return read_divisible(path)
    from clustergym.common.yaml_file import read_mapping

    source = read_mapping(path)
    return _Builder(source.content, source).cluster()


class _Builder:
    """Builds a cluster from checked keys, and knows the line of each key for errors."""

    def __init__(self, content: Mapping[str, Any], source: YamlMapping | None = None) -> None:
        from clustergym.cluster.schema import ClusterKeys, validate_content

        self.file, self.source = None if source is None else source.path, source
        self.keys: ClusterKeys = validate_content(ClusterKeys, content, file=self.file, source=source)
        self.own = {name: _gpu_type(name, keys) for name, keys in self.keys.gpu_types.items()}
        self.by_lower_case = {name.lower(): gpu_type for name, gpu_type in self.own.items()}

    def error(self, message: str, *keys: str | int, remedy: str) -> InputError:
        from clustergym.common.yaml_file import field_name

        line = None if self.source is None else self.source.line(keys)
        return InputError(message, file=self.file, line=line, field=field_name(keys), remedy=remedy)

    def cluster(self) -> ClusterSpec:
        if self.keys.path is not None:
            raise self.error("a cluster file cannot point to another", "path", remedy="remove it")
        self._check_own_types()
        name = self.keys.name or ("unnamed" if self.file is None else self.file.stem)
        if any(keys.cpu_milli is not None or keys.memory_mib is not None for keys in self.keys.nodes):
            return self._divisible(name)
        groups = tuple(self._group(row, keys) for row, keys in enumerate(self.keys.nodes))
        self._check_nodes(groups)
        return ClusterSpec(name, groups, self._fabric(self.keys.fabric, sum(g.nodes for g in groups)))

    def _divisible(self, name: str) -> ClusterSpec:
        from clustergym.cluster.parts import MOST_GPUS_PER_NODE, DivisibleCluster, NodeShape

        shapes = []
        for row, keys in enumerate(self.keys.nodes):
            if keys.cpu_milli is None or keys.memory_mib is None:
                missing = "cpu_milli" if keys.cpu_milli is None else "memory_mib"
                remedy = "give cpu_milli and memory_mib of all nodes, or of none"
                raise self.error("is missing", "nodes", row, missing, remedy=remedy)
            if keys.gpus_per_node > MOST_GPUS_PER_NODE:
                message = f"a divisible node has at most {MOST_GPUS_PER_NODE} GPUs"
                raise self.error(message, "nodes", row, "gpus_per_node", remedy="divide the node")
            shapes.append(
                NodeShape(keys.gpu_type, keys.gpus_per_node, keys.cpu_milli, keys.memory_mib, keys.count)
            )
        return DivisibleCluster.from_shapes(name, tuple(shapes))

    def _check_own_types(self) -> None:
        seen: dict[str, str] = {}
        for name in self.own:
            other = seen.setdefault(name.lower(), name)
            if other != name:
                raise self.error(f"is {other!r} once more", "gpu_types", name, remedy="keep one of them")

    def _group(self, row: int, keys: NodesKeys) -> NodeGroup:
        gpu_type = self._resolve(row, keys.gpu_type)
        if keys.nic_gbps is not None:
            gpu_type = replace(gpu_type, nic_gbps=keys.nic_gbps)
        if keys.nic_per_gpu is not None:
            gpu_type = replace(gpu_type, nic_per_gpu=keys.nic_per_gpu)
        if keys.gang_nodes is not None and keys.gang_nodes > keys.nodes_per_domain:
            message = f"is more than the {keys.nodes_per_domain} nodes of a domain (nodes_per_domain)"
            raise self.error(
                message, "nodes", row, "gang_nodes", remedy="give at most as many, or leave it out"
            )
        return NodeGroup(gpu_type, keys.count, keys.gpus_per_node, keys.nodes_per_domain, keys.gang_nodes)

    def _resolve(self, row: int, name: str) -> GpuType:
        if name.lower() in self.by_lower_case:
            return self.by_lower_case[name.lower()]
        try:
            return load_gpu_types()[canonical_gpu_type(name)]
        except InputError as error:
            remedy = nearest(name.upper(), {*self.own, *load_gpu_types()})
            raise self.error(error.message, "nodes", row, "gpu_type", remedy=remedy) from None

    def _check_nodes(self, groups: tuple[NodeGroup, ...]) -> None:
        from clustergym.cluster.schema import MOST_GPUS

        if not groups:
            raise self.error(
                "a cluster needs nodes", "nodes", remedy="list {gpu_type: …, count: …, gpus_per_node: …}"
            )
        seen: set[str] = set()
        for row, group in enumerate(groups):
            name = group.gpu_type.name
            if name in seen:
                raise self.error(
                    f"GPU type {name} stands twice", "nodes", row, "gpu_type", remedy="give each type once"
                )
            seen.add(name)
        total = sum(group.nodes * group.gpus_per_node for group in groups)
        if total > MOST_GPUS:
            message = f"{total} GPUs are more than the {MOST_GPUS} a cluster may have"
            raise self.error(message, "nodes", remedy="give fewer nodes")

    def _fabric(self, keys: FabricKeys, nodes: int) -> Fabric:
        if keys.minipods is not None and keys.leaves_per_minipod is not None:
            remedy = "give one of them, null for the other"
            raise self.error(
                "minipods and leaves_per_minipod exclude each other", "fabric", "minipods", remedy=remedy
            )
        if keys.minipods is not None and keys.minipods > nodes:
            message = f"{keys.minipods} minipods but only {nodes} nodes"
            raise self.error(message, "fabric", "minipods", remedy=f"give at most {nodes}")
        self._check_factors(keys)
        return Fabric(**{name: value for name, value in keys.model_dump().items() if value is not None})

    def _check_factors(self, keys: FabricKeys) -> None:
        tiers = ("leaf_oversubscription", "spine_oversubscription", "core_oversubscription")
        for below, above in pairwise(tiers):
            least = getattr(keys, below)
            if getattr(keys, above) < least:
                raise self.error(
                    f"must be at least {below}, {least:g}", "fabric", above, remedy="traffic passes both"
                )
