"""Events of an episode, compiled: log those that happen, and cancel planned ones that will not."""

from __future__ import annotations

import numpy as np

from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place


@compile_in_place
def record(
    episode: Episode,
    event_type: int,
    row: int,
    gpu_type: int,
    gpus: int,
    locality: int,
    overhead: np.int64 | int,
    iteration_s: float,
) -> None:
    """Add an event, without its nodes, to the episode's log, if it keeps one."""
    clock = episode.clock
    at, capacity = clock[c.EVENTS], len(episode.event)
    if capacity == 0:
        return
    event = episode.event[at]
    event[c.TIME], event[c.EVENT_TYPE], event[c.JOB] = clock[c.NOW], event_type, row
    event[c.EVENT_GPU_TYPE], event[c.EVENT_GPUS] = gpu_type, gpus
    event[c.LOCALITY], event[c.OVERHEAD] = locality, overhead
    event[c.FIRST_NODE], event[c.NODE_COUNT] = clock[c.EVENT_NODES], 0
    episode.event_iteration_s[at] = iteration_s
    clock[c.EVENTS] = at + 1


@compile_in_place
def record_nodes(episode: Episode, count: int) -> None:
    """Add nodes, those in `episode.placed`, to the last event of the log."""
    clock = episode.clock
    if len(episode.event) == 0:
        return
    episode.event[clock[c.EVENTS] - 1, c.NODE_COUNT] = count
    for place in range(count):
        episode.event_node[clock[c.EVENT_NODES] + place, 0] = episode.placed[0, place]
        episode.event_node[clock[c.EVENT_NODES] + place, 1] = episode.placed[1, place]
    clock[c.EVENT_NODES] += count


@compile_in_place
def record_plain(episode: Episode, event_type: int, row: int) -> None:
    """Add an event without GPUs to the episode's log."""
    record(episode, event_type, row, c.NONE, 0, c.NONE, 0, 0.0)


@compile_in_place
def make_void(episode: Episode, due: np.int64) -> None:
    """Note that the completion due at tick `due` will not happen; only the latest such tick is kept."""
    clock = episode.clock
    # The SimPy engine keeps a cancelled completion in its queue until its time, which can prolong a run.
    # Only the latest such tick matters, so one number stands for all of them.
    if due > clock[c.HORIZON]:
        clock[c.VOID_BEYOND] = 1
    elif due > clock[c.VOID_UNTIL]:
        clock[c.VOID_UNTIL] = due
