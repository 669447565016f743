"""Gavel's round mechanism, which turns shares of time into rounds of gangs (OSDI '20, section 5)."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import Decision, View

from .requests import find_requested_level

LEAST_SHARE = 1e-6
"""A smaller share of time counts as none."""


class RoundMechanism:
    """Fills rounds with jobs such that each gets its share of time on each GPU type, as in Gavel.

    A job's priority on a type is the time it should have had there by the end of this round over the time it
    has had, the coming round counted half. While its share x stays the same, that is x over the fraction of
    time received; when shares change, a job keeps what it is owed. Pairs of job and type are taken in order
    of priority, each job once, while its GPUs are free. Of equal priorities the first type in the cluster's
    order comes first, then the job that is owed most. GPUs that would idle go to jobs without a share there.

    Parameters
    ----------
    round_s : float
        Length of a round where the setting has none.
    hold_ties : bool
        Of equal priorities, the job that holds GPUs of the type comes first.
    """

    def __init__(self, round_s: float, hold_ties: bool = False) -> None:
        self.round_s, self.hold_ties = round_s, hold_ties
        self.last_s = 0.0
        self.owed_s = np.zeros((0, 0))
        self.received_s = np.zeros((0, 0))
        self.share = np.zeros((0, 0))

    def account(self, view: View) -> None:
        """Record what time each job received and was due on each GPU type since the last decision."""
        self._make_room(view)
        since_s = view.now_s - self.last_s
        # By the shares of the round that has just ended: new shares count from the coming round on.
        self.owed_s[view.job] += self.share[view.job] * since_s
        held = np.flatnonzero(view.gpus > 0)
        self.received_s[view.job[held], view.gpu_type[held]] += since_s
        self.last_s = view.now_s

    def _make_room(self, view: View) -> None:
        rows = int(view.job.max(initial=-1)) + 1
        more, types = max(rows - len(self.share), 0), len(view.setting.gpu_types)
        for name in ("owed_s", "received_s", "share") if more else ():
            old = getattr(self, name).reshape(-1, types)
            setattr(self, name, np.concatenate([old, np.zeros((max(more, len(old)), types))]))

    def decide(self, view: View, share: Floats, time_s: Floats, guarded: Bools) -> Decision:
        """Choose the next round's jobs by shares of time per type; `time_s`: seconds per iteration.

        Parameters
        ----------
        view : View
            Whose time since the last decision is already accounted for.
        share : ndarray of float, shape (n, T)
            Share of time each job is to have of each type.
        time_s : ndarray of float, shape (n, T)
            Seconds per iteration at the request; inf: the job cannot run there.
        guarded : ndarray of bool, shape (n,)
            Jobs that keep their GPUs, whatever their shares.
        """
        self._make_room(view)
        self.share[:] = 0.0
        self.share[view.job] = share
        at, gpu_type = self._order(view, share, time_s, guarded)
        free, chosen, placed = view.available.tolist(), [], [False] * len(view)
        gpus = view.requested_gpus.tolist()
        # OSDI '20, Algorithm 1: by priority, each job once, skipping those that no longer fit.
        for i, t in zip(at.tolist(), gpu_type.tolist(), strict=True):
            if not placed[i] and free[t] >= gpus[i]:
                placed[i] = True
                free[t] -= gpus[i]
                chosen.append((i, t, gpus[i]))
                if not any(free):
                    break
        return Decision.of((int(view.job[i]), t, count) for i, t, count in chosen)

    def _order(self, view: View, share: Floats, time_s: Floats, guarded: Bools) -> tuple[Ints, Ints]:
        """Return all pairs (job position, type) that may run, in descending order of priority."""
        owed, received = self.owed_s[view.job], self.received_s[view.job]
        round_s = view.setting.round_s or self.round_s
        # Gavel, section 5: a share over the fraction of time received. Half a round in the divisor stands for
        # rounds not yet had, or a new job would have an infinite priority.
        priority = (owed + share * round_s) / (received + round_s / 2)
        priority = np.where(share > LEAST_SHARE, priority, 0.0)
        holds = view.gpu_type[:, None] == np.arange(share.shape[1])
        speed = 1.0 / time_s
        speed = speed / np.maximum(speed.max(axis=1, keepdims=True), 1e-300)
        wait_s = view.restart_cost_s()[np.arange(len(view)), :, find_requested_level(view)]
        # A job without a share may lose its GPUs after one round, so its restart must be shorter than that.
        useful = np.isfinite(time_s) & ((priority > 0) | holds | (wait_s < round_s))
        at, gpu_type = np.nonzero(useful)
        tie = holds if self.hold_ties else np.broadcast_to(-np.arange(share.shape[1]), share.shape)
        # The last key counts first. Priorities are rounded so that sums in another order do not break ties.
        keys = (speed, owed - received, tie, np.round(priority, 9), holds & guarded[:, None])
        order = np.lexsort([-key[at, gpu_type].astype(np.float64) for key in keys])
        return at[order], gpu_type[order]


class PackedRounds:
    """Fills rounds with jobs and pairs that share GPUs, such that each gets its share of time.

    A combination is a job alone or a pair. As in `RoundMechanism`, its priority on a type is the time that it
    should have had there over the time it has had; combinations are taken in order of priority while their
    GPUs are free and none of their jobs is placed. GPUs that would idle go to jobs alone, the longest in the
    system first, on their fastest type.

    Combinations are entries [i, j] of arrays over the jobs of the last View, i <= j; i = j: alone.
    """

    def __init__(self, round_s: float) -> None:
        self.round_s = round_s
        self._last_s = 0.0
        self._jobs = np.zeros(0, dtype=np.int64)
        self._owed_s = self._received_s = self._share = np.zeros((0, 0, 0))

    def account(self, view: View) -> None:
        """Record what time each job and pair received and was due since the last decision."""
        since_s = view.now_s - self._last_s
        self._owed_s = self._move_values(view, self._owed_s + self._share * since_s)
        self._received_s = self._move_values(view, self._received_s)
        self._share = self._move_values(view, self._share)
        self._jobs, self._last_s = view.job.copy(), view.now_s
        held = np.flatnonzero(view.gpus > 0)
        other = held if view.partner is None else _places(view, view.partner[held], held)
        # A pair is booked once, in the cell of its lower position.
        own = held <= other
        self._received_s[held[own], other[own], view.gpu_type[held[own]]] += since_s

    def _move_values(self, view: View, values: Floats) -> Floats:
        """Return values by combination for the jobs of a View; 0 for combinations with a new job."""
        n, types = len(view), len(view.setting.gpu_types)
        if np.array_equal(self._jobs, view.job) and values.shape == (n, n, types):
            return values
        at = np.searchsorted(self._jobs, view.job)
        known = np.flatnonzero(at < len(self._jobs))
        known = known[self._jobs[at[known]] == view.job[known]]
        moved = np.zeros((n, n, types))
        if len(known):
            moved[np.ix_(known, known)] = values[np.ix_(at[known], at[known])]
        return moved

    @property
    def share(self) -> Floats:
        """The share of time due to each job [i, i] or pair [i, j] on each GPU type, shape (n, n, T)."""
        return self._share

    def decide(self, view: View, share: Floats, time_s: Floats) -> Decision:
        """Choose jobs and pairs for the next round by their shares of time; `time_s`: seconds per iteration.

        Parameters
        ----------
        view : View
            Whose time since the last decision is already accounted for.
        share : ndarray of float, shape (n, n, T)
        time_s : ndarray of float, shape (n, T)
            Seconds per iteration at the request; inf: the job cannot run there.
        """
        self._share = share
        round_s = view.setting.round_s or self.round_s
        one, other, gpu_type = np.nonzero(share > LEAST_SHARE)
        at = one, other, gpu_type
        priority = (self._owed_s[at] + share[at] * round_s) / (self._received_s[at] + round_s / 2)
        order = np.lexsort((other, one, gpu_type, -np.round(priority, 9)))
        free, gpus, placed = view.available.tolist(), view.requested_gpus.tolist(), [False] * len(view)
        chosen, pairs = list[tuple[int, int]](), list[tuple[int, int]]()
        for i, j, t in zip(one[order].tolist(), other[order].tolist(), gpu_type[order].tolist(), strict=True):
            if free[t] >= gpus[i] and not placed[i] and not placed[j]:
                free[t] -= gpus[i]
                placed[i] = placed[j] = True
                chosen += [(i, t)] if i == j else [(i, t), (j, t)]
                pairs += [] if i == j else [(i, j)]
        chosen += _idle(view, np.array(placed, dtype=np.bool_), free, time_s)
        row = view.job.tolist()
        decision = Decision.of((row[i], t, gpus[i]) for i, t in chosen)
        return decision.paired((row[i], row[j]) for i, j in pairs)


def _places(view: View, rows: Ints, held: Ints) -> Ints:
    """Return the position of each job's partner in the View; its own where it has none."""
    at: Ints = np.where(rows >= 0, np.searchsorted(view.job, rows), held)
    return at


def _idle(view: View, placed: Bools, free: list[int], time_s: Floats) -> list[tuple[int, int]]:
    """Return jobs, and their types, for GPUs that would idle."""
    chosen: list[tuple[int, int]] = []
    for i in np.flatnonzero(~placed).tolist() if any(free) else ():
        gpus = int(view.requested_gpus[i])
        types = [t for t in np.argsort(time_s[i], kind="stable").tolist() if np.isfinite(time_s[i, t])]
        t = next((t for t in types if free[t] >= gpus), None)
        if t is not None:
            free[t] -= gpus
            chosen.append((i, t))
    return chosen
