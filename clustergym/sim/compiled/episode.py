"""The state of an episode as arrays: the jobs, the clock, the nodes, and the log of events.

Events that happen are logged, and planned ones that will not are cancelled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim import columns as c
from clustergym.sim.compiled.numba_cache import compile_in_place


class Episode(NamedTuple):
    """The state of an episode as arrays: jobs, clock, nodes, and the log of events.

    In a batch of episodes every array has one axis more, the first. Arrays may be longer than the episode
    needs; `clock` says how many of their rows count.

    Attributes
    ----------
    clock : ndarray of int, shape (CLOCK_COLUMNS,)
    job : ndarray of int, shape (n, JOB_COLUMNS)
    figures : ndarray of float, shape (n, FIGURE_COLUMNS)
    searched : ndarray of bool, shape (n, T, K)
        Allotments for which a parallel plan is known.
    in_view : ndarray of int, shape (n,)
        Rows of the jobs that a View shows, ascending.
    rounds : ndarray of int, shape (4, 2)
        Tick and number of planned rounds; NEVER: none.
    free : ndarray of int, shape (T,)
    free_on_node : ndarray of int, shape (N,)
    closed : ndarray of int, shape (N,)
        Whether the node is not rented, or about to go: what jobs give back there is not free.
    running : ndarray of int, shape (n,)
        Rows of the jobs that run, a heap by their completions.
    share : ndarray of int, shape (G, SHARE_COLUMNS)
        What jobs and profiles hold of nodes; G is the number of GPUs.
    placed : ndarray of int, shape (2, W)
        Nodes, and the GPUs on each, that were just found or given back; W is the most nodes of a type.
    event : ndarray of int, shape (…, EVENT_COLUMNS)
    event_iteration_s : ndarray of float, shape (…,)
    event_node : ndarray of int, shape (…, 2)
        (node, GPUs) of the events, one event after the other.
    execution_s : ndarray of float, shape (C, T, K, 4)
        Seconds per iteration of running jobs at each locality.
    known_s : ndarray of float, shape (C, T, K)
        Seconds per iteration that the information class knows.
    feasible : ndarray of bool, shape (C, T, K)
    checkpoint_s : ndarray of float, shape (C,)
    search_s : ndarray of float, shape (K,)
    profile : ndarray of int, shape (P, PROFILE_COLUMNS)
        P is 0 where nothing is profiled, and otherwise T for each class, or for each job.
    """

    clock: Ints
    job: Ints
    figures: Floats
    searched: Bools
    in_view: Ints
    rounds: Ints
    free: Ints
    free_on_node: Ints
    closed: Ints
    running: Ints
    share: Ints
    placed: Ints
    event: Ints
    event_iteration_s: Floats
    event_node: Ints
    execution_s: Floats
    known_s: Floats
    feasible: Bools
    checkpoint_s: Floats
    search_s: Floats
    profile: Ints


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
