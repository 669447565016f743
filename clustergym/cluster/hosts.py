"""The hosts and partitions of a cluster's file: of which type the GPUs of a partition and of named hosts are.

Partitions that share hosts form a pool. GPUs of a type that several pools have are a type of each pool in a
simulation, as a job has its GPUs in its own pool.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from clustergym.cluster.cluster_files import canonical_gpu_type, load_gpu_types
from clustergym.cluster.slurm_text import host_names
from clustergym.common.left_out import not_modelled


class Pools:
    """The pools of partitions that a cluster has, and the type of GPUs that a job has there.

    Parameters
    ----------
    content : mapping
        Of the cluster's file. Without its key `hosts` jobs may be anywhere.
    quotas : str
        Text of the queues: types that it names are not divided.

    Attributes
    ----------
    pool_of : dict of str to str
        Name of the pool of each partition.
    """

    def __init__(self, content: Mapping[str, Any], quotas: str = "") -> None:
        self._content, hosts = content, content.get("hosts") or ()
        self._partitions: list[tuple[str, ...]] = [tuple(one.get("partitions") or ()) for one in hosts]
        self.pool_of = _join(self._partitions)
        pools_of_hosts = (self.pool_of.get(names[0], "") if names else "" for names in self._partitions)
        self._hosts: list[tuple[Mapping[str, Any], str]] = list(zip(hosts, pools_of_hosts, strict=True))
        self._gpus = dict[str, Counter[str]]()
        for one, pool in self._hosts:
            self._gpus.setdefault(pool, Counter())[one["gpu_type"]] += one["gpus"] * len(one["names"])
        total = sum(self._gpus.values(), Counter[str]())
        listed = {one["gpu_type"]: one["count"] * one["gpus_per_node"] for one in content.get("nodes") or ()}
        pools = Counter(gpu_type for counts in self._gpus.values() for gpu_type in counts)
        several = {gpu_type for gpu_type, count in pools.items() if count > 1}
        self._split = {name for name in several if total[name] == listed.get(name) and name not in quotas}
        if several - self._split:
            not_modelled(["partitions: hosts and nodes of cluster.yaml differ, or quotas name GPU types"])
        self._types_of_host = dict[str, list[str]]()
        for one, pool in self._hosts:
            for name in one["names"]:
                self._types_of_host.setdefault(name, []).append(self._name(one["gpu_type"], pool))
        self.types = {
            self._name(name, pool).lower() for pool, counts in self._gpus.items() for name in counts
        }
        kept = [name for name in listed if name not in self._split]
        aliases = (canonical_gpu_type(name) for name in kept if name not in (content.get("gpu_types") or {}))
        self.types |= {name.lower() for name in (*kept, *aliases)}

    def _name(self, gpu_type: str, pool: str) -> str:
        return f"{gpu_type}@{pool}" if gpu_type in self._split else gpu_type

    def split_cluster(self) -> dict[str, Any] | None:
        """Return the content of a cluster's file with a GPU type for each pool; None if none is divided."""
        if not self._split:
            return None
        nodes, own = list[dict[str, Any]](), dict(self._content.get("gpu_types") or {})
        for group in self._content["nodes"]:
            gpu_type = group["gpu_type"]
            sizes = dict[str, list[int]]()
            for one, pool in self._hosts:
                if one["gpu_type"] == gpu_type in self._split:
                    sizes.setdefault(pool, []).extend([one["gpus"]] * len(one["names"]))
            sheet = own.get(gpu_type) or asdict(load_gpu_types()[canonical_gpu_type(gpu_type)])
            for pool, gpus in sizes.items():
                name, each = self._name(gpu_type, pool), math.gcd(*gpus)
                nodes.append({**group, "gpu_type": name, "count": sum(gpus) // each, "gpus_per_node": each})
                own[name] = {key: value for key, value in sheet.items() if key != "name"}
            nodes += [] if sizes else [group]
        return {**self._content, "nodes": nodes, "gpu_types": own, "hosts": []}

    def hosts_by_type(self, hosts: str) -> dict[str, list[str]]:
        """Return those hosts of a list whose GPUs are known to be of one type, by type."""
        found = dict[str, list[str]]()
        for host in host_names(hosts):
            types = self._types_of_host.get(host, [])
            if len(types) == 1:
                found.setdefault(types[0], []).append(host)
        return found

    def find_type(self, gpu_type: str, partition: str) -> str | None:
        """Return the type of GPUs of a job that names this type and partition (each may be empty).

        Empty: any; None: its partition, or the cluster, has none such.
        """
        pool = self.pool_of.get(partition)
        if pool is None:
            if gpu_type in self._split:
                # The partition is not known: where most of them are.
                return self._name(gpu_type, max(self._gpus, key=lambda name: self._gpus[name][gpu_type]))
            return gpu_type if not gpu_type or gpu_type.lower() in self.types else None
        self._say_partial(partition, pool)
        counts = self._gpus[pool]
        if gpu_type:
            named = {name.lower(): name for name in counts}.get(gpu_type.lower())
            return None if named is None else self._name(named, pool)
        if len(counts) > 1 and len(self._gpus) == 1:
            return ""
        if len(counts) > 1:
            not_modelled([f"several GPU types of partition {partition}: untyped jobs have the most frequent"])
        return self._name(max(counts, key=counts.__getitem__), pool)

    def _say_partial(self, partition: str, pool: str) -> None:
        """Note a partition that has some of its pool's hosts, as a simulation gives its jobs any of them."""
        inside = [names for names in self._partitions if names and self.pool_of[names[0]] == pool]
        if not all(partition in names for names in inside):
            not_modelled([f"partition {partition}, which has some of the nodes of others"])


def _join(groups: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return the pool of each name, where names that stand in a group together have the same pool."""
    above: dict[str, str] = {}

    def top(name: str) -> str:
        while above.setdefault(name, name) != name:
            above[name] = above[above[name]]
            name = above[name]
        return name

    for group in groups:
        for name in group:
            low, high = sorted((top(group[0]), top(name)))
            above[high] = low
    return {name: top(name) for name in list(above)}
