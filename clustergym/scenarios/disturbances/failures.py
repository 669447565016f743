"""Node failures: a schedule from a file, or drawn from exponential distributions."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.inputs.errors import InputError, require
from clustergym.inputs.parameters import build
from clustergym.scenarios.clock import ticks
from clustergym.scenarios.disturbance import Disturbance, DisturbanceMetric, DisturbedRun
from clustergym.workload.trace import Trace

COLUMNS = ("time_s", "node", "repair_s")
"""Columns of a schedule: when a node fails, which (counted from 0), and how long its repair takes."""

NODE_FAIL, NODE_REPAIR = "node_fail", "node_repair"
"""Events: the node in `nodes` fails, all of its `gpus` are out of use; it works again."""

STREAM = 3
"""Number of the random stream that failures are drawn from (1: policy, 2: placer)."""


class NodeFailure(NamedTuple):
    """One failure of a node and the duration of its repair."""

    time_s: float
    node: int
    repair_s: float


@dataclass(frozen=True)
class Failures(Disturbance):
    """The node failures of a run: a schedule, drawn ones, or both. They do not depend on the policy.

    Attributes
    ----------
    schedule : tuple of NodeFailure
        Scheduled failures, in order of time.
    mtbf_s : float or None
        Mean seconds until a node fails, exponentially distributed; None: no failures are drawn.
    mttr_s : float
        Mean seconds of a drawn repair, exponentially distributed.
    seed : int
        Seed of the drawn failures.
    checkpoint_every_s : float
        Seconds of work between a job's checkpoints, which do not interrupt it. A job whose node fails
        goes back to its last checkpoint, or to its launch if there is none.
    """

    key = "failures"
    outages = ((NODE_FAIL, NODE_REPAIR),)
    metrics = (
        DisturbanceMetric(
            "node_failures",
            "",
            "",
            "failures of nodes up to the end of the run, whether in use or not",
            lambda events: sum(event.kind == NODE_FAIL for event in events),
        ),
    )

    schedule: tuple[NodeFailure, ...] = ()
    mtbf_s: float | None = None
    mttr_s: float = 3600.0
    seed: int = 0
    checkpoint_every_s: float = 1800.0

    @classmethod
    def from_config(
        cls, given: Mapping[str, Any], cluster: ClusterSpec, trace: Trace, seed: int
    ) -> Failures | None:
        """Build the failures of the keys of `FailureChoice`; also raises as `read_schedule`."""
        choice: FailureChoice = build(FailureChoice, given, "scenario.failures")
        if choice.path is None and choice.mtbf_s is None:
            return None
        return cls(
            schedule=() if choice.path is None else read_schedule(choice.path, len(cluster.node_type)),
            mtbf_s=choice.mtbf_s,
            mttr_s=choice.mttr_s,
            seed=seed if choice.seed is None else choice.seed,
            checkpoint_every_s=choice.checkpoint_every_s,
        )

    def start(self, run: DisturbedRun) -> None:
        """Let nodes fail in a run."""
        run.follow(self._fail_nodes(run))

    def _fail_nodes(self, run: DisturbedRun) -> Iterator[int]:
        for time_s, node, repair_s in self.upcoming(len(run.allocations.spec.node_type)):
            yield ticks(time_s)
            if node not in run.allocations.down:
                run.take_out(node, max(ticks(repair_s), 1), self.outages[0], f"node {node} failed")

    def upcoming(self, nodes: int) -> Iterator[NodeFailure]:
        """Yield the failures of a cluster with that many nodes, in order of time, then node.

        With both a schedule and drawn failures, a node may be listed as failing while it is already down.
        """
        drawn = [] if self.mtbf_s is None else [self._drawn(node) for node in range(nodes)]
        return heapq.merge(self.schedule, *drawn)

    def _drawn(self, node: int) -> Iterator[NodeFailure]:
        assert self.mtbf_s is not None
        rng, now_s = np.random.default_rng([self.seed, STREAM, node]), 0.0
        while True:
            now_s += float(rng.exponential(self.mtbf_s))
            repair_s = float(rng.exponential(self.mttr_s))
            yield NodeFailure(now_s, node, repair_s)
            now_s += repair_s


@dataclass(frozen=True)
class FailureChoice:
    """The key `scenario.failures` of the configuration.

    Attributes
    ----------
    path : str or None
        A CSV file with the columns `COLUMNS`.
    mtbf_s, mttr_s, checkpoint_every_s
        As in `Failures`.
    seed : int or None
        Seed of the drawn failures; null: the run's seed.
    """

    path: str | None = None
    mtbf_s: float | None = None
    mttr_s: float = 3600.0
    checkpoint_every_s: float = 1800.0
    seed: int | None = None

    def __post_init__(self) -> None:
        for key in ("mtbf_s", "mttr_s", "checkpoint_every_s"):
            value = getattr(self, key)
            require(
                value is None or 1.0 <= value < 1e12,
                f"scenario.failures.{key}",
                value,
                "give seconds above 1",
            )
        seed = self.seed
        require(seed is None or seed >= 0, "scenario.failures.seed", seed, "give a whole number from 0")


def read_schedule(path: str | Path, nodes: int) -> tuple[NodeFailure, ...]:
    """Read a CSV of failures with the columns `COLUMNS`, rows in any order.

    Raises
    ------
    InputError
        If the file is malformed, names a node that the cluster does not have, or lets a node fail while
        it is being repaired. Names file, line and column.
    """
    from clustergym.inputs.columns import integers, numbers
    from clustergym.inputs.text_files import read_csv

    table = read_csv(Path(path), COLUMNS)
    rows = zip(
        numbers(table, "time_s", low=0.0).tolist(),
        integers(table, "node", low=0, high=nodes - 1).tolist(),
        numbers(table, "repair_s", low=1e-6).tolist(),
        table.line,
        strict=True,
    )
    ordered = sorted((NodeFailure(time_s, node, repair_s), line) for time_s, node, repair_s, line in rows)
    back_s: dict[int, float] = {}
    for failure, line in ordered:
        if failure.time_s < back_s.get(failure.node, 0.0):
            raise InputError(
                f"node {failure.node} fails at {failure.time_s:g} s, but its repair lasts until "
                f"{back_s[failure.node]:g} s",
                file=path,
                line=line,
                field="time_s",
                remedy="let it fail later, or merge both rows",
            )
        back_s[failure.node] = failure.time_s + failure.repair_s
    return tuple(failure for failure, _ in ordered)
