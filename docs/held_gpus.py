"""Which job holds which GPU when, for pictures of schedules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.results.report.event_curves import collect_log
from clustergym.results.report.payload import place_boxes
from clustergym.results.result_writing import event_lines
from clustergym.sim.engine import Simulation


class Bar(NamedTuple):
    """GPUs that a job holds from `start_s` until `stop_s`; it works from `ready_s` on.

    Attributes
    ----------
    job : int
        Row of the trace.
    gpus : tuple of int
        Numbers of the GPUs, node after node.
    start_s, ready_s, stop_s : float
    profiles : bool
        Whether it is profiled on them, rather than trained.
    """

    job: int
    gpus: tuple[int, ...]
    start_s: float
    ready_s: float
    stop_s: float
    profiles: bool


def bars_of(simulation: Simulation) -> list[Bar]:
    """Return what jobs hold in a run that has ended, by start: one bar of a job while its partner stays."""
    sizes = simulation.scenario.cluster.node_gpus
    rows = {name: row for row, name in enumerate(simulation.scenario.trace.job_id)}
    held = collect_log(event_lines(simulation), simulation.end_s).held
    first = np.cumsum(sizes) - sizes
    bars = []
    for one, boxes in zip(held, place_boxes(held, sizes.tolist()), strict=True):
        places = zip(one.nodes, boxes, strict=True)
        gpus = tuple(dict.fromkeys(int(first[node]) + box.gpu for (node, _), own in places for box in own))
        ready_s, profiles = one.start_s + one.overhead_s, one.action == "profile"
        bars.append(Bar(rows[one.job], gpus, one.start_s, ready_s, one.end_s, profiles))
    return bars
