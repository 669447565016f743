"""Which jobs have a row when there are more jobs than rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clustergym.policy import View

Ints = npt.NDArray[np.int64]


def choose_rows(view: View, rows: int) -> Ints:
    """Return positions in the View of the jobs that have a row, ascending, at most `rows`.

    Where all jobs fit, all have a row. Otherwise waiting jobs and running jobs have half of the
    rows each; what the one kind leaves goes to the other. Of each kind the rows go to both ends of
    the queue: the jobs submitted first, then last, then second, and so on. So the oldest jobs are
    always in sight, and a job that has just come is as well. A job without a row keeps what it has
    and stays in the system.
    """
    n = len(view)
    if n <= rows:
        return np.arange(n, dtype=np.int64)
    held = view.gpus > 0
    waiting, running = np.flatnonzero(~held), np.flatnonzero(held)
    for_waiting = min(len(waiting), max((rows + 1) // 2, rows - len(running)))
    chosen = [both_ends(waiting, for_waiting), both_ends(running, rows - for_waiting)]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def both_ends(ordered: Ints, number: int) -> Ints:
    """Return `number` members of an ordered array, half from each end, the odd one from the front."""
    if number >= len(ordered):
        return ordered
    front = (number + 1) // 2
    return np.concatenate([ordered[:front], ordered[len(ordered) - (number - front) :]])
