"""How full and how fragmented divisible nodes are over time, from what comes to them and leaves them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.cluster.parts import WHOLE, Nodes, Requests
from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.sim.compiled.numba_cache import compiled
from clustergym.sim.parts.fragmentation import Usual, fragments, idle_milli
from clustergym.sim.parts.placers import class_of, give_back


class Change(NamedTuple):
    """C requests that come or leave, in order.

    Attributes
    ----------
    kind, node, devices : ndarray of int, shape (C,)
        Kind of request, its node, and its devices there as bits.
    comes : ndarray of bool, shape (C,)
    """

    kind: Ints
    node: Ints
    devices: Ints
    comes: Bools


class Course(NamedTuple):
    """The state of the cluster before the first change and after each, shape (C + 1,).

    Attributes
    ----------
    allocated_milli : ndarray of int
        Thousandths of GPUs.
    fragments_milli : ndarray of float
        Expected thousandths of idle GPU that a usual request cannot use (FGD, section 4).
    partly_used : ndarray of int
        Nodes of which some GPU is allocated and some is idle.
    """

    allocated_milli: Ints
    fragments_milli: Floats
    partly_used: Ints


def course_of(nodes: Nodes, requests: Requests, usual: Usual, changes: Change) -> Course:
    """Return the course of empty nodes, which are left as they are at the end."""
    states = len(changes.kind) + 1
    course = Course(np.zeros(states, np.int64), np.zeros(states), np.zeros(states, np.int64))
    _follow(nodes, requests, usual, changes, course)
    return course


@compiled
def _follow(nodes: Nodes, requests: Requests, usual: Usual, changes: Change, course: Course) -> None:
    number = len(nodes.devices)
    own, partly = np.empty(number), np.zeros(number, np.int64)
    for at in range(number):
        own[at] = fragments(nodes, at, usual)
    course.fragments_milli[0] = own.sum()
    for change in range(len(changes.kind)):
        at, kind = changes.node[change], changes.kind[change]
        asked = requests.gpus[kind] * requests.gpu_milli[kind]
        if changes.comes[change]:
            _put(nodes, at, requests, kind, changes.devices[change])
        else:
            give_back(nodes, at, requests, kind, changes.devices[change])
            asked = -asked
        own[at] = fragments(nodes, at, usual)
        idle = idle_milli(nodes, at)
        partly[at] = 0 < idle < WHOLE * nodes.devices[at]
        course.allocated_milli[change + 1] = course.allocated_milli[change] + asked
        course.fragments_milli[change + 1] = own.sum()
        course.partly_used[change + 1] = partly.sum()


@compiled
def _put(nodes: Nodes, at: int, requests: Requests, kind: int, devices: int) -> None:
    """Take what a request asks for from known devices."""
    nodes.version[at] += 1
    nodes.cpu_milli[at] -= requests.cpu_milli[kind]
    nodes.memory_mib[at] -= requests.memory_mib[kind]
    if requests.gpus[kind]:
        nodes.hosted[at, class_of(requests, kind)] += 1
    for place in range(nodes.devices[at]):
        if (devices >> place) & 1:
            nodes.gpu_milli[at, place] -= requests.gpu_milli[kind]
