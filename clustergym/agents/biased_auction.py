"""The auction with a bias for each job: its start and its doublings on each type score higher or lower."""

from __future__ import annotations

import numpy as np

from clustergym.agents import auction
from clustergym.agents.auction import Bids, Facts
from clustergym.common.arrays import Floats, Ints
from clustergym.sim.compiled.numba_cache import compiled, compiled_part


@compiled_part
def hold(
    weights: Floats, bias: Floats, available: Ints, counts: Ints, bids: Bids, rows: Ints
) -> tuple[Ints, Ints]:
    """Hold the auction; see `decide`."""
    facts = auction.facts_of(available.sum(), counts, bids)
    biased = Facts(facts.job, facts.point, facts.type_speed, facts.advantage, bias[rows])
    return auction.hold(np.empty((0, 0, 0)), weights, biased, available, counts, bids)


@compiled
def decide(
    weights: Floats, bias: Floats, available: Ints, counts: Ints, bids: Bids, rows: Ints
) -> tuple[Ints, Ints]:
    """Return the outcome of an auction of all GPUs, as `auction.decide`.

    Parameters
    ----------
    weights, available, counts, bids
        As of `auction.decide`.
    bias : ndarray of float, shape (jobs of the trace, T, 2)
        Added to the scores of a job's start, and of its doublings, on each type.
    rows : ndarray of int, shape (n,)
        Rows in the trace of the jobs that bid.
    """
    return hold(weights, bias, available, counts, bids, rows)
