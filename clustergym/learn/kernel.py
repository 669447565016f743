"""A whole episode of the auction, compiled: the engine's arithmetic without its objects.

It covers what `clustergym.learn.compiled_episodes.Episode` holds: decision points at every event or in
rounds, restart and search costs, known times other than the real ones. It agrees with the engine to the
microsecond. It has no nodes: `Episode.of` refuses scenarios in which they matter.
"""

from __future__ import annotations

import numpy as np

from clustergym.arrays import Bools, Floats, Ints
from clustergym.compiled.numba_cache import compiled
from clustergym.learn import auction

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
    began = since if since > ready else ready
    worked = now - began if now > began else 0
    return max(remaining - worked / (iteration_s * TICKS_PER_S), 0.0)


@compiled
def depart(
    now: np.int64,
    active: Ints,
    inside: int,
    counts: Ints,
    level: Ints,
    since: Ints,
    due: Ints,
    finish: Ints,
    attained: Floats,
) -> int:
    """Remove the jobs that end now; return how many of `active` stay, in order at its front."""
    kept = 0
    for at in range(inside):
        j = active[at]
        if due[j] == now:
            attained[j] += counts[level[j]] * (now - since[j]) / TICKS_PER_S
            finish[j] = now
        else:
            active[kept] = j
            kept += 1
    return kept


@compiled
def arrive(now: np.int64, active: Ints, inside: int, submit: Ints, ahead: int) -> int:
    """Append the jobs submitted now to `active`, from row `ahead` on; return how many they are."""
    came = 0
    while ahead + came < len(submit) and submit[ahead + came] == now:
        active[inside + came] = ahead + came
        came += 1
    return came


@compiled
def costs_of(
    rows: Ints,
    kind: Ints,
    level: Ints,
    launched: Bools,
    searched: Bools,
    checkpoint_s: Floats,
    search_s: Floats,
) -> Floats:
    """Return seconds of standstill for each allotment of the rows, as `ViewMaker.costs`."""
    _, types, levels = searched.shape
    cost = np.empty((len(rows), types, levels))
    for at in range(len(rows)):
        j = rows[at]
        checkpoint = checkpoint_s[j] if launched[j] else 0.0
        for t in range(types):
            for k in range(levels):
                cost[at, t, k] = checkpoint + (0.0 if searched[j, t, k] else search_s[k])
        if level[j] >= 0:
            cost[at, kind[j], level[j]] = 0.0
    return cost


@compiled
def observe(
    now: np.int64,
    rows: Ints,
    counts: Ints,
    submit_s: Floats,
    deadline_s: Floats,
    level: Ints,
    since: Ints,
    ready: Ints,
    remaining: Floats,
    attained: Floats,
    iteration_s: Floats,
) -> Floats:
    """Return iterations left, standstill, age, GPU-seconds held and slack of the rows, shape (5, len)."""
    seen = np.empty((5, len(rows)))
    for at in range(len(rows)):
        j = rows[at]
        runs = level[j] >= 0
        gpus = counts[level[j]] if runs else 0
        seen[0, at] = _left(remaining[j], runs, since[j], ready[j], iteration_s[j], now)
        seen[1, at] = max(ready[j] - now, 0) / TICKS_PER_S if runs else 0.0
        seen[2, at] = now / TICKS_PER_S - submit_s[j]
        seen[3, at] = attained[j] + gpus * (now - since[j]) / TICKS_PER_S
        seen[4, at] = deadline_s[j] - now / TICKS_PER_S
    return seen


@compiled
def launch(
    now: np.int64,
    j: int,
    t: int,
    k: int,
    ready: Ints,
    due: Ints,
    restarts: Ints,
    launched: Bools,
    searched: Bools,
    remaining: Floats,
    iteration_s: Floats,
    execution_s: Floats,
    checkpoint_s: Floats,
    search_s: Floats,
) -> None:
    """Start, resume or rescale job j on level k of type t."""
    search = 0.0 if searched[j, t, k] else search_s[k]
    overhead = _ticks(search + (checkpoint_s[j] if launched[j] else 0.0))
    iteration_s[j], ready[j] = execution_s[j, t, k], now + overhead
    restarts[j] += 1 if launched[j] else 0
    launched[j] = searched[j, t, k] = True
    due[j] = now + overhead + _ticks(remaining[j] * iteration_s[j])


@compiled
def next_round(now: np.int64, decided_at: np.int64, round_ticks: int) -> np.int64:
    """Return the tick of the next round: not before now, and after the last decision."""
    earliest = decided_at + 1 if decided_at >= now else now
    return -(-earliest // round_ticks) * round_ticks


@compiled
def round_of(
    now: np.int64, wanted: bool, round_at: np.int64, decided_at: np.int64, round_ticks: int
) -> tuple[np.int64, bool]:
    """Return the tick of the pending round (NEVER: none), and whether it is now; plan one if wanted."""
    if wanted and round_at == NEVER:
        round_at = next_round(now, decided_at, round_ticks)
    is_now = round_at == now
    return NEVER if is_now else round_at, is_now


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
    weights : ndarray of float
        As `auction.score_of` takes them.
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
    n = len(submit)
    remaining, attained, iteration_s = iterations.copy(), np.zeros(n), np.ones(n)
    kind, level = np.full(n, -1, dtype=np.int64), np.full(n, -1, dtype=np.int64)
    ready, since, restarts = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    due, finish = np.full(n, NEVER), np.full(n, NEVER)
    launched, searched = np.zeros(n, np.bool_), np.zeros(known_s.shape, np.bool_)
    active, inside, ahead, decisions = np.zeros(n, np.int64), 0, 0, 0
    round_at, decided_at = NEVER, np.int64(-1)
    while ahead < n or inside > 0:
        now = min(submit[ahead] if ahead < n else NEVER, round_at)
        for at in range(inside):
            now = min(now, due[active[at]])
        kept = depart(now, active, inside, counts, level, since, due, finish, attained)
        happened, inside = kept < inside, kept
        came = arrive(now, active, inside, submit, ahead)
        happened, inside, ahead = happened or came > 0, inside + came, ahead + came
        if round_ticks > 0:
            round_at, happened = round_of(now, happened and inside > 0, round_at, decided_at, round_ticks)
        if not happened or inside == 0:
            continue
        decided_at, decisions, rows = now, decisions + 1, active[:inside]
        seen = observe(
            now, rows, counts, submit_s, deadline_s, level, since, ready, remaining, attained, iteration_s
        )
        cost = costs_of(rows, kind, level, launched, searched, checkpoint_s, search_s)
        holds = (kind[rows], level[rows])
        to_kind, to_level = _decide(
            weights,
            capacity,
            counts,
            seen[0],
            known_s[rows],
            cost,
            *holds,
            seen[1],
            seen[2],
            seen[3],
            seen[4],
        )
        for at in range(inside):
            j, t, k = rows[at], to_kind[at], to_level[at]
            if t == kind[j] and k == level[j]:
                continue
            if level[j] >= 0:
                remaining[j], attained[j], due[j] = seen[0, at], seen[3, at], NEVER
            kind[j], level[j], since[j] = t, k, now
            if k >= 0:
                launch(
                    now, j, t, k, ready, due, restarts, launched, searched,
                    remaining, iteration_s, execution_s, checkpoint_s, search_s,
                )  # fmt: skip
        if round_ticks > 0 and round_at == NEVER:
            round_at = next_round(now, decided_at, round_ticks)
    return finish, restarts, attained, decisions
