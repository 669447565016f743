"""What queues of tenants hold, ask for and are due; and who gives back what others lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from clustergym.arrays import Bools, Floats, Ints
from clustergym.interface.policy import View
from clustergym.tenants.division import Claims, Division
from clustergym.tenants.queue_tree import QueueTree

from .queue_limits import QueueLimits
from .requests import request_options

Reclaim = Literal["shrink", "stop", "never"]


class Demand(NamedTuple):
    """What L leaves hold and ask for of each of T types.

    Attributes
    ----------
    held, asked : ndarray of float, shape (L, T)
        What its jobs hold; what they ask for, or hold if that is more.
    options : ndarray of bool, shape (n, T)
        On which types each job's request may run.
    claims, wider : list of Claims
        Of each type: of what is asked for, and as if those that ask for any asked for all.
    """

    held: Floats
    asked: Floats
    options: Bools
    claims: list[Claims]
    wider: list[Claims]


class Shares(NamedTuple):
    """GPUs of each type by leaf, shape (L, T).

    Attributes
    ----------
    held, asked, due : ndarray of float
        What its jobs hold; what they ask for, or hold if that is more; what is its own.
    """

    held: Floats
    asked: Floats
    due: Floats


def demand_of(view: View, leaves: Sequence[str], divisions: Sequence[Division]) -> Demand:
    """Return what each leaf holds and asks for.

    A job of any type that waits asks for each type that it can run on, in proportion to the cluster's GPUs.
    """
    shape, running, options = (len(leaves), len(view.available)), view.gpus > 0, request_options(view)
    cell = (view.queue * shape[1] + view.gpu_type)[running]
    held = np.bincount(cell, view.gpus[running].astype(np.float64), minlength=shape[0] * shape[1])
    weights = options * view.setting.capacity
    parts: Floats = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1)
    kind = np.where(running, view.gpu_type, view.requested_type)
    parts[kind >= 0] = np.eye(shape[1])[kind[kind >= 0]]
    asks = parts * np.maximum(view.requested_gpus, view.gpus)[:, None]
    cells = view.queue[:, None] * shape[1] + np.arange(shape[1])
    asked = np.bincount(cells.ravel(), asks.ravel(), minlength=shape[0] * shape[1])
    whole: Floats = np.ceil(asked - 1e-9).reshape(shape)
    claims, wider = list[Claims](), list[Claims]()
    for division, total, column in zip(divisions, view.available.tolist(), whole.T.tolist(), strict=True):
        some = {name: one for name, one in zip(leaves, column, strict=True) if one > 0}
        claims.append(division.claims(some))
        wider.append(division.claims(dict.fromkeys(some, float(total))))
    return Demand(held.reshape(shape).astype(np.float64), whole, options, claims, wider)


class Due(NamedTuple):
    """What leaves are due, and the divisions that it was made of.

    Attributes
    ----------
    gpus : ndarray of float, shape (L, T)
    divided : list of mapping of str to float
        Of each type the shares of what is asked for and, if they leave some, as if each asked for all.
    """

    gpus: Floats
    divided: list[tuple[Mapping[str, float], Mapping[str, float]]]


def due_shares(
    available: Ints,
    demand: Demand,
    leaves: Sequence[str],
    divisions: Sequence[Division],
    usage: Mapping[str, float],
    limits: QueueLimits,
    last: Due | None,
) -> Due:
    """Return what each leaf is due of each type; `last` if it is the same and so was the demand.

    What nobody asks for is divided too, among those that have jobs, for jobs that may grow.
    """
    divided = list[tuple[Mapping[str, float], Mapping[str, float]]]()
    for at, (division, total) in enumerate(zip(divisions, available.tolist(), strict=True)):
        own, wide = division.divided(total, demand.claims[at], usage), dict[str, float]()
        if sum(own[name] for name in demand.claims[at].names) < total:
            wide = division.divided(total, demand.wider[at], usage)
        divided.append((own, wide))
    if last is not None and divided == last.divided:
        return last
    due, wider = (
        np.array([[one[which].get(name, 0.0) for one in divided] for name in leaves]) for which in (0, 1)
    )
    left = available - limits.kept_idle(due) - due.sum(axis=0)
    more = np.maximum(wider - due, 0.0)
    part = np.minimum(np.maximum(left, 0.0) / np.maximum(more.sum(axis=0), 1.0), 1.0)
    return Due(due + limits.within(due, np.floor(more * part)), divided)


def room_of(available: Ints, shares: Shares, limits: QueueLimits) -> Ints:
    """Return what each leaf may use: what it holds, and of idle GPUs what it lacks, shape (L, T)."""
    room = shares.held.copy()
    idle = available - room.sum(axis=0)
    served = shares.held / np.maximum(shares.due, 1.0)
    lacks = np.maximum(np.floor(shares.due) - room, 0.0)
    for gpu_type in np.flatnonzero((idle > 0) & lacks.any(axis=0)).tolist():
        lacking = np.flatnonzero(lacks[:, gpu_type])
        for at in lacking[np.argsort(served[lacking, gpu_type], kind="stable")].tolist():
            given = min(float(idle[gpu_type]), float(lacks[at, gpu_type]))
            if not limits.plain:
                most = limits.room(at, room, idle)[gpu_type]
                given = min(given, max(float(np.floor(most - room[at, gpu_type])), 0.0))
            room[at, gpu_type] += given
            idle[gpu_type] -= given
    return room.astype(np.int64)


class TakingBack:
    """Lowers what jobs hold of queues above their share, by what other queues lack of theirs.

    Parameters
    ----------
    view : View
    tree : QueueTree
    since_s : ndarray of float, shape (n,)
        When each job last started.
    reclaim : str
        `shrink`, `stop` or `never`.
    evicted_s : mapping of int to float
        When each job (row of the trace) was first to give GPUs back, of those that were to at the last
        decision point.
    """

    def __init__(
        self,
        view: View,
        tree: QueueTree,
        since_s: Floats,
        reclaim: Reclaim,
        evicted_s: Mapping[int, float],
    ) -> None:
        self.view, self.leaf, self.tree, self.since_s = view, view.queue, tree, since_s
        self.reclaim, self._before_s = reclaim, evicted_s
        self.evicted_s: dict[int, float] = {}
        """The same, of those that are to now."""
        self.gpus = view.gpus.copy()
        """What each job is left with."""
        self.short = False
        """Whether some queue lacked GPUs of its share that idle ones could not make up for."""

    def take(self, shares: Shares) -> Shares:
        """Take back what is due, of every type; return the shares with what is then held."""
        if self.reclaim == "never":
            return shares
        lacking = np.maximum(np.minimum(shares.due, shares.asked) - shares.held, 0.0)
        short = lacking.sum(axis=0) > self.view.free
        self.short = bool(short.any())
        if not self.short:
            return shares
        held, lacking = shares.held.copy(), self._usable(lacking * self._may_take()[:, None])
        for gpu_type in np.flatnonzero(short).tolist():
            self._take(gpu_type, held[:, gpu_type], shares.due[:, gpu_type], lacking[:, gpu_type])
        self._wait_for_evictions(held)
        return shares._replace(held=held)

    def _wait_for_evictions(self, held: Floats) -> None:
        """Leave jobs what they hold until their eviction is over."""
        now_s, gives = self.view.now_s, np.flatnonzero(self.gpus < self.view.gpus)
        for row, job in zip(gives.tolist(), self.view.job[gives].tolist(), strict=True):
            self.evicted_s[job] = self._before_s.get(job, now_s)
            if now_s - self.evicted_s[job] < self.tree.settings.eviction_s:
                held[self.leaf[row], self.view.gpu_type[row]] += self.view.gpus[row] - self.gpus[row]
                self.gpus[row] = self.view.gpus[row]

    @property
    def shrunk(self) -> int:
        """Number of jobs that are left some of their GPUs."""
        return int(((self.gpus > 0) & (self.gpus < self.view.gpus)).sum())

    @property
    def stopped(self) -> int:
        """Number of jobs that are left none of their GPUs."""
        return int(((self.gpus == 0) & (self.view.gpus > 0)).sum())

    def _take(self, gpu_type: int, held: Floats, due: Floats, lacking: Floats) -> None:
        missing = -float(self.view.free[gpu_type])
        for taker in np.argsort(-lacking, kind="stable").tolist():
            if not lacking[taker]:
                return
            missing += float(lacking[taker])
            if missing > 0 and (held > due).any():
                missing = min(self._take_for(taker, missing, gpu_type, held, due), 0.0)

    def _take_for(self, taker: int, missing: float, gpu_type: int, held: Floats, due: Floats) -> float:
        """Take GPUs back for one leaf; return how many are still missing, below 0 if more came back."""
        of_type = (self.view.gpu_type == gpu_type) & self._unprotected(taker)
        while missing > 0:
            above = np.maximum(held - due, 0.0)[self.leaf]
            rows = np.flatnonzero(of_type & (self.gpus > 0) & (above > 0))
            if not len(rows):
                break
            row, left = self._victim(rows[above[rows] == above[rows].max()], gpu_type, missing)
            freed = self.gpus[row] - left
            self.gpus[row] = left
            held[self.leaf[row]] -= freed
            missing -= float(freed)
        return missing

    def _usable(self, lacking: Floats) -> Floats:
        """Return what of the GPUs that queues lack lets whole requests of their waiting jobs start."""
        view, found = self.view, np.zeros_like(lacking)
        options = request_options(view)
        for row in np.flatnonzero(view.gpus == 0).tolist():
            at, gpus = int(self.leaf[row]), float(view.requested_gpus[row])
            left = np.where(options[row], lacking[at] - found[at], 0.0)
            if view.requested_type[row] < 0 and left.sum() >= gpus:
                # It asked for a part of itself on each type.
                found[at] += left
            elif left.max() >= gpus:
                found[at, int(left.argmax())] += gpus
        return found

    def _may_take(self) -> Bools:
        """Return which leaves have a job that has waited long enough for others to be stopped."""
        found = np.zeros(len(self.tree.leaves), dtype=bool)
        delay_s = np.array([self.tree.preemption_delay_s(name) for name in self.tree.leaves])
        # Running jobs have waited for NaN seconds.
        found[self.leaf[self.view.now_s - self.view.queued_s >= delay_s[self.leaf]]] = True
        return found

    def _unprotected(self, taker: int) -> Bools:
        """Return which jobs another queue may take GPUs of."""
        leaves = self.tree.leaves
        least_s = np.array([self.tree.reclaim_min_runtime_s(leaves[taker], name) for name in leaves])
        least_s[taker] = np.inf
        found: Bools = self.view.now_s - self.since_s >= least_s[self.leaf]
        return found

    def _victim(self, rows: Ints, gpu_type: int, missing: float) -> tuple[int, int]:
        """Return the job that gives GPUs back, and how many it keeps.

        Of ways that lose as much, the one that frees least, and then the job that started last.
        """
        if self.reclaim == "shrink":
            row, left, loss = self._ways(rows, gpu_type, missing)
            if len(row):
                freed = self.gpus[row] - left
                first = np.lexsort((-row, -self.since_s[row], freed, loss / np.minimum(freed, missing)))[0]
                return int(row[first]), int(left[first])
        return int(rows[np.lexsort((rows, self.since_s[rows]))[-1]]), 0

    def _ways(self, rows: Ints, gpu_type: int, missing: float) -> tuple[Ints, Ints, Floats]:
        """Return how jobs can be shrunk: the job, what it keeps, and the GPU-seconds that this loses.

        Each keeps as much as lets all that is missing come free, or else the fewest GPUs it can run on. It
        stands still with them; a job that gives GPUs back already stands still in any case.
        """
        counts, now = self.view.setting.counts, self.gpus[rows, None]
        fits = self.view.feasible[rows, gpu_type] & (counts < now)
        enough = fits & (now - counts >= missing)
        most = len(counts) - 1 - enough[:, ::-1].argmax(axis=1)
        level = np.where(enough.any(axis=1), most, fits.argmax(axis=1))
        some = np.flatnonzero(fits.any(axis=1))
        row, level = rows[some], level[some]
        left = counts[level]
        stands = np.where(self.gpus[row] < self.view.gpus[row], self.gpus[row], 0)
        return row, left, self.view.restart_cost_s()[row, gpu_type, level] * (left - stands)
