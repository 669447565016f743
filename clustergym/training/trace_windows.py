"""Draws windows of consecutive jobs from a user's trace files, with their cluster and iteration times."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.agents.job_tables import job_tables
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import require
from clustergym.scenario.policy import InformationClass
from clustergym.scenario.scenario import Scenario
from clustergym.training.trace_files import TraceFiles

SHARES = {"train": (0.0, 0.6), "dev": (0.6, 0.8), "test": (0.8, 1.0)}
"""Part of each file's jobs, in order of submission, that a split's windows are cut from."""


def trace_window(
    rng: np.random.Generator,
    split: str,
    traces: Mapping[str, str | tuple[str, ...]],
    jobs_range: tuple[int, ...],
    draw_factors: Callable[[np.random.Generator], tuple[float, float, float]],
) -> Scenario:
    """Draw consecutive jobs of a file, and stretch their arrivals to a load; failures are drawn anew.

    `draw_factors` draws the load, the factor of the restart time, and the error of known times.

    Iteration times are those of compact placements. The load is the GPU time of all jobs as requested, at
    the mean speed of the cluster's GPUs, over capacity x span.

    Raises
    ------
    InputError
        If a file has no window of so many jobs in the split.
    """
    files = _files(json.dumps(traces))
    index = int(rng.integers(len(files.files)))
    whole = _whole(files, index)
    first, last = (round(share * len(whole.trace)) for share in SHARES[split])
    jobs = int(rng.integers(jobs_range[0], jobs_range[1] + 1))
    remedy = f"the {split} split of {files.files[index]} has windows of up to {last - first}"
    require(jobs <= last - first, "scenarios.jobs", jobs, remedy)
    begin = first + int(rng.integers(last - first - jobs + 1))
    rows = np.arange(begin, begin + jobs)
    load, restart, error = draw_factors(rng)
    name = f"{split}-{Path(files.files[index]).stem}-{begin}-{jobs}"
    window = _window(rng, whole, rows, load, restart, error, name)
    return _failing_otherwise(rng, window) if window.disturbances else window


def record(traces: Mapping[str, str | tuple[str, ...]]) -> dict[str, Any]:
    """Return the digests of the files that windows were drawn from, and each split's share of their jobs."""
    found = TraceFiles.of(traces, least=1).files
    digests = {Path(path).name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in found}
    return {"origin": "files", "sha256": digests, "shares": {key: list(two) for key, two in SHARES.items()}}


@cache
def _files(traces: str) -> TraceFiles:
    return TraceFiles.of(json.loads(traces), least=1)


@cache
def _whole(files: TraceFiles, index: int) -> Scenario:
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
    trace = replace(whole.trace.take(rows, name), submit_s=_stretched(whole, rows, load))
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
    """Return a window whose disturbances are drawn by another seed."""
    seed, drawn = int(rng.integers(2**31)), list[Any](window.disturbances)
    anew = (replace(one, seed=seed) if hasattr(one, "seed") else one for one in drawn)
    return replace(window, disturbances=tuple(anew))


def _stretched(whole: Scenario, rows: Ints, load: float) -> Floats:
    """Return the submission times of rows, from 0 and stretched to a load."""
    work_s = whole.trace.work_iterations[rows] * whole.fair_iteration_time_s[rows] * whole.request_gpus[rows]
    span_s = float(np.nansum(work_s)) / (load * float(whole.cluster.capacity.sum()))
    submit_s = whole.trace.submit_s[rows] - whole.trace.submit_s[rows[0]]
    stretched: Floats = np.round(submit_s * span_s / max(float(submit_s[-1]), 1e-9), 3)
    return stretched
