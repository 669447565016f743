"""The hourly move of jobs to closer nodes, compiled: `Buddy.defragment` and the engine's check of it."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.sim.compiled import buddy, jobs
from clustergym.sim.compiled import columns as c
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compiled_in_place, compiled_part

EVERY_S = 3600
"""Seconds between calls: the default of `Buddy.defragment_s`."""


@compiled_part
def _better_nodes(episode: Episode, cluster: ClusterArrays, row: int, nodes: Ints, gpus_on: Ints) -> int:
    """Write closer nodes for a job, or fewer, were it placed now; return their number, 0: there are none."""
    job = episode.job[row]
    kind, held, gpus = job[c.TYPE], job[c.NODES], cluster.counts[job[c.LEVEL]]
    locality = jobs.locality_of(cluster, episode.held_nodes[row, :held])
    per_node, first = cluster.per_node[kind], cluster.first_node[kind]
    if locality == cluster.compact[kind, job[c.LEVEL]] and held == -(-gpus // per_node):
        return 0
    free = episode.free_on_node[first : first + cluster.nodes[kind]].copy()
    for place in range(held):
        free[episode.held_nodes[row, place] - first] += episode.held_gpus[row, place]
    count = buddy.place(
        free, per_node, cluster.starts[kind], cluster.ends[kind], cluster.switches[kind], gpus, nodes, gpus_on
    )
    for place in range(count):
        nodes[place] += first
    proposed = jobs.locality_of(cluster, nodes[:count])
    return count if proposed < locality or (proposed == locality and count < held) else 0


@compiled_in_place
def _worth_moving(episode: Episode, cluster: ClusterArrays, row: int, nodes: Ints, gpus_on: Ints) -> bool:
    """Whether a move is still possible and lets the job end earlier despite its restart."""
    job, now = episode.job[row], episode.clock[c.NOW]
    for place in range(len(nodes)):
        room = episode.free_on_node[nodes[place]]
        for at in range(job[c.NODES]):
            if episode.held_nodes[row, at] == nodes[place]:
                room += episode.held_gpus[row, at]
        if room < gpus_on[place]:
            return False
    remaining = jobs.remaining_at(episode, row, now)
    faster = episode.execution_s[job[c.CLASS], job[c.TYPE], job[c.LEVEL], jobs.locality_of(cluster, nodes)]
    standstill = max((job[c.READY] - now) / c.TICKS_PER_S, 0.0)
    stay = standstill + remaining * episode.figures[row, c.ITERATION_S]
    return jobs.overhead_s(episode, row, job[c.TYPE], job[c.LEVEL]) + remaining * faster < stay


@compiled_part
def defragment(episode: Episode, cluster: ClusterArrays) -> None:
    """Move jobs to closer nodes where that pays, once an hour; all proposals are made before any move."""
    clock = episode.clock
    if clock[c.NOW] - clock[c.DEFRAGMENTED_AT] < EVERY_S * c.TICKS_PER_S:
        return
    clock[c.DEFRAGMENTED_AT] = clock[c.NOW]
    in_view, width = clock[c.IN_VIEW], episode.held_nodes.shape[1]
    found, nodes = np.zeros(in_view, np.int64), np.empty((in_view, width), np.int64)
    gpus_on = np.empty((in_view, width), np.int64)
    for at in range(in_view):
        if episode.job[episode.in_view[at], c.NODES] > 1:
            found[at] = _better_nodes(episode, cluster, episode.in_view[at], nodes[at], gpus_on[at])
    for at in range(in_view):
        row, count = episode.in_view[at], found[at]
        if count > 0 and _worth_moving(episode, cluster, row, nodes[at, :count], gpus_on[at, :count]):
            kind, level = episode.job[row, c.TYPE], episode.job[row, c.LEVEL]
            jobs.vacate(episode, cluster, row)
            for place in range(count):
                episode.held_nodes[row, place] = nodes[at, place]
                episode.held_gpus[row, place] = gpus_on[at, place]
            episode.job[row, c.NODES] = count
            jobs.hold(episode, cluster, row, kind, level, c.MIGRATE)
