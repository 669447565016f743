"""Failures of nodes and switches: schedules from files, or drawn from exponential distributions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Nodes
from clustergym.common.errors import InputError, require
from clustergym.common.parameter_types import Seed
from clustergym.common.parameters import build
from clustergym.scenario.clock import ticks
from clustergym.scenario.disturbance import Disturbance, DisturbanceMetric, DisturbedRun
from clustergym.scenario.failure_draws import (
    COLUMNS,
    IN_PLACE,
    LEAF,
    NEW_NODE,
    NODE,
    Draw,
    Fault,
    NodeFailure,
    Repairs,
    SwitchFailure,
    read_schedule,
    read_switches,
)
from clustergym.scenario.failure_model import FailureModel
from clustergym.trace.trace import Trace

__all__ = ["COLUMNS", "FailureChoice", "Failures", "NodeFailure", "read_schedule"]

NODE_FAIL, NODE_REPAIR = "node_fail", "node_repair"
"""Events: the node in `nodes` fails, all of its `gpus` are out of use; it works again."""
NODE_ERROR = "node_error"
"""Event: the node in `nodes` has a failure that a restart on it mends."""
LEAF_EVENTS, MINIPOD_EVENTS = ("leaf_fail", "leaf_repair"), ("minipod_fail", "minipod_repair")
"""Events: the leaf, or the spine of the minipod, of the node in `nodes` fails; it works again."""


@dataclass(frozen=True)
class Failures(Disturbance):
    """The failures of nodes and switches in a run: scheduled in files, random, or both.

    Attributes
    ----------
    schedule : tuple of NodeFailure
        Scheduled failures, in order of time.
    mtbf_s : float or None
        Mean seconds until a node fails, exponentially distributed; None: no failures are drawn.
    mttr_s : float
        Mean seconds of a drawn repair, distributed as `model.repair_median_s` says.
    seed : int
        Seed of the drawn failures.
    checkpoint_every_s : float
        Seconds of work between a job's checkpoints. A job whose node fails goes back to its last
        checkpoint, or to its launch if there is none.
    model : FailureModel
        All else.
    switches : tuple of SwitchFailure
        Scheduled failures of switches, in order of time.
    """

    key = "failures"
    outages = ((NODE_FAIL, NODE_REPAIR), LEAF_EVENTS, MINIPOD_EVENTS)
    metrics = (
        DisturbanceMetric(
            "node_failures",
            "",
            "",
            "failures of nodes up to the end of the run, whether in use or not",
            lambda events: sum(event.event_type == NODE_FAIL for event in events),
        ),
        DisturbanceMetric(
            "switch_failures",
            "",
            "",
            "failures of leaves and of minipods' spines up to the end of the run",
            lambda events: len(
                {event[:2] for event in events if event.event_type in (LEAF_EVENTS[0], MINIPOD_EVENTS[0])}
            ),
        ),
    )

    schedule: tuple[NodeFailure, ...] = ()
    mtbf_s: float | None = None
    mttr_s: float = 3600.0
    seed: int = 0
    checkpoint_every_s: float = 1800.0
    model: FailureModel = field(default_factory=FailureModel)
    switches: tuple[SwitchFailure, ...] = ()

    @classmethod
    def from_config(
        cls, given: Mapping[str, Any], cluster: ClusterSpec, trace: Trace, seed: int
    ) -> Failures | None:
        """Build the failures from the configuration's keys; also raises the errors of `read_schedule`."""
        if not given:
            return None
        choice: FailureChoice = build(FailureChoice, given, "scenario.failures")
        model = FailureModel(**{one.name: getattr(choice, one.name) for one in fields(FailureModel)})
        # Keys that need a rate are refused without one, rather than left without effect.
        drawn = (choice.mtbf_s, model.leaf_mtbf_s, model.minipod_mtbf_s)
        if all(mean_s is None for mean_s in drawn):
            choice.check_without_rates(model)
            if choice.path is None and model.switch_path is None:
                return None
        most = int(np.bincount(cluster.node_type).max())
        remedy = f"cluster {cluster.name} has at most {most} nodes of a type"
        require(model.spares.nodes <= most, "scenario.failures.spares.nodes", model.spares.nodes, remedy)
        return cls(
            schedule=() if choice.path is None else read_schedule(choice.path, len(cluster.node_type)),
            mtbf_s=choice.mtbf_s,
            mttr_s=choice.mttr_s,
            seed=seed if choice.seed is None else choice.seed,
            checkpoint_every_s=choice.checkpoint_every_s,
            model=model,
            switches=() if model.switch_path is None else read_switches(model.switch_path, cluster),
        )

    def fingerprint(self) -> object:
        """Return the settings for the scenario's digest, without those that have no effect.

        So the digest of a scenario without them stays the same. Paths count by what is in the files.
        """
        values = asdict(self)
        # The file's content is in `switches`; where it lies does not change a run.
        values["model"].pop("switch_path")
        if self.model.repair_median_s is None:
            del values["model"]["repair_median_s"]
        restart = values["model"]["restart"]
        values["model"]["restart"] = {
            key: value for key, value in restart.items() if not key.endswith("_causes") or value
        }
        if self.model == FailureModel():
            del values["model"], values["switches"]
        return values

    def rate_per_s(self, cluster: ClusterSpec, nodes: Nodes) -> float:
        """Return how many random failures per second hit a job on these nodes."""
        on = np.array([node for node, _ in nodes])
        # Rates of independent exponential times add up: nodes, and each leaf and minipod once.
        parts = (
            (len(on), self.mtbf_s),
            (len(np.unique(cluster.node_leaf[on])), self.model.leaf_mtbf_s),
            (len(np.unique(cluster.node_minipod[on])), self.model.minipod_mtbf_s),
        )
        return self.model.rate_scale * sum(count / mean_s for count, mean_s in parts if mean_s is not None)

    def checkpoints(self, cluster: ClusterSpec, nodes: Nodes) -> tuple[float, float]:
        """Return the seconds between a job's checkpoints on these nodes, and of writing one."""
        # Only Young's and Daly's rules need the rate.
        fixed = self.model.checkpoint_rule == "fixed"
        rate = 0.0 if fixed else self.rate_per_s(cluster, nodes)
        return self.model.interval_s(self.checkpoint_every_s, rate), self.model.checkpoint_write_s

    def start(self, run: DisturbedRun) -> None:
        """Start the processes that let nodes and switches fail in a run."""
        run.follow(self._fail(run))

    def _fail(self, run: DisturbedRun) -> Iterator[int]:
        cluster = run.allocations.spec
        draw = Draw(self.seed, self.mtbf_s, self.mttr_s, self.model)
        repairs = Repairs(draw, cluster)
        for fault in draw.faults(cluster, self.schedule, self.switches):
            yield ticks(fault.time_s)
            # Of a node that is down already nothing else fails, and a repair of it is not begun anew.
            if fault.tier != NODE:
                self._fail_switch(run, fault)
            elif fault.number not in run.allocations.down and repairs.happens(fault):
                if fault.step == NEW_NODE:
                    self._remove_node(
                        run, fault, fault.number, repairs.outage_s(fault), f"node {fault.number}"
                    )
                else:
                    self._restart(run, fault)

    def _fail_switch(self, run: DisturbedRun, fault: Fault) -> None:
        cluster = run.allocations.spec
        leaf = fault.tier == LEAF
        below = np.flatnonzero((cluster.node_leaf if leaf else cluster.node_minipod) == fault.number)
        for node in below.tolist():
            self._remove_node(
                run, fault, node, fault.repair_s, f"{'leaf' if leaf else 'minipod'} {fault.number}"
            )

    def _remove_node(self, run: DisturbedRun, fault: Fault, node: int, outage_s: float, what: str) -> None:
        run.take_out(
            node,
            max(ticks(outage_s), 1),
            self.outages[fault.tier],
            f"{what} failed",
            fault.cause,
            ticks(self.model.detection_s),
            self.model.restart.node_s,
        )

    def _restart(self, run: DisturbedRun, fault: Fault) -> None:
        """Let the jobs on a node start again where they are."""
        run.note(NODE_ERROR, fault.number, fault.cause)
        restart, in_place = self.model.restart, fault.step == IN_PLACE
        standstill = ticks(self.model.detection_s + (restart.in_place_s if in_place else restart.process_s))
        reason = f"node {fault.number}: restart {'in place' if in_place else 'of processes'}"
        # In place a job keeps its memory; new processes read the last checkpoint.
        for row in run.list_jobs(fault.number):
            run.halt(row, standstill, not in_place, reason, fault.cause)


@dataclass(frozen=True)
class FailureChoice(FailureModel):
    """All keys of `scenario.failures`: those of `FailureModel`, a path, mean times and a seed.

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
    seed: Seed | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("mtbf_s", "mttr_s", "checkpoint_every_s"):
            value = getattr(self, key)
            require(
                value is None or 1.0 <= value < 1e12,
                f"scenario.failures.{key}",
                value,
                "give seconds above 1",
            )
        require(
            self.repair_median_s is None or self.repair_median_s <= self.mttr_s,
            "scenario.failures.repair_median_s",
            self.repair_median_s,
            f"give at most mttr_s, {self.mttr_s:g} s",
        )
        write_s, every_s = self.checkpoint_write_s, self.checkpoint_every_s
        if self.checkpoint_rule == "fixed" and write_s > every_s:
            raise InputError(
                f"a write of {write_s:g} s takes longer than the interval of {every_s:g} s",
                field="scenario.failures.checkpoint_write_s",
                remedy="give less, or a longer checkpoint_every_s",
            )

    def check_without_rates(self, model: FailureModel) -> None:
        """Raise an InputError for keys without effect if there are no random failures."""
        given = model.switch_path is not None or self.path is not None
        needs = (
            ("offenders", "causes", "rate_scale", "repair_median_s")
            if given
            else tuple(one.name for one in fields(model))
        )
        plain = FailureModel()
        for key in needs:
            if getattr(model, key) != getattr(plain, key):
                self._needs_rates(key)
        if self.checkpoint_rule != "fixed":
            self._needs_rates("checkpoint_rule")

    def _needs_rates(self, key: str) -> None:
        raise InputError(
            "is given, but no failures",
            field=f"scenario.failures.{key}",
            remedy="give mtbf_s, leaf_mtbf_s or minipod_mtbf_s as well, or scenario.failures=null for none",
        )
