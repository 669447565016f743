"""Share work among processes of this machine, or among the machines of a Ray cluster."""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, TypeVar

from clustergym.common.errors import InputError
from clustergym.common.parameter_types import NonNegativeInt
from clustergym.common.parameters import check_value
from clustergym.common.paths import require_extra
from clustergym.common.progress import track_results

T = TypeVar("T")
R = TypeVar("R")
RAY = "ray"
Processes = int | Literal["ray"]
"""Processes on this machine, 0: one per core; or `ray`: those of a Ray cluster."""


QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""How long the processes of a container may run in how long, as Linux says it: in microseconds."""


def cores() -> int:
    """Return the number of CPU cores that this process may use, within a container's limit."""
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota_us, period_us = map(int, QUOTA.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # another system, or "max": no quota
        return there
    return max(1, min(there, quota_us // period_us))


def measure_cpu_s() -> float:
    """Return the CPU seconds of this process and of those it has waited for."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def check_processes(value: Any, field: str = "processes") -> Processes:
    """Check a number of processes (0: one per core) or the word `ray`, and return it."""
    if value == RAY:
        return "ray"
    try:
        number: int = check_value(value, NonNegativeInt, field)
    except InputError as error:
        remedy = "give 0 for one per core, more, or ray"
        raise InputError(f"{value!r} is no count", field=field, remedy=remedy) from error
    return number


@contextmanager
def workers(
    processes: Processes, start: str | None = None, prepare: Callable[[], object] | None = None
) -> Iterator[Any]:
    """Give a context with a `map` that runs in a number of processes (0: one per core; 1: this process).

    `start` is the start method of a process; use `spawn` where PyTorch may have threads, which do not
    survive a fork.
    Each process calls `prepare` before its first task. `ray`: see `ray_workers`.
    """
    if isinstance(processes, str):
        assert prepare is None, "processes of a Ray cluster are not prepared"
        with ray_workers() as run:
            yield run
        return
    count = processes or cores()
    if count == 1:
        if prepare is not None:
            prepare()
        yield map
        return
    with ProcessPoolExecutor(count, mp_context=get_context(start), initializer=prepare) as pool:
        yield pool.map


@contextmanager
def report_lost_processes() -> Iterator[None]:
    """Give a context that raises an `InputError` if a worker process is killed."""
    try:
        yield
    except BrokenProcessPool as error:
        message, remedy = "one was ended before its work was done", "give fewer if memory ran out"
        raise InputError(message, field="processes", remedy=remedy) from error


def in_order(
    task: Callable[[T], R], items: Sequence[T], processes: Processes = 1, label: str | None = None
) -> Iterator[R]:
    """Run a task on each item in several processes, and yield the results in the items' order."""
    count = processes if isinstance(processes, str) else max(1, min(processes, len(items)))
    with report_lost_processes(), workers(count) as run:
        yield from track_results(label or "", run(task, items), len(items), label is not None)


@contextmanager
def ray_workers() -> Iterator[Callable[..., Iterator[Any]]]:
    """Give a context with a `map` that runs tasks on a Ray cluster, one core each.

    The cluster is that of `RAY_ADDRESS`, or one that `ray start` has started here; if there is none, one of
    this machine's cores is started and ended. Tasks import this package, so that every machine needs it.

    Raises
    ------
    InputError
        If Ray is not installed or the cluster cannot be reached, and as a task raises it; from the `map` also
        if a process of the cluster is ended.
    """
    # Nothing of a run goes to anybody else.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with require_extra("needs Ray", "ray", "processes"):
        import ray
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            line = str(error).splitlines()[0]
            remedy = "start one with `ray start --head`, or give processes=0"
            raise InputError(f"no Ray cluster: {line}", field="processes", remedy=remedy) from error

    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
    def call(task: Callable[[Any], Any], item: Any) -> Any:
        return task(item)

    def run(task: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        shared = ray.put(task)
        for found in [call.remote(shared, item) for item in items]:
            try:
                yield ray.get(found)
            except ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError) as error:
                message, remedy = "one was ended before its work was done", "give fewer if memory ran out"
                raise InputError(message, field="processes", remedy=remedy) from error

    try:
        yield run
    finally:
        if ours:
            ray.shutdown()
