"""The spread of communication groups over minipods, and the score of Arnold's objective."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from clustergym.common.arrays import Ints
from clustergym.envs.placement.communication import PretrainingJob, Unit
from clustergym.envs.placement.instances import Assignment, Instance


class Spread(NamedTuple):
    """The most minipods that any DP group touches, and the most that any PP group touches."""

    dp: int
    pp: int


def spread(assignment: Assignment, job: PretrainingJob, unit: Unit) -> Spread:
    """Return the maximum spreads of an assignment as Arnold's objective counts them.

    For the groups placed as units it is the most minipods that one group has nodes in (T). Groups
    of the other kind have one node in every unit; their spread is counted as the minipods the whole
    job touches (sum of y_j), which is exact where no unit is split, and an upper bound where
    one is; `cell_spread` measures it for given ranks.
    """
    used = assignment.counts > 0
    of_units, of_job = int(used.sum(axis=1).max()), int(used.any(axis=0).sum())
    return Spread(of_job, of_units) if unit == "pp" else Spread(of_units, of_job)


def score(assignment: Assignment, instance: Instance) -> float:
    """Return alpha x DP spread + (1 - alpha) x PP spread, on whole nodes; 0 where nothing is placed."""
    found = spread(assignment, instance.job, instance.unit)
    return weighted(found, instance.alpha)


def weighted(found: Spread, alpha: float) -> float:
    """Return alpha x DP spread + (1 - alpha) x PP spread."""
    return alpha * found.dp + (1.0 - alpha) * found.pp


def cells(assignment: Assignment, job: PretrainingJob, unit: Unit) -> Ints:
    """Return the minipod of each node of the communication matrix, shape (rows, columns).

    Groups in the same minipods follow each other, and inside a group the nodes of a minipod
    do, so that consecutive ranks are inside a minipod.

    Raises
    ------
    ValueError
        If nothing is placed.
    """
    if not assignment.feasible:
        raise ValueError(f"nothing is placed, {assignment.shortfall} nodes are lacking")
    minipods = np.arange(assignment.counts.shape[1], dtype=np.int64)
    rows = [np.repeat(minipods, counts) for counts in assignment.counts]
    rows.sort(key=lambda row: row.tolist())
    matrix = np.stack(rows)
    return matrix if unit == "pp" else np.ascontiguousarray(matrix.T)


def cell_spread(matrix: Ints) -> Spread:
    """Return the maximum spreads of a matrix of minipods, shape (rows, columns), cell by cell."""
    most = [max(len(set(line)) for line in lines.tolist()) for lines in (matrix.T, matrix)]
    return Spread(*most)
