"""Show the progress of long work on stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """The interface of a simulation whose progress is shown: its time, and the jobs that have left."""

    @property
    def now_s(self) -> float:
        """Simulated time, in seconds."""

    @property
    def jobs_left(self) -> int:
        """Number of jobs that have completed or been dropped."""


Show = Callable[[Clock], None]

EVERY_S = 0.2
EVERY_LINE_S = 10.0


def track_results(name: str, results: Iterable[T], total: int, wanted: bool) -> Iterator[T]:
    """Yield results unchanged, and show on stderr how many of `total` there have been."""
    if not wanted:
        yield from results
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        yield from track(results, name, total=total, console=Console(stderr=True), transient=True)
    else:
        last = time.perf_counter()
        for done, result in enumerate(results, start=1):
            if time.perf_counter() - last >= EVERY_LINE_S:
                last = time.perf_counter()
                print(f"{name}: {done} of {total}", file=sys.stderr, flush=True)
            yield result


@contextlib.contextmanager
def show_jobs_progress(name: str, jobs: int, wanted: bool) -> Iterator[Show | None]:
    """Give a context with a callback that shows on stderr how many jobs have left the simulation.

    It shows a bar on a terminal, elsewhere a line now and then; None if progress is not wanted.
    """
    if not wanted:
        yield None
    elif sys.stderr.isatty():
        yield from _bar(name, jobs)
    else:
        yield _lines(name, jobs)


def _bar(name: str, jobs: int) -> Iterator[Show]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    counts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("jobs,"))
    times = (TimeElapsedColumn(), TextColumn("so far,"), TimeRemainingColumn(), TextColumn("left"))
    with Progress(*counts, *times, console=Console(stderr=True), transient=True) as bar:
        task, last = bar.add_task(name, total=jobs), time.perf_counter()

        def show(simulation: Clock) -> None:
            nonlocal last
            if time.perf_counter() - last >= EVERY_S:
                last = time.perf_counter()
                bar.update(task, completed=simulation.jobs_left, description=_describe_time(name, simulation))

        yield show


def _lines(name: str, jobs: int) -> Show:
    last = time.perf_counter()

    def show(simulation: Clock) -> None:
        nonlocal last
        if time.perf_counter() - last >= EVERY_LINE_S:
            last = time.perf_counter()
            print(
                f"{_describe_time(name, simulation)}: {simulation.jobs_left} of {jobs} jobs have left",
                file=sys.stderr,
            )

    return show


def _describe_time(name: str, simulation: Clock) -> str:
    return f"{name} at {simulation.now_s / 3600:,.1f} h"
