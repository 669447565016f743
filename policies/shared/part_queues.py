"""Queues of jobs that ask for parts of GPUs: serve them in order, each where there is room."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from clustergym.cluster.parts import Nodes, Requests, book
from clustergym.common.arrays import Ints
from clustergym.scenario.part_view import PartView
from clustergym.scenario.policy import View

if TYPE_CHECKING:
    from clustergym.sim.parts.fragmentation import UsualRequests
    from clustergym.sim.parts.placement import PlacedRequest


def fill_parts(view: View, order: Ints, *, blocks: bool) -> list[tuple[int, int, int]]:
    """Give jobs, in order, the parts of GPUs they request; return (job, type index, GPUs) triples.

    Placers choose nodes later; with `blocks`, a job without room blocks those behind it.

    A waiting job finds room by best fit. Where there is none, it takes that of running jobs which stand
    behind it in the order, from the last one on, of the node that would then fit best.

    Parameters
    ----------
    view : View
        Of a divisible cluster.
    order : ndarray of int
        Positions in the View, the first to be served first; running jobs not in it keep what they have.
    blocks : bool
        Whether a job that finds no room blocks all behind it.

    Returns
    -------
    list of (job, type index, GPUs)
    """
    assert view.parts is not None
    room, chosen = _Room(view.parts, order[view.gpus[order] > 0].tolist()), []
    unfit, request, gpus = room.find_unfit_requests(), view.parts.request.tolist(), view.gpus.tolist()
    for at in order.tolist():
        if gpus[at] > 0:
            if not room.keep(at):
                continue
        # Room only shrinks along the order: a request that found none finds none later.
        elif request[at] in unfit or not room.take(at):
            unfit.add(request[at])
            if blocks:
                break
            continue
        chosen.append((int(view.job[at]), 0, int(view.requested_gpus[at])))
    return chosen


class _Room:
    """Room for more jobs: beside all running ones, and after stopping those that may be stopped.

    Parameters
    ----------
    parts : PartView
    running : list of int
        Positions of the jobs that may be stopped, the last of which goes first.
    """

    def __init__(self, parts: PartView, running: list[int]) -> None:
        self._parts, self._nodes = parts, parts.nodes()
        self._without = self._nodes.copy() if running else None
        self._undecided: dict[int, list[int]] = {}
        for at in running:
            self._undecided.setdefault(int(parts.node[at]), []).append(at)
            self._give_back(self._without, at)

    def find_unfit_requests(self) -> set[int]:
        """Return the requests for which there is no room even if all jobs considered left."""
        from clustergym.sim.parts.placement import find_fitting_requests

        nodes = self._nodes if self._without is None else self._without
        return set(np.flatnonzero(~find_fitting_requests(nodes, self._parts.requests)).tolist())

    def keep(self, at: int) -> bool:
        """Let a running job go on, unless it was stopped; return whether it goes on."""
        on_node = self._undecided[int(self._parts.node[at])]
        if at not in on_node:
            return False
        on_node.remove(at)
        if self._without is not None:
            self._book(self._without, at, int(self._parts.node[at]), int(self._parts.devices[at]), -1)
        return True

    def take(self, at: int) -> bool:
        """Find room for a waiting job, and take it; return whether there was any."""
        placed = _place_request(self._nodes, self._parts.requests, int(self._parts.request[at]))
        if placed is None and self._without is not None:
            placed = self._in_place_of_others(at)
        if placed is None:
            return False
        if self._without is not None:
            self._book(self._without, at, placed.node, placed.devices, -1)
        return True

    def _in_place_of_others(self, at: int) -> PlacedRequest | None:
        """Place a job on the node where it can fit by stopping other jobs; return where, or None."""
        assert self._without is not None
        request, requests = int(self._parts.request[at]), self._parts.requests
        there = _place_request(self._without, requests, request)
        if there is None:
            return None
        # Found with all stoppable jobs gone, which shows on which node it can fit; that booking is undone, as
        # there may be a place for it on the node after fewer stops.
        self._book(self._without, at, there.node, there.devices, 1)
        while True:
            # The last in the order stops first, until the job fits: it does at the latest when all of them
            # have.
            self._give_back(self._nodes, self._undecided[there.node].pop())
            placed = _place_request(self._nodes, requests, request)
            if placed is not None:
                return placed

    def _give_back(self, nodes: Nodes | None, at: int) -> None:
        if nodes is not None:
            self._book(nodes, at, int(self._parts.node[at]), int(self._parts.devices[at]), 1)

    def _book(self, nodes: Nodes, at: int, node: int, devices: int, sign: int) -> None:
        book(nodes, self._parts.requests.unpack_row(int(self._parts.request[at])), node, devices, sign)


@cache
def _no_usual() -> UsualRequests:
    from clustergym.sim.parts.fragmentation import UsualRequests

    nothing = np.zeros(0, dtype=np.int64)
    return UsualRequests(nothing, nothing, nothing, nothing, np.zeros(0))


def _place_request(nodes: Nodes, requests: Requests, request: int) -> PlacedRequest | None:
    """Place a request by best fit; None: there is no room."""
    from clustergym.sim.parts.placement import place

    return place(nodes, requests, request, "best-fit", _no_usual())
