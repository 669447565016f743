"""The state of an episode as arrays: the jobs, the clock, the nodes, and the log of events."""

from __future__ import annotations

from typing import NamedTuple

from clustergym.common.arrays import Bools, Floats, Ints


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
