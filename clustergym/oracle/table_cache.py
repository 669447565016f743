"""Dense tables on disk: one file per model class, named by the hash of its inputs.

Builds the tables of many model classes, a few at a time, in several processes where that is faster.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import pickle
import secrets
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.processes import cores, workers
from clustergym.common.progress import track_results
from clustergym.common.reading import read_regular
from clustergym.common.version import __version__
from clustergym.oracle.base import Oracle, OracleTables
from clustergym.oracle.models.model_spec import ModelClass

SCHEMA = 1
"""Raised whenever the layout of a file changes."""

TABLES = ("execution", "profiled", "data_parallel")
"""Tables of a class, in the order they are stacked in its file; then segments, if the oracle knows any."""

_noted: set[str] = set()


def cache_folder() -> Path | None:
    """Return the default folder for cached iteration times; None if the user has no home folder.

    `$CLUSTERGYM_CACHE`, else `$XDG_CACHE_HOME/clustergym`, else `~/.cache/clustergym`, each with
    `tables` in it.
    """
    try:
        if own := os.environ.get("CLUSTERGYM_CACHE"):
            return Path(own).expanduser().absolute() / "tables"
        shared = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        # The XDG base directory specification has relative paths ignored.
        base = shared if shared.is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return base / "clustergym" / "tables"


def load_or_build_tables(
    oracle: Oracle,
    classes: Sequence[ModelClass],
    cluster: ClusterSpec,
    counts: Sequence[int],
    *,
    folder: str | Path | None = None,
    progress: bool = False,
    processes: int | None = None,
) -> OracleTables:
    """Return an oracle's iteration times by class; read those that a cache on disk has, build the others.

    Classes whose file is missing, damaged or of something else are built and written. The result does not
    depend on where a class came from or on the number of processes. If the folder cannot be written, tables
    are not kept, and a note on stderr says so once.

    Parameters
    ----------
    oracle, classes, cluster, counts
        As for `Oracle.tables`.
    folder : str or Path, optional
        `cache_folder()` by default.
    progress : bool
        Show the progress of building on stderr.
    processes : int, optional
        By default as many as there are cores and work for; 1 where only few classes are missing.

    Raises
    ------
    InputError
        As `Oracle.tables`.
    """
    counts = [int(count) for count in counts]
    stacked = len(TABLES) + oracle.knows_segments
    shape = (stacked, len(cluster.groups), len(counts), len(Locality))
    store = Store(Path(folder) if folder is not None else cache_folder())
    keys = dict(zip(classes, cache_keys(oracle, classes, cluster, counts), strict=True))
    stacks = {model: store.read(key, shape) for model, key in keys.items()}
    missing = [model for model, stack in stacks.items() if stack is None]
    for built in build_each(oracle, missing, cluster, counts, progress=progress, processes=processes):
        for model, stack in zip(built.classes, stack_tables(built, oracle.knows_segments), strict=True):
            stacks[model] = stack
            store.write(keys[model], stack)
    found = [stack for model in classes if (stack := stacks[model]) is not None]
    whole = np.stack(found, axis=1) if found else np.empty((shape[0], 0, *shape[1:]))
    axis = np.array(counts, dtype=np.int64)
    # A segment is the same at every tier.
    segments = whole[len(TABLES), ..., 0].astype(np.int64) if oracle.knows_segments else None
    execution, profiled, data_parallel = whole[: len(TABLES)]
    times = execution, profiled, data_parallel
    return OracleTables(tuple(classes), cluster.gpu_types, axis, *times, segments=segments)


def table_source(
    oracle: Oracle,
) -> Callable[[Sequence[ModelClass], ClusterSpec, Sequence[int]], OracleTables]:
    """Return the function that makes an oracle's iteration times, with a cache if the oracle is slow."""
    return partial(load_or_build_tables, oracle, progress=True) if oracle.worth_caching else oracle.tables


def cache_keys(
    oracle: Oracle, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
) -> list[str]:
    """Return for each class a SHA-256 digest of everything that its iteration times depend on."""
    shared = {
        "schema": SCHEMA,
        "version": __version__,
        "oracle": oracle.fingerprint(),
        "cluster": cluster.fingerprint(),
        "counts": [int(count) for count in counts],
    }
    base = hashlib.sha256(json.dumps(shared, sort_keys=True).encode())
    keys = []
    for model in classes:
        # What all classes share is hashed once; a file is named by that and its class alone, so that
        # scenarios with other mixes of models find the same files.
        digest = base.copy()
        digest.update(json.dumps([model.family, model.size, int(model.global_batch)]).encode())
        keys.append(digest.hexdigest())
    return keys


def stack_tables(tables: OracleTables, with_segments: bool = False) -> Floats:
    """Stack an oracle's 3 tables of times, and `segments` if asked for, into an array (C, 3 or 4, T, K, 4).

    Axes: model class, table, GPU type, GPU count, network tier. The fourth table has the GPUs of a job that
    must lie together in one NVLink domain.
    """
    stacked = [np.asarray(getattr(tables, table), dtype=np.float64) for table in TABLES]
    if with_segments:
        segments = np.ones(stacked[0].shape[:-1]) if tables.segments is None else tables.segments
        stacked.append(np.broadcast_to(segments[..., None].astype(np.float64), stacked[0].shape))
    return np.stack(stacked, axis=1)


class Store:
    """A folder of cached iteration times, safe against concurrent writers and damaged files.

    Parameters
    ----------
    folder : Path or None
        None: nothing is ever found or kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def read(self, key: str, shape: tuple[int, ...]) -> Floats | None:
        """Read the array of a key; None if its file is missing, damaged or of another shape."""
        if self.folder is None:
            return None
        # Files of one shape have one size, so that nothing larger is ever read.
        size = len(pack(key, np.empty(shape)))
        try:
            content = read_regular(self.folder / f"{key}.npz", size, "build it anew")
        except InputError:
            return None
        return unpack(key, content, shape) if len(content) == size else None

    def write(self, key: str, stack: Floats | None) -> None:
        """Write an array, unless it is None, to its key's file; writers of a key write the same bytes."""
        if self.folder is None or stack is None:
            return
        target = self.folder / f"{key}.npz"
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                temporary.write_bytes(pack(key, stack))
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            print_note(f"the cache {self.folder} cannot be written ({error.strerror}): tables are not kept")
            self.folder = None


def pack(key: str, stack: Floats) -> bytes:
    """Return the bytes of an npz file with one array, named by its key; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{key: np.ascontiguousarray(stack, dtype="<f8")})
    return buffer.getvalue()


def unpack(key: str, content: bytes, shape: tuple[int, ...]) -> Floats | None:
    """Return the array in an npz file's bytes; None if they are damaged or belong to another key."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            if any(part.compress_type != zipfile.ZIP_STORED for part in archive.zip.infolist()):
                return None
            stack = archive[key]
            sound = stack.dtype == np.dtype("<f8") and stack.shape == shape and bool((stack > 0).all())
    except Exception:
        # Damaged zip and npy files fail in a dozen ways; none of them is worth more than a rebuild.
        return None
    return stack.astype(np.float64, copy=False) if sound else None


def print_note(text: str) -> None:
    """Print a text on stderr, but the same text only once in a process."""
    if text not in _noted:
        _noted.add(text)
        print(f"note: {text}", file=sys.stderr)


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
    """Build an oracle's iteration times for a few classes at a time, and yield them in order.

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
    built = _build_tables(oracle, parts, cluster, counts, processes)
    yield from track_results("oracle tables", built, len(parts), progress and bool(parts))


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


def _build_tables(
    oracle: Oracle, parts: list[list[ModelClass]], cluster: ClusterSpec, counts: list[int], processes: int
) -> Built:
    done, build = 0, partial(_tables, oracle, cluster, counts)
    if processes > 1 and _can_be_sent(oracle):
        try:
            with workers(processes, "spawn") as run:
                with _leave_out_main():
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
def _leave_out_main() -> Iterator[None]:
    """Keep spawned processes from running the user's main script again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
