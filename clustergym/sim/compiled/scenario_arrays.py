"""A scenario as the arrays of a compiled episode, and which scenarios compiled episodes cover."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.clock import ticks
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.coverage import DEFRAGMENT_S, UncoveredError, check_covered
from clustergym.sim.profiling import compute_profile_ticks
from clustergym.sim.state import make_rows

__all__ = [
    "ScenarioArrays",
    "UncoveredError",
    "check_covered",
    "check_known",
    "scenario_arrays",
]


class ScenarioArrays(NamedTuple):
    """The arrays with which a compiled episode of a scenario begins.

    Attributes
    ----------
    clock : ndarray of int, shape (CLOCK_COLUMNS,)
    job : ndarray of int, shape (n, JOB_COLUMNS)
    figures : ndarray of float, shape (n, FIGURE_COLUMNS)
        FAIR_S and RUN_S are NaN.
    execution_s, known_s, feasible, checkpoint_s, search_s, profile
        As of `Episode`.
    """

    clock: Ints
    job: Ints
    figures: Floats
    execution_s: Floats
    known_s: Floats
    feasible: Bools
    checkpoint_s: Floats
    search_s: Floats
    profile: Ints


def scenario_arrays(
    scenario: Scenario,
    information: InformationClass,
    round_s: float | None,
    defragment_s: float | None = DEFRAGMENT_S,
) -> ScenarioArrays:
    """Convert a scenario to arrays, for a policy that decides every `round_s` seconds.

    Jobs are moved to closer nodes every `defragment_s`; None: never.
    """
    n = len(scenario.trace)
    chosen = scenario.round_s(round_s)
    clock = np.zeros(c.CLOCK_COLUMNS, dtype=np.int64)
    clock[c.JOBS], clock[c.DECIDED_AT] = n, -1
    clock[c.SCORED_LEFT], clock[c.APART] = scenario.scored.sum(), ticks(scenario.apart_s)
    clock[c.ROUND] = 0 if chosen is None else ticks(chosen)
    clock[c.HORIZON] = c.NEVER if scenario.horizon_s is None else ticks(scenario.horizon_s)
    clock[c.DEFRAGMENT_EVERY] = 0 if defragment_s is None else ticks(defragment_s)
    clock[c.FIRST_LAUNCH_COSTS] = scenario.costs.first_launch
    job, figures = make_rows(scenario)
    return ScenarioArrays(
        clock,
        job,
        figures,
        np.ascontiguousarray(scenario.execution),
        np.ascontiguousarray(scenario.known_times(information)),
        np.ascontiguousarray(scenario.feasible),
        scenario.checkpoint_s.astype(np.float64),
        scenario.costs.search_s(scenario.tables.counts).astype(np.float64),
        _profiles(scenario, information, clock, job),
    )


def _profiles(scenario: Scenario, information: InformationClass, clock: Ints, job: Ints) -> Ints:
    """Return the profiling runs that an information class needs; write their costs to `clock` and `job`."""
    price, shared = scenario.costs.profile.get(information.value), scenario.costs.profile_reuse == "model"
    types = len(scenario.cluster.gpu_types)
    if price is None:
        return np.zeros((0, c.PROFILE_COLUMNS), dtype=np.int64)
    clock[c.PROFILE_GPUS], clock[c.SHARED_PROFILES] = price.gpus, shared
    clock[c.REQUESTED_ONLY] = price.types == "requested"
    job[:, c.HIDDEN] = 2**types - 1
    takes = compute_profile_ticks(scenario, price)
    of_units = (takes if shared else takes[scenario.class_of]).ravel()
    profile = np.zeros((len(of_units), c.PROFILE_COLUMNS), dtype=np.int64)
    profile[:, c.LEFT_TICKS] = of_units
    profile[:, c.SINCE] = -1
    return profile


def check_known(scenario: Scenario, information: InformationClass) -> None:
    """Raise an UncoveredError if a job lacks the iteration times that compiled auction policies need.

    Each job that fits has a known time at the GPUs it asks for or more, as policies would guess its speed
    otherwise; where jobs are profiled, on each type that it has a time on, as the others may come later.
    """
    asks, known = scenario.request_gpus, np.isfinite(scenario.known_times(information)[scenario.class_of])
    enough = np.any(known & (scenario.tables.counts >= asks[:, None, None]), axis=2)
    missing = ~np.any(enough, axis=1)
    if information.value in scenario.costs.profile:
        missing |= np.any(np.any(known, axis=2) & ~enough, axis=1)
    if ((asks > 0) & missing).any():
        raise UncoveredError(
            f"scenario {scenario.name} has jobs without times for class {information.value}",
            field="oracle",
            remedy="choose information=profiled",
        )
