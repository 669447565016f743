"""The parameters of the Sharing environment; the site's page is made from this file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from clustergym.common.errors import InputError
from clustergym.common.parameter_types import NonNegativeFloat, PositiveFloat, PositiveInt
from clustergym.common.parameters import Parameters
from clustergym.envs.sharing.streams import Source, generated_source, read_source

USUAL_NODES = 64


@dataclass(frozen=True)
class SharingParameters(Parameters):
    """What a Sharing environment is made with; the text below each field describes it.

    Raises
    ------
    InputError
        If a value is out of its range, or a file is not as it should be.
    """

    config_key: ClassVar[str] = "env"
    nodes: PositiveInt | None = None
    """Nodes, in the shapes of openb's and as often; null: 64, or with `data` those of the folder."""
    data: str | None = None
    """A folder laid out as Alibaba's openb data, of which nodes and requests are; null: generated ones."""
    workload: str = "default"
    """The list of requests in that folder: pods/openb_pod_list_WORKLOAD.csv."""
    load: PositiveFloat = 1.3
    """GPUs that the requests of an episode ask for, over those installed; with departures, at a time."""
    departures: bool = False
    """Whether requests leave again; if not, they fill the cluster, as in FGD's experiment."""
    action: Literal["node", "device"] = "node"
    """What an action chooses: a node, where FGD's rule chooses the device, or a device of a node."""
    reward: Mapping[str, float] = field(default_factory=lambda: {"allocated": 1.0})
    """Weights of the terms allocated, mean_allocated, fragments and rejected."""
    on_illegal: Literal["penalty", "noop", "raise"] = "penalty"
    """What follows when the agent chooses a node or a device on which the request does not fit."""
    illegal_penalty: NonNegativeFloat = 1.0
    """What `penalty` takes off the reward, from 0."""
    observation: Literal["dict", "flat"] = "dict"
    """The form of an observation: a dict of arrays, or one array."""
    max_steps: PositiveInt | None = None
    """Steps after which an episode is truncated; null: twice the requests of the episode."""

    def source(self) -> Source:
        """Return what episodes are drawn from."""
        if self.data is None:
            return generated_source(self.nodes or USUAL_NODES)
        if self.nodes is not None:
            remedy = "leave it out: the nodes are those of the folder"
            raise InputError("goes with generated nodes alone", field="env.nodes", remedy=remedy)
        source = read_source(Path(self.data), self.workload)
        if not source.rows.gpus.any():
            remedy = "give another workload"
            raise InputError(f"no request of {self.workload!r} has GPUs", field="env.workload", remedy=remedy)
        return source
