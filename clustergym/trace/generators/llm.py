"""A workload of today's language models: pre-training, fine-tuning, evaluation in bursts, debugging.

Sources of the constants; what has none is called assumed (docs/worlds.md has the table):

- Acme: Hu et al., NSDI '24, of two clusters of A100 for language models, Seren and Kalos; AcmeTrace,
  data/cluster_summary.csv, for outcomes and run times.
- RSC: Kokolis et al., HPCA '25, of two clusters of A100 at Meta.
- Shapes, sequence lengths and batches of models: conf/model and the reports named there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.errors import InputError
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.trace.drawn_outcomes import with_drawn_outcomes
from clustergym.trace.options import ReferenceTime
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import build_trace

LLM_SOURCE = "llm-2026"
DAY_S = 86_400.0

Choices = tuple[ModelClass, ...]


@dataclass(frozen=True)
class JobClass:
    """Distributions of sizes, models and durations of jobs with one purpose, such as pre-training.

    Attributes
    ----------
    share : float
        Of the jobs.
    models : mapping of int to tuple of ModelClass
        Models that jobs of a GPU count train, each as often as the others.
    weights : mapping of int to float
        How often a GPU count is asked for (relative).
    median_s, ln_sigma : float
        Of log-normal durations.
    most_s : float
        Durations are drawn given that they are at most this.
    burst : float
        Mean number of jobs that are submitted together; 1: each by itself.
    scales : bool
        Whether durations are scaled until the offered load is the one asked for.
    """

    share: float
    models: Mapping[int, Choices]
    weights: Mapping[int, float]
    median_s: float
    ln_sigma: float
    most_s: float
    burst: float = 1.0
    scales: bool = False


def _models(batch: int, *names: str) -> Choices:
    found = []
    for name in names:
        family, _, size = name.partition(":")
        found.append(ModelClass(family, size, batch))
    return tuple(found)


_SMALL = _models(16, "mpt:1B", "mpt:3B", "mpt:7B")
_MIDDLE = _models(16, "llama3:8B", "gpt-oss:20B", "mpt:13B")
CLASSES: Mapping[str, JobClass] = {
    # 3.2 % of Kalos's jobs pre-train, and take 94 % of its GPU time (Acme, section 3.1; from memory, not
    # checked). Assumed: each doubling of 64 to 512 GPUs three quarters as often; median and spread. No job
    # lasts longer than a week (RSC's policy).
    "pretraining": JobClass(
        share=0.032,
        models={
            64: _models(512, "llama3:8B", "gpt-oss:20B", "qwen3:30B-A3B", "mixtral:8x7B"),
            128: _models(1024, "llama3:70B", "qwen3:30B-A3B", "gpt-oss:120B"),
            256: _models(1024, "llama3:70B", "gpt-oss:120B", "qwen3:235B-A22B"),
            512: _models(1024, "llama3:405B", "deepseek:v3", "kimi:k2", "qwen3:235B-A22B"),
        },
        weights={64: 1.0, 128: 0.75, 256: 0.5625, 512: 0.421875},
        median_s=2.0 * DAY_S,
        ln_sigma=0.8,
        most_s=7.0 * DAY_S,
        scales=True,
    ),
    # Assumed: a tenth of the jobs; 1 to 64 GPUs as often for each doubling; hours.
    "fine-tuning": JobClass(
        share=0.10,
        models={
            **dict.fromkeys((1, 2), _models(64, "mpt:1B", "mpt:3B", "llama3:8B")),
            **dict.fromkeys((4, 8), _models(64, "llama3:8B", "mpt:13B", "gpt-oss:20B")),
            **dict.fromkeys((16, 32), _models(128, "llama3:70B", "mixtral:8x7B", "qwen3:30B-A3B")),
            64: _models(128, "llama3:70B", "gpt-oss:120B", "qwen3:235B-A22B"),
        },
        weights=dict.fromkeys((1, 2, 4, 8, 16, 32, 64), 1.0),
        median_s=2.0 * 3600.0,
        ln_sigma=1.2,
        most_s=2.0 * DAY_S,
        scales=True,
    ),
    # What is left of the jobs: 92.9 % of Kalos's evaluate (Acme, section 3.1; from memory, not checked), here
    # with debugging 86.8 %. Median run time of GPU jobs: 122 s (Seren, cluster_summary.csv). A checkpoint is
    # evaluated on many data sets at once; 20 at a time, 1 to 8 GPUs, and the spread are assumed.
    "evaluation": JobClass(
        share=0.718,
        models={1: _SMALL, 2: _SMALL, 4: _MIDDLE, 8: _MIDDLE},
        weights={1: 0.5, 2: 0.2, 4: 0.15, 8: 0.15},
        median_s=122.0,
        ln_sigma=1.3,
        most_s=6.0 * 3600.0,
        burst=20.0,
    ),
    # Assumed: 15 % of the jobs, 1 to 32 GPUs, a few at a time, minutes.
    "debugging": JobClass(
        share=0.15,
        models={1: _SMALL, 8: _MIDDLE, 16: _MIDDLE, 32: _models(32, "llama3:8B", "qwen3:30B-A3B")},
        weights={1: 0.4, 8: 0.4, 16: 0.1, 32: 0.1},
        median_s=300.0,
        ln_sigma=1.3,
        most_s=2.0 * 3600.0,
        burst=3.0,
    ),
}
"""Jobs by purpose, which is also their virtual cluster."""

OUTCOMES_OF = "kalos"
"""Cluster by whose published shares jobs fail and are killed.

By number 39.7 and 6.2 %, by GPU time 8.0 and 60.7 % (AcmeTrace, data/cluster_summary.csv).
"""

BURST_GAP_S = 10.0
"""Mean seconds between the submissions of a burst; assumed."""


@dataclass(frozen=True)
class LlmWorkload:
    """The parameters of a generated trace of jobs that train language models.

    Attributes
    ----------
    jobs, seed : int
    span_s : float
        Seconds from the first to the last submission.
    load : float or None
        GPU-seconds asked for, over those that the cluster has in the span; None: durations stay as drawn.
    max_duration_s : float or None
        No job runs longer, besides the limit of its purpose.
    """

    jobs: int = 1500
    seed: int = 0
    span_s: float = 14.0 * DAY_S
    load: float | None = None
    max_duration_s: float | None = None

    def __post_init__(self) -> None:
        if self.jobs < 2:
            raise InputError(f"{self.jobs} jobs have no span", field="trace.jobs", remedy="give 2 or more")
        if self.max_duration_s is not None and self.max_duration_s < 600.0:
            message, remedy = f"{self.max_duration_s:g} s is too short for most jobs", "give at least 600"
            raise InputError(message, field="trace.max_duration_s", remedy=remedy)


@dataclass(frozen=True)
class _Draft:
    """Jobs before their load is fitted; arrays of shape (n,), `speed` the iterations a second."""

    purpose: list[str]
    submit_s: Floats
    gpus: Ints
    models: list[ModelClass]
    duration_s: Floats
    speed: Floats


def generate_llm(workload: LlmWorkload, cluster: ClusterSpec, times: ReferenceTime) -> Trace:
    """Generate a trace of jobs that train language models; equal arguments give equal bytes.

    Parameters
    ----------
    workload : LlmWorkload
    cluster : ClusterSpec
        Jobs ask for no more GPUs than its largest type has, and for models that fit there.
    times : callable
        Iteration times on the cluster. A duration is that on GPUs of mean speed over the types on which the
        job fits, weighted by their numbers.
    """
    draft = _fit_load(_draft(workload, cluster, times), workload, cluster)
    order = np.lexsort((draft.submit_s,))
    iterations = np.maximum(np.rint(draft.duration_s * draft.speed), 1).astype(np.int64)
    digits, name = len(str(workload.jobs - 1)), f"{LLM_SOURCE}-{workload.jobs}"
    models = [draft.models[row] for row in order]
    trace = build_trace(
        path=Path(name),
        name=name,
        line=[0] * workload.jobs,
        job_id=[f"{draft.purpose[row]}-{at:0{digits}d}" for at, row in enumerate(order)],
        submit_s=draft.submit_s[order],
        model_family=[model.family for model in models],
        model_size=[model.size for model in models],
        global_batch=np.array([model.global_batch for model in models], dtype=np.int64),
        iterations=iterations[order],
        gpus=draft.gpus[order],
        virtual_cluster=[draft.purpose[row] for row in order],
        provenance={"source": "synthetic, by published statistics of clusters for language models"}
        | {"format": "generated", "origin": 0, "span_s": workload.span_s}
        | {"generator": {"version": 1, "arguments": {"source": LLM_SOURCE, **vars(workload)}}},
    )
    run_s = (iterations / draft.speed)[order]
    return replace(with_drawn_outcomes(trace, OUTCOMES_OF, run_s, workload.seed), path="")


def _draft(workload: LlmWorkload, cluster: ClusterSpec, times: ReferenceTime) -> _Draft:
    rng = random_streams.LANGUAGE_MODEL_JOBS.generator(workload.seed)
    shares = np.array([job_class.share for job_class in CLASSES.values()])
    # Shares are met exactly, not on average: few jobs pre-train, and they take most of the GPU time. The rest
    # goes to the most frequent class.
    numbers = np.floor(shares / shares.sum() * workload.jobs).astype(np.int64)
    numbers[list(CLASSES).index("evaluation")] += workload.jobs - int(numbers.sum())
    purpose: list[str] = []
    parts: list[tuple[Floats, Ints, Floats]] = []
    models: list[ModelClass] = []
    speeds = _Speeds(cluster, times)
    for (name, job_class), number in zip(CLASSES.items(), numbers.tolist(), strict=True):
        submit_s = _arrivals(number, job_class.burst, workload.span_s, rng)
        menus = speeds.menus(job_class)
        counts = sorted(menus)
        weights = np.array([job_class.weights[count] for count in counts])
        gpus = np.array(counts)[rng.choice(len(counts), number, p=weights / weights.sum())]
        picks = rng.random(number)
        models += [
            menus[count][int(pick * len(menus[count]))] for count, pick in zip(gpus, picks, strict=True)
        ]
        most_s = min(job_class.most_s, workload.max_duration_s or math.inf)
        parts.append((submit_s, gpus, _durations(number, job_class, most_s, rng)))
        purpose += [name] * number
    submit_s, gpus, duration_s = (np.concatenate(column) for column in zip(*parts, strict=True))
    speed = np.array([speeds(model, count) for model, count in zip(models, gpus.tolist(), strict=True)])
    # Stretched to the span, as the load is that of the span.
    submit_s = np.round((submit_s - submit_s.min()) * workload.span_s / np.ptp(submit_s), 3)
    return _Draft(purpose, submit_s, gpus, models, duration_s, speed)


class _Speeds:
    """Iterations per second of models on a number of GPUs, averaged over the GPU types where they fit."""

    def __init__(self, cluster: ClusterSpec, times: ReferenceTime) -> None:
        self._types = list(zip(cluster.gpu_types, cluster.capacity.tolist(), strict=True))
        self._times = times
        self._known: dict[tuple[ModelClass, int], float] = {}

    def __call__(self, model: ModelClass, gpus: int) -> float:
        """Return the speed; 0 where the model fits nowhere."""
        key = model, gpus
        if key not in self._known:
            fits = [(room, self._times(model, name, gpus)) for name, room in self._types if gpus <= room]
            fits = [(room, seconds) for room, seconds in fits if math.isfinite(seconds)]
            total = sum(room for room, _ in fits)
            # Speeds are averaged, not times: work adds up at speeds, and a job is taken to run on each type
            # as often as there are GPUs of it.
            self._known[key] = sum(room / seconds for room, seconds in fits) / total if fits else 0.0
        return self._known[key]

    def menus(self, job_class: JobClass) -> dict[int, Choices]:
        """Return the models that fit in memory by GPU count; counts without any are left out."""
        every = {
            count: tuple(model for model in models if self(model, count) > 0)
            for count, models in job_class.models.items()
        }
        found = {count: models for count, models in every.items() if models}
        if not found:
            message = "has no GPUs on which any of the workload's models fits"
            raise InputError(message, field="cluster", remedy="choose cluster=llm-2026 and oracle=stack")
        return found


def _arrivals(number: int, burst: float, span_s: float, rng: np.random.Generator) -> Floats:
    """Return submissions: bursts at even chance over the span, of geometrically many jobs."""
    at: list[float] = []
    while len(at) < number:
        start, size = rng.random() * span_s, int(rng.geometric(1.0 / burst))
        gaps = rng.exponential(BURST_GAP_S, size)
        at += (start + np.cumsum(gaps)).tolist()
    submitted: Floats = np.minimum(np.array(at[:number]), span_s)
    return submitted


def _durations(number: int, job_class: JobClass, most_s: float, rng: np.random.Generator) -> Floats:
    """Sample durations in whole seconds, again until they are at most `most_s`."""
    seconds, left = np.zeros(number), np.arange(number)
    while len(left):
        drawn = np.exp(rng.normal(math.log(job_class.median_s), job_class.ln_sigma, len(left)))
        seconds[left] = np.maximum(np.rint(drawn), 1.0)
        # Drawn again, not cut: a cut would put a peak at the longest duration.
        left = left[seconds[left] > most_s]
    return seconds


def _fit_load(draft: _Draft, workload: LlmWorkload, cluster: ClusterSpec) -> _Draft:
    """Return jobs whose pre-training and fine-tuning last longer or shorter, to give the load."""
    if workload.load is None:
        return draft
    scales = np.array([CLASSES[name].scales for name in draft.purpose])
    most_s = np.array(
        [min(CLASSES[name].most_s, workload.max_duration_s or math.inf) for name in draft.purpose]
    )
    wanted = workload.load * float(cluster.capacity.sum()) * workload.span_s

    def scale(factor: float) -> Floats:
        # A job that would run longer than is allowed ends then, as a job of Meta's RSC does after a week.
        longer: Floats = np.where(scales, np.minimum(draft.duration_s * factor, most_s), draft.duration_s)
        return longer

    def demand(factor: float) -> float:
        return float((scale(factor) * draft.gpus).sum())

    low, high = 0.0, 1e3
    if not demand(low) < wanted < demand(high):
        room = float(cluster.capacity.sum()) * workload.span_s
        loads = f"{demand(low) / room:.3g} to {demand(high) / room:.3g}"
        message = f"load {workload.load:g} is not among those that {workload.jobs} jobs can have, {loads}"
        raise InputError(message, field="trace.load", remedy="change the number of jobs or the span")
    # Demand grows with the factor, in steps where jobs reach their limit: bisection needs no derivative, and
    # 60 halvings of 1,000 leave 1e-15.
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if demand(middle) > wanted else (middle, high)
    return replace(draft, duration_s=scale(high))
