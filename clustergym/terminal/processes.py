"""Work that is done by several processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

from clustergym.inputs.errors import InputError
from clustergym.terminal.progress import counted

T = TypeVar("T")
R = TypeVar("R")


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def workers(
    processes: int, start: str | None = None, prepare: Callable[[], object] | None = None
) -> Iterator[Any]:
    """Yield a `map` over so many processes (0: one per core); over this one where it is 1.

    `start` is how a process begins: `spawn` where PyTorch may have threads, which do not survive a fork.
    Each process calls `prepare` before its first task.
    """
    count = processes or cores()
    if count == 1:
        if prepare is not None:
            prepare()
        yield map
        return
    with ProcessPoolExecutor(count, mp_context=get_context(start), initializer=prepare) as pool:
        yield pool.map


@contextmanager
def lost_processes_told() -> Iterator[None]:
    """Turn the end of a process from outside, as by the system when memory runs out, into one line."""
    try:
        yield
    except BrokenProcessPool as error:
        message, remedy = "one was ended before its work was done", "give fewer if memory ran out"
        raise InputError(message, field="processes", remedy=remedy) from error


def in_order(
    task: Callable[[T], R], items: Sequence[T], processes: int = 1, label: str | None = None
) -> Iterator[R]:
    """Yield the task's results in the order of the items; with a label progress is shown on stderr."""
    with lost_processes_told(), workers(max(1, min(processes, len(items)))) as run:
        yield from counted(label or "", run(task, items), len(items), label is not None)
