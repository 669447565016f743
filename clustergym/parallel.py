"""Work that is done by several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TypeVar

from clustergym.errors import InputError
from clustergym.progress import counted

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def lost_processes_told() -> Iterator[None]:
    """Turn the end of a process from outside, as by the system when memory runs out, into one line."""
    try:
        yield
    except BrokenProcessPool as error:
        message, remedy = "one was ended before its work was done", "give fewer if memory ran out"
        raise InputError(message, field="processes", remedy=remedy) from error


def in_order(
    task: Callable[[T], R], items: Sequence[T], workers: int = 1, label: str | None = None
) -> Iterator[R]:
    """Yield the task's results in the order of the items; with a label progress is shown on stderr."""
    workers = min(workers, len(items))
    if workers <= 1:
        yield from counted(label or "", map(task, items), len(items), label is not None)
        return
    with lost_processes_told(), ProcessPoolExecutor(workers) as pool:
        yield from counted(label or "", pool.map(task, items), len(items), label is not None)
