"""Look-ahead at decision time: what a policy has seen of arrivals, and draws of what may come."""

from __future__ import annotations

import numpy as np

from clustergym.agents import lookahead
from clustergym.agents.auction import NONE, Bids
from clustergym.common.arrays import Floats, Ints
from clustergym.scenario.policy import View

ARRIVALS = 16
"""Jobs that arrive in a play-out."""
GAPS = 100
"""Gaps between the latest submissions that arrivals are drawn from."""
LEAST_GAPS = 10
"""With fewer gaps seen, nothing arrives in play-outs."""


class LookAhead:
    """Decides by play-outs of candidates under `futures` draws of arrivals.

    Gaps and jobs are drawn from those seen in Views of the run so far, each independently.

    Parameters
    ----------
    futures : int
    rng : Generator
    """

    def __init__(self, futures: int, rng: np.random.Generator) -> None:
        self.futures, self.rng, self.overruled = futures, rng, 0
        self._submit_s: dict[int, float] = {}
        self._job: list[tuple[float, Floats, Floats, float]] = []
        self._restart_s: dict[int, float] = {}

    def decide(
        self, weights: Floats, view: View, available: Ints, counts: Ints, bids: Bids
    ) -> tuple[Ints, Ints]:
        """Return type and level of each job; -1: none."""
        self._remember(view, bids)
        kind, level, chosen = lookahead.decide(weights, available, counts, bids, self._draw(view, bids))
        self.overruled += chosen > 0
        return kind, level

    def _remember(self, view: View, bids: Bids) -> None:
        dearest = bids.cost_s.max(axis=(1, 2)).tolist()
        for at, row in enumerate(view.job.tolist()):
            if row not in self._submit_s:
                self._submit_s[row] = float(view.submit_s[at])
                ahead_s = float(view.deadline_s[at] - view.submit_s[at])
                job = float(view.iterations[at]), bids.time_s[at].copy(), bids.cost_s[at].copy(), ahead_s
                self._job.append(job)
            # What a launch will cost is shown of a job that has been launched.
            if dearest[at] > 0.0:
                self._restart_s[row] = dearest[at]

    def _draw(self, view: View, bids: Bids) -> lookahead.Futures:
        seen = list(self._restart_s.values()) or [0.0]
        usual_s = float(np.mean(seen))
        restart_s = np.array([self._restart_s.get(row, usual_s) for row in view.job.tolist()])
        gaps_s = np.diff(np.sort(list(self._submit_s.values())))[-GAPS:]
        shape = self.futures, ARRIVALS if len(gaps_s) >= LEAST_GAPS else 0
        arrival_s = np.cumsum(self.rng.choice(gaps_s, shape), axis=1) if shape[1] else np.zeros(shape)
        drawn = [self._job[at] for at in self.rng.integers(len(self._job), size=arrival_s.size)]
        n, of_allotments = len(drawn), bids.time_s.shape[1:]
        times = np.array([time_s for _, time_s, _, _ in drawn]).reshape(n, *of_allotments)
        costs = np.array([cost_s for _, _, cost_s, _ in drawn]).reshape(n, *of_allotments)
        nothing, none = np.zeros(n), np.full(n, NONE, dtype=np.int64)
        arriving = Bids(
            np.array([iterations for iterations, _, _, _ in drawn]),
            times,
            costs,
            none,
            none,
            nothing,
            nothing,
            nothing,
            np.array([ahead_s for _, _, _, ahead_s in drawn]),
        )
        return lookahead.Futures(restart_s, arrival_s, arriving, self.rng.choice(seen, n))
