"""The nodes of jobs and profiles, compiled: row `holder` of `held_nodes` and `held_gpus`.

A job's row is its own, and a profile's row is its row of `profile` after the rows of all jobs.
"""

from __future__ import annotations

from clustergym.sim.compiled import buddy
from clustergym.sim.compiled.cluster_arrays import ClusterArrays
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compiled_in_place


@compiled_in_place
def place(episode: Episode, cluster: ClusterArrays, holder: int, kind: int, gpus: int) -> int:
    """Find nodes for GPUs of a type, write them to a holder's row, and return their number."""
    first, nodes = cluster.first_node[kind], episode.held_nodes[holder]
    count = buddy.place(
        episode.free_on_node[first : first + cluster.nodes[kind]],
        cluster.per_node[kind],
        cluster.starts[kind],
        cluster.ends[kind],
        cluster.switches[kind],
        gpus,
        nodes,
        episode.held_gpus[holder],
    )
    for at in range(count):
        nodes[at] += first
    return count


@compiled_in_place
def take(episode: Episode, holder: int, count: int, kind: int, gpus: int) -> None:
    """Take the GPUs in a holder's row."""
    for place in range(count):
        episode.free_on_node[episode.held_nodes[holder, place]] -= episode.held_gpus[holder, place]
    episode.free[kind] -= gpus


@compiled_in_place
def give_back(episode: Episode, holder: int, count: int, kind: int) -> None:
    """Give back the GPUs in a holder's row."""
    for place in range(count):
        node, gpus = episode.held_nodes[holder, place], episode.held_gpus[holder, place]
        episode.free_on_node[node] += gpus
        episode.free[kind] += gpus
