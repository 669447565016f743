"""Placement of parts of GPUs by published scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from clustergym.cluster.allocation import PartAllocations
from clustergym.cluster.parts import Place
from clustergym.scenario.policy import Infeasible

NO_ROOM = Infeasible("no node has room for what it asks for")


class PartScores:
    """Places each job's part of a GPU where a score is highest; scores are cached until a node changes.

    Parameters
    ----------
    score : str
        One of `clustergym.sim.parts.placers.PLACERS`.
    rng : numpy.random.Generator
        Of `random-fit`.
    """

    def __init__(self, score: str, rng: np.random.Generator) -> None:
        self._score, self._rng = score, rng
        self._known: tuple[PartAllocations, Any, Any] | None = None

    def place(self, allocations: PartAllocations, job: int) -> Place | Infeasible:
        """Choose the node with the highest score for a job, and a GPU there."""
        from clustergym.sim.parts.fragmentation import find_usual_requests
        from clustergym.sim.parts.placers import PLACERS, best_place, no_scores

        nodes, parts = allocations.nodes, allocations.parts
        if self._known is None or self._known[0] is not allocations:
            usual = find_usual_requests(parts.rows, parts.accepted)
            self._known = allocations, usual, no_scores(parts.requests, nodes)
        _, usual, scores = self._known
        chances = self._rng.random(2) if self._score == "random-fit" else np.zeros(2)
        request = int(parts.request[job])
        at, device = best_place(
            nodes, parts.requests, request, PLACERS.index(self._score), usual, scores, chances
        )
        return Place(at, device) if at >= 0 else NO_ROOM
