"""The auction makes the best-scoring move that has room, found in a queue or by looking at all of them."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from clustergym.agents.auction import Bids, decide_by_scores

COUNTS = np.array([1, 2, 4, 8])
GPUS = np.array([9, 6])


def drawn(seed: int) -> tuple[np.ndarray, Bids]:
    """Return scores with many ties, and bids of jobs of which some run."""
    rng = np.random.default_rng(seed)
    n, types = 12, len(GPUS)
    shape = (n, types, len(COUNTS))
    time_s = 8.0 / COUNTS ** rng.uniform(0.2, 1.0, (n, types, 1))
    time_s[rng.random(shape) < 0.2] = np.inf
    held_type, held_level = np.full(n, -1), np.full(n, -1)
    for job in range(4):
        held_type[job], held_level[job] = job % 2, rng.integers(2)
        time_s[job, job % 2, held_level[job]] = 6.0
    still, facts = np.zeros(n), rng.uniform(1, 9, (3, n))
    cost_s = np.full(shape, rng.uniform(0, 40))
    bids = Bids(facts[0], time_s, cost_s, held_type, held_level, still, facts[1], facts[2], still)
    return rng.integers(-2, 4, shape).astype(np.float64), bids


class Plain:
    """The auction whose rule `decide` states, with all moves looked at each time."""

    def __init__(self, scores: np.ndarray, bids: Bids) -> None:
        self.scores, self.bids, self.free = scores, bids, GPUS.copy()
        self.has: dict[int, tuple[int, int]] = {}
        self.barred: set[int] = set()

    def target(self, job: int, kind: int) -> int | None:
        """Return the level that a job's next move on a type leads to."""
        times, least, limit = self.bids.time_s[job, kind], 1, np.inf
        if job in self.has:
            if self.has[job][0] != kind or job in self.barred:
                return None
            least, limit = 2 * COUNTS[self.has[job][1]], times[self.has[job][1]]
        found = np.flatnonzero((least <= COUNTS) & (times < limit))
        return int(found[0]) if len(found) else None

    def moves(self) -> Iterator[tuple[float, int, int, int]]:
        """Yield score, -job, -type and level of each move that has room."""
        jobs, kinds, _ = self.scores.shape
        for job, kind in itertools.product(range(jobs), range(kinds)):
            level = self.target(job, kind)
            if level is None or (job in self.has and self.scores[job, kind, level] <= 0):
                continue
            before = COUNTS[self.has[job][1]] if job in self.has else 0
            if COUNTS[level] - before <= self.free[kind]:
                yield self.scores[job, kind, level], -job, -kind, level

    def late(self) -> list[int]:
        """Return the jobs whose enlargement does not repay their restart."""
        bids, found = self.bids, []
        for job, (kind, level) in self.has.items():
            held, seconds = bids.held_level[job], bids.remaining[job] * bids.time_s[job, kind]
            enlarged = 0 <= held < level and kind == bids.held_type[job]
            if enlarged and bids.cost_s[job, kind, level] + seconds[level] >= seconds[held]:
                found.append(job)
        return found

    def give(self, job: int, kind: int, level: int) -> None:
        self.free[kind] -= COUNTS[level] - (COUNTS[self.has[job][1]] if job in self.has else 0)
        self.has[job] = kind, level

    def outcome(self) -> np.ndarray:
        """Return types and levels of the jobs, shape (2, n)."""
        while (best := max(self.moves(), default=None)) is not None or (late := self.late()):
            if best is not None:
                self.give(-best[1], -best[2], best[3])
                continue
            for job in late:
                self.give(job, int(self.bids.held_type[job]), int(self.bids.held_level[job]))
                self.barred.add(job)
        return np.array([self.has.get(job, (-1, -1)) for job in range(len(self.scores))]).T


@pytest.mark.parametrize("seed", range(200))
def test_the_best_move_with_room_is_made_again_and_again(seed):
    scores, bids = drawn(seed)
    assert np.array_equal(decide_by_scores(scores, GPUS, COUNTS, bids), Plain(scores, bids).outcome())
