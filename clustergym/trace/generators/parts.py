"""A workload of parts of GPUs like Alibaba's openb cluster, without its files.

Types of requests and their numbers follow the GPU cluster trace of 2023 (cluster-trace-gpu-v2023 of
https://github.com/alibaba/clusterdata; Weng et al., "Beware of Fragmentation", USENIX ATC 2023): amounts
rounded to half a core and 4 GiB, requests below 3 in 1,000 left out. Durations have the mean and standard
deviation of ln(seconds) of the pods of each class that ran (our own figures from its default list); arrivals
are a Poisson process.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import RECORDED, PartColumns, build_trace

PARTS_SOURCE = "openb"

REQUESTS = (
    # No GPU.
    (12.5, 56, 0, 0, 45),
    (32, 48, 0, 0, 35),
    (8, 28, 0, 0, 20),
    (15.5, 48, 0, 0, 15),
    (16.5, 48, 0, 0, 12),
    # A part of a GPU.
    (3, 4, 1, 810, 128),
    (12, 48, 1, 470, 48),
    (8, 28, 1, 470, 44),
    (12, 48, 1, 650, 29),
    (4, 24, 1, 320, 14),
    (4, 28, 1, 230, 10),
    (4, 16, 1, 320, 10),
    (3, 4, 1, 590, 9),
    (8, 28, 1, 320, 9),
    (4, 12, 1, 550, 9),
    (6, 8, 1, 460, 7),
    (4, 16, 1, 160, 7),
    (4, 12, 1, 370, 6),
    (4, 28, 1, 320, 5),
    (4, 12, 1, 810, 4),
    (6, 12, 1, 460, 4),
    (4, 24, 1, 230, 3),
    (6, 16, 1, 460, 3),
    (4, 16, 1, 220, 3),
    (1, 4, 1, 320, 3),
    # Whole GPUs.
    (11.5, 48, 1, 1000, 171),
    (3, 4, 1, 1000, 58),
    (18.5, 64, 1, 1000, 31),
    (10, 40, 1, 1000, 24),
    (12, 48, 1, 1000, 20),
    (12, 24, 1, 1000, 20),
    (15.5, 56, 1, 1000, 19),
    (12, 16, 1, 1000, 18),
    (16, 32, 1, 1000, 14),
    (8, 16, 1, 1000, 13),
    (4, 24, 1, 1000, 13),
    (8, 32, 1, 1000, 12),
    (14, 56, 1, 1000, 11),
    (24, 92, 1, 1000, 10),
    (11.5, 76, 1, 1000, 8),
    (12, 76, 1, 1000, 6),
    (4, 32, 1, 1000, 6),
    (15, 80, 1, 1000, 4),
    (16, 64, 1, 1000, 4),
    (16.5, 124, 1, 1000, 3),
    (16, 64, 2, 1000, 2),
    (32, 128, 4, 1000, 2),
    (64, 256, 8, 1000, 3),
    (88, 320, 8, 1000, 2),
)
"""Cores, GiB, GPUs, thousandths of each, and how many in 1,000 requests are such."""

LN_DURATION = {"cpu": (6.53, 1.72), "part": (6.38, 1.98), "one": (6.69, 1.83), "several": (7.22, 2.69)}
"""Mean and standard deviation of ln(seconds), by class of request."""


@dataclass(frozen=True)
class PartWorkload:
    """The parameters of a generated trace of jobs that request parts of GPUs.

    Attributes
    ----------
    jobs, seed : int
    gpus : int
        GPUs of the cluster.
    load : float
        GPU-seconds asked for, over those that the cluster has from the first to the last submission.
    min_duration_s, max_duration_s : float
        Durations are drawn given that they lie within.
    """

    jobs: int
    seed: int
    gpus: int
    load: float = 1.0
    min_duration_s: float = 1.0
    max_duration_s: float = 86_400.0

    def __post_init__(self) -> None:
        checks = (
            ("trace.jobs", self.jobs, 2, 1_000_000),
            ("trace.load", self.load, 1e-6, 1e6),
            ("trace.min_duration_s", self.min_duration_s, 1.0, 1e9),
            ("trace.max_duration_s", self.max_duration_s, 2.0 * self.min_duration_s, 1e9),
        )
        for field, value, least, most in checks:
            if not least <= value <= most:
                remedy = f"give {least:g} to {most:g}"
                raise InputError(f"{value:g} is out of range", field=field, remedy=remedy)


def generate_parts(workload: PartWorkload) -> Trace:
    """Generate a trace of jobs that request parts of GPUs; equal arguments give equal bytes."""
    rng = random_streams.JOBS_OF_PARTS.generator(workload.seed)
    cores, gib, gpus, milli, weight = (np.array(column) for column in zip(*REQUESTS, strict=True))
    request = rng.choice(len(weight), workload.jobs, p=weight / weight.sum())
    of_class = np.where(gpus == 0, 0, np.where(milli < 1000, 1, np.where(gpus == 1, 2, 3)))
    duration_s = _durations(of_class[request], workload, rng)
    held = duration_s * (gpus * milli)[request] / 1000
    span_s = float(held.sum()) / (workload.gpus * workload.load)
    gaps = rng.exponential(1.0, workload.jobs - 1)
    submit_s = np.concatenate([[0.0], np.round(span_s * gaps.cumsum() / gaps.sum(), 3)])
    columns = PartColumns(
        gpus[request],
        milli[request],
        np.rint(1000 * cores).astype(np.int64)[request],
        (1024 * gib)[request],
        [""] * workload.jobs,
    )
    digits, name = len(str(workload.jobs - 1)), f"{PARTS_SOURCE}-like-{workload.jobs}"
    arguments: dict[str, Any] = {"source": PARTS_SOURCE, **vars(workload)}
    return build_trace(
        path=Path(name),
        line=[0] * workload.jobs,
        job_id=[f"{PARTS_SOURCE}-{row:0{digits}d}" for row in range(workload.jobs)],
        submit_s=submit_s,
        model_family=[RECORDED] * workload.jobs,
        global_batch=np.ones(workload.jobs, dtype=np.int64),
        iterations=duration_s,
        gpus=columns.gpus,
        parts=columns,
        provenance={"source": f"synthetic, like {PARTS_SOURCE}", "format": "generated", "origin": 0}
        | {"span_s": span_s, "generator": {"version": 1, "arguments": arguments}},
    )


def _durations(of_class: Ints, workload: PartWorkload, rng: np.random.Generator) -> Ints:
    """Sample durations in whole seconds, again until they lie within the bounds."""
    mean, sigma = (np.array(column)[of_class] for column in zip(*LN_DURATION.values(), strict=True))
    seconds: Floats = np.zeros(len(of_class))
    left = np.arange(len(of_class))
    while len(left):
        seconds[left] = np.rint(np.exp(rng.normal(mean[left], sigma[left])))
        outside = (seconds[left] < workload.min_duration_s) | (seconds[left] > workload.max_duration_s)
        left = left[outside]
    return seconds.astype(np.int64)


def at_load(trace: Trace, gpus: int, load: float) -> Trace:
    """Return a trace with arrivals rescaled so that jobs demand `load` times the GPU time of `gpus` GPUs.

    Parameters
    ----------
    trace : Trace
        Of jobs whose iterations are seconds.
    gpus : int
        GPUs of the cluster.
    load : float
        As in `PartWorkload`.
    """
    milli = np.full(len(trace), 1000) if trace.gpu_milli is None else trace.gpu_milli
    demand = float((trace.iterations * trace.gpus * milli).sum()) / 1000
    if not load > 0 or not trace.span_s or not demand:
        remedy = "give a load above 0 and a trace with GPU jobs that are submitted at different times"
        raise InputError(f"load {load:g} cannot be reached", field="trace.load", remedy=remedy)
    factor = demand / (gpus * load) / trace.span_s
    submit_s = np.round((trace.submit_s - trace.submit_s[0]) * factor, 6)
    return replace(trace, submit_s=submit_s, deadline_s=np.full(len(trace), np.nan))
