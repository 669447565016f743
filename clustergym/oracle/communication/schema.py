"""What the keys of conf/calibration/collectives.yaml may hold (pydantic, so import this module late)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from clustergym.cluster.schema import Checked, Positive, Text

Name = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "send"]
Latency = Annotated[float, Field(ge=0, le=10)]
Share = Annotated[float, Field(gt=0, le=1)]


class MediumKeys(Checked):
    """The keys of `clustergym.oracle.communication.constants.Medium`."""

    latency_s: dict[Name, Latency]
    step_s: Latency | None = None
    share: dict[Name, Share]
    pair_share: dict[Name, Share] = Field(default_factory=dict)
    alone_speedup: Annotated[Positive, Field(ge=1, le=16)] = 1.0


class DeviceKeys(Checked):
    """Constants of one GPU type."""

    link: MediumKeys
    network: MediumKeys | None = None


class DefaultKeys(Checked):
    """Constants of hardware that nobody measured."""

    nvlink: MediumKeys
    pcie: MediumKeys
    network: MediumKeys


class SourceKeys(Checked):
    """Where the constants come from."""

    file: Text
    sha256: Text
    rows: Annotated[int, Field(ge=1)]


class ConstantsKeys(Checked):
    """conf/calibration/collectives.yaml."""

    source: SourceKeys
    devices: dict[Text, DeviceKeys]
    defaults: DefaultKeys
