"""Share work among the machines of a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from clustergym.common.errors import InputError
from clustergym.common.paths import install_line


@contextmanager
def ray_workers() -> Iterator[Callable[..., Iterator[Any]]]:
    """Yield a `map` whose tasks run on Ray, results in order; each task has a core of its own.

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
    try:
        import ray
    except ImportError as error:
        raise InputError("needs Ray", field="processes", remedy=install_line("ray")) from error
    ours = not ray.is_initialized()
    if ours:
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            line = str(error).splitlines()[0]
            remedy = "start one with `ray start --head`, or give processes=0"
            raise InputError(f"no Ray cluster: {line}", field="processes", remedy=remedy) from error

    @ray.remote(num_cpus=1)
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
