"""The parameters of the Sharing environment; the site's page is made from this file.

The stream of an episode of the Sharing environment: the options of `reset` give it, or a seed draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from clustergym.cluster.parts import CLASSES, WHOLE
from clustergym.common.errors import InputError, require_known
from clustergym.common.parameter_types import NonNegativeFloat, PositiveFloat, PositiveInt
from clustergym.common.parameters import Parameters, check_value
from clustergym.envs.sharing.streams import (
    Source,
    Stream,
    draw_stream,
    generate_source,
    make_published_stream,
    read_source,
)

USUAL_NODES = 64


@dataclass(frozen=True)
class SharingParameters(Parameters):
    """The parameters of a Sharing environment; the text below each field describes it."""

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
        """Read or generate the nodes and requests from which episodes are sampled."""
        if self.data is None:
            return generate_source(self.nodes or USUAL_NODES)
        if self.nodes is not None:
            remedy = "leave it out: the nodes are those of the folder"
            raise InputError("goes with generated nodes alone", field="env.nodes", remedy=remedy)
        source = read_source(Path(self.data), self.workload)
        if not source.rows.gpus.any():
            remedy = "give another workload"
            raise InputError(f"no request of {self.workload!r} has GPUs", field="env.workload", remedy=remedy)
        return source


OPTIONS = ("stream", "order")


def episode_stream(
    parameters: SharingParameters, source: Source, options: Mapping[str, Any], rng: np.random.Generator
) -> Stream:
    """Return the sequence of requests of an episode: that of an option, or a sampled one."""
    for name in options:
        require_known(name, OPTIONS, "option", f"options.{name}")
    if len(options) > 1:
        raise InputError("goes with no other option", field="options.stream", remedy="give one of them")
    if "stream" in options:
        return _make_given_stream(options["stream"], source)
    if "order" in options:
        seed = check_value(options["order"], int, "options.order")
        if seed not in source.orders:
            known = ", ".join(map(str, source.orders)) or "none: give data"
            remedy = f"published orders: {known}"
            raise InputError(f"there is no order of seed {seed}", field="options.order", remedy=remedy)
        return make_published_stream(source, source.orders[seed])
    return draw_stream(source, parameters.load, parameters.departures, rng)


def _make_given_stream(stream: Any, source: Source) -> Stream:
    field = "options.stream"
    if not isinstance(stream, Stream) or not len(stream.arrivals):
        raise InputError("is not a Stream with requests", field=field, remedy="give a Stream")
    shape, own = stream.nodes.gpu_milli.shape, source.nodes.gpu_milli.shape
    if shape != own:
        message = f"has {shape[0]} nodes of up to {shape[1]} GPUs"
        raise InputError(message, field=field, remedy=f"give {own[0]} nodes of up to {own[1]}")
    number, requests = len(stream.arrivals), len(stream.requests.gpus)
    if len(stream.leaves_at) != number or (stream.leaves_at <= np.arange(number)).any():
        remedy = "give NEVER, or the number of a later arrival, for each"
        raise InputError(
            "has a request that leaves before it comes", field=f"{field}.leaves_at", remedy=remedy
        )
    if stream.arrivals.min() < 0 or stream.arrivals.max() >= requests:
        message, remedy = f"names a request that is not one of its {requests}", f"give 0 to {requests - 1}"
        raise InputError(message, field=f"{field}.arrivals", remedy=remedy)
    _check_parts(stream, f"{field}.requests.gpu_milli")
    return stream


def _check_parts(stream: Stream, field: str) -> None:
    gpus, milli = stream.requests.gpus, stream.requests.gpu_milli
    wrong = (milli < 0) | (milli > WHOLE) | ((gpus == 0) != (milli == 0)) | ((gpus > 1) & (milli < WHOLE))
    wrong |= (gpus < 0) | (gpus >= CLASSES)
    if wrong.any():
        at = int(np.argmax(wrong))
        message = f"request {at} asks for {milli[at]} thousandths of {gpus[at]} GPUs"
        raise InputError(message, field=field, remedy="give 1 to 1000 of one GPU, or 1000 of each of several")
