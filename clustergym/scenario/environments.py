"""The table of environments, with their names in Gymnasium and in `clustergym train env=NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple


class Environment(NamedTuple):
    """How a Gymnasium environment is registered: id, entry point, arguments and reward threshold.

    Attributes
    ----------
    id : str
        Gymnasium's id.
    entry_point : str
        `module:Class`, loaded when the environment is made.
    kwargs : mapping
        Keyword arguments of its constructor, as plain JSON values. An id ends in the version of its episodes,
        which docs/versions.md says when to raise.
    reward_threshold : float or None
        Mean return on the test traces from which on an agent is said to have learned.
    """

    id: str
    entry_point: str
    kwargs: Mapping[str, Any] = MappingProxyType({})
    reward_threshold: float | None = None

    @property
    def schedules(self) -> bool:
        """Whether it is one of the scheduling environments, whose episodes run on the compiled simulation."""
        return self.entry_point.startswith(f"{_FAMILIES}:")

    @property
    def vector_entry_point(self) -> str:
        """Path of the class for `gymnasium.make_vec`."""
        return self.entry_point.replace(".environment:", ".vector:").removesuffix("Env") + "VectorEnv"

    @property
    def short_name(self) -> str:
        """Name of the environment in `clustergym train env=NAME`, such as `elastic-16`."""
        return self.id.removeprefix("ClusterGym/").rpartition("-v")[0].lower()


_PLACEMENT = "clustergym.envs.placement.environment:PlacementEnv"
_SHARING = "clustergym.envs.sharing.environment:SharingEnv"
_CAPACITY = "clustergym.envs.capacity.environment:CapacityEnv"
_RACK = "clustergym.envs.racks.environment:RackEnv"
_FAMILIES = "clustergym.envs.families"
_TYPES = {16: "arena-16", 64: "arena-a", 384: "arena-384", 1280: "arena-sim"}
_ONE_TYPE = {16: "ares-16", 64: "ares-64", 384: "ares-384", 1280: "ares-1280"}
_JOBS = {16: 100, 64: 150, 384: 200, 1280: 200}
SCHEDULING: Mapping[str, tuple[str, Mapping[int, str]]] = {
    "Elastic": ("ElasticEnv", _TYPES),
    "Elastic-homogeneous": ("ElasticEnv", _ONE_TYPE),
    "Fair": ("FairEnv", _ONE_TYPE),
    "Deadline": ("DeadlineEnv", _TYPES),
    "Auction": ("AuctionEnv", _TYPES),
}
"""Family -> class in `clustergym.envs.families`, and the cluster of each number of GPUs."""


TIERS: Mapping[str, tuple[str, Mapping[int, Mapping[str, Any]]]] = {
    "Burst": ("ElasticEnv", {16: {"jobs": 12, "loads": (4.0,)}, 64: {"jobs": 20, "loads": (4.0,)}}),
    "Priority": (
        "PriorityEnv",
        {16: {"jobs": 50}, 64: {"jobs": 100, "rows": 64}, 1280: {"jobs": 200, "rows": 64}},
    ),
    "Knobs": ("KnobsEnv", {16: {"jobs": 50}, 64: {"jobs": 100}, 1280: {"jobs": 200}}),
}
"""Family -> class in `clustergym.envs.families`, and the parameters of each number of GPUs. In these agents
learn from scratch; in those of `Elastic` an action is a single edit."""
LEARNED: Mapping[str, float] = {
    "Burst-16": -1.026,
    "Burst-64": -0.617,
    "Priority-16": -1.44,
    "Priority-64": -0.905,
    "Priority-1280": -0.374,
    "Knobs-16": 0.162,
    "Knobs-64": 0.382,
    "Knobs-1280": 0.754,
    "Elastic-16": -1.725,
    "Elastic-64": -1.183,
    "Elastic-384": -0.579,
    "Elastic-1280": -0.385,
}
"""Tier -> reward threshold. Those of `Burst` and `Elastic` are a heuristic's: lessons, not benchmarks.

`Burst`: heSRPT's mean JCT in hours on the test traces (benchmarks/tier_table.py); `Elastic`: that of the
better one of heSRPT and elastic SRTF; `Priority`: 0.95 of heSRPT's on 16 GPUs, else 0.97; `Knobs`: what leads
from the known auction's mean JCT to 0.93 of heSRPT's."""


def _tier(family: str, gpus: int) -> Environment:
    made_by, sizes = TIERS[family]
    kwargs = {"cluster": _TYPES[gpus], **sizes[gpus]}
    name = f"{family}-{gpus}"
    return Environment(
        f"ClusterGym/{name}-v0", f"{_FAMILIES}:{made_by}", MappingProxyType(kwargs), LEARNED.get(name)
    )


def _scheduling(family: str, gpus: int | None) -> Environment:
    made_by, clusters = SCHEDULING[family]
    name = family if gpus is None else f"{family}-{gpus}"
    size = gpus or 64
    kwargs: dict[str, Any] = {"cluster": clusters[size], "jobs": _JOBS[size]}
    if clusters is _ONE_TYPE:
        kwargs |= {"rule": "ares", "costs": "ares-profiled-free"}
    return Environment(
        f"ClusterGym/{name}-v1",
        f"{_FAMILIES}:{made_by}",
        MappingProxyType(kwargs),
        LEARNED.get(f"{family}-{size}"),
    )


def _tenants(family: str, gpus: int | None, version: int) -> Environment:
    size = gpus or 64
    kwargs: dict[str, Any] = {"cluster": _ONE_TYPE[size], "jobs": _JOBS[size]}
    # The families' own default has 64 GPUs; quotas of other sizes are in files of their own.
    if size != 64:
        kwargs["queues"] = f"philly-{size}"
    name = family if gpus is None else f"{family}-{gpus}"
    made_by = f"{_FAMILIES}:{family}Env"
    return Environment(f"ClusterGym/{name}-v{version}", made_by, MappingProxyType(kwargs))


ENVIRONMENTS: tuple[Environment, ...] = (
    Environment("ClusterGym/Placement-v0", _PLACEMENT, {"setting": "ii"}),
    Environment("ClusterGym/Placement-small-v0", _PLACEMENT, {"setting": "i"}),
    Environment("ClusterGym/Placement-large-v0", _PLACEMENT, {"setting": "iii"}),
    Environment("ClusterGym/Sharing-v1", _SHARING, {"nodes": 64}),
    Environment("ClusterGym/Sharing-small-v1", _SHARING, {"nodes": 16}),
    Environment("ClusterGym/Sharing-large-v1", _SHARING, {"nodes": 1213}),
    Environment("ClusterGym/Rack-576-v0", _RACK),
    Environment("ClusterGym/Rack-told-v0", _RACK, MappingProxyType({"told_error": 0.05})),
    Environment("ClusterGym/Capacity-16-v0", _CAPACITY, {"gpus": 16}),
    Environment("ClusterGym/Capacity-64-v0", _CAPACITY, {"gpus": 64}),
    *(_tier(family, gpus) for family, (_, sizes) in TIERS.items() for gpus in sizes),
    *(_tenants("Tenants", gpus, 1) for gpus in (None, *_JOBS)),
    *(_scheduling(family, gpus) for family in SCHEDULING for gpus in (None, *_JOBS)),
)
