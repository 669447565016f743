"""Windows of consecutive jobs, from three splits that share no job: real, generated, or of trace files."""

from __future__ import annotations

import glob
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError, require, require_known
from clustergym.common.parameter_types import IN_ORDER_OR_NONE, AtLeastTwo
from clustergym.common.parameters import build
from clustergym.common.paths import data_folder
from clustergym.envs.episodes import SPLITS, trace_seed
from clustergym.oracle.base import OracleTables, six_digits
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import LOCALITIES, Scenario
from clustergym.trace.trace import Trace

BOUNDS = {
    "train": ("2017-09-04", "2017-10-11"),
    "dev": ("2017-10-11", "2017-10-20"),
    "test": ("2017-10-20", "2100-01-01"),
}
"""First day of Philly's log in each split, and the day after the last: a window lies wholly in one."""
SOURCES = ("philly", "helios", "pai", "newtrace")
"""Generators that synthetic windows are drawn from by default."""
ORIGINS = ("real", "synthetic", "mixed")


@dataclass(frozen=True, eq=False)
class Window:
    """Consecutive jobs of a log: submission times, durations and GPUs.

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


def philly_file() -> Path:
    """Return the path of Microsoft's Philly log of jobs, whether it exists or not."""
    return data_folder() / "sia" / "philly.csv"


@cache
def _philly(split: str, path: Path) -> tuple[Floats, Floats, Ints]:
    """Return submission times, durations and GPUs of a split's jobs in Philly's log, in order."""
    from clustergym.trace.readers.philly import read_log

    log = read_log(path)
    low, high = (datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() for day in BOUNDS[split])
    order = np.argsort(log.submit_s, kind="stable")
    order = order[(log.submit_s[order] >= low) & (log.submit_s[order] < high)]
    return log.submit_s[order], log.duration_s[order], log.gpus[order]


def draw_window(
    rng: np.random.Generator, split: str, origin: str, jobs: int, generators: Sequence[str] = SOURCES
) -> Window:
    """Sample consecutive jobs of a split, from the Philly log or generated ones, as `origin` says.

    Parameters
    ----------
    rng : Generator
    split : str
        `train`, `dev` or `test`.
    origin : str
        `real` (Philly), `synthetic` (our generators), or `mixed`: either, by a fair coin.
    jobs : int
    generators : sequence of str
        Of conf/generator; one of them is drawn for a synthetic window.
    """
    require_known(split, SPLITS, "split", "split")
    require_known(origin, ORIGINS, "origin", "origin")
    # Drawn for every origin: windows of `real` and `synthetic` are those that `mixed` has.
    coin = rng.random() < 0.5
    if origin == "real" or (origin == "mixed" and coin):
        return _real(rng, split, jobs)
    return _synthetic(rng, split, jobs, generators)


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


def _synthetic(rng: np.random.Generator, split: str, jobs: int, generators: Sequence[str]) -> Window:
    from clustergym.trace.generators.arrivals import arrival_times
    from clustergym.trace.generators.sizes import draw_durations, draw_gpus
    from clustergym.trace.generators.sources import load_source

    name = generators[int(rng.integers(len(generators)))]
    source = load_source(name)
    # Seeds of the splits are apart modulo 3, as in environments.
    seed = trace_seed(split, int(rng.integers(2**30)))
    gpus = draw_gpus(source.gpus, jobs, seed)
    duration = draw_durations(source.durations, gpus, seed)
    submit = arrival_times(source, jobs, source.span_s * jobs / source.jobs, seed, int(rng.integers(168)))
    return Window(f"{split}-{name}-like-{seed}-{jobs}", submit, duration, gpus)


@dataclass(frozen=True)
class TraceFiles:
    """A source of scenarios, each with the jobs of one trace file; cluster and all else are the same in all.

    Attributes
    ----------
    scenario : str
        Of conf/scenario.
    overrides : tuple of str
        As on `clustergym.run`'s command line, without `trace.path`.
    files : tuple of str
    """

    scenario: str = "testbed"
    overrides: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @classmethod
    def from_given(cls, given: Any, least: int = 2) -> Self:
        """Make a source of at least `least` files from `{scenario: …, overrides: […], files: [pattern, …]}`.

        There must be `least` files at least: intervals need two.
        """
        patterns: Self = build(cls, given, "traces")
        here = str(data_folder().absolute())
        overrides = tuple(text.replace("{data}", here) for text in patterns.overrides)
        files: list[str] = []
        for pattern in patterns.files:
            found = sorted(glob.glob(pattern.replace("{data}", here)))
            require(len(found) > 0, "traces.files", pattern, "name trace files that are there")
            files += found
        if len(files) < least:
            need = "two files" if least == 2 else "a file"
            raise InputError(f"needs {need} at least", field="traces.files", remedy="name more")
        return replace(patterns, overrides=overrides, files=tuple(files))

    def draw(self, split: str, seed: int, index: int) -> Scenario:
        """Return the scenario of trace file `index` (not drawn), with a decision point at every event.

        Nobody profiles, as in drawn windows, unless `overrides` name costs.
        """
        from clustergym.scenario.by_name import load_scenario

        overrides = ["trace=file", *self.overrides, f"trace.path='{self.files[index]}'"]
        scenario = replace(load_scenario(self.scenario, overrides), rounds="event")
        if any(word.lstrip("+~").startswith("costs") for word in self.overrides):
            return scenario
        return replace(scenario, costs=replace(scenario.costs, profile={}))


@dataclass(frozen=True)
class WindowFiles(TraceFiles):
    """A source of training windows.

    Attributes
    ----------
    jobs : pair of int, or nothing
        Range of a window's jobs; nothing: that of the distribution.
    """

    jobs: Annotated[tuple[AtLeastTwo, ...], IN_ORDER_OR_NONE] = ()


SHARES = {"train": (0.0, 0.6), "dev": (0.6, 0.8), "test": (0.8, 1.0)}
"""Part of each file's jobs, in order of submission, that a split's windows are cut from."""


def trace_window(
    rng: np.random.Generator,
    split: str,
    sources: Sequence[Mapping[str, Any]],
    jobs_range: tuple[int, ...],
    draw_factors: Callable[[np.random.Generator], tuple[float, float, float]],
) -> Scenario:
    """Return a scenario with consecutive jobs of a sampled trace file, stretched in time to a sampled load.

    Of several sources one is drawn, each as often as any other, however many files it has. `draw_factors`
    draws the load, the factor of the restart time, and the error of known times.

    Iteration times are those of compact placements. The load is the GPU time of all jobs as requested, at
    the mean speed of the cluster's GPUs, over capacity x span.
    """
    at = int(rng.integers(len(sources))) if len(sources) > 1 else 0
    files = _files(json.dumps(sources[at]))
    jobs_range = files.jobs or jobs_range
    index = int(rng.integers(len(files.files)))
    whole = _whole(files, index)
    first, last = (round(share * len(whole.trace)) for share in SHARES[split])
    jobs = int(rng.integers(jobs_range[0], jobs_range[1] + 1))
    remedy = f"the {split} split of {files.files[index]} has windows of up to {last - first}"
    require(jobs <= last - first, "scenarios.jobs", jobs, remedy)
    # Windows of a split may overlap each other; those of two splits share no job.
    begin = first + int(rng.integers(last - first - jobs + 1))
    rows = np.arange(begin, begin + jobs)
    load, restart, error = draw_factors(rng)
    name = f"{split}-{Path(files.files[index]).stem}-{begin}-{jobs}"
    window = _window(rng, whole, rows, load, restart, error, name)
    return _failing_otherwise(rng, window) if window.disturbances else window


def record(sources: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the digests of the trace files used, and the part of each file that each split takes."""
    found = [path for one in sources for path in WindowFiles.from_given(one, least=1).files]
    digests = {Path(path).name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in found}
    return {"origin": "files", "sha256": digests, "shares": {key: list(two) for key, two in SHARES.items()}}


_files = cache(lambda traces: WindowFiles.from_given(json.loads(traces), least=1))


@cache
def _whole(files: WindowFiles, index: int) -> Scenario:
    """Return the scenario of a file; a process reads it once."""
    return files.draw("train", 0, index)


def _window(
    rng: np.random.Generator,
    whole: Scenario,
    rows: Ints,
    load: float,
    restart: float,
    error: float,
    name: str,
) -> Scenario:
    trace = replace(whole.trace.take(rows, name), submit_s=_stretch_submissions(whole, rows, load))
    if whole.costs.profile:
        # Its jobs share profiles as those of the file do, so that errors are of models.
        factor = np.exp(error * rng.normal(size=len(whole.tables.classes)))[:, None, None, None]
        known_parts = {part: getattr(whole.tables, part) * factor for part in ("data_parallel", "profiled")}
        tables, checkpoint_s = replace(whole.tables, **known_parts), whole.checkpoint_s
    else:
        n, model_class = len(rows), whole.class_of[rows]
        trace = replace(trace, model_family=tuple(f"m{row:05d}" for row in range(n)))
        times = whole.known_times(InformationClass.CLAIRVOYANT)[model_class]
        known = times * np.exp(error * rng.normal(size=n))[:, None, None]
        tables, order = job_tables(trace, whole.cluster, whole.tables.counts, times, known)
        checkpoint_s = whole.checkpoint_s[model_class][order]
    return replace(whole, name=name, trace=trace, tables=tables, checkpoint_s=checkpoint_s * restart)


def _failing_otherwise(rng: np.random.Generator, window: Scenario) -> Scenario:
    """Return a scenario whose disturbances (such as failures) have another random seed."""
    seed, drawn = int(rng.integers(2**31)), list[Any](window.disturbances)
    anew = (replace(one, seed=seed) if hasattr(one, "seed") else one for one in drawn)
    return replace(window, disturbances=tuple(anew))


def _stretch_submissions(whole: Scenario, rows: Ints, load: float) -> Floats:
    """Return the submission times of rows, from 0 and stretched to a load."""
    work_s = whole.trace.work_iterations[rows] * whole.fair_iteration_time_s[rows] * whole.request_gpus[rows]
    span_s = float(np.nansum(work_s)) / (load * float(whole.cluster.capacity.sum()))
    submit_s = whole.trace.submit_s[rows] - whole.trace.submit_s[rows[0]]
    stretched: Floats = np.round(submit_s * span_s / max(float(submit_s[-1]), 1e-9), 3)
    return stretched


def job_tables(
    trace: Trace, cluster: ClusterSpec, counts: Ints, times: Floats, known: Floats
) -> tuple[OracleTables, list[int]]:
    """Return true and known iteration times in tables sorted by model, and the order of the jobs in them.

    Parameters
    ----------
    trace : Trace
        Each job has a model family of its own.
    cluster : ClusterSpec
    counts : ndarray of int, shape (K,)
    times, known : ndarray of float, shape (n, T, K)
    """
    classes = [trace.model_class(row) for row in range(len(trace))]
    # Tables are sorted by class, and each job is a class of its own here.
    order = sorted(range(len(trace)), key=lambda row: classes[row])

    def spread(table: Floats) -> Floats:
        return np.repeat(six_digits(table)[..., None], LOCALITIES, axis=3)

    estimates, sorted_classes = spread(known[order]), tuple(classes[row] for row in order)
    times = spread(times[order])
    return OracleTables(sorted_classes, cluster.gpu_types, counts, times, estimates, estimates), order
