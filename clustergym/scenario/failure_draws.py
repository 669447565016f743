"""Failures of nodes and switches, drawn or read from schedules, and how long each takes a node out.

Each node and switch has random streams of its own under one seed, so that the same failures hit every policy.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.errors import InputError, nearest
from clustergym.scenario.failure_model import FailureModel

NODE, LEAF, MINIPOD = 0, 1, 2
"""Tiers of `Fault`."""
NEW_NODE, PROCESS, IN_PLACE = "new node", "process", "in place"
"""Steps of the ladder of restarts."""


class Fault(NamedTuple):
    """A failure of a node or a switch: its time, its place, its cause and its repair time.

    Attributes
    ----------
    time_s : float
    tier, number : int
        What fails: `NODE`, `LEAF` or `MINIPOD`, and which.
    repair_s : float
    cause : str
    step : str
        What its jobs need: `NEW_NODE`, `PROCESS` or `IN_PLACE`.
    luck : float
        From 0 to 1: a node that took an offender's place fails only if it is below 1 / factor.
    """

    time_s: float
    tier: int
    number: int
    repair_s: float
    cause: str = ""
    step: str = NEW_NODE
    luck: float = 0.0


class Draw:
    """Generates a random endless sequence of failures for each node and switch of a cluster.

    Parameters
    ----------
    seed : int
    mtbf_s : float or None
        Mean seconds until a node fails; None: nodes do not.
    mttr_s : float
        Mean seconds of a node's repair.
    model : FailureModel
    """

    def __init__(self, seed: int, mtbf_s: float | None, mttr_s: float, model: FailureModel) -> None:
        self.seed, self.mtbf_s, self.mttr_s, self.model = seed, mtbf_s, mttr_s, model
        weights = np.array([float(weight) for weight in model.causes.values()])
        # Without causes the sum is 0, and so are all of the shares.
        self._causes, self._up_to = list(model.causes), np.cumsum(weights) / max(weights.sum(), 1e-300)

    def offends(self, node: int) -> bool:
        """Return whether a node is one of those that fail more often than others."""
        share = self.model.offenders.share
        return share > 0 and random_streams.OFFENDING_NODES.generator(self.seed, node).random() < share

    def of_node(self, node: int) -> Iterator[Fault]:
        """Yield the random failures of a node in order of time."""
        assert self.mtbf_s is not None
        offenders, mean_s = self.model.offenders, self.mtbf_s / self.model.rate_scale
        if offenders.share:
            # The mean rate of all nodes stays 1 / mtbf: (s f + 1 - s) / m for m = mtbf (1 + s (f - 1)).
            mean_s *= 1.0 + offenders.share * (offenders.factor - 1.0)
            mean_s /= offenders.factor if self.offends(node) else 1.0
        # Causes have a stream of their own: giving causes moves no failure.
        rng, now_s = random_streams.NODE_FAILURES.generator(self.seed, node), 0.0
        draws = random_streams.FAILURE_CAUSES.generator(self.seed, node)
        while True:
            now_s += float(rng.exponential(mean_s))
            repair_s = self._repair_s(rng)
            fault = self._fault(now_s, node, repair_s, draws)
            yield fault
            # A node under repair cannot fail, but with spares another works in its place and can.
            if fault.step == NEW_NODE and not self.model.spares.nodes:
                now_s += repair_s

    def _repair_s(self, rng: np.random.Generator) -> float:
        median_s = self.model.repair_median_s
        if median_s is None:
            return float(rng.exponential(self.mttr_s))
        # The mean of a log-normal distribution is its median times exp(sigma^2 / 2).
        return float(rng.lognormal(np.log(median_s), np.sqrt(2 * np.log(self.mttr_s / median_s))))

    def _fault(self, now_s: float, node: int, repair_s: float, draws: np.random.Generator) -> Fault:
        # Always three draws, so that each failure has the same ones whatever the model's other keys are.
        of_cause, of_step, luck = draws.random(3).tolist()
        cause = self._causes[int(np.searchsorted(self._up_to, of_cause, "right"))] if self._causes else ""
        return Fault(now_s, NODE, node, repair_s, cause, self._step(cause, of_step), luck)

    def _step(self, cause: str, of_step: float) -> str:
        """Sample how a failed job restarts: by the rule of its cause, or else by the shares."""
        restart = self.model.restart
        if cause in restart.in_place_causes:
            return IN_PLACE
        if cause in restart.process_causes:
            return PROCESS
        if of_step < restart.in_place_share:
            return IN_PLACE
        return PROCESS if of_step < restart.in_place_share + restart.process_share else NEW_NODE

    def of_switch(self, tier: int, index: int, mtbf_s: float) -> Iterator[Fault]:
        """Yield random failures of switch `index` of a tier in order of time, every `mtbf_s` on average."""
        stream = random_streams.LEAF_FAILURES if tier == LEAF else random_streams.MINIPOD_FAILURES
        rng, now_s = stream.generator(self.seed, index), 0.0
        while True:
            now_s += float(rng.exponential(mtbf_s / self.model.rate_scale))
            repair_s = float(rng.exponential(self.model.switch_mttr_s))
            yield Fault(now_s, tier, index, repair_s, SWITCH_CAUSES[tier])
            now_s += repair_s

    def faults(
        self, cluster: ClusterSpec, nodes: Sequence[NodeFailure], switches: Sequence[SwitchFailure]
    ) -> Iterator[Fault]:
        """Yield all failures of a cluster, random and scheduled, in order of time."""
        tiers = {"leaf": LEAF, "minipod": MINIPOD}
        # Merged, not sorted: drawn streams are endless. Of equal times nodes come before switches.
        streams: list[Iterator[Fault]] = [
            (Fault(time_s, NODE, node, repair_s) for time_s, node, repair_s in nodes),
            (
                Fault(time_s, tiers[tier], index, repair_s, SWITCH_CAUSES[tiers[tier]])
                for time_s, tier, index, repair_s in switches
            ),
        ]
        if self.mtbf_s is not None:
            streams += [self.of_node(node) for node in range(len(cluster.node_type))]
        switched = (
            (LEAF, cluster.node_leaf, self.model.leaf_mtbf_s),
            (MINIPOD, cluster.node_minipod, self.model.minipod_mtbf_s),
        )
        for tier, of_nodes, mtbf_s in switched:
            if mtbf_s is not None:
                streams += [self.of_switch(tier, index, mtbf_s) for index in range(int(of_nodes.max()) + 1)]
        return heapq.merge(*streams)


SWITCH_CAUSES = ("", "leaf switch", "spine switch")
"""Cause of the failure of a switch of each tier."""


class Repairs:
    """Computes how long each failure takes a node out, with spares and longer outages of repeat failers.

    Depends on the failures alone, not on what jobs do.

    Parameters
    ----------
    draw : Draw
    cluster : ClusterSpec
    """

    def __init__(self, draw: Draw, cluster: ClusterSpec) -> None:
        self._draw, self._model, self._cluster = draw, draw.model, cluster
        self._recent_s: dict[int, deque[float]] = {}
        self._replaced: set[int] = set()
        self._spares = [[0.0] * self._model.spares.nodes for _ in cluster.gpu_types]

    def happens(self, fault: Fault) -> bool:
        """Return whether a random failure happens; a spare that replaced its node may fail less often."""
        if fault.number not in self._replaced or not self._draw.offends(fault.number):
            return True
        return fault.luck < 1.0 / self._model.offenders.factor

    def outage_s(self, fault: Fault) -> float:
        """Return the seconds for which a failed node is out of use, and record the failure."""
        exclusion, repair_s = self._model.exclusion, fault.repair_s
        if exclusion.after is not None:
            seen = self._recent_s.setdefault(fault.number, deque())
            seen.append(fault.time_s)
            while seen[0] < fault.time_s - exclusion.within_s:
                seen.popleft()
            if len(seen) >= exclusion.after:
                # The count begins anew after the exclusion.
                seen.clear()
                self._replaced.add(fault.number)
                repair_s = exclusion.for_s
        spares = self._spares[int(self._cluster.node_type[fault.number])]
        if not spares:
            return repair_s
        # The spare that is free first, a heap's first: it may still be under repair itself.
        swapped_s = max(spares[0] - fault.time_s, 0.0) + self._model.spares.swap_s
        if swapped_s >= repair_s:
            return repair_s
        # The failed node is a spare from its repair on.
        heapq.heapreplace(spares, fault.time_s + repair_s)
        return swapped_s


COLUMNS = ("time_s", "node", "repair_s")
"""Columns of a schedule: when a node fails, which (counted from 0), and how long its repair takes."""

SWITCH_COLUMNS = ("time_s", "tier", "number", "repair_s")
"""Columns of a schedule of switches: `tier` is `leaf` or `minipod`, switches count from 0 in each."""


class NodeFailure(NamedTuple):
    """One failure of a node: its time, the node and the seconds of its repair."""

    time_s: float
    node: int
    repair_s: float


class SwitchFailure(NamedTuple):
    """One failure of a leaf or spine switch: its time, the switch and the seconds of its repair."""

    time_s: float
    tier: str
    number: int
    repair_s: float


def read_schedule(path: str | Path, nodes: int) -> tuple[NodeFailure, ...]:
    """Read scheduled node failures from a CSV file with the columns `COLUMNS`, rows in any order.

    Outages of a node that overlap are one.
    """
    from clustergym.common.columns import integers, numbers
    from clustergym.common.text_files import read_csv

    table = read_csv(Path(path), COLUMNS)
    rows = zip(
        numbers(table, "time_s", low=0.0).tolist(),
        integers(table, "node", low=0, high=nodes - 1).tolist(),
        numbers(table, "repair_s", low=1e-6).tolist(),
        strict=True,
    )
    found: list[NodeFailure] = []
    last: dict[int, int] = {}
    for failure in sorted(NodeFailure(*row) for row in rows):
        before = found[last[failure.node]] if failure.node in last else None
        if before and failure.time_s < before.time_s + before.repair_s:
            # Overlapping outages, as operators record them, are one that lasts until the later end.
            end_s = max(before.time_s + before.repair_s, failure.time_s + failure.repair_s)
            found[last[failure.node]] = before._replace(repair_s=end_s - before.time_s)
            continue
        last[failure.node] = len(found)
        found.append(failure)
    return tuple(found)


def read_switches(path: str | Path, cluster: ClusterSpec) -> tuple[SwitchFailure, ...]:
    """Read scheduled switch failures from a CSV file with the columns `SWITCH_COLUMNS`, rows in any order."""
    from clustergym.common.columns import integers, numbers
    from clustergym.common.text_files import read_csv

    table = read_csv(Path(path), SWITCH_COLUMNS)
    most = {"leaf": int(cluster.node_leaf.max()), "minipod": int(cluster.node_minipod.max())}
    times, repairs = numbers(table, "time_s", low=0.0), numbers(table, "repair_s", low=1e-6)
    found = []
    rows = zip(
        times.tolist(),
        table.columns["tier"],
        integers(table, "number", low=0).tolist(),
        repairs.tolist(),
        table.line,
        strict=True,
    )
    for time_s, tier, number, repair_s, line in rows:
        if tier not in most:
            message, remedy = f"unknown tier {tier!r}", nearest(tier, most)
            raise InputError(message, file=path, line=line, field="tier", remedy=remedy)
        if number > most[tier]:
            raise InputError(
                f"cluster {cluster.name} has no {tier} {number}",
                file=path,
                line=line,
                field="number",
                remedy=f"give 0 to {most[tier]}",
            )
        found.append(SwitchFailure(time_s, tier, number, repair_s))
    return tuple(sorted(found))
