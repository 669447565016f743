"""Gavel's round mechanism where jobs may run alone or in pairs (OSDI '20, section 5)."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Bools, Floats, Ints
from clustergym.scenario.policy import Decision, View

from .rounds import LEAST_SHARE


class PackedRounds:
    """Records the time that combinations of jobs had and should have had, and fills rounds by it.

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
        """Add the time since the last decision to what combinations had and should have had."""
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
        """Share of time that each combination is to have on each type, shape (n, n, T)."""
        return self._share

    def decide(self, view: View, share: Floats, time_s: Floats) -> Decision:
        """Fill the coming round with jobs at their requests.

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
        kinds = [t for t in np.argsort(time_s[i], kind="stable").tolist() if np.isfinite(time_s[i, t])]
        t = next((t for t in kinds if free[t] >= gpus), None)
        if t is not None:
            free[t] -= gpus
            chosen.append((i, t))
    return chosen
