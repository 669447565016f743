"""Builds the tables of many model classes, a few at a time, in several processes where that is faster."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from types import ModuleType

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.errors import InputError
from clustergym.common.processes import cores, workers
from clustergym.common.progress import counted
from clustergym.oracle.base import Oracle, OracleTables
from clustergym.oracle.models.model_class import ModelClass

Built = Iterator[OracleTables]

CLASSES_AT_ONCE = 6
"""Neighbours in a list of classes often share a family, so an oracle can work on all of them at once."""

CLASSES_PER_PROCESS = 12
"""Fewer classes than this are built in less time than a process takes to start."""


def build_each(
    oracle: Oracle,
    classes: Sequence[ModelClass],
    cluster: ClusterSpec,
    counts: Sequence[int],
    *,
    progress: bool = False,
    processes: int | None = None,
) -> Built:
    """Yield tables of a few classes at a time, in order, as they are built.

    Parameters
    ----------
    oracle, classes, cluster, counts
        As for `Oracle.tables`; an oracle that cannot be pickled is used in this process only.
    progress : bool
        Show on stderr how many of these parts are done: a bar on a terminal, else a line now and then.
    processes : int, optional
        By default one per core, and per `CLASSES_PER_PROCESS` classes.

    Raises
    ------
    InputError
        As `Oracle.tables`; for fewer than 1 process.
    """
    processes = _processes(len(classes), processes)
    counts = [int(count) for count in counts]
    size = min(CLASSES_AT_ONCE, -(-len(classes) // max(processes, 1)))
    parts = [list(classes[start : start + size]) for start in range(0, len(classes), max(size, 1))]
    built = _built(oracle, parts, cluster, counts, processes)
    yield from counted("oracle tables", built, len(parts), progress and bool(parts))


def _processes(classes: int, processes: int | None) -> int:
    if processes is not None:
        if processes < 1:
            raise InputError(
                f"{processes} processes cannot build", field="processes", remedy="give at least 1"
            )
        return min(processes, classes)
    # A daemonic process, such as one of a vectorised environment, may not have children.
    if multiprocessing.current_process().daemon:
        return 1
    return min(cores(), classes // CLASSES_PER_PROCESS)


def _built(
    oracle: Oracle, parts: list[list[ModelClass]], cluster: ClusterSpec, counts: list[int], processes: int
) -> Built:
    done, build = 0, partial(_tables, oracle, cluster, counts)
    if processes > 1 and _can_be_sent(oracle):
        try:
            with workers(processes, "spawn") as run:
                with _main_left_out():
                    built = run(build, parts)
                for tables in built:
                    yield tables
                    done += 1
        except (BrokenProcessPool, OSError):
            # No room for more processes, or one was killed: what is left is built here.
            pass
    yield from map(build, parts[done:])


def _tables(oracle: Oracle, cluster: ClusterSpec, counts: list[int], part: list[ModelClass]) -> OracleTables:
    return oracle.tables(part, cluster, counts)


def _can_be_sent(oracle: Oracle) -> bool:
    try:
        pickle.dumps(oracle)
    except Exception:
        return False
    return type(oracle).__module__ != "__main__"


@contextlib.contextmanager
def _main_left_out() -> Iterator[None]:
    """Keep spawned processes from running the user's main script again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
