"""Draws windows of consecutive jobs, real or synthetic, from three splits that share no job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np

from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError, nearest, require
from clustergym.common.paths import PACKAGE

SPLITS = ("train", "dev", "test")
BOUNDS = {
    "train": ("2017-09-04", "2017-10-11"),
    "dev": ("2017-10-11", "2017-10-20"),
    "test": ("2017-10-20", "2100-01-01"),
}
"""First day of Philly's log in each split, and the day after the last: a window lies wholly in one."""
SOURCES = ("philly", "helios", "pai", "newtrace")
"""Generators that synthetic windows are drawn from."""
ORIGINS = ("real", "synthetic", "mixed")


@dataclass(frozen=True, eq=False)
class Window:
    """Consecutive jobs of a cluster's log.

    Attributes
    ----------
    name : str
        Split, source and place in it.
    submit_s, duration_s : ndarray of float, shape (n,)
        From the first job on; on the GPUs asked for.
    gpus : ndarray of int, shape (n,)
    """

    name: str
    submit_s: Floats
    duration_s: Floats
    gpus: Ints


def data_folder() -> Path:
    """Return the folder of the public data: $CLUSTERGYM_DATA, or shared/data beside the checkout."""
    named = os.environ.get("CLUSTERGYM_DATA")
    return Path(named) if named else PACKAGE.parent.parent / "shared" / "data"


def philly_file() -> Path:
    """Return the path of Philly's log, which need not exist."""
    return data_folder() / "sia" / "philly.csv"


@cache
def _philly(split: str, path: Path) -> tuple[Floats, Floats, Ints]:
    """Return submission, duration and GPUs of a split's jobs, in order of submission."""
    from clustergym.trace.readers.philly import read_log

    log = read_log(path)
    low, high = (datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() for day in BOUNDS[split])
    order = np.argsort(log.submit_s, kind="stable")
    order = order[(log.submit_s[order] >= low) & (log.submit_s[order] < high)]
    return log.submit_s[order], log.duration_s[order], log.gpus[order]


def draw_window(rng: np.random.Generator, split: str, origin: str, jobs: int) -> Window:
    """Draw a window of consecutive jobs.

    Parameters
    ----------
    rng : Generator
    split : str
        `train`, `dev` or `test`.
    origin : str
        `real` (Philly), `synthetic` (our generators), or `mixed`: either, by a fair coin.
    jobs : int

    Raises
    ------
    InputError
        For an unknown split or origin, or if Philly's log is not there.
    """
    if split not in SPLITS:
        raise InputError(f"unknown split {split!r}", field="split", remedy=nearest(split, SPLITS))
    if origin not in ORIGINS:
        raise InputError(f"unknown origin {origin!r}", field="origin", remedy=nearest(origin, ORIGINS))
    coin = rng.random() < 0.5
    if origin == "real" or (origin == "mixed" and coin):
        return _real(rng, split, jobs)
    return _synthetic(rng, split, jobs)


def _real(rng: np.random.Generator, split: str, jobs: int) -> Window:
    path = philly_file()
    if not path.is_file():
        remedy = "set CLUSTERGYM_DATA to the folder of the public data, or give origin=synthetic"
        raise InputError("is missing", file=path, remedy=remedy)
    submit, duration, gpus = _philly(split, path)
    most = len(submit) - 1
    require(
        jobs <= most, "scenarios.jobs", jobs, f"the {split} split of {path.name} has windows of up to {most}"
    )
    first = int(rng.integers(0, len(submit) - jobs))
    rows = slice(first, first + jobs)
    name = f"{split}-philly-{first}-{jobs}"
    return Window(name, submit[rows] - submit[first], duration[rows], gpus[rows])


def _synthetic(rng: np.random.Generator, split: str, jobs: int) -> Window:
    from clustergym.trace.generators.arrivals import arrival_times
    from clustergym.trace.generators.duration_mixtures import draw_durations
    from clustergym.trace.generators.sizes import draw_gpus
    from clustergym.trace.generators.sources import load_source

    name = SOURCES[int(rng.integers(len(SOURCES)))]
    source = load_source(name)
    # Seeds of the splits are disjoint: they differ modulo the number of splits.
    seed = int(rng.integers(2**30)) * len(SPLITS) + SPLITS.index(split)
    gpus = draw_gpus(source.gpus, jobs, seed)
    duration = draw_durations(source.durations, gpus, seed)
    submit = arrival_times(source, jobs, source.span_s * jobs / source.jobs, seed, int(rng.integers(168)))
    return Window(f"{split}-{name}-like-{seed}-{jobs}", submit, duration, gpus)
