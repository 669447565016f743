"""The costs that the reward of a scheduling environment weighs: of an episode so far, and of a baseline."""

from __future__ import annotations

import copy
import json
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.common.errors import InputError
from clustergym.envs.queue_imbalance import QueueImbalance, QueueRules
from clustergym.results.metrics.fairness import simulate_fluid
from clustergym.scenario.policy import Placer
from clustergym.scenario.registry import list_parameters, parse_policy
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import simulate
from clustergym.sim.engine import StalledError
from clustergym.sim.log import Event, EventType

FinishS = Callable[[Floats, Floats, Ints, float], Floats]
"""As `clustergym.results.metrics.fairness.simulate_fluid`."""

BOUND_S = 600.0
"""Least run time that a slowdown is measured against, seconds."""
LARGEST = float(np.finfo(np.float64).max)
Number = Any
"""A number, or an array of them."""


@dataclass(frozen=True, eq=False)
class ReferenceCostTimes:
    """Each job's deadline, its run time without other jobs, and its time with an equal share of the cluster.

    Attributes
    ----------
    submit_s, deadline_s : ndarray of float
        Seconds; deadline NaN: none.
    run_s : ndarray of float
        Seconds a job takes alone at its request; NaN: it fits nowhere.
    fair_s : ndarray of float
        Seconds from submission to completion under fluid fair sharing capped at the request
        (`clustergym.results.metrics.fairness`); NaN: it fits nowhere.
    queues : QueueRules or None
        The queues of tenants; None: there are none.
    """

    submit_s: Floats
    deadline_s: Floats
    run_s: Floats
    fair_s: Floats
    queues: QueueRules | None = None

    @staticmethod
    def from_scenario(scenario: Scenario, finish_s: FinishS = simulate_fluid) -> ReferenceCostTimes:
        """Compute each job's times: deadline, alone, and (by `finish_s`) with an equal cluster share."""
        trace, gpus = scenario.trace, scenario.request_gpus
        work = trace.work_iterations * scenario.fair_iteration_time_s * gpus
        total = float(scenario.cluster.capacity.sum())
        known, fair_s = np.isfinite(work), np.full(len(trace), np.nan)
        submit_s = trace.submit_s[known]
        # In the fluid reference GPUs of all types count equally.
        fair_s[known] = finish_s(submit_s, work[known], gpus[known], total) - submit_s
        run_s = trace.work_iterations * scenario.reference_iteration_time_s
        return ReferenceCostTimes(
            trace.submit_s, trace.deadline_s, run_s, fair_s, QueueRules.from_scenario(scenario)
        )


class Outcomes:
    """When each job of a run left the cluster, completed or dropped, according to the event log so far.

    Parameters
    ----------
    yardsticks : ReferenceCostTimes

    Attributes
    ----------
    now_s : float
    leave_s : ndarray of float, shape (n,)
        inf: not yet.
    completed : ndarray of bool, shape (n,)
        Left, and not dropped.
    queues : QueueImbalance or None
        What queues of tenants lacked; None: there are none.
    """

    def __init__(self, yardsticks: ReferenceCostTimes) -> None:
        self.of = yardsticks
        self.now_s = 0.0
        self.leave_s = np.full(len(yardsticks.submit_s), np.inf)
        self.completed = np.zeros(len(yardsticks.submit_s), dtype=np.bool_)
        self.queues = None if yardsticks.queues is None else QueueImbalance(yardsticks.queues)
        self._read = 0

    def read(self, events: list[Event], now_s: float) -> None:
        """Update the times at which jobs left from the events logged since the last call."""
        # The log only grows, so that each event is read once in an episode.
        for event in events[self._read :]:
            if event.event_type in (EventType.COMPLETE, EventType.DROP):
                self.leave_s[event.job] = event.time_s
                self.completed[event.job] = event.event_type == EventType.COMPLETE
            if self.queues is not None:
                self.queues.read(event)
        self._read, self.now_s = len(events), now_s

    def rewind(self, now_s: float) -> Outcomes:
        """Return which jobs had left, and when, as known at an earlier time."""
        then = Outcomes(self.of)
        past = self.leave_s <= now_s
        then.now_s = now_s
        then.leave_s[past] = self.leave_s[past]
        then.completed = self.completed & past
        # Shared: it keeps its whole course, and answers for any time.
        then.queues = self.queues
        return then

    @property
    def left(self) -> int:
        """Number of jobs that have left so far."""
        return int(np.isfinite(self.leave_s).sum())

    @property
    def end_s(self) -> float:
        """Seconds at which the last job so far left; 0 if none has left."""
        left = self.leave_s[np.isfinite(self.leave_s)]
        return float(left.max(initial=0.0))

    def age_s(self) -> Floats:
        """Return the seconds from each job's submission to its end, or until now, shape (n,)."""
        age: Floats = compute_age_s(self.now_s, self.leave_s, self.of.submit_s)
        return age

    def meets_deadline(self) -> Bools:
        """Return a mask of the jobs that completed by their deadline, shape (n,)."""
        met: Bools = meet_deadline(self.completed, self.leave_s, self.of.deadline_s)
        return met


# The costs of one job, of numbers or of arrays with an entry for each job; compiled episodes compile them.


def compute_age_s(now_s: Number, leave_s: Number, submit_s: Number) -> Number:
    """Return the seconds from submission until a job left, or until now if it has not (`leave_s` inf)."""
    return np.maximum(np.minimum(now_s, leave_s) - submit_s, 0.0)


def slow_down(age_s: Number, run_s: Number) -> Number:
    """Return age_s / max(run_s, 10 min): time since submission over run time without other jobs."""
    # fmax passes over NaN: a job that fits nowhere is measured against the bound alone.
    return age_s / np.fmax(run_s, BOUND_S)


def exceed_fairness(age_s: Number, fair_s: Number) -> Number:
    """Return max(age_s / fair_s - 1, 0): a job's excess over its time with an equal share of the cluster."""
    # NaN (it fits nowhere) becomes 0, and inf the largest number: a mean over jobs stays finite.
    return np.fmax(np.minimum(age_s / fair_s, LARGEST) - 1.0, 0.0)


def meet_deadline(completed: Number, leave_s: Number, deadline_s: Number) -> Number:
    """Return whether a job completed by its deadline."""
    return completed & (leave_s <= deadline_s)


def break_promise(now_s: Number, completed: Number, leave_s: Number, deadline_s: Number) -> Number:
    """Return whether a job is late: past its deadline, not dropped, and not completed in time."""
    dropped = (leave_s < np.inf) & (completed == 0)
    late = np.minimum(now_s, leave_s) > deadline_s
    return late & (dropped == 0) & (meet_deadline(completed, leave_s, deadline_s) == 0)


def find_stall_end_s(now_s: float, submit_s: Floats, run_s: Floats) -> float:
    """Return the seconds at which all jobs could have run one after another, each alone at its request.

    Until then the jobs of a stalled episode cost: so to stall costs more than any schedule worth the name,
    however long the jobs are.
    """
    end_s = now_s
    for at in range(len(submit_s)):
        end_s = max(end_s, submit_s[at])
    for at in range(len(run_s)):
        # A job that fits nowhere is dropped when it comes.
        if np.isfinite(run_s[at]):
            end_s += run_s[at]
    return end_s


OF_ONE_JOB = (compute_age_s, slow_down, exceed_fairness, meet_deadline, break_promise)


def jobs_in_system(now: Outcomes) -> float:
    """Return jobs' mean hours from submission until they left, or until now; at the end, the mean JCT."""
    return float(now.age_s().sum()) / (3600.0 * len(now.leave_s))


def log_jct(now: Outcomes) -> float:
    """Return the log of the mean seconds of all jobs since submission; at the end, the log of the mean JCT.

    Less a baseline's, it is the logarithm of a ratio of mean JCTs, which weighs short and long traces alike.
    """
    return math.log(max(float(now.age_s().sum()) / len(now.leave_s), 1.0))


def slowdown(now: Outcomes) -> float:
    """Return the mean over jobs of their slowdown: time since submission over run time without other jobs."""
    return float(slow_down(now.age_s(), now.of.run_s).mean())


def unfairness(now: Outcomes) -> float:
    """Return the mean fraction by which jobs' time in the system exceeds that with an equal cluster share."""
    return float(exceed_fairness(now.age_s(), now.of.fair_s).mean())


def deadlines_met(now: Outcomes) -> float:
    """Return minus the share of jobs that completed by their deadline, as a lower cost is better."""
    return -float(now.meets_deadline().mean())


def broken_promises(now: Outcomes) -> float:
    """Return the share of jobs that are past their deadline, neither dropped nor completed in time."""
    return float(break_promise(now.now_s, now.completed, now.leave_s, now.of.deadline_s).mean())


def compute_owed_hours(now: Outcomes) -> float:
    """Return the GPU-hours of quota that queues asked for but lacked so far, divided by all GPUs."""
    assert now.queues is not None
    return now.queues.compute_owed(now.now_s)


COSTS: dict[str, Callable[[Outcomes], float]] = {
    "jobs_in_system": jobs_in_system,
    "log_jct": log_jct,
    "slowdown": slowdown,
    "unfairness": unfairness,
    "deadlines_met": deadlines_met,
    "broken_promises": broken_promises,
    "owed": compute_owed_hours,
}
"""Costs by the names that `reward` weighs; a package may add its own, each 0 at the start of an episode."""


KEPT = 1024
"""References that a process keeps for all its environments."""

_kept: OrderedDict[str, Outcomes] = OrderedDict()


class ReferenceCosts:
    """Runs the baseline policy once on each scenario, so that rewards can be compared to it.

    Parameters
    ----------
    text : str
        A policy with parameters.
    placer : Placer
    """

    def __init__(self, text: str, placer: Placer) -> None:
        self._text, self._placer = text, placer
        self._policy = parse_policy(text, "env.baseline")
        described = {"policy": text, "placer": [placer.name, list_parameters(placer)]}
        self._key = json.dumps([described, self._policy.fingerprint()], sort_keys=True, default=str)

    def outcomes(self, scenario: Scenario, yardsticks: ReferenceCostTimes, seed: int) -> Outcomes:
        """Return when jobs leave if the baseline policy runs (kept); `yardsticks`: times that costs use.

        Raises
        ------
        InputError
            If the policy does not bring the scenario to its end.
        """
        # Hashes, not names: a scenario or a checkpoint of the same name may have changed.
        key = f"{scenario.sha256} {seed} {self._key}"
        if key not in _kept:
            try:
                run = simulate(scenario, copy.deepcopy(self._policy), copy.deepcopy(self._placer), seed)
            except StalledError as error:
                raise InputError(
                    f"{self._text}: {error}", field="env.baseline", remedy="choose another policy"
                ) from error
            found = Outcomes(yardsticks)
            found.read(run.simulation.log.events, run.simulation.end_s)
            _kept[key] = found
            if len(_kept) > KEPT:
                _kept.popitem(last=False)
        return _kept[key]
