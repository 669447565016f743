"""Show the progress of a sweep, and collect its failed runs."""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from hydra.experimental.callback import Callback

FAILED = "error.txt"
"""Name of the file with the error line in the folder of a failed run; removed when it runs again."""

EVERY_S = 5.0
DAY_S = 86_400.0


def total_runs(params: Mapping[str, Any] | None, overrides: Sequence[str]) -> int:
    """Return the number of runs of a sweep: the product of the lengths of all swept lists.

    An override replaces the parameter of the same key.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    lines = [f"{key}={value}" for key, value in (params or {}).items()]
    lists = {}
    for line in (*lines, *overrides):
        parsed = OverridesParser.create().parse_override(line)
        swept = parsed.is_sweep_override()
        lists[parsed.key_or_group] = len(list(parsed.sweep_string_iterator())) if swept else 1
    return math.prod(lists.values())


class EndedSweep(NamedTuple):
    """A sweep that has ended: its folder, whether a table of it is wanted, and a line for each failed run."""

    folder: Path
    table: bool
    failures: Sequence[str]


ENDED: ContextVar[list[EndedSweep]] = ContextVar("ENDED")
"""Where `run_hydra` learns of its sweep: Hydra makes the callback itself, and returns nothing."""


class SweepCallback(Callback):
    """A Hydra callback that shows how many runs of a sweep have ended.

    Runs may be in other processes or on other machines, which get a copy of this callback. Each run
    leaves a mark (an empty file) in a folder of the sweep, and the first process counts the marks.

    Parameters
    ----------
    token : str, optional
        Names the sweep; given only to copies.
    """

    def __init__(self, token: str = "") -> None:
        self.token = token or f".sweep-{os.getpid()}-{time.time_ns()}"
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __reduce__(self) -> tuple[type[SweepCallback], tuple[str]]:
        """Pickle without the thread, which stays in the process that started the sweep."""
        return SweepCallback, (self.token,)

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        """Start to show how many runs have ended; Hydra calls it before a sweep."""
        folder = Path(str(config.hydra.sweep.dir)).absolute()
        _make_absolute(config, folder)
        sweeper = config.hydra.sweeper
        total = total_runs(sweeper.get("params"), list(config.hydra.overrides.task))
        # Of an earlier sweep in the same folder, whose failures are not this one's.
        for path in folder.glob(f"*/{FAILED}"):
            path.unlink()
        _remove_old_marks(folder)
        arguments = (folder, self.token, total, self._over)
        self._thread = threading.Thread(target=_watch, args=arguments, daemon=True)
        self._thread.start()

    def on_job_end(self, config: Any, job_return: Any, **kwargs: Any) -> None:
        """Record that a run has ended; Hydra calls it after each run."""
        if config.hydra.mode is not None and config.hydra.mode.name == "MULTIRUN":
            marks = Path(str(config.hydra.sweep.dir)) / self.token
            marks.mkdir(parents=True, exist_ok=True)
            (marks / str(config.hydra.job.num)).touch()

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:
        """Stop the display, and collect the error lines of failed runs; Hydra calls it after a sweep."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        folder = Path(str(config.hydra.sweep.dir))
        shutil.rmtree(folder / self.token, ignore_errors=True)
        lines = [path.read_text(encoding="utf-8").strip() for path in sorted(folder.glob(f"*/{FAILED}"))]
        ENDED.get().append(EndedSweep(folder, bool(config.get("table", True)), lines))


def _make_absolute(config: Any, folder: Path) -> None:
    """Make the sweep's folder absolute, as reused worker processes may have another working directory."""
    from omegaconf import open_dict, read_write

    quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    with read_write(config), read_write(config.hydra), open_dict(config):
        config.hydra.sweep.dir = str(folder)
        # Each run is composed anew from these.
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")


def _remove_old_marks(folder: Path) -> None:
    """Remove the marks of killed sweeps; keep those less than a day old, whose sweep may still run."""
    for path in folder.glob(".sweep-*"):
        if time.time() - path.stat().st_mtime > DAY_S:
            shutil.rmtree(path, ignore_errors=True)


def _watch(folder: Path, token: str, total: int, over: threading.Event) -> None:
    """Print a line whenever more runs have ended, and one at the end."""
    shown, started = 0, time.monotonic()
    while True:
        ended = over.wait(EVERY_S)
        done = len(list((folder / token).glob("*")))
        failed = len(list(folder.glob(f"*/{FAILED}")))
        if done != shown or ended:
            shown = done
            seconds = time.monotonic() - started
            spent = f"{done} of {total} runs ended, {failed} of them failed, {seconds:.0f} s"
            left = f", about {seconds / done * (total - done):.0f} s left" if 0 < done < total else ""
            print(f"sweep {os.path.relpath(folder)}: {spent}{left}", file=sys.stderr)
        if ended:
            return
