"""Which jobs have a row when there are more jobs than rows."""

from __future__ import annotations

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.scenario.policy import View


def choose_rows(view: View, rows: int, turn: int = 0) -> Ints:
    """Return positions in the View of the jobs that have a row, ascending, at most `rows`.

    Where all jobs fit, all have a row. Otherwise waiting jobs and running jobs have half of the
    rows each; what the one kind leaves goes to the other. Of a kind's rows half go to the jobs
    submitted first, a quarter to those submitted last, and the rest to the jobs in between, in turn:
    each decision point goes on where the last one stopped. So the oldest jobs and those that have
    just come are in sight, and no job stays out of it. A job without a row keeps what it has.

    Parameters
    ----------
    view : View
    rows : int
    turn : int
        Decision points before this one.
    """
    n = len(view)
    if n <= rows:
        return np.arange(n, dtype=np.int64)
    held = view.gpus > 0
    waiting, running = np.flatnonzero(~held), np.flatnonzero(held)
    for_waiting = min(len(waiting), max((rows + 1) // 2, rows - len(running)))
    chosen = [_in_turn(waiting, for_waiting, turn), _in_turn(running, rows - for_waiting, turn)]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def _in_turn(ordered: Ints, number: int, turn: int) -> Ints:
    """Return `number` members: half are the first, a quarter the last, and the rest take turns."""
    if number >= len(ordered):
        return ordered
    front, back = number // 2, number // 4
    between = ordered[front : len(ordered) - back]
    places = number - front - back
    turned = between[(turn * places + np.arange(places)) % len(between)]
    return np.concatenate([ordered[:front], turned, ordered[len(ordered) - back :]])
