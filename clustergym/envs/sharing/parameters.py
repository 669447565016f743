"""The parameters of the Sharing environment; the site's page is made from this file.

The stream of an episode of the Sharing environment: the options of `reset` give it, or a seed draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from clustergym.cluster.parts import CLASSES, WHOLE
from clustergym.common.errors import InputError, require_known
from clustergym.common.parameter_types import NonNegativeFloat, PositiveFloat, PositiveInt
from clustergym.common.parameters import Parameters
from clustergym.envs.sharing.streams import Source, Stream, draw_stream


@dataclass(frozen=True)
class SharingParameters(Parameters):
    """The parameters of a Sharing environment; the text below each field describes it."""

    config_key: ClassVar[str] = "env"
    nodes: PositiveInt = 64
    """Nodes, in the shapes of openb's and as often."""
    load: PositiveFloat = 1.3
    """GPUs that the requests of an episode ask for, over those installed."""
    reward: Mapping[str, float] = field(default_factory=lambda: {"allocated": 1.0})
    """Weights of the terms allocated, fragments and rejected."""
    on_illegal: Literal["penalty", "noop", "raise"] = "penalty"
    """What follows when the agent chooses a node on which the request does not fit."""
    illegal_penalty: NonNegativeFloat = 1.0
    """What `penalty` takes off the reward, from 0."""
    observation: Literal["dict", "flat"] = "dict"
    """The form of an observation: a dict of arrays, or one array."""
    max_steps: PositiveInt | None = None
    """Steps after which an episode is truncated; null: twice the requests of the episode."""


def episode_stream(
    parameters: SharingParameters, source: Source, options: Mapping[str, Any], rng: np.random.Generator
) -> Stream:
    """Return the sequence of requests of an episode: that of an option, or a sampled one."""
    for name in options:
        require_known(name, ("stream",), "option", f"options.{name}")
    if "stream" in options:
        return _make_given_stream(options["stream"], source)
    return draw_stream(source, parameters.load, rng)


def _make_given_stream(stream: Any, source: Source) -> Stream:
    field = "options.stream"
    if not isinstance(stream, Stream) or not len(stream.arrivals):
        raise InputError("is not a Stream with requests", field=field, remedy="give a Stream")
    shape, own = stream.nodes.gpu_milli.shape, source.nodes.gpu_milli.shape
    if shape != own:
        message = f"has {shape[0]} nodes of up to {shape[1]} GPUs"
        raise InputError(message, field=field, remedy=f"give {own[0]} nodes of up to {own[1]}")
    requests = len(stream.requests.gpus)
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
