"""Outcomes of jobs as their log says, published shares of them, and the work that jobs asked for.

A log says how long a job ran that failed or was killed, not how long it was meant to run. It is taken to
ask for as much as a completed job of like size: the duration of one of the completed jobs that hold as many
GPUs and ran at least as long, drawn evenly by a seed. Where no such job ran as long, one of any size is
drawn; where none did, the job asks for what it ran (`asked_as_ran` in the provenance counts these).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import quote_cell
from clustergym.common.errors import InputError
from clustergym.common.text_files import TextTable
from clustergym.trace.trace import COMPLETED, FAILED, KILLED, OUTCOMES

UNKNOWN = ""
"""The outcome of a job whose log does not tell, such as one that still ran at the log's end."""

SLURM_STATES: Mapping[str, str] = {
    "COMPLETED": COMPLETED,
    "CANCELLED": KILLED,
    "PREEMPTED": KILLED,
    "FAILED": FAILED,
    "TIMEOUT": FAILED,
    "NODE_FAIL": FAILED,
    "BOOT_FAIL": FAILED,
    "DEADLINE": FAILED,
    "OUT_OF_MEMORY": FAILED,
    "PENDING": UNKNOWN,
    "RUNNING": UNKNOWN,
    "SUSPENDED": UNKNOWN,
}
"""States of Slurm's job table. Acme's analysis counts a timeout and a failed node as failures too."""


class Shares(NamedTuple):
    """Shares of a cluster's jobs that failed and that were killed, by number and by GPU time."""

    failed: float
    killed: float
    failed_gpu_time: float
    killed_gpu_time: float


SHARES: Mapping[str, Shares] = {
    "seren": Shares(0.429, 0.075, 0.124, 0.664),
    "kalos": Shares(0.397, 0.062, 0.080, 0.607),
    "philly": Shares(0.305, 0.090, 0.386, 0.294),
    "helios": Shares(0.155, 0.221, 0.093, 0.394),
}
"""GPU jobs of four clusters: AcmeTrace, data/cluster_summary.csv (Hu et al., NSDI '24)."""

CHOICES = ("ignore", "keep", *SHARES)
"""What becomes of outcomes: none, those of the log, or drawn by the shares of a cluster."""


def no_outcomes(path: str | Path) -> InputError:
    """Return the error for a trace that does not state how its jobs ended although that is asked for."""
    remedy = f"choose trace.outcomes=ignore, or draw them by {' or '.join(SHARES)}"
    message = "says of no job whether it completed"
    return InputError(message, file=path or None, field="trace.outcomes", remedy=remedy)


def read_outcomes(table: TextTable, column: str, known: Mapping[str, str]) -> list[str] | None:
    """Read how each job of a log ended (completed, failed, killed); None if it has no such column.

    Parameters
    ----------
    table : TextTable
    column : str
    known : mapping
        Status -> outcome, statuses in upper case. An empty cell is an unknown outcome; of a status of
        several words, as Slurm's `CANCELLED by 1001`, the first counts.
    """
    if column not in table.columns:
        return None
    found = []
    for cell, line in zip(table.columns[column], table.line, strict=True):
        status = cell.partition(" ")[0].upper()
        if status and status not in known:
            remedy = f"give one of {', '.join(known)}; empty where it is not known"
            message = f"{quote_cell(cell)} is no status of this format"
            raise InputError(message, file=table.path, line=line, field=column, remedy=remedy)
        found.append(known[status] if status else UNKNOWN)
    return found


def draw_asked(
    outcome: Sequence[str], duration_s: Floats, gpus: Ints, chance: Floats
) -> tuple[Floats, dict[str, int]]:
    """Return the seconds each job asks for, sampled for failed and killed ones, and job counts by method.

    The cases are jobs that take the time of one with as many GPUs, of one with any number, or their own.

    Parameters
    ----------
    outcome : sequence of str, length n
    duration_s : ndarray of float, shape (n,)
        Seconds that each job ran; NaN: not known, the job then asks for what it ran.
    gpus : ndarray of int, shape (n,)
    chance : ndarray of float, shape (n,)
        Random numbers in [0, 1).
    """
    ended = np.array(outcome, dtype=object)
    complete = (ended == COMPLETED) & np.isfinite(duration_s)
    early = ((ended == FAILED) | (ended == KILLED)) & np.isfinite(duration_s)
    asked_s = duration_s.copy()
    left = early.copy()
    counts = {}
    # Completed jobs of as many GPUs first, and any size only for those that none of these outlasted.
    for name, alike in (("asked_as_same_gpus", np.unique(gpus[early])), ("asked_as_any_gpus", [None])):
        before = int(left.sum())
        for count in alike:
            pool = np.sort(duration_s[complete if count is None else complete & (gpus == count)])
            rows = np.flatnonzero(left if count is None else left & (gpus == count))
            # Of the completed jobs only those that ran at least as long: a job that failed after an hour
            # asked for more than an hour.
            first = np.searchsorted(pool, duration_s[rows])
            there = first < len(pool)
            rows, first = rows[there], first[there]
            drawn = first + (chance[rows] * (len(pool) - first)).astype(np.int64)
            asked_s[rows], left[rows] = pool[drawn], False
        counts[name] = before - int(left.sum())
    return asked_s, counts | {"asked_as_ran": int(left.sum())}


def draw_asked_chances(seed: int, row: Ints) -> Floats:
    """Return a random number in [0, 1) for each row number, for use by `draw_asked`."""
    stream = random_streams.ASKED_DURATIONS.generator(seed).random(int(row.max(initial=-1)) + 1)
    return np.asarray(stream[row], dtype=np.float64)


def compute_asked_iterations(iterations: Ints, duration_s: Floats, asked_s: Floats) -> Ints:
    """Scale each job's iterations from the seconds it ran to the seconds that it requests; return them."""
    ratio = np.divide(asked_s, duration_s, out=np.ones(len(iterations)), where=duration_s > 0)
    longer = np.isfinite(ratio) & (ratio > 1)
    asked = np.where(longer, np.rint(iterations * np.where(longer, ratio, 1.0)), iterations)
    # Rounding must not make a job ask for less than it did.
    return np.maximum(asked, iterations).astype(np.int64)


def compute_shares(outcome: Sequence[str], gpu_s: Floats) -> dict[str, dict[str, float]]:
    """Return the number of jobs, their GPU-hours and both as shares, by how jobs ended."""
    outcomes, found = np.array(outcome, dtype=object), {}
    total = float(np.nansum(gpu_s))
    for name in (*OUTCOMES, UNKNOWN):
        mine = outcomes == name
        # The three outcomes have an entry even where there is none of one; unknown ones only where there are
        # some.
        if name or mine.any():
            gpu_time = float(np.nansum(gpu_s[mine]))
            found[name or "unknown"] = {
                "jobs": int(mine.sum()),
                "share_of_jobs": float(mine.mean()),
                "gpu_hours": gpu_time / 3600,
                "share_of_gpu_time": gpu_time / total if total else 0.0,
            }
    return found
