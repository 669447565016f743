"""Checkpoints every so often, and what a stop without notice loses since the last one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Delay, Duration
from clustergym.common.parameters import Parameters
from clustergym.scenario.disturbance import Disturbance, DisturbedRun
from clustergym.trace.trace import Trace


@dataclass(frozen=True)
class Checkpoints(Parameters, Disturbance):
    """Periodic checkpoints, to the last of which a job returns if it is stopped without notice.

    A job that a decision stops, or gives other GPUs, goes back to its last checkpoint, unless the decision
    gives it notice (`Decision.notice`): it then saves first. Half of the restart that the scenario's costs
    state, which is the time to save and load, is the saving; each launch pays the loading alone.

    Attributes
    ----------
    every_s : float or None
        Seconds of work between two checkpoints; null: jobs save when they are stopped, and the next launch
        pays for it.
    write_s : float
        Seconds for which writing each of them blocks the job.
    """

    config_key: ClassVar[str] = "scenario.checkpoints"
    key = "checkpoints"
    switch = "every_s"
    stops_lose = True

    every_s: Duration | None = None
    write_s: Delay = 0.0

    def check(self, trace: Trace) -> None:
        """Raise an `InputError` if writing takes longer than the interval, or is given without one."""
        if self.write_s > (self.every_s or 0.0):
            message = f"a write of {self.write_s:g} s is given, "
            message += "but no interval" if self.every_s is None else f"longer than {self.every_s:g} s"
            remedy = "give a longer scenario.checkpoints.every_s"
            raise InputError(message, field="scenario.checkpoints.write_s", remedy=remedy)

    def start(self, run: DisturbedRun) -> None:
        """Do nothing, since `checkpoints` returns everything that the engine needs."""

    def checkpoints(self, cluster: ClusterSpec, nodes: Nodes) -> tuple[float, float]:
        """Return the seconds between a job's checkpoints, and of writing one; equal on all nodes."""
        assert self.every_s is not None
        return self.every_s, self.write_s
