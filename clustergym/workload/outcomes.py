"""Outcomes of jobs: as their log says, or drawn so that published shares hold; and the work they asked for.

A log says how long a job ran that failed or was killed, not how long it was meant to run. It is taken to
ask for as much as a completed job of like size: the duration of one of the completed jobs that hold as many
GPUs and ran at least as long, drawn evenly by a seed. Where no such job ran as long, one of any size is
drawn; where none did, the job asks for what it ran (`asked_as_ran` in the provenance counts these).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from clustergym.arrays import Floats, Ints
from clustergym.inputs.columns import shown
from clustergym.inputs.errors import InputError, nearest
from clustergym.inputs.text_files import TextTable
from clustergym.workload.trace import COMPLETED, FAILED, KILLED, OUTCOMES, Trace

if TYPE_CHECKING:
    from clustergym.cluster.spec import ClusterSpec

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
    """Shares of failed and killed jobs, by number and by GPU time; the rest completed."""

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
    """Return the error for a trace that is to keep outcomes and does not say any."""
    remedy = f"choose trace.outcomes=ignore, or draw them by {' or '.join(SHARES)}"
    message = "says of no job whether it completed"
    return InputError(message, file=path or None, field="trace.outcomes", remedy=remedy)


def read_outcomes(table: TextTable, column: str, known: Mapping[str, str]) -> list[str] | None:
    """Return the outcome of each row of a log; None if it has no such column.

    Parameters
    ----------
    table : TextTable
    column : str
    known : mapping
        Status -> outcome, statuses in upper case. An empty cell is an unknown outcome; of a status of
        several words, as Slurm's `CANCELLED by 1001`, the first counts.

    Raises
    ------
    InputError
        At the first status that is not known.
    """
    if column not in table.columns:
        return None
    found = []
    for cell, line in zip(table.columns[column], table.line, strict=True):
        status = cell.partition(" ")[0].upper()
        if status and status not in known:
            remedy = f"give one of {', '.join(known)}; empty where it is not known"
            message = f"{shown(cell)} is no status of this format"
            raise InputError(message, file=table.path, line=line, field=column, remedy=remedy)
        found.append(known[status] if status else UNKNOWN)
    return found


def draw_asked(
    outcome: Sequence[str], duration_s: Floats, gpus: Ints, chance: Floats
) -> tuple[Floats, dict[str, int]]:
    """Return the seconds that each job asks for, at the GPUs it holds, and how many were drawn how.

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
    for name, alike in (("asked_as_same_gpus", np.unique(gpus[early])), ("asked_as_any_gpus", [None])):
        before = int(left.sum())
        for count in alike:
            pool = np.sort(duration_s[complete if count is None else complete & (gpus == count)])
            rows = np.flatnonzero(left if count is None else left & (gpus == count))
            first = np.searchsorted(pool, duration_s[rows])
            there = first < len(pool)
            rows, first = rows[there], first[there]
            drawn = first + (chance[rows] * (len(pool) - first)).astype(np.int64)
            asked_s[rows], left[rows] = pool[drawn], False
        counts[name] = before - int(left.sum())
    return asked_s, counts | {"asked_as_ran": int(left.sum())}


def asked_chances(seed: int, row: Ints) -> Floats:
    """Return the random numbers of `draw_asked`, one per row, from a stream of their own."""
    stream = np.random.default_rng([seed, 53]).random(int(row.max(initial=-1)) + 1)
    return np.asarray(stream[row], dtype=np.float64)


def asked_iterations(iterations: Ints, duration_s: Floats, asked_s: Floats) -> Ints:
    """Return the iterations that each job asks for, if those it did took `duration_s`."""
    ratio = np.divide(asked_s, duration_s, out=np.ones(len(iterations)), where=duration_s > 0)
    longer = np.isfinite(ratio) & (ratio > 1)
    asked = np.where(longer, np.rint(iterations * np.where(longer, ratio, 1.0)), iterations)
    return np.maximum(asked, iterations).astype(np.int64)


def shares_of(outcome: Sequence[str], gpu_s: Floats) -> dict[str, dict[str, float]]:
    """Return jobs, GPU hours and their shares by outcome; `unknown` only where there are any."""
    kinds, found = np.array(outcome, dtype=object), {}
    total = float(np.nansum(gpu_s))
    for name in (*OUTCOMES, UNKNOWN):
        mine = kinds == name
        if name or mine.any():
            gpu_time = float(np.nansum(gpu_s[mine]))
            found[name or "unknown"] = {
                "jobs": int(mine.sum()),
                "share_of_jobs": float(mine.mean()),
                "gpu_hours": gpu_time / 3600,
                "share_of_gpu_time": gpu_time / total if total else 0.0,
            }
    return found


def with_outcomes(
    trace: Trace, choice: str, cluster: ClusterSpec, seed: int, field: str = "trace.outcomes"
) -> Trace:
    """Return a trace with outcomes as `CHOICES` says; `cluster` is where drawn ones' durations are measured.

    Raises
    ------
    InputError
        If the choice is unknown, or is `keep` and the trace has none, or draws them and it has its own.
    """
    if choice not in CHOICES:
        raise InputError(f"unknown choice {choice!r}", field=field, remedy=nearest(choice, CHOICES))
    if choice == "ignore":
        return trace.as_ran()
    if choice == "keep":
        if trace.outcome is None:
            raise no_outcomes(trace.path)
        return trace
    if trace.outcome is not None or "outcomes" in trace.provenance:
        message, remedy = "says itself how its jobs ended", f"choose {field}=keep for its log"
        raise InputError(message, file=trace.path or None, field=field, remedy=remedy)
    from clustergym.workload.trace_statistics import offer, tables_for

    duration_s = offer(trace, cluster, tables_for(trace, cluster)).duration_s
    return with_drawn_outcomes(trace, choice, duration_s, seed)


def with_drawn_outcomes(trace: Trace, cluster: str, duration_s: Floats, seed: int) -> Trace:
    """Return a trace whose outcomes are drawn so that a cluster's shares of `SHARES` are their expectation.

    The odds of failing and of being killed, against completing, are each a power of the job's GPU time; the
    two powers and the two factors are those at which the expected shares, by number and by GPU time, are the
    published ones.

    Parameters
    ----------
    trace : Trace
        Without outcomes; its iterations are what each job ran.
    cluster : str
    duration_s : ndarray of float, shape (n,)
        Seconds that each job runs at its request; NaN: not known, its outcome stays unknown.
    seed : int

    Raises
    ------
    InputError
        If no such odds exist for the trace.
    """
    known = np.isfinite(duration_s)
    gpu_s = duration_s * trace.gpus
    chances = np.full((len(trace), len(OUTCOMES)), np.nan)
    chances[known] = _chances(gpu_s[known], SHARES[cluster], trace, cluster)
    dice = np.random.default_rng([seed, 52]).random((len(trace), 2))
    picked = (np.cumsum(chances, axis=1)[:, :-1] <= dice[:, :1]).sum(axis=1)
    outcome = [OUTCOMES[index] if there else UNKNOWN for index, there in zip(picked, known, strict=True)]
    asked_s, facts = draw_asked(outcome, duration_s, trace.gpus, dice[:, 1])
    drawn = {"drawn_by": cluster, "seed": seed, **facts, "shares": shares_of(outcome, gpu_s)}
    return replace(
        trace,
        outcome=tuple(outcome),
        end_iterations=trace.iterations,
        iterations=asked_iterations(trace.iterations, duration_s, asked_s),
        provenance={**trace.provenance, "outcomes": drawn},
    )


def _chances(gpu_s: Floats, shares: Shares, trace: Trace, cluster: str) -> npt.NDArray[np.float64]:
    """Return the probability of each of `OUTCOMES` for jobs of these GPU-seconds, shape (n, 3)."""
    from scipy.optimize import root

    size = np.log(gpu_s / np.exp(np.log(gpu_s).mean())) if len(gpu_s) else gpu_s
    weight = gpu_s / gpu_s.sum()

    def chances(at: Floats) -> Floats:
        odds = np.stack([np.zeros_like(size), at[0] + at[1] * size, at[2] + at[3] * size], axis=1)
        part = np.exp(odds - odds.max(axis=1, keepdims=True))
        return np.asarray(part / part.sum(axis=1, keepdims=True))

    def off(at: Floats) -> Floats:
        part = chances(at)
        by_number, by_time = part.mean(axis=0), weight @ part
        found: Floats = np.array([by_number[1], by_time[1], by_number[2], by_time[2]]) - wanted
        return found

    wanted = np.array([shares.failed, shares.failed_gpu_time, shares.killed, shares.killed_gpu_time])
    found = root(off, np.zeros(4), method="lm") if len(gpu_s) else None
    if found is None or np.abs(off(found.x)).max() > 1e-6:
        raise InputError(
            f"{len(gpu_s)} jobs cannot have the shares of {cluster} by number and by GPU time",
            file=trace.path or None,
            field="trace.outcomes",
            remedy="give a trace of more jobs, or of more unequal ones",
        )
    return chances(found.x)
