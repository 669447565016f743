"""Dense tables on disk: one file per model class, named by the hash of its inputs."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import secrets
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from clustergym.cluster.spec import ClusterSpec, Locality
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError
from clustergym.common.reading import read_regular
from clustergym.common.version import __version__
from clustergym.oracle.base import Oracle, OracleTables
from clustergym.oracle.models.model_class import ModelClass

SCHEMA = 1
"""Raised whenever the layout of a file changes."""

KINDS = ("execution", "profiled", "data_parallel")
"""Tables of a class, in the order they are stacked in its file."""

_OURS = re.compile(r"[0-9a-f]{64}\.npz|\.[0-9a-f]{64}\.npz\.[0-9a-f]+\.tmp")
_noted: set[str] = set()


def cache_folder() -> Path | None:
    """Return the default folder of the tables; None if the user has no home folder.

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


def cached_tables(
    oracle: Oracle,
    classes: Sequence[ModelClass],
    cluster: ClusterSpec,
    counts: Sequence[int],
    *,
    folder: str | Path | None = None,
    progress: bool = False,
    processes: int | None = None,
) -> OracleTables:
    """Return `oracle.tables(classes, cluster, counts)`, reading each class from its file if there is one.

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
    from clustergym.oracle.table_building import build_each

    counts = [int(count) for count in counts]
    shape = (len(KINDS), len(cluster.groups), len(counts), len(Locality))
    store = Store(Path(folder) if folder is not None else cache_folder())
    keys = dict(zip(classes, cache_keys(oracle, classes, cluster, counts), strict=True))
    stacks = {model: store.read(key, shape) for model, key in keys.items()}
    missing = [model for model, stack in stacks.items() if stack is None]
    for built in build_each(oracle, missing, cluster, counts, progress=progress, processes=processes):
        for model, stack in zip(built.classes, stacked(built), strict=True):
            stacks[model] = stack
            store.write(keys[model], stack)
    found = [stack for model in classes if (stack := stacks[model]) is not None]
    whole = np.stack(found, axis=1) if found else np.empty((shape[0], 0, *shape[1:]))
    return OracleTables(tuple(classes), cluster.gpu_types, np.array(counts, dtype=np.int64), *whole)


def cache_keys(
    oracle: Oracle, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
) -> list[str]:
    """Return for each class the SHA-256 of everything that its table depends on."""
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
        digest = base.copy()
        digest.update(json.dumps([model.family, model.size, int(model.global_batch)]).encode())
        keys.append(digest.hexdigest())
    return keys


def stacked(tables: OracleTables) -> Floats:
    """Return the tables as one array, shape (C, 3, T, K, 4), in the order of `KINDS`."""
    return np.stack([np.asarray(getattr(tables, kind), dtype=np.float64) for kind in KINDS], axis=1)


class Store:
    """Files of stacked tables in a folder, safe against concurrent writers and damaged files.

    Parameters
    ----------
    folder : Path or None
        None: nothing is ever found or kept.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder

    def read(self, key: str, shape: tuple[int, ...]) -> Floats | None:
        """Return the array of a key; None if its file is missing, damaged or of another shape."""
        if self.folder is None:
            return None
        # Files of one shape have one size, so that nothing larger is ever read.
        size = len(pack(key, np.empty(shape)))
        try:
            content = read_regular(self.folder / f"{key}.npz", size)
        except InputError:
            return None
        return unpack(key, content, shape) if len(content) == size else None

    def write(self, key: str, stack: Floats | None) -> None:
        """Write an array to its file; concurrent writers write the same bytes, and the last one wins."""
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
            _note(f"the cache {self.folder} cannot be written ({error.strerror}): tables are not kept")
            self.folder = None

    def files(self) -> Iterator[Path]:
        """Yield the files of the cache, including those that interrupted writers left."""
        if self.folder is None:
            return
        try:
            entries = sorted(self.folder.iterdir())
        except OSError:
            return
        yield from (path for path in entries if _OURS.fullmatch(path.name) and path.is_file())


def pack(key: str, stack: Floats) -> bytes:
    """Return an uncompressed npz of one array named by its key; equal arrays give equal bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{key: np.ascontiguousarray(stack, dtype="<f8")})
    return buffer.getvalue()


def unpack(key: str, content: bytes, shape: tuple[int, ...]) -> Floats | None:
    """Return the array in a file's bytes; None if it is damaged or not the array of that key."""
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


def _note(text: str) -> None:
    if text not in _noted:
        _noted.add(text)
        print(f"note: {text}", file=sys.stderr)
