"""A priority queue of the moves that an auction may make next, the best-scoring first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compile_in_place, compile_part


class MoveQueue(NamedTuple):
    """An auction's moves (a job's start, or doubling of GPUs): a heap by score, and a list put aside.

    Both are in the same two arrays.

    Attributes
    ----------
    score : ndarray of float, shape (n,)
    move : ndarray of int, shape (n,)
        Of equal scores the least comes first.
    size : ndarray of int, shape (2,)
        Moves in the heap, and aside.
    """

    score: Floats
    move: Ints
    size: Ints


@compile_part
def empty(moves: int) -> MoveQueue:
    """Return an empty queue with room for a number of moves of an auction."""
    return MoveQueue(np.empty(moves), np.empty(moves, np.int64), np.zeros(2, np.int64))


@compile_in_place
def push(queue: MoveQueue, score: float, move: int) -> None:
    """Add an auction's move, with its score, to the queue."""
    at = queue.size[0]
    queue.size[0] += 1
    while at > 0:
        above = (at - 1) // 2
        if not _precedes(score, move, queue, above):
            break
        queue.score[at], queue.move[at] = queue.score[above], queue.move[above]
        at = above
    queue.score[at], queue.move[at] = score, move


@compile_in_place
def pop(queue: MoveQueue) -> tuple[float, int]:
    """Remove and return the score and the number of the best-scoring move; there must be one."""
    first = queue.score[0], queue.move[0]
    queue.size[0] -= 1
    left, at = queue.size[0], 0
    # The last move fills the gap at the top and sinks.
    score, move = queue.score[left], queue.move[left]
    while 2 * at + 1 < left:
        below = 2 * at + 1
        if below + 1 < left and _precedes(queue.score[below + 1], queue.move[below + 1], queue, below):
            below += 1
        if _precedes(score, move, queue, below):
            break
        queue.score[at], queue.move[at] = queue.score[below], queue.move[below]
        at = below
    queue.score[at], queue.move[at] = score, move
    return first


@compile_in_place
def put_aside(queue: MoveQueue, score: float, move: int) -> None:
    """Put a move aside that was popped, until `take_back` returns it to the heap."""
    queue.size[1] += 1
    at = len(queue.score) - queue.size[1]
    queue.score[at], queue.move[at] = score, move


@compile_in_place
def take_back(queue: MoveQueue) -> None:
    """Put all moves that were put aside back into the heap."""
    while queue.size[1] > 0:
        at = len(queue.score) - queue.size[1]
        queue.size[1] -= 1
        push(queue, queue.score[at], queue.move[at])


@compile_in_place
def _precedes(score: float, move: int, queue: MoveQueue, other: int) -> bool:
    return score > queue.score[other] or (score == queue.score[other] and move < queue.move[other])
