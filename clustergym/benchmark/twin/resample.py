"""Draw further months of a cluster from its log: its weeks, in another order and with repetition."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.common.columns import DAY_S
from clustergym.common.errors import InputError
from clustergym.trace.log_files import write_log
from clustergym.trace.records import RecordedJobs
from clustergym.trace.trace import Trace


class Drawn(NamedTuple):
    """A log resampled at random: its file, number of jobs, and start of its clock (seconds since 1970)."""

    path: Path
    jobs: int
    origin_s: float


MANY_WEEKS = 8
"""Whole weeks from which on whole weeks are drawn; of fewer, days of the same weekday."""


def drawn_days(trace: Trace, days: int, seed: int) -> Ints:
    """Sample for each of `days` new days the day of the log that it repeats, shape (days,).

    They are whole weeks of a log of at least `MANY_WEEKS`; otherwise each is a day of the same weekday,
    or any day of a log of less than two weeks.

    Raises
    ------
    InputError
        If the log is shorter than two days.
    """
    whole = int((trace.span_s + 1) // DAY_S)
    if whole < 2:
        remedy = "give a longer log: two days at least, better eight weeks"
        raise InputError(f"covers {trace.span_s / 3600:.1f} h", file=trace.path or None, remedy=remedy)
    generator = random_streams.RESAMPLED_WEEKS.generator(seed, 0)
    if whole < 14:
        return generator.integers(0, whole, days)
    at, weeks = np.arange(days), whole // 7
    chosen = generator.integers(0, weeks, days)
    week = chosen[at // 7] if weeks >= MANY_WEEKS else chosen
    found: Ints = 7 * week + at % 7
    return found


def draw_log(trace: Trace, days: float, seed: int, path: Path) -> Drawn:
    """Write a log of days resampled from a trace; each job keeps its time of day and its duration.

    Parameters
    ----------
    trace : Trace
        A log whose jobs do an iteration a second.
    days : float
    seed : int
    path : Path

    Raises
    ------
    InputError
        If the log is shorter than two days.
    """
    chosen_days = drawn_days(trace, max(int(np.ceil(days)), 1), seed)
    day = np.floor((trace.submit_s - trace.submit_s[0]) / DAY_S).astype(np.int64)
    rows, submit_s, job_id = list[int](), list[float](), list[str]()
    for at, chosen in enumerate(chosen_days.tolist()):
        for row in np.flatnonzero(day == chosen).tolist():
            moved_s = float(trace.submit_s[row]) + (at - chosen) * DAY_S
            if moved_s - float(trace.submit_s[0]) < days * DAY_S:
                rows.append(row)
                submit_s.append(moved_s)
                job_id.append(f"{trace.job_id[row]}~{at}")
    if not rows:
        raise InputError("has no job in the drawn days", file=trace.path or None, remedy="give more days")
    drawn, origin = trace.take(rows), trace.clock_start_s
    log = RecordedJobs(
        path=path,
        format="drawn",
        sha256="",
        row=np.arange(len(rows)),
        line=[0] * len(rows),
        duration_s=drawn.work_iterations.astype(np.float64),
        gpus=drawn.gpus,
        gpu_type=drawn.gpu_type,
        job_id=job_id,
        submit_s=origin + np.array(submit_s),
        left_out=Counter(),
        user=drawn.user,
        virtual_cluster=drawn.virtual_cluster,
        partition=drawn.partition,
        outcome=drawn.outcome,
        time_limit_s=drawn.time_limit_s,
        priority=drawn.priority,
        nodes=drawn.nodes,
    )
    write_log(log, path)
    return Drawn(path, len(rows), origin + min(submit_s))
