"""Slurm's backfill: reservations of whole nodes for jobs that wait, by what running jobs give back.

Which nodes Slurm gives a job: the best fit among sets of consecutive nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Bools, Ints

FIRST_WINDOW_S = 30.0
"""Ends of running jobs count together in windows, each twice as long as the last (`bf_window_linear`)."""


@dataclass
class _Span:
    """A time in which the same nodes are without reservations."""

    begin_s: float
    end_s: float
    open: Bools


@dataclass(frozen=True)
class Planned:
    """A possible start of a job: its time and its nodes.

    Attributes
    ----------
    start_s : float
    nodes : Nodes
    open : ndarray of bool, shape (N,)
        Nodes that it may use and that nobody has reserved in its time.
    """

    start_s: float
    nodes: Nodes
    open: Bools = field(repr=False, compare=False)


class NodeReservations:
    """The state of one pass of Slurm's backfill: each node's free GPUs, and reserved nodes over time.

    A job that must wait reserves all of each node that it would run on, from its start to its time limit. In
    that time no other job may use them, whatever they have free. When it could start is found by letting
    running jobs end at their time limits, not one by one but in windows of time: 30 s, then 60, 120, ...; its
    start is the end of the last job of a window.

    Parameters
    ----------
    now_s : float
    free : ndarray of int, shape (N,)
    running : sequence of (float, Nodes)
        When each running job reaches its time limit, and what it holds.
    resolution_s : float
        Reservations begin and end at multiples of this, rounded down; 0: exactly (`bf_resolution`).
    window_s : float
        How far ahead jobs are planned (`bf_window`).
    gres : bool
        Whether jobs ask for GPUs, rather than for CPUs that stand for them.

    Notes
    -----
    Source: the descriptions of `bf_resolution`, `bf_window` and `bf_window_linear` in `slurm.conf(5)`, and
    the behaviour of `slurmctld` 22.05.8 (`DebugFlags=Backfill,BackfillMap`).
    """

    def __init__(
        self,
        now_s: float,
        free: Ints,
        running: Sequence[tuple[float, Nodes]],
        resolution_s: float,
        window_s: float,
        gres: bool = True,
    ) -> None:
        self.now_s, self.free, self._resolution_s = now_s, free.copy(), resolution_s
        self._horizon_s, self._gres = now_s + window_s, gres
        self._running = sorted(running, key=lambda one: one[0])
        self._sort()
        # One span for the whole window, in which every node is open; reservations divide it.
        begin_s = self._rounded(now_s)
        self._spans = [_Span(begin_s, self._rounded(self._horizon_s), np.ones(len(free), dtype=np.bool_))]

    def _rounded(self, time_s: float) -> float:
        return time_s // self._resolution_s * self._resolution_s if self._resolution_s else time_s

    def _sort(self) -> None:
        nodes = [nodes for _, nodes in self._running]
        self._ends_s = [end_s for end_s, _ in self._running]
        self._at = np.cumsum([0, *(len(held) for held in nodes)])
        self._node = np.array([node for held in nodes for node, _ in held], dtype=np.int64)
        self._gpus = np.array([gpus for held in nodes for _, gpus in held], dtype=np.int64)

    def fits(self, usable: Bools, gpus: int, nodes: int) -> Nodes | None:
        """Return the nodes that a job would get now if there were no reservations; None if too few."""
        return consecutive_best_fit(np.where(usable, self.free, 0), gpus, nodes, capped=self._gres)

    def start(self, given: Nodes, end_s: float) -> None:
        """Let a job start now on the given nodes and reach its time limit at `end_s`."""
        for node, gpus in given:
            self.free[node] -= gpus
        self._running.append((end_s, given))
        self._running.sort(key=lambda one: one[0])
        self._sort()

    def plan(self, usable: Bools, gpus: int, nodes: int, limit_s: float) -> Planned | None:
        """Return a job's earliest start that no reservation prevents; None if none is within `window_s`.

        Parameters
        ----------
        usable : ndarray of bool, shape (N,)
            Nodes that the job may use.
        gpus, nodes : int
            What it asks for; nodes 0: any.
        limit_s : float
            Its time limit.
        """
        later_s: float | None = self.now_s
        while later_s is not None:
            from_s = later_s
            open_nodes, later_s = self._open(usable, from_s, max(from_s, self.now_s) + limit_s)
            found = self._earliest(open_nodes, gpus, nodes)
            if found is None:
                continue
            start_s = max(found.start_s, from_s)
            if start_s <= self.now_s:
                # What it is given now is chosen as at any start.
                given = self.fits(open_nodes, gpus, nodes)
                return None if given is None else Planned(start_s, given, open_nodes)
            # Nodes open up before that start: from then on there may be an earlier one.
            if later_s is not None and start_s > later_s:
                continue
            if start_s > self._horizon_s:
                return None
            # The start lies so late that the job would run into a reservation which the time looked at did
            # not reach.
            if self._overlaps(found.nodes, start_s, limit_s):
                later_s = start_s
                continue
            return Planned(start_s, found.nodes, open_nodes)
        return None

    def _open(self, usable: Bools, from_s: float, to_s: float) -> tuple[Bools, float | None]:
        """Return the nodes without reservations in a time, and when others may be, if any."""
        open_nodes, later_s = usable.copy(), None
        for span, after in zip(self._spans, [*self._spans[1:], None], strict=True):
            if span.end_s <= from_s:
                continue
            opens = after is not None and (usable & after.open & ~(open_nodes & span.open)).any()
            if later_s is None and opens:
                later_s = span.end_s
            if span.begin_s > to_s:
                break
            open_nodes &= span.open
        return open_nodes, later_s

    def _earliest(self, usable: Bools, gpus: int, nodes: int) -> Planned | None:
        free = np.where(usable, self.free, 0)
        if given := consecutive_best_fit(free, gpus, nodes, capped=False):
            return Planned(self.now_s, given, usable)
        ends_s, at = self._ends_s, 0
        if not ends_s:
            return None
        touches = np.logical_or.reduceat(usable[self._node], self._at[:-1])
        window_s, edge_s = FIRST_WINDOW_S, 0.0
        ending = np.flatnonzero(touches).tolist()
        for last in ending:
            end_s = ends_s[last]
            edge_s = edge_s or end_s + FIRST_WINDOW_S - end_s % FIRST_WINDOW_S
            further = last != ending[-1]
            if further and ends_s[last + 1] <= edge_s + window_s:
                continue
            given_back = slice(int(self._at[at]), int(self._at[last + 1]))
            np.add.at(free, self._node[given_back], self._gpus[given_back])
            at, window_s = last + 1, 2.0 * window_s
            while further and ends_s[last + 1] > edge_s + window_s:
                window_s *= 2.0
            if given := consecutive_best_fit(np.where(usable, free, 0), gpus, nodes, capped=False):
                # A job that is past its time limit is about to end.
                return Planned(max(end_s, self.now_s + 1.0), given, usable)
        return None

    def _overlaps(self, given: Nodes, start_s: float, limit_s: float) -> bool:
        begin_s, end_s = self._rounded(start_s), self._rounded(start_s + limit_s)
        index = [node for node, _ in given]
        during = (span for span in self._spans if span.end_s > begin_s and span.begin_s < end_s)
        return any(not span.open[index].all() for span in during)

    def reserve(self, planned: Planned, limit_s: float) -> None:
        """Reserve all nodes of a planned job from its start to its time limit."""
        begin_s = max(self._rounded(planned.start_s), self._spans[0].begin_s)
        end_s = max(self._rounded(planned.start_s + limit_s), begin_s + self._resolution_s)
        spans, before = self._spans, 0
        for at, span in enumerate(spans):
            if span.end_s >= begin_s:
                if span.end_s > begin_s:
                    spans.insert(at + 1, _Span(begin_s, span.end_s, span.open.copy()))
                    span.end_s = begin_s
                break
            before = at
        else:
            return
        last, index = at, [node for node, _ in planned.nodes]
        while last + 1 < len(spans) and spans[last].end_s < end_s:
            last += 1
            span = spans[last]
            if end_s < span.end_s:
                spans.insert(last + 1, _Span(end_s, span.end_s, span.open.copy()))
                span.end_s = end_s
            span.open[index] = False
        # Slurm joins the first two alike only: how long a span lasts decides how far the next plan looks.
        for at in range(before, min(last + 1, len(spans) - 1)):
            if (spans[at].open == spans[at + 1].open).all():
                spans[at].end_s = spans[at + 1].end_s
                del spans[at + 1]
                return


def consecutive_best_fit(free: Ints, gpus: int, nodes: int = 0, *, capped: bool = True) -> Nodes | None:
    """Return the nodes, with GPUs on each, that Slurm's `select/cons_tres` would give a job; or None.

    Nodes with free GPUs are taken in sets of neighbours. The set with the fewest free GPUs that suffice is
    chosen; if none does, the one with the most, and then further ones. Within a set the node with the fewest
    free GPUs that suffice is chosen; if none does, its nodes are filled one after another.

    Parameters
    ----------
    free : ndarray of int, shape (N,)
        GPUs that the job may have on each node.
    gpus : int
    nodes : int
        Nodes that the job asks for, with equally many GPUs on each; 0: any.
    capped : bool
        Whether of a node's free GPUs only as many count as a job that asks for nodes can use there. They do
        where Slurm starts a job that asks for GPUs (`--gres`), not where CPUs stand for them, nor where it
        plans for later.

    Returns
    -------
    Nodes or None
        (node, GPUs) pairs, nodes ascending; None if too few GPUs or nodes are free.

    Notes
    -----
    From the description of `SelectTypeParameters` in Slurm's documentation, and from what `slurmctld` 22.05.8
    logs with `DebugFlags=SelectType` (`set:N consec CPUs`).
    """
    each = gpus // nodes if nodes else 0
    room = np.where(free >= max(each, 1), np.minimum(free, each) if nodes and capped else free, 0)
    if room.sum() < gpus or np.count_nonzero(room) < nodes:
        return None
    usable = np.flatnonzero(room)
    sets = [part.tolist() for part in np.split(usable, np.flatnonzero(np.diff(usable) > 1) + 1)]
    totals = [int(room[part].sum()) for part in sets]
    left, nodes_left, chosen = gpus, max(nodes, 1), []
    while left > 0 or nodes_left > 0:
        best = _best_set(sets, totals, left, nodes_left)
        part, sets[best] = sets[best], []
        if nodes_left <= 1:
            fits = [node for node in part if room[node] >= left]
            part = [min(fits, key=lambda node: (room[node], node))] if fits else part
        for node in part:
            if left <= 0 and nodes_left <= 0:
                break
            # One GPU is kept for each node that the job must still have.
            taken = each or min(int(room[node]), left - max(nodes_left - 1, 0))
            chosen.append((node, taken))
            left, nodes_left = left - taken, nodes_left - 1
    return tuple(sorted(chosen))


def _best_set(sets: list[list[int]], totals: list[int], gpus: int, nodes: int) -> int:
    best, best_suffices = -1, False
    for at, part in enumerate(sets):
        if not part:
            continue
        suffices = totals[at] >= gpus and len(part) >= nodes
        if (
            best < 0
            or (suffices and not best_suffices)
            or (suffices and totals[at] < totals[best])
            or (not suffices and totals[at] > totals[best])
        ):
            best, best_suffices = at, suffices
    return best
