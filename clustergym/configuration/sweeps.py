"""What a sweep shows while it runs, and what of it failed."""

from __future__ import annotations

import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback

FAILED = "error.txt"
"""In the folder of a run that failed: the line that says why. Gone when it is run again."""

EVERY_S = 5.0
DAY_S = 86_400.0


def total_runs(params: Mapping[str, Any] | None, overrides: Sequence[str]) -> int:
    """Return how many runs a sweep has: the product of its lists; an override wins over a parameter."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    lines = [f"{key}={value}" for key, value in (params or {}).items()]
    lists = {}
    for line in (*lines, *overrides):
        parsed = OverridesParser.create().parse_override(line)
        swept = parsed.is_sweep_override()
        lists[parsed.key_or_group] = len(list(parsed.sweep_string_iterator())) if swept else 1
    return math.prod(lists.values())


class SweepCallback(Callback):
    """Shows how many runs of a sweep have ended.

    The runs may be in other processes or on other machines, to which a copy of this goes; each
    leaves a mark in a folder of the sweep, which the first process counts.

    Parameters
    ----------
    token : str, optional
        Names the sweep; only copies are given one.
    """

    failures: Sequence[str] = ()
    """A line for each run that failed in the last sweep of this process."""

    def __init__(self, token: str = "") -> None:
        self.token = token or f".sweep-{os.getpid()}-{time.time_ns()}"
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __reduce__(self) -> tuple[type[SweepCallback], tuple[str]]:
        """Go to other processes without the thread, which stays where the sweep was started."""
        return SweepCallback, (self.token,)

    def on_multirun_start(self, config: Any, **kwargs: Any) -> None:
        """Begin to count the marks."""
        folder = Path(str(config.hydra.sweep.dir)).absolute()
        _make_absolute(config, folder)
        sweeper = config.hydra.sweeper
        total = sweeper.get("n_trials") or total_runs(
            sweeper.get("params"), list(config.hydra.overrides.task)
        )
        for path in folder.glob(f"*/{FAILED}"):
            path.unlink()
        _remove_old_marks(folder)
        arguments = (folder, self.token, total, self._over)
        self._thread = threading.Thread(target=_watch, args=arguments, daemon=True)
        self._thread.start()

    def on_job_end(self, config: Any, job_return: Any, **kwargs: Any) -> None:
        """Leave a mark that a run has ended."""
        if config.hydra.mode is not None and config.hydra.mode.name == "MULTIRUN":
            marks = Path(str(config.hydra.sweep.dir)) / self.token
            marks.mkdir(parents=True, exist_ok=True)
            (marks / str(config.hydra.job.num)).touch()

    def on_multirun_end(self, config: Any, **kwargs: Any) -> None:
        """Say how it ended."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        folder = Path(str(config.hydra.sweep.dir))
        shutil.rmtree(folder / self.token, ignore_errors=True)
        SweepCallback.failures = [
            path.read_text(encoding="utf-8").strip() for path in sorted(folder.glob(f"*/{FAILED}"))
        ]


def _make_absolute(config: Any, folder: Path) -> None:
    """Let runs write where the sweep was started; processes that live on may have begun elsewhere."""
    from omegaconf import open_dict, read_write

    quoted = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    with read_write(config), read_write(config.hydra), open_dict(config):
        config.hydra.sweep.dir = str(folder)
        # Each run is composed anew from these.
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir='{quoted}'")


def _remove_old_marks(folder: Path) -> None:
    """Remove what sweeps that were killed have left; a sweep of today may still be running."""
    for path in folder.glob(".sweep-*"):
        if time.time() - path.stat().st_mtime > DAY_S:
            shutil.rmtree(path, ignore_errors=True)


def _watch(folder: Path, token: str, total: int, over: threading.Event) -> None:
    """Print a line whenever more runs have ended, and a last one."""
    shown, started = 0, time.monotonic()
    while True:
        ended = over.wait(EVERY_S)
        done = len(list((folder / token).glob("*")))
        failed = len(list(folder.glob(f"*/{FAILED}")))
        if done != shown or ended:
            shown = done
            spent = (
                f"{done} of {total} runs ended, {failed} of them failed, {time.monotonic() - started:.0f} s"
            )
            print(f"sweep {os.path.relpath(folder)}: {spent}", file=sys.stderr)
        if ended:
            return
