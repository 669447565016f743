"""A whole episode of the auction, compiled: the engine's arithmetic without its objects.

It covers what `clustergym.learn.episodes.Episode` holds: decision points at every event or in rounds,
restart and search costs, known times other than the real ones. It agrees with the engine to the
microsecond. It has no nodes: `Episode.of` refuses scenarios in which they matter.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clustergym.learn import auction
from clustergym.learn.compiled import compiled

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TICKS_PER_S = 1_000_000
NEVER = np.int64(2**62)
_decide = auction.decide


@compiled
def _ticks(seconds: float) -> np.int64:
    return np.int64(np.rint(seconds * TICKS_PER_S))


@compiled
def _left(
    remaining: float, running: bool, since: np.int64, ready: np.int64, iteration_s: float, now: np.int64
) -> float:
    """Return the iterations left at tick `now`, as `JobStates.remaining_at`."""
    if not running:
        return remaining
    worked = max(now - max(since, ready), 0)
    return max(remaining - worked / (iteration_s * TICKS_PER_S), 0.0)


@compiled
def run(
    weights: Floats,
    capacity: Ints,
    counts: Ints,
    submit: Ints,
    submit_s: Floats,
    iterations: Floats,
    deadline_s: Floats,
    execution_s: Floats,
    known_s: Floats,
    checkpoint_s: Floats,
    search_s: Floats,
    round_ticks: int,
) -> tuple[Ints, Ints, Floats, int]:
    """Run the auction on jobs until all have left.

    Parameters
    ----------
    weights : ndarray of float, shape (features.COUNT,)
    capacity, counts : ndarray of int, shape (T,) and (K,)
    submit : ndarray of int, shape (n,)
        Ticks, ascending.
    submit_s, iterations, deadline_s, checkpoint_s : ndarray of float, shape (n,)
    execution_s, known_s : ndarray of float, shape (n, T, K)
    search_s : ndarray of float, shape (K,)
    round_ticks : int
        0: a decision point at every event.

    Returns
    -------
    (finish, restarts, attained_gpu_s, decisions)
        Tick at which each job completes, shape (n,); launches beyond the first, shape (n,);
        GPU-seconds, shape (n,); decision points.
    """
    n, types, levels = known_s.shape
    remaining, attained = iterations.copy(), np.zeros(n)
    kind, level = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    iteration_s, ready = np.ones(n), np.zeros(n, dtype=np.int64)
    since = np.zeros(n, dtype=np.int64)
    due, finish = np.full(n, NEVER), np.full(n, NEVER)
    restarts, launched = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_)
    searched = np.zeros((n, types, levels), dtype=np.bool_)
    active, inside, ahead, decisions = np.zeros(n, dtype=np.int64), 0, 0, 0
    round_at, decided_at = NEVER, np.int64(-1)
    while ahead < n or inside > 0:
        now = min(submit[ahead] if ahead < n else NEVER, round_at)
        for at in range(inside):
            now = min(now, due[active[at]])
        happened, kept = False, 0
        for at in range(inside):
            j = active[at]
            if due[j] == now:
                attained[j] += counts[level[j]] * (now - since[j]) / TICKS_PER_S
                finish[j], happened = now, True
            else:
                active[kept] = j
                kept += 1
        inside = kept
        while ahead < n and submit[ahead] == now:
            active[inside] = ahead
            inside += 1
            ahead += 1
            happened = True
        if round_ticks > 0:
            if happened and round_at == NEVER and inside > 0:
                earliest = decided_at + 1 if decided_at >= now else now
                round_at = -(-earliest // round_ticks) * round_ticks
            happened = round_at == now
            if happened:
                round_at = NEVER
        if not happened or inside == 0:
            continue
        decided_at = now
        decisions += 1
        rows = active[:inside]
        left, age = np.empty(inside), np.empty(inside)
        held_gpu_s, standstill, slack = np.empty(inside), np.empty(inside), np.empty(inside)
        cost = np.empty((inside, types, levels))
        for at in range(inside):
            j = rows[at]
            runs = level[j] >= 0
            left[at] = _left(remaining[j], runs, since[j], ready[j], iteration_s[j], now)
            age[at] = now / TICKS_PER_S - submit_s[j]
            slack[at] = deadline_s[j] - now / TICKS_PER_S
            gpus = counts[level[j]] if runs else 0
            held_gpu_s[at] = attained[j] + gpus * (now - since[j]) / TICKS_PER_S
            standstill[at] = max(ready[j] - now, 0) / TICKS_PER_S if runs else 0.0
            checkpoint = checkpoint_s[j] if launched[j] else 0.0
            for t in range(types):
                for k in range(levels):
                    cost[at, t, k] = checkpoint + (0.0 if searched[j, t, k] else search_s[k])
            if runs:
                cost[at, kind[j], level[j]] = 0.0
        to_kind, to_level = _decide(
            weights,
            capacity,
            counts,
            left,
            known_s[rows],
            cost,
            kind[rows],
            level[rows],
            standstill,
            age,
            held_gpu_s,
            slack,
        )
        for at in range(inside):
            j, t, k = rows[at], to_kind[at], to_level[at]
            if t == kind[j] and k == level[j]:
                continue
            if level[j] >= 0:
                remaining[j], attained[j] = left[at], held_gpu_s[at]
                since[j], due[j] = now, NEVER
            kind[j], level[j] = t, k
            if k < 0:
                continue
            search = 0.0 if searched[j, t, k] else search_s[k]
            overhead = _ticks(search + (checkpoint_s[j] if launched[j] else 0.0))
            iteration_s[j], ready[j], since[j] = execution_s[j, t, k], now + overhead, now
            restarts[j] += 1 if launched[j] else 0
            launched[j] = searched[j, t, k] = True
            due[j] = now + overhead + _ticks(remaining[j] * iteration_s[j])
        if round_ticks > 0 and round_at == NEVER:
            round_at = -(-(decided_at + 1) // round_ticks) * round_ticks
    return finish, restarts, attained, decisions
