"""Generate a synthetic trace: arrivals, requests, durations, models, deadlines, and the offered load.

Submissions, durations and deadlines are whole milliseconds: finer digits could differ between two
machines' mathematics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import round_up_counts
from clustergym.common.errors import InputError, require_known
from clustergym.common.parameter_types import Seed
from clustergym.common.parameters import build_from_keywords, check_value
from clustergym.trace.draw import (
    RULES,
    DrawnJobs,
    Records,
    ReferenceTimes,
    draw,
    get_reference_times,
)
from clustergym.trace.generators.arrivals import arrival_times, in_bursts, whole_milliseconds
from clustergym.trace.generators.sizes import (
    ARENA_SHARES,
    PRETRAINING_SHARES,
    draw_durations,
    draw_gpu_types,
    draw_gpus,
    draw_tenants,
    draw_virtual_clusters,
)
from clustergym.trace.generators.sources import Source, load_source
from clustergym.trace.options import GeneratorOptions, ReadOptions
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import build_trace
from clustergym.trace.trace_statistics import RequestCosts, list_counts

VERSION = 1
"""Version of the generator; increase it whenever equal arguments give a different trace."""

LOAD_TOLERANCE = 0.01
REQUESTS: Mapping[str, Mapping[int, float] | None] = {
    "source": None,
    "arena": ARENA_SHARES,
    "pretraining": PRETRAINING_SHARES,
}
"""Shares of GPU counts to draw from; None: the source's own."""


@dataclass(frozen=True)
class DeadlineOptions:
    """Options of generated deadlines: submission + slack x run time, with slack uniform in [low, high].

    The defaults are those of ElasticFlow's published trace (876 jobs): 5th, 50th and 95th percentile
    0.55, 0.97 and 1.45.
    """

    slack_low: float = 0.5
    slack_high: float = 1.5


@dataclass(frozen=True, kw_only=True)
class _Request(GeneratorOptions):
    """The checked arguments of `generate`."""

    source_name: str
    source: Source
    seed: int
    cluster: ClusterSpec
    cluster_name: str | None
    gpu_types: tuple[str, ...]
    deadlines: DeadlineOptions | None
    power_of_two: bool


def generate(
    source: str,
    *,
    seed: int = 0,
    cluster: ClusterSpec | str | None = None,
    gpu_types: tuple[str, ...] = (),
    deadlines: DeadlineOptions | None = None,
    power_of_two: bool = True,
    **options: Any,
) -> Trace:
    """Generate a synthetic trace like a published one; equal arguments give equal bytes on any machine.

    Parameters
    ----------
    source : str
        One of `source_names()`, or a YAML file with the keys of conf/generator/philly.yaml.
    seed : int
    cluster : ClusterSpec or str, optional
        Its GPU types are requested and its iteration times turn durations into iterations; by
        default the readers' reference cluster, `arena-sim`, without a limit on counts.
    gpu_types : tuple of str
        Types of the cluster to request, drawn in proportion to capacity among those a job fits;
        empty: no request, and durations are those on the cluster's most numerous type.
    deadlines : DeadlineOptions, optional
    power_of_two : bool
        Round GPU counts up to powers of two, keeping each job's GPU time, as the readers do.
    **options
        Fields of `clustergym.trace.options.GeneratorOptions`.
    """
    chosen: GeneratorOptions = build_from_keywords(GeneratorOptions, options, "trace")
    _check(chosen, cluster, deadlines)
    request = _Request(
        **vars(chosen),
        source_name=Path(source).stem if source.endswith((".yaml", ".yml")) else source,
        source=load_source(source),
        seed=check_value(seed, Seed, "seed"),
        cluster=_cluster(cluster),
        cluster_name=cluster.name if isinstance(cluster, ClusterSpec) else cluster,
        gpu_types=gpu_types,
        deadlines=deadlines,
        power_of_two=power_of_two,
    )
    return _synthesise(request)


def _synthesise(request: _Request) -> Trace:
    for gpu_type in request.gpu_types:
        require_known(gpu_type, request.cluster.gpu_types, "name", "gpu_types")
    if request.max_gpus is None and request.cluster_name is not None:
        request = replace(request, max_gpus=_most_gpus(request))
    gpus, duration_s = _requests_and_durations(request)
    # Jobs without a GPU type are timed on the type of which there are most GPUs.
    reference = request.cluster.gpu_types[int(np.argmax(request.cluster.capacity))]
    times = get_reference_times(request.cluster)
    drawn = _models(request, gpus, duration_s, times, reference)
    # Submissions come last: the span depends on the load, and the load on iterations, which depend on the
    # models.
    draft = _trace(request, drawn, np.zeros(request.jobs), gpus)
    span_s, iterations = _fit_load(request, draft, times)
    submit_s = arrival_times(request.source, request.jobs, span_s, request.seed, request.start_hour)
    if request.bursty:
        submit_s = in_bursts(submit_s, draft.virtual_cluster, request.bursty, request.seed)
    trace = replace(draft, submit_s=submit_s, iterations=iterations)
    if request.deadlines is not None:
        deadline_s = _deadlines(request.deadlines, trace, drawn.time_s, request.seed)
        trace = replace(trace, deadline_s=deadline_s)
    trace = trace.take(np.argsort(submit_s, kind="stable")) if request.bursty else trace
    return replace(trace, provenance=_provenance(request, drawn, span_s))


def _requests_and_durations(request: _Request) -> tuple[Ints, Floats]:
    """Sample GPU counts and durations; durations always follow the source's own GPU counts."""
    rest = (request.jobs, request.seed, request.max_gpus, request.power_of_two)
    # Also where other counts are asked for: durations go with the source's counts, and stay the same for all
    # choices of `requests`.
    own = draw_gpus(request.source.gpus, *rest)
    limits = (request.min_duration_s, request.max_duration_s)
    duration_s = draw_durations(request.source.durations, own, request.seed, *limits)
    shares = REQUESTS[request.requests]
    if shares is None:
        return own, duration_s
    return draw_gpus(shares, *rest, stream=random_streams.JOB_REQUESTS), duration_s


def _models(
    request: _Request, gpus: Ints, duration_s: Floats, times: ReferenceTimes, reference: str
) -> DrawnJobs:
    counts = round_up_counts(gpus) if request.power_of_two else gpus
    gpu_type = [""] * request.jobs
    if request.gpu_types:
        gpu_type = draw_gpu_types(
            request.cluster,
            request.gpu_types,
            rule=request.rule,
            gpu_s=duration_s * gpus,
            gpus=counts,
            time_s=times,
            seed=request.seed,
        )
    rows = np.arange(request.jobs, dtype=np.int64)
    records = Records(Path(request.source_name), rows, [0] * request.jobs, duration_s, gpus, gpu_type)
    options = ReadOptions(
        seed=request.seed,
        rule=request.rule,
        reference_time_s=times,
        reference_gpu=reference,
        reference_cluster="",
        gpu_types=(),
        power_of_two=request.power_of_two,
    )
    return draw(records, options)


def _trace(request: _Request, drawn: DrawnJobs, submit_s: Floats, gpus: Ints) -> Trace:
    built = build_trace(
        path=Path(request.source_name),
        name=f"{request.source_name}-like-{request.jobs}",
        line=[0] * request.jobs,
        job_id=_job_ids(request.source_name, request.jobs),
        submit_s=submit_s,
        **drawn.columns,
        virtual_cluster=_virtual_clusters(request, gpus),
        canonical=lambda name: name,
    )
    return replace(built, path="")


def _virtual_clusters(request: _Request, gpus: Ints) -> list[str]:
    if request.tenants is None:
        return draw_virtual_clusters(request.source, gpus, request.seed)
    return draw_tenants(request.tenants, request.jobs, request.seed)


@lru_cache(maxsize=8)
def _job_ids(source: str, jobs: int) -> tuple[str, ...]:
    digits = len(str(jobs - 1))
    return tuple(f"{source}-{row:0{digits}d}" for row in range(jobs))


def _fit_load(request: _Request, draft: Trace, times: ReferenceTimes) -> tuple[float, Ints]:
    """Return the span (s) and iterations that give the requested load, else those of the source's rate."""
    if request.load is None:
        own = request.source.span_s * request.jobs / request.source.jobs
        span_s = own if request.span_s is None else request.span_s
        return _span(span_s if request.jobs > 1 else 0.0), draft.iterations
    costs = _request_costs(times, request.cluster, tuple(list_counts(draft.gpus, request.cluster)))
    if missing := sorted(set(draft.model_classes) - costs.times.keys()):
        costs.learn(times.oracle.tables(missing, request.cluster, costs.counts))
    gpu_s = costs.gpu_s(costs.of_jobs(draft))
    demand = (draft.iterations.astype(np.float64)[:, None] * gpu_s).sum(axis=1)
    room = float(request.cluster.capacity.sum()) * request.load
    if request.span_s is None:
        return _span(float(demand.sum()) / room), draft.iterations
    span_s = _span(request.span_s)
    return span_s, _scale_iterations(draft.iterations, demand / draft.iterations, room * span_s, request.load)


@lru_cache(maxsize=16)
def _request_costs(times: ReferenceTimes, cluster: ClusterSpec, counts: tuple[int, ...]) -> RequestCosts:
    """Return the costs of requests on the reference cluster; all traces of this process share them."""
    return RequestCosts(cluster, counts)


def _scale_iterations(iterations: Ints, gpu_s: Floats, wanted_gpu_s: float, load: float) -> Ints:
    """Scale all iterations by the factor that brings the demand nearest to the wanted one.

    Parameters
    ----------
    iterations : ndarray of int, shape (n,)
    gpu_s : ndarray of float, shape (n,)
        GPU-seconds of one iteration of each job.
    wanted_gpu_s, load : float
        The demand to reach, and its load for error messages.
    """

    def times(factor: float) -> Ints:
        return np.asarray(np.maximum(1, np.rint(iterations * factor)), dtype=np.int64)

    def miss(factor: float) -> float:
        return float((times(factor) * gpu_s).sum()) / wanted_gpu_s - 1.0

    low, high = 0.0, 1.5 * wanted_gpu_s / float((iterations * gpu_s).sum()) + 1.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if miss(middle) > 0 else (middle, high)
    best = min((low, high), key=lambda factor: abs(miss(factor)))
    if abs(miss(best)) > LOAD_TOLERANCE:
        message = f"load {load:g} cannot be reached: jobs would need less than an iteration"
        raise InputError(message, field="load", remedy="ask for fewer jobs, a longer span or a higher load")
    return times(best)


def _span(span_s: float) -> float:
    return float(whole_milliseconds(np.array([span_s]))[0])


def _deadlines(options: DeadlineOptions, trace: Trace, seconds: Floats, seed: int) -> Floats:
    slack = random_streams.DEADLINE_SLACKS.generator(seed).uniform(
        options.slack_low, options.slack_high, len(trace)
    )
    ahead = np.maximum(whole_milliseconds(slack * trace.iterations * seconds), 0.001)
    return whole_milliseconds(trace.submit_s + ahead)


def _provenance(request: _Request, drawn: DrawnJobs, span_s: float) -> dict[str, Any]:
    arguments = dict(vars(request))
    arguments |= {"source": arguments.pop("source_name"), "cluster": arguments.pop("cluster_name")}
    arguments["deadlines"] = None if request.deadlines is None else asdict(request.deadlines)
    arguments["gpu_types"] = list(request.gpu_types)
    if request.tenants is None:
        del arguments["tenants"]
    if not request.bursty:
        del arguments["bursty"]
    return {
        "source": f"synthetic, like {request.source.description}",
        "format": "generated",
        "origin": 0,
        "start_hour": request.start_hour,
        "span_s": span_s,
        "generator": {"version": VERSION, "arguments": arguments},
        "oracle": oracle_fingerprint(request.cluster, request.rule),
        "draw": drawn.facts,
    }


@lru_cache(maxsize=64)
def oracle_fingerprint(cluster: ClusterSpec, rule: str) -> str:
    """Return a digest of the iteration times, on a cluster, of all models that a rule may choose for jobs.

    It covers every model of the rule at every power of two that the largest GPU type has.
    """
    from clustergym.oracle.roofline.roofline_oracle import RooflineOracle

    counts, strata = [1 << n for n in range(int(cluster.capacity.max()).bit_length())], RULES[rule].strata
    tiers = [tier for stratum in strata for count in counts for tier in RULES[rule].tiers(stratum, count)]
    classes = sorted({model for tier in tiers for model, _ in tier})
    return RooflineOracle().tables(classes, cluster, counts).sha256


def _most_gpus(request: _Request) -> int:
    types = request.gpu_types or request.cluster.gpu_types
    return max(int(request.cluster.capacity[request.cluster.gpu_types.index(gpu_type)]) for gpu_type in types)


def _cluster(cluster: ClusterSpec | str | None) -> ClusterSpec:
    if isinstance(cluster, ClusterSpec):
        return cluster
    from clustergym.cluster.cluster_files import load_cluster

    return load_cluster(ReadOptions().reference_cluster if cluster is None else cluster)


def _check(
    options: GeneratorOptions, cluster: ClusterSpec | str | None, deadlines: DeadlineOptions | None
) -> None:
    """Raise an InputError unless options go together."""
    if options.load is not None and cluster is None:
        raise InputError("load is that of a cluster", field="load", remedy="name the cluster")
    if options.load is not None and options.jobs < 2:
        raise InputError(
            "one job alone has no span to offer a load in", field="jobs", remedy="give 2 or more"
        )
    shares = None if options.tenants is None else options.tenants.values()
    if shares is not None and (not all(share >= 0 for share in shares) or not any(shares)):
        raise InputError(
            "has no share above 0, or one below", field="tenants", remedy="give {TEAM: 2, OTHER: 1}"
        )
    if deadlines is not None and not 0 < deadlines.slack_low <= deadlines.slack_high < math.inf:
        message = f"slack {deadlines.slack_low} to {deadlines.slack_high} is not a range above 0"
        raise InputError(message, field="deadlines", remedy="give 0 < low <= high")
