"""Observations of the Sharing environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from clustergym.cluster.parts import WHOLE
from clustergym.envs.sharing.desk import NAMES
from clustergym.envs.sharing.state import SharingState

SIGNED = "growth"
"""The part whose numbers begin at -1."""


def layout(nodes: int, devices: int, by_device: bool) -> dict[str, int]:
    """Return how many numbers each part of an observation has, in order."""
    sizes = dict.fromkeys(NAMES, nodes) | {"request": 4, "stream": 2}
    if by_device:
        sizes["device_free"] = nodes * devices
    return dict(sorted(sizes.items()))


def space(sizes: dict[str, int], form: str) -> spaces.Space[Any]:
    """Return the space of observations of a layout, as a `dict` or `flat`."""
    low = {name: -1.0 if name == SIGNED else 0.0 for name in sizes}
    if form == "dict":
        boxes: dict[str, spaces.Space[Any]] = {
            name: spaces.Box(low[name], 1.0, (size,), np.float32) for name, size in sizes.items()
        }
        return spaces.Dict(boxes)
    lowest = np.repeat(np.array(list(low.values()), np.float32), list(sizes.values()))
    return spaces.Box(lowest, np.ones_like(lowest), dtype=np.float32)


def observe(state: SharingState, sizes: dict[str, int]) -> dict[str, npt.NDArray[np.float32]]:
    """Return the parts of an observation; where no request is left, those of requests are 0."""
    desk = state.desk
    shown = {"stream": np.array([state.come, state.allocated], np.float32)}
    if state.over:
        shown |= {name: np.zeros(size, np.float32) for name, size in sizes.items() if name != "stream"}
    else:
        kind = state.kind
        shown |= zip(NAMES, desk.features[kind].copy(), strict=True)
        shown["request"] = state.requests[kind].copy()
    if "device_free" in sizes:
        shown["device_free"] = (desk.nodes.gpu_milli / WHOLE).astype(np.float32).ravel()
    return {name: shown[name] for name in sizes}
