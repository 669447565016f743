"""The stream of an episode of the Sharing environment: the options of `reset` give it, or a seed draws it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from clustergym.cluster.parts import CLASSES, WHOLE
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameters import checked
from clustergym.envs.sharing.parameters import SharingParameters
from clustergym.envs.sharing.streams import Source, Stream, drawn, published

OPTIONS = ("stream", "order")


def episode_stream(
    parameters: SharingParameters, source: Source, options: Mapping[str, Any], rng: np.random.Generator
) -> Stream:
    """Return the stream of an episode.

    Raises
    ------
    InputError
        For an unknown option, or one that does not suit the environment.
    """
    for name in options:
        if name not in OPTIONS:
            remedy = nearest(str(name), OPTIONS)
            raise InputError(f"unknown option {name!r}", field=f"options.{name}", remedy=remedy)
    if len(options) > 1:
        raise InputError("goes with no other option", field="options.stream", remedy="give one of them")
    if "stream" in options:
        return _given(options["stream"], source)
    if "order" in options:
        seed = checked(options["order"], int, "options.order")
        if seed not in source.orders:
            known = ", ".join(map(str, source.orders)) or "none: give data"
            remedy = f"published orders: {known}"
            raise InputError(f"there is no order of seed {seed}", field="options.order", remedy=remedy)
        return published(source, source.orders[seed])
    return drawn(source, parameters.load, parameters.departures, rng)


def _given(stream: Any, source: Source) -> Stream:
    field = "options.stream"
    if not isinstance(stream, Stream) or not len(stream.arrivals):
        raise InputError("is not a Stream with requests", field=field, remedy="give a Stream")
    shape, own = stream.nodes.gpu_milli.shape, source.nodes.gpu_milli.shape
    if shape != own:
        message = f"has {shape[0]} nodes of up to {shape[1]} GPUs"
        raise InputError(message, field=field, remedy=f"give {own[0]} nodes of up to {own[1]}")
    number, kinds = len(stream.arrivals), len(stream.kinds.gpus)
    if len(stream.leaves_at) != number or (stream.leaves_at <= np.arange(number)).any():
        remedy = "give NEVER, or the number of a later arrival, for each"
        raise InputError(
            "has a request that leaves before it comes", field=f"{field}.leaves_at", remedy=remedy
        )
    if stream.arrivals.min() < 0 or stream.arrivals.max() >= kinds:
        message, remedy = f"names a kind that is not one of its {kinds}", f"give 0 to {kinds - 1}"
        raise InputError(message, field=f"{field}.arrivals", remedy=remedy)
    _check_parts(stream, f"{field}.kinds.gpu_milli")
    return stream


def _check_parts(stream: Stream, field: str) -> None:
    gpus, milli = stream.kinds.gpus, stream.kinds.gpu_milli
    wrong = (milli < 0) | (milli > WHOLE) | ((gpus == 0) != (milli == 0)) | ((gpus > 1) & (milli < WHOLE))
    wrong |= (gpus < 0) | (gpus >= CLASSES)
    if wrong.any():
        at = int(np.argmax(wrong))
        message = f"kind {at} asks for {milli[at]} thousandths of {gpus[at]} GPUs"
        raise InputError(message, field=field, remedy="give 1 to 1000 of one GPU, or 1000 of each of several")
