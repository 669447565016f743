"""Slow nodes (stragglers): nodes whose jobs take longer for a while."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.common.parameter_types import Duration, FractionBelowOne, Seed, Slowdown
from clustergym.common.parameters import Parameters
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbance import Disturbance, DisturbanceMetric, DisturbedRun
from clustergym.trace.trace import Trace

EVENTS = ("node_slow", "node_normal")
"""Events: the node in `nodes` becomes slow; it has its speed again."""


@dataclass(frozen=True)
class SlowNodes(Parameters, Disturbance):
    """Random periods in which nodes are slow; a job is as slow as its slowest node.

    Attributes
    ----------
    share : float
        Mean share of nodes that are slow at any time, from the start on.
    factor : float
        Factor by which iterations take longer there.
    duration_s : float
        Mean seconds for which a node is slow, exponentially distributed, as are the times between.
    seed : int or None
        Seed of the draw; null: the run's seed.
    """

    config_key: ClassVar[str] = "scenario.slow_nodes"
    key = "slow_nodes"
    switch = "share"
    metrics = (
        DisturbanceMetric(
            "slow_nodes",
            "",
            "",
            "times that a node became slow, up to the end of the run",
            lambda events: sum(event.event_type == EVENTS[0] for event in events),
        ),
    )

    share: FractionBelowOne = 0.0
    factor: Slowdown = 1.5
    duration_s: Duration = 3600.0
    seed: Seed | None = None

    def check(self, trace: Trace) -> None:
        """Raise an `InputError` if nodes would be slow at full speed."""
        if self.share and self.factor == 1.0:
            message, remedy = "is 1, which slows nobody down", "give more, or share=0"
            raise InputError(message, field=f"{self.config_key}.factor", remedy=remedy)

    def start(self, run: DisturbedRun) -> None:
        """Start the processes that make nodes slow in a run."""
        run.follow(self._slow(run))

    def _slow(self, run: DisturbedRun) -> Iterator[int]:
        nodes = range(len(run.allocations.spec.node_type))
        for start_s, node, duration_s in heapq.merge(*(self._draw_slow_times(node) for node in nodes)):
            # At least a tick, as an event that ends when it begins would never be seen.
            yield ticks(start_s)
            run.slow(node, self.factor, max(ticks(duration_s), 1), EVENTS, "slow node")

    def _draw_slow_times(self, node: int) -> Iterator[tuple[float, int, float]]:
        """Yield (start, node, duration) of the times in which a node is slow."""
        rng = random_streams.SLOW_NODES.generator(self.seed or 0, node)
        # Of the mean times, duration / (duration + normal) = share. The first state is drawn by that share,
        # so that it holds from the start on.
        normal_s = self.duration_s * (1.0 - self.share) / self.share
        now_s = 0.0 if rng.random() < self.share else float(rng.exponential(normal_s))
        while True:
            duration_s = float(rng.exponential(self.duration_s))
            yield now_s, node, duration_s
            now_s += duration_s + float(rng.exponential(normal_s))
