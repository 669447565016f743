"""A scenario and its cluster as the arrays of a compiled episode, and which scenarios have any."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.clock import ticks
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.coverage import DEFRAGMENT_S, UncoveredError, check_covered
from clustergym.sim.profiling import compute_profile_ticks
from clustergym.sim.state import make_rows

TIERS = 3
"""Leaf, minipod, and all nodes of a type."""


class ClusterArrays(NamedTuple):
    """A cluster as arrays for compiled functions, with T GPU types and K possible GPU counts.

    Nodes of a type lie together; N is the number of nodes, S the most switches of a type in a tier.

    Attributes
    ----------
    capacity, per_node, first_node, nodes : ndarray of int, shape (T,)
        GPUs of the type; GPUs on each node; its first node; how many nodes it has.
    counts : ndarray of int, shape (K,)
        Ascending.
    leaf, minipod : ndarray of int, shape (N,)
        Switches above each node.
    starts, ends : ndarray of int, shape (T, 3, S)
        First node of each switch of a tier, and the node after its last, counted from the type's first.
    switches : ndarray of int, shape (T, 3)
        How many columns of these each tier has.
    compact : ndarray of int, shape (T, K)
        Locality of the most compact placement on the empty cluster.
    """

    capacity: Ints
    per_node: Ints
    first_node: Ints
    nodes: Ints
    counts: Ints
    leaf: Ints
    minipod: Ints
    starts: Ints
    ends: Ints
    switches: Ints
    compact: Ints


def cluster_arrays(cluster: ClusterSpec, counts: Ints) -> ClusterArrays:
    """Return a cluster's nodes and switches as arrays for compiled functions."""
    types = len(cluster.gpu_types)
    own = [np.flatnonzero(cluster.node_type == gpu_type) for gpu_type in range(types)]
    starts = [[np.zeros(1, dtype=np.int64)] * TIERS for _ in own]
    for gpu_type, nodes in enumerate(own):
        for tier, switch in enumerate((cluster.node_leaf[nodes], cluster.node_minipod[nodes])):
            starts[gpu_type][tier] = np.flatnonzero(np.diff(switch, prepend=-1))
    switches = np.array([[len(tier) for tier in tiers] for tiers in starts], dtype=np.int64)
    first = np.zeros((types, TIERS, int(switches.max())), dtype=np.int64)
    last = first.copy()
    for gpu_type, tiers in enumerate(starts):
        for tier, begins in enumerate(tiers):
            first[gpu_type, tier, : len(begins)] = begins
            last[gpu_type, tier, : len(begins)] = [*begins[1:], len(own[gpu_type])]
    compact = [
        [
            cluster.compact_locality(gpu_type, min(int(gpus), int(cluster.capacity[gpu_type])))
            for gpus in counts
        ]
        for gpu_type in range(types)
    ]
    return ClusterArrays(
        cluster.capacity.astype(np.int64),
        cluster.gpus_per_node.astype(np.int64),
        np.array([nodes[0] for nodes in own], dtype=np.int64),
        np.array([len(nodes) for nodes in own], dtype=np.int64),
        counts.astype(np.int64),
        cluster.node_leaf.astype(np.int64),
        cluster.node_minipod.astype(np.int64),
        first,
        last,
        switches,
        np.array(compact, dtype=np.int64),
    )


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
    clock[c.JOBS], clock[c.DECIDED_AT], clock[c.WAKE] = n, -1, c.NEVER
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
