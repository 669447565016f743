"""The running jobs of an episode, compiled: a heap whose first job completes next."""

from __future__ import annotations

from clustergym.sim import columns as c
from clustergym.sim.compiled.episode import Episode
from clustergym.sim.compiled.numba_cache import compile_in_place


@compile_in_place
def _before(episode: Episode, row: int, other: int) -> bool:
    """Return whether a job completes before another; at the same tick, the one planned first does."""
    one, two = episode.job[row], episode.job[other]
    return one[c.DUE] < two[c.DUE] or (one[c.DUE] == two[c.DUE] and one[c.DUE_ID] < two[c.DUE_ID])


@compile_in_place
def _put(episode: Episode, place: int, row: int) -> None:
    """Put a job into a place of the heap and move it up while it ends before its parent."""
    running = episode.running
    while place > 0 and _before(episode, row, running[(place - 1) // 2]):
        above = (place - 1) // 2
        running[place] = running[above]
        episode.job[running[place], c.PLACE] = place
        place = above
    running[place] = row
    episode.job[row, c.PLACE] = place


@compile_in_place
def enter(episode: Episode, row: int) -> None:
    """Add a running job to the heap of jobs by the time of their completion."""
    episode.clock[c.RUNNING_JOBS] += 1
    _put(episode, episode.clock[c.RUNNING_JOBS] - 1, row)


@compile_in_place
def leave(episode: Episode, row: int) -> None:
    """Remove a job from the heap of jobs by the time of their completion."""
    running, clock, place = episode.running, episode.clock, episode.job[row, c.PLACE]
    clock[c.RUNNING_JOBS] -= 1
    count = clock[c.RUNNING_JOBS]
    last = running[count]
    if place == count:
        return
    # The last job fills the gap. It may belong below (children rise while they end before it) or above
    # (`_put`), but never both.
    below = 2 * place + 1
    while below < count:
        if below + 1 < count and _before(episode, running[below + 1], running[below]):
            below += 1
        if not _before(episode, running[below], last):
            break
        running[place] = running[below]
        episode.job[running[place], c.PLACE] = place
        place, below = below, 2 * below + 1
    _put(episode, place, last)
