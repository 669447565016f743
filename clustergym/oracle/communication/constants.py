"""Latency and bandwidth constants of links and networks by hardware: conf/calibration/collectives.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from clustergym.cluster.spec import GpuType
from clustergym.errors import InputError
from clustergym.oracle.communication.primitives import Primitive
from clustergym.paths import conf_dir

if TYPE_CHECKING:
    from clustergym.oracle.communication.schema import MediumKeys

LINK_FAMILIES = ("nvlink", "pcie")
"""What the kinds of link begin with; the last stands for any other kind."""

NETWORK = "network"
"""Key of the constants of networks that nobody measured."""


@dataclass(frozen=True)
class Medium:
    """Alpha-beta constants of the links inside a node, or of the network of a node.

    Attributes
    ----------
    latency_s : dict of Primitive to float
        Seconds of the smallest call between two ranks.
    step_s : float or None
        Seconds for every further hop of a ring; None where no group was measured that makes one.
    share : dict of Primitive to float
        Share of the data sheet's bandwidth that large volumes reach.
    pair_share : dict of Primitive to float
        Links: share of that which a group of two ranks reaches, all where it is not given; less than
        1 where a GPU's links are divided among its neighbours. A group of n reaches n - 1 times as
        much, at most all.
    alone_speedup : float
        Networks: how much faster the network of a node is while one GPU of it communicates.
    """

    latency_s: Mapping[Primitive, float]
    step_s: float | None
    share: Mapping[Primitive, float]
    pair_share: Mapping[Primitive, float] = field(default_factory=dict)
    alone_speedup: float = 1.0

    def completed(self, other: Medium) -> Medium:
        """Return the same with what this one lacks from another medium."""
        return Medium(
            dict(other.latency_s) | dict(self.latency_s),
            other.step_s if self.step_s is None else self.step_s,
            dict(other.share) | dict(self.share),
            dict(other.pair_share) | dict(self.pair_share),
            self.alone_speedup,
        )


@dataclass(frozen=True)
class Constants:
    """Constants of every measured GPU type, and those that stand in for the others.

    Attributes
    ----------
    links, networks : dict of str to Medium
        By GPU type.
    defaults : dict of str to Medium
        `nvlink`, `pcie` and `network`.
    sha256 : str
        Digest of the measured table they were fitted to.
    """

    links: Mapping[str, Medium]
    networks: Mapping[str, Medium]
    defaults: Mapping[str, Medium]
    sha256: str

    def link(self, gpu: GpuType) -> Medium:
        """Return the constants of a GPU type's links inside a node."""
        found = self.links.get(gpu.name)
        default = self.defaults[link_family(gpu.link_kind)]
        return default if found is None else found.completed(default)

    def network(self, gpu: GpuType) -> Medium:
        """Return the constants of the network of a GPU type's nodes."""
        found = self.networks.get(gpu.name)
        default = self.defaults[NETWORK]
        return default if found is None else found.completed(default)


def link_family(kind: str) -> str:
    """Return `nvlink` or `pcie`; any other kind of link counts as PCIe, the slower one."""
    return next((family for family in LINK_FAMILIES if kind.startswith(family)), LINK_FAMILIES[-1])


def load_constants(path: Path | None = None) -> Constants:
    """Return the constants of a YAML file, by default conf/calibration/collectives.yaml.

    Raises
    ------
    InputError
        If the file is wrong: names file, line and key.
    """
    return _load(path or conf_dir() / "calibration" / "collectives.yaml")


@lru_cache(maxsize=8)
def _load(path: Path) -> Constants:
    from clustergym.cluster.schema import checked
    from clustergym.cluster.yaml_file import read_mapping
    from clustergym.oracle.communication.schema import ConstantsKeys

    source = read_mapping(path)
    keys = checked(ConstantsKeys, source.content, file=path, source=source)
    links = {name: _medium(device.link) for name, device in keys.devices.items()}
    networks = {name: _medium(d.network) for name, d in keys.devices.items() if d.network is not None}
    defaults = {name: _medium(getattr(keys.defaults, name)) for name in (*LINK_FAMILIES, NETWORK)}
    for name, medium in defaults.items():
        if medium.step_s is None:
            raise InputError(
                "is missing",
                file=path,
                line=source.line(("defaults", name)),
                field=f"defaults.{name}.step_s",
                remedy="give `step_s`",
            )
        for key in ("latency_s", "share"):
            missing = [p for p in Primitive if p not in getattr(medium, key)]
            if missing:
                raise InputError(
                    "is missing",
                    file=path,
                    line=source.line(("defaults", name, key)),
                    field=f"defaults.{name}.{key}.{missing[0].value}",
                    remedy=f"give `{missing[0].value}`",
                )
    return Constants(links, networks, defaults, keys.source.sha256)


def _medium(keys: MediumKeys) -> Medium:
    return Medium(
        {Primitive(name): value for name, value in keys.latency_s.items()},
        keys.step_s,
        {Primitive(name): value for name, value in keys.share.items()},
        {Primitive(name): value for name, value in keys.pair_share.items()},
        keys.alone_speedup,
    )
