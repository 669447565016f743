"""When nodes fail and for how long: a schedule from a file, or drawn from exponential distributions."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.inputs.errors import InputError, require

COLUMNS = ("time_s", "node", "repair_s")
"""Columns of a schedule: when a node fails, which (counted from 0), and how long its repair takes."""

STREAM = 3
"""Of the seed's random streams, the one that failures are drawn from (1: policy, 2: placer)."""


class NodeFailure(NamedTuple):
    """A node fails and is back after its repair."""

    time_s: float
    node: int
    repair_s: float


@dataclass(frozen=True)
class Failures:
    """The failures of a run, the same whatever policy runs; a schedule and drawn ones may come together.

    Attributes
    ----------
    schedule : tuple of NodeFailure
        By time.
    mtbf_s : float or None
        Mean seconds that each node works before it fails, exponential; None: none is drawn.
    mttr_s : float
        Mean seconds of a drawn repair, exponential.
    seed : int
        Of what is drawn.
    checkpoint_every_s : float
        Seconds of work after which a job has written a checkpoint while it goes on working. A job
        whose node fails goes back to its last checkpoint; where there is none, to its launch.
    """

    schedule: tuple[NodeFailure, ...] = ()
    mtbf_s: float | None = None
    mttr_s: float = 3600.0
    seed: int = 0
    checkpoint_every_s: float = 1800.0

    def upcoming(self, nodes: int) -> Iterator[NodeFailure]:
        """Yield the failures of a cluster of so many nodes in order of time, then node.

        Where both are given, one may hit a node that the other has down; it is among them all the same.
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
        As of `Failures`.
    seed : int or None
        Of what is drawn; null: the run's seed.
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


def failures_from_config(given: Mapping[str, Any], nodes: int, seed: int) -> Failures | None:
    """Return the failures of a configuration; None where it asks for none.

    Raises
    ------
    InputError
        For a key or value that is not valid, and as `read_schedule`.
    """
    from clustergym.inputs.parameters import build

    choice: FailureChoice = build(FailureChoice, given, "scenario.failures")
    if choice.path is None and choice.mtbf_s is None:
        return None
    return Failures(
        schedule=() if choice.path is None else read_schedule(choice.path, nodes),
        mtbf_s=choice.mtbf_s,
        mttr_s=choice.mttr_s,
        seed=seed if choice.seed is None else choice.seed,
        checkpoint_every_s=choice.checkpoint_every_s,
    )


def read_schedule(path: str | Path, nodes: int) -> tuple[NodeFailure, ...]:
    """Read a CSV of failures with the columns `COLUMNS`, rows in any order.

    Raises
    ------
    InputError
        Names file, line and column: malformed, a node that the cluster of so many nodes does not have,
        or one that fails while it is being repaired.
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
