"""Queues of tenants in compiled episodes: what they hold, want, are entitled to, and have missed.

The rules are those of `envs.queue_imbalance` and `scenario.tenants`; the way down the tree is written anew.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.envs import queue_imbalance
from clustergym.envs.observations import TENANT_FEATURES
from clustergym.envs.queue_imbalance import HELD, OWED, OWED_RATE, SINCE_S, WANTED, QueueRules
from clustergym.envs.scheduling_costs import Outcomes
from clustergym.envs.vector import episode_state as d
from clustergym.envs.vector.episode_state import EpisodeState, Singles
from clustergym.scenario.tenants import fair_share
from clustergym.scenario.tenants.division import get_amounts
from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import (
    compile_fields,
    compile_in_place,
    compile_part,
    let_compiled_call,
)
from clustergym.sim.compiled.scenario_arrays import ClusterArrays

for cost in queue_imbalance.OF_IMBALANCE:
    let_compiled_call(cost)
for division in fair_share.OF_DIVISION:
    let_compiled_call(division, makes=True)

QUEUES, LEAVES, CHANGES, READ, SIZES = range(5)
"""Places in `size`: queues, leaves, rows of the reference, and events that have been read."""
QUOTA, MOST, KEPT, WEIGHT, LIMITS = range(5)
"""Columns of `limit`: what a queue deserves, may have at most, has reserved, and weighs."""
WIDTH = len(TENANT_FEATURES)


class QueueState(NamedTuple):
    """The queues of tenants of one episode: Q queues, parents before children, of which L leaves have jobs.

    In a batch of episodes every array has one axis more, the first, and may be longer than the episode needs.

    Attributes
    ----------
    size : ndarray of int, shape (SIZES,)
    leaf : ndarray of int, shape (n,)
        The leaf of each job.
    parent, place, priority : ndarray of int, shape (Q,)
        The queue that it is in, NONE: the cluster; its place among the leaves, NONE: it is no leaf.
    limit : ndarray of float, shape (Q, LIMITS)
    history_weight : ndarray of float, shape (1,)
        How much past use counts, by which even shares are rounded.
    quota : ndarray of float, shape (L,)
    jobs : ndarray of int, shape (n, 2)
        What each job holds and wants, by the events that have been read.
    gpus : ndarray of int, shape (2, L)
        What the leaves hold and want, by those events.
    shown : ndarray of int, shape (2, L)
        What the jobs in view hold, as edited, and want.
    shares : ndarray of float, shape (L,)
    missed : ndarray of float, shape (queue_imbalance.COLUMNS,)
    reference : ndarray of float, shape (m, queue_imbalance.COLUMNS)
        What queues have missed at each change if the baseline policy schedules.
    """

    size: Ints
    leaf: Ints
    parent: Ints
    place: Ints
    priority: Ints
    limit: Floats
    history_weight: Floats
    quota: Floats
    jobs: Ints
    gpus: Ints
    shown: Ints
    shares: Floats
    missed: Floats
    reference: Floats


def make_queue_state(rules: QueueRules, reference: Outcomes | None = None) -> QueueState:
    """Return the queues with which an episode begins, given the baseline policy's outcome on its scenario."""
    tree = rules.tree
    names, leaves, jobs = list(tree.queues), len(rules.quota), len(rules.leaf)
    missed = np.zeros((0, queue_imbalance.COLUMNS))
    if reference is not None and reference.queues is not None:
        missed = reference.queues.list_missed()
    queues = tree.queues.values()
    parent = [c.NONE if queue.parent is None else names.index(queue.parent) for queue in queues]
    place = [c.NONE if tree.children[name] else tree.leaves.index(name) for name in names]
    return QueueState(
        size=np.array([len(names), leaves, len(missed), 0]),
        leaf=rules.leaf.astype(np.int64),
        parent=np.array(parent),
        place=np.array(place),
        priority=np.array([queue.priority for queue in queues]),
        limit=np.array([[*get_amounts(queue, ""), queue.weight] for queue in queues], dtype=np.float64),
        history_weight=np.array([tree.settings.history.weight], dtype=np.float64),
        quota=rules.quota.astype(np.float64),
        jobs=np.zeros((jobs, 2), np.int64),
        gpus=np.zeros((2, leaves), np.int64),
        shown=np.zeros((2, leaves), np.int64),
        shares=np.zeros(leaves),
        missed=np.zeros(queue_imbalance.COLUMNS),
        reference=missed,
    )


select_queues = compile_fields(QueueState, "states, at", "states.{}[at]")
"""(Queues of a batch, episode) -> its queues, as views of the batch's arrays."""


@compile_in_place
def begin_episode(queues: QueueState) -> None:
    """Let queues hold, want and have missed nothing, as a new episode begins."""
    queues.jobs[:] = 0
    queues.gpus[:] = 0
    queues.missed[:] = 0.0
    queues.size[READ] = 0


@compile_in_place
def _find_claims(queues: QueueState, wanted: Ints, claims: Floats) -> None:
    """Write each queue's claim, from the leaves up, as `division.Division.claims` does."""
    count, limit = queues.size[QUEUES], queues.limit
    for at in range(count - 1, -1, -1):
        asked = 0.0
        if queues.place[at] != c.NONE:
            asked += wanted[queues.place[at]]
        else:
            for below in range(at + 1, count):
                if queues.parent[below] == at:
                    asked += claims[below]
        claims[at] = min(max(asked, limit[at, KEPT]), limit[at, MOST])


@compile_part
def divide(queues: QueueState, wanted: Ints, total: float, shares: Floats) -> None:
    """Write the leaves' fair shares of all GPUs, from the top down, as `division.Division.divide` does."""
    count, limit, history_weight = queues.size[QUEUES], queues.limit, queues.history_weight[0]
    claims, given = np.zeros(count), np.zeros(count)
    _find_claims(queues, wanted, claims)
    for parent in range(c.NONE, count):
        among = [at for at in range(parent + 1, count) if queues.parent[at] == parent and claims[at] > 0.0]
        if len(among) == 0:
            continue
        found = fair_share.shares_of_wanted(
            total if parent == c.NONE else given[parent],
            [claims[at] for at in among],
            [limit[at, QUOTA] for at in among],
            [limit[at, WEIGHT] for at in among],
            [queues.priority[at] for at in among],
            [0.0 for _ in among],
            history_weight,
        )
        for nth in range(len(among)):
            given[among[nth]] = found[nth]
    for at in range(count):
        if queues.place[at] != c.NONE:
            shares[queues.place[at]] = given[at]


@compile_part
def read_events(episode: Episode, queues: QueueState, total: float) -> None:
    """Update what queues hold, want and have missed, by the events since the last call."""
    missed, size = queues.missed, queues.size
    for at in range(size[READ], episode.clock[c.EVENTS]):
        event = episode.event[at]
        what, row = event[c.EVENT_TYPE], event[c.JOB]
        if what == c.PROFILE_START or what == c.PROFILE_END:
            continue
        time_s = event[c.TIME] / c.TICKS_PER_S
        if time_s > missed[SINCE_S]:
            owed = queue_imbalance.add_up(missed, time_s)
            missed[SINCE_S], missed[OWED] = time_s, owed
        launched = what == c.START or what == c.RESUME or what == c.RESCALE or what == c.MIGRATE
        left = what == c.COMPLETE or what == c.DROP_BY_POLICY or what == c.FITS_NOWHERE
        gpus = event[c.EVENT_GPUS] if launched else 0
        asked = 0 if left else episode.job[row, c.REQUESTED_GPUS]
        queue_imbalance.count_job(queues.gpus, queues.jobs[row], queues.leaf[row], gpus, asked)
        quota = queues.quota[: size[LEAVES]]
        missed[OWED_RATE] = queue_imbalance.compute_owed_rate(queues.gpus, quota, total)
    size[READ] = episode.clock[c.EVENTS]


@compile_in_place
def compute_owed(queues: QueueState, baseline: bool, time_s: float) -> float:
    """Return what queues have missed of quotas until a time."""
    missed = queues.missed
    if baseline:
        at = 0
        while at + 1 < queues.size[CHANGES] and queues.reference[at + 1, SINCE_S] <= time_s:
            at += 1
        missed = queues.reference[at]
    return queue_imbalance.add_up(missed, time_s)


@compile_in_place
def _count_shown(episode: Episode, cluster: ClusterArrays, queues: QueueState) -> None:
    """Count what the jobs in view hold, as edited, and want, by queue."""
    shown = queues.shown
    shown[:] = 0
    for at in range(episode.clock[c.IN_VIEW]):
        row = episode.in_view[at]
        job, leaf = episode.job[row], queues.leaf[row]
        if job[c.TARGET_LEVEL] != c.NONE:
            shown[HELD, leaf] += cluster.counts[job[c.TARGET_LEVEL]]
        shown[WANTED, leaf] += max(job[c.GPUS], job[c.REQUESTED_GPUS])


@compile_in_place
def observe(
    episode: Episode,
    cluster: ClusterArrays,
    episode_state: EpisodeState,
    queues: QueueState,
    total: float,
    table: Singles,
    begins: bool,
) -> None:
    """Write the held GPUs, as edited, of each shown job's queue; as a decision point begins the rest as well.

    The rest are its quota and its fair share.
    """
    _count_shown(episode, cluster, queues)
    count = episode_state.state[d.SHOWN]
    if begins:
        divide(queues, queues.shown[WANTED], total, queues.shares)
        table[count * WIDTH :] = 0.0
    for place in range(count):
        leaf, at = queues.leaf[episode_state.shown[place]], place * WIDTH
        table[at] = queues.shown[HELD, leaf] / total
        if begins:
            table[at + 1] = min(queues.quota[leaf] / total, 1.0)
            table[at + 2] = queues.shares[leaf] / total
