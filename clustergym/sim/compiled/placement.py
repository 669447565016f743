"""The nodes of jobs and profiles, compiled.

What was found for a job or profile, or what it gives back, lies in the first columns of `placed`. What each
holds are shares of nodes: rows of `share`, of which each names the next, NONE: none.
"""

from __future__ import annotations

from clustergym.sim import columns as c
from clustergym.sim.compiled import buddy
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place
from clustergym.sim.compiled.scenario_arrays import ClusterArrays


@compile_in_place
def place(episode: Episode, cluster: ClusterArrays, gpu_type: int, gpus: int) -> int:
    """Choose nodes for GPUs of a type, write them to `episode.placed`, and return how many."""
    first, nodes = cluster.first_node[gpu_type], episode.placed[0]
    count = buddy.place(
        episode.free_on_node[first : first + cluster.nodes[gpu_type]],
        cluster.per_node[gpu_type],
        cluster.starts[gpu_type],
        cluster.ends[gpu_type],
        cluster.switches[gpu_type],
        gpus,
        nodes,
        episode.placed[1],
    )
    for at in range(count):
        nodes[at] += first
    return count


@compile_in_place
def take(episode: Episode, count: int, gpu_type: int, gpus: int) -> int:
    """Allocate the GPUs on the first `count` nodes in `episode.placed`; return the allocation's index.

    `show` and `give_back` take that index.
    """
    clock, share, first = episode.clock, episode.share, c.NONE
    # From the last node to the first, so that the list of shares begins with the first: `show` keeps the
    # order.
    for at in range(count - 1, -1, -1):
        new = clock[c.FREE_SHARE]
        clock[c.FREE_SHARE] = share[new, c.NEXT_SHARE]
        share[new, c.NODE], share[new, c.ON_NODE] = episode.placed[0, at], episode.placed[1, at]
        share[new, c.NEXT_SHARE] = first
        episode.free_on_node[share[new, c.NODE]] -= share[new, c.ON_NODE]
        first = new
    episode.free[gpu_type] -= gpus
    return first


@compile_in_place
def show(episode: Episode, first: int) -> int:
    """Write the nodes of the allocation with index `first` to `episode.placed`; return how many."""
    at, count = first, 0
    while at != c.NONE:
        episode.placed[0, count], episode.placed[1, count] = (
            episode.share[at, c.NODE],
            episode.share[at, c.ON_NODE],
        )
        at, count = episode.share[at, c.NEXT_SHARE], count + 1
    return count


@compile_in_place
def give_back(episode: Episode, first: int, gpu_type: int) -> None:
    """Release the GPUs of the allocation with index `first`, and write its nodes to `episode.placed`."""
    clock, share, at = episode.clock, episode.share, first
    show(episode, first)
    while at != c.NONE:
        following = share[at, c.NEXT_SHARE]
        if not episode.closed[share[at, c.NODE]]:
            episode.free_on_node[share[at, c.NODE]] += share[at, c.ON_NODE]
            episode.free[gpu_type] += share[at, c.ON_NODE]
        share[at, c.NEXT_SHARE], clock[c.FREE_SHARE] = clock[c.FREE_SHARE], at
        at = following
