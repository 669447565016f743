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
    elif not sys.stderr.isatty():

        def print_line(simulation: Clock) -> None:
            left = f"{simulation.jobs_left} of {jobs} jobs have left"
            print(f"{_describe_time(name, simulation)}: {left}", file=sys.stderr)

        yield _call_at_most_every(EVERY_LINE_S, print_line)
    else:
        from rich import progress as shown
        from rich.console import Console

        text = shown.TextColumn
        counts = (text("{task.description}"), shown.BarColumn(), shown.MofNCompleteColumn(), text("jobs,"))
        times = (shown.TimeElapsedColumn(), text("so far,"), shown.TimeRemainingColumn(), text("left"))
        with shown.Progress(*counts, *times, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(name, total=jobs)

            def move_bar(simulation: Clock) -> None:
                told = _describe_time(name, simulation)
                bar.update(task, completed=simulation.jobs_left, description=told)

            yield _call_at_most_every(EVERY_S, move_bar)


def _call_at_most_every(seconds: float, show: Show) -> Show:
    last = time.perf_counter()

    def call(simulation: Clock) -> None:
        nonlocal last
        if time.perf_counter() - last >= seconds:
            last = time.perf_counter()
            show(simulation)

    return call


def _describe_time(name: str, simulation: Clock) -> str:
    return f"{name} at {simulation.now_s / 3600:,.1f} h"
