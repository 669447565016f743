"""The move of jobs to closer nodes, compiled: `Buddy.defragment` and the engine's check of it."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled import buddy, jobs
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part
from clustergym.sim.compiled.placement import show
from clustergym.sim.compiled.scenario_arrays import ClusterArrays
from clustergym.sim.compiled.shared_rules import rules


@compile_part
def _better_nodes(episode: Episode, cluster: ClusterArrays, row: int, nodes: Ints, gpus_on: Ints) -> int:
    """Write the nodes on which a job would be closer together; return how many, 0 if there are none."""
    job, on, held_on = episode.job[row], episode.placed[0], episode.placed[1]
    gpu_type, held, gpus = job[c.TYPE], show(episode, job[c.FIRST_SHARE]), job[c.GPUS]
    locality = jobs.find_locality(cluster, on[:held])
    per_node, first = cluster.per_node[gpu_type], cluster.first_node[gpu_type]
    # As close, and on as few nodes, as on an empty cluster: no search could do better.
    if locality == cluster.compact[gpu_type, job[c.LEVEL]] and held == -(-gpus // per_node):
        return 0
    # Its own GPUs count as free, since it may stay on some of its nodes.
    free = episode.free_on_node[first : first + cluster.nodes[gpu_type]].copy()
    for place in range(held):
        free[on[place] - first] += held_on[place]
    count = buddy.place(
        free,
        per_node,
        cluster.starts[gpu_type],
        cluster.ends[gpu_type],
        cluster.switches[gpu_type],
        gpus,
        nodes,
        gpus_on,
    )
    for place in range(count):
        nodes[place] += first
    proposed = jobs.find_locality(cluster, nodes[:count])
    return count if proposed < locality or (proposed == locality and count < held) else 0


@compile_in_place
def _worth_moving(episode: Episode, cluster: ClusterArrays, row: int, nodes: Ints, gpus_on: Ints) -> bool:
    """Return whether a move is still possible and lets the job end earlier despite its restart."""
    job, now = episode.job[row], episode.clock[c.NOW]
    held = show(episode, job[c.FIRST_SHARE])
    # All proposals were made before the first move, which may have taken the room of this one.
    for place in range(len(nodes)):
        room = episode.free_on_node[nodes[place]]
        for at in range(held):
            if episode.placed[0, at] == nodes[place]:
                room += episode.placed[1, at]
        if room < gpus_on[place]:
            return False
    remaining = jobs.compute_remaining(episode, row, now)
    faster = episode.execution_s[job[c.CLASS], job[c.TYPE], job[c.LEVEL], jobs.find_locality(cluster, nodes)]
    speed, restart_s = (
        episode.figures[row, c.ITERATION_S],
        jobs.restart_s(episode, row, job[c.TYPE], job[c.LEVEL]),
    )
    return rules.pays_to_move(restart_s, remaining, speed, faster, job[c.READY], now)


@compile_part
def _on_several_nodes(episode: Episode) -> Ints:
    """Return the rows of the jobs that hold GPUs on several nodes, ascending."""
    rows, count = np.empty(episode.clock[c.RUNNING_JOBS], np.int64), 0
    for row in episode.running[: len(rows)]:
        if episode.job[row, c.NODES] > 1:
            rows[count] = row
            count += 1
    buddy.sort_many(rows[:count])
    return rows[:count]


@compile_part
def defragment(episode: Episode, cluster: ClusterArrays) -> None:
    """Move running jobs to nodes closer together if they then end earlier, unless this was done recently."""
    clock = episode.clock
    every = clock[c.DEFRAGMENT_EVERY]
    if every == 0 or clock[c.NOW] - clock[c.DEFRAGMENTED_AT] < every:
        return
    clock[c.DEFRAGMENTED_AT] = clock[c.NOW]
    rows = _on_several_nodes(episode)
    # One after the other, the proposals have no more nodes than their jobs have GPUs; a search may need more.
    room = len(episode.share) + episode.placed.shape[1]
    end, nodes, gpus_on = (
        np.zeros(len(rows) + 1, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
    )
    for at in range(len(rows)):
        first = end[at]
        end[at + 1] = first + _better_nodes(episode, cluster, rows[at], nodes[first:], gpus_on[first:])
    for at in range(len(rows)):
        first, last, row = end[at], end[at + 1], rows[at]
        if first < last and _worth_moving(episode, cluster, row, nodes[first:last], gpus_on[first:last]):
            gpu_type, level = episode.job[row, c.TYPE], episode.job[row, c.LEVEL]
            jobs.vacate(episode, cluster, row)
            for place in range(last - first):
                episode.placed[0, place] = nodes[first + place]
                episode.placed[1, place] = gpus_on[first + place]
            episode.job[row, c.NODES] = last - first
            jobs.hold(episode, cluster, row, gpu_type, level, c.MIGRATE)
