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
from clustergym.common.columns import rounded_up
from clustergym.common.errors import InputError, nearest
from clustergym.trace.draw import RULES, Drawn, Records, ReferenceTimes, draw, reference_key, times_on
from clustergym.trace.generators.arrivals import arrival_times, in_bursts, whole_milliseconds
from clustergym.trace.generators.duration_mixtures import draw_durations
from clustergym.trace.generators.gpu_types import draw_gpu_types
from clustergym.trace.generators.sizes import (
    ARENA_SHARES,
    PRETRAINING_SHARES,
    draw_gpus,
    draw_tenants,
    draw_virtual_clusters,
)
from clustergym.trace.generators.sources import Source, load_source
from clustergym.trace.options import ReadOptions
from clustergym.trace.trace import Trace
from clustergym.trace.trace_checks import build_trace
from clustergym.trace.trace_statistics import RequestCosts, counts_for

VERSION = 1
"""Version of the generator; increase it whenever equal arguments give a different trace."""

MOST_JOBS = 2_000_000
LOAD_TOLERANCE = 0.01
REQUESTS: Mapping[str, Mapping[int, float] | None] = {
    "source": None,
    "arena": ARENA_SHARES,
    "pretraining": PRETRAINING_SHARES,
}
"""Shares of GPU counts to draw from; None: the source's own."""


@dataclass(frozen=True)
class DeadlineOptions:
    """Options of deadlines: submission + slack x run time at the request, slack uniform in [low, high].

    The defaults are those of ElasticFlow's published trace (876 jobs): 5th, 50th and 95th percentile
    0.55, 0.97 and 1.45.
    """

    slack_low: float = 0.5
    slack_high: float = 1.5


@dataclass(frozen=True)
class _Request:
    """Checked arguments of `generate`."""

    source_name: str
    source: Source
    jobs: int
    span_s: float | None
    seed: int
    rule: str
    cluster: ClusterSpec
    cluster_name: str | None
    load: float | None
    gpu_types: tuple[str, ...]
    max_gpus: int | None
    deadlines: DeadlineOptions | None
    requests: str
    min_duration_s: float | None
    max_duration_s: float | None
    start_hour: int
    power_of_two: bool
    tenants: Mapping[str, float] | None
    bursty: float


def generate(
    source: str,
    *,
    jobs: int,
    span_s: float | None = None,
    seed: int = 0,
    rule: str = "arena",
    cluster: ClusterSpec | str | None = None,
    load: float | None = None,
    gpu_types: tuple[str, ...] = (),
    max_gpus: int | None = None,
    deadlines: DeadlineOptions | None = None,
    requests: str = "source",
    min_duration_s: float | None = None,
    max_duration_s: float | None = None,
    start_hour: int = 0,
    power_of_two: bool = True,
    tenants: Mapping[str, float] | None = None,
    bursty: float = 0.0,
) -> Trace:
    """Generate a synthetic trace like a published one; equal arguments give equal bytes on any machine.

    Parameters
    ----------
    source : str
        One of `source_names()`, or a YAML file with the keys of conf/generator/philly.yaml.
    jobs, seed : int
    span_s : float, optional
        Seconds from the first to the last submission. By default what the source's own rate gives,
        or with `load` what that asks for.
    rule : str
        How models are drawn, `arena` or `ares` (see `clustergym.trace.draw`).
    cluster : ClusterSpec or str, optional
        Its GPU types are requested and its iteration times turn durations into iterations; by
        default the readers' reference cluster, `arena-sim`, without a limit on counts.
    load : float, optional
        Offered load on the whole cluster (see `offer`). Alone it scales the span and keeps the
        durations; with `span_s` it scales the iterations of all jobs by one factor.
    gpu_types : tuple of str
        Types of the cluster to request, drawn in proportion to capacity among those a job fits;
        empty: no request, and durations are those on the cluster's most numerous type.
    max_gpus : int, optional
        GPU counts are drawn given that they are at most this: by default what the largest of the
        cluster's types has. Nothing is clipped.
    deadlines : DeadlineOptions, optional
    requests : str
        `source`: GPU counts by the source's shares; `arena`: by those of Arena's published Philly
        trace; `pretraining`: 64 to 1,024 GPUs, as many in all for each power of two. Durations stay
        those of the source's counts.
    min_duration_s, max_duration_s : float, optional
        Durations are drawn given that they lie within; nothing is clipped.
    start_hour : int
        Hour of the week at which the trace starts; 0 is Monday 00:00.
    power_of_two : bool
        Round GPU counts up to powers of two, keeping each job's GPU time, as the readers do.
    tenants : mapping of str to float, optional
        Virtual clusters with their shares of the jobs (relative), in place of the source's own.
    bursty : float
        Share of the virtual clusters whose jobs come in bursts (`arrivals.in_bursts`).

    Raises
    ------
    InputError
        If an argument is out of range, a name is unknown, or a job fits nowhere.
    """
    request = _Request(
        source_name=Path(source).stem if source.endswith((".yaml", ".yml")) else source,
        source=load_source(source),
        jobs=_whole("jobs", jobs, 1, MOST_JOBS),
        span_s=_from_to("span_s", _positive("span_s", span_s), 1e-3, math.inf),
        seed=_whole("seed", seed, 0, 2**63 - 1),
        rule=_named("rule", rule, RULES),
        cluster=_cluster(cluster),
        cluster_name=cluster.name if isinstance(cluster, ClusterSpec) else cluster,
        load=_load(load, cluster, jobs),
        gpu_types=gpu_types,
        max_gpus=None if max_gpus is None else _whole("max_gpus", max_gpus, 1, 1_000_000),
        deadlines=_slack(deadlines),
        requests=_named("requests", requests, REQUESTS),
        min_duration_s=_positive("min_duration_s", min_duration_s),
        max_duration_s=_positive("max_duration_s", max_duration_s),
        start_hour=_whole("start_hour", start_hour, 0, 167),
        power_of_two=power_of_two,
        tenants=_tenants(tenants),
        bursty=_from_to("bursty", float(bursty), 0.0, 1.0) or 0.0,
    )
    return _synthesise(request)


def _synthesise(request: _Request) -> Trace:
    for kind in request.gpu_types:
        _named("gpu_types", kind, request.cluster.gpu_types)
    if request.max_gpus is None and request.cluster_name is not None:
        request = replace(request, max_gpus=_most_gpus(request))
    gpus, duration_s = _requests_and_durations(request)
    reference = request.cluster.gpu_types[int(np.argmax(request.cluster.capacity))]
    times = times_on(request.cluster)
    drawn = _models(request, gpus, duration_s, times, reference)
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
    """Draw GPU counts and durations; durations always follow the source's own GPU counts."""
    rest = (request.jobs, request.seed, request.max_gpus, request.power_of_two)
    own = draw_gpus(request.source.gpus, *rest)
    limits = (request.min_duration_s, request.max_duration_s)
    duration_s = draw_durations(request.source.durations, own, request.seed, *limits)
    shares = REQUESTS[request.requests]
    if shares is None:
        return own, duration_s
    return draw_gpus(shares, *rest, stream=random_streams.JOB_REQUESTS), duration_s


def _models(
    request: _Request, gpus: Ints, duration_s: Floats, times: ReferenceTimes, reference: str
) -> Drawn:
    counts = rounded_up(gpus) if request.power_of_two else gpus
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


def _trace(request: _Request, drawn: Drawn, submit_s: Floats, gpus: Ints) -> Trace:
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
    costs = _request_costs(times, request.cluster, tuple(counts_for(draft.gpus, request.cluster)))
    if missing := sorted(set(draft.model_classes) - costs.times.keys()):
        costs.learn(times.oracle.tables(missing, request.cluster, costs.counts))
    gpu_s = costs.gpu_s(costs.of_jobs(draft))
    demand = (draft.iterations.astype(np.float64)[:, None] * gpu_s).sum(axis=1)
    room = float(request.cluster.capacity.sum()) * request.load
    if request.span_s is None:
        return _span(float(demand.sum()) / room), draft.iterations
    span_s = _span(request.span_s)
    return span_s, _scaled(draft.iterations, demand / draft.iterations, room * span_s, request.load)


@lru_cache(maxsize=16)
def _request_costs(times: ReferenceTimes, cluster: ClusterSpec, counts: tuple[int, ...]) -> RequestCosts:
    """Return what requests cost on the cluster of reference times; all traces of this process share it."""
    return RequestCosts(cluster, counts)


def _scaled(iterations: Ints, gpu_s: Floats, wanted_gpu_s: float, load: float) -> Ints:
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


def _provenance(request: _Request, drawn: Drawn, span_s: float) -> dict[str, Any]:
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


def oracle_fingerprint(cluster: ClusterSpec, rule: str) -> str:
    """Return a digest of the iteration times that generated traces of a cluster and rule depend on.

    It covers every model of the rule at every power of two that the largest GPU type has.
    """
    key = reference_key(cluster), rule
    if key not in _fingerprints:
        _fingerprints[key] = _oracle_fingerprint(cluster, rule)
    return _fingerprints[key]


_fingerprints: dict[tuple[str, str], str] = {}


def _oracle_fingerprint(cluster: ClusterSpec, rule: str) -> str:
    from clustergym.oracle.roofline.roofline_oracle import RooflineOracle

    counts, strata = [1 << n for n in range(int(cluster.capacity.max()).bit_length())], RULES[rule].strata
    tiers = [tier for stratum in strata for count in counts for tier in RULES[rule].tiers(stratum, count)]
    classes = sorted({model for tier in tiers for model, _ in tier})
    return RooflineOracle().tables(classes, cluster, counts).sha256


def _most_gpus(request: _Request) -> int:
    kinds = request.gpu_types or request.cluster.gpu_types
    return max(int(request.cluster.capacity[request.cluster.gpu_types.index(kind)]) for kind in kinds)


def _cluster(cluster: ClusterSpec | str | None) -> ClusterSpec:
    if isinstance(cluster, ClusterSpec):
        return cluster
    from clustergym.cluster.cluster_files import load_cluster

    return load_cluster(ReadOptions().reference_cluster if cluster is None else cluster)


def _whole(field: str, value: int, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{value!r} is not a whole number", field=field, remedy=f"give {low} to {high}")
    if not low <= value <= high:
        raise InputError(f"{value} is not from {low} to {high}", field=field, remedy=f"give {low} to {high}")
    return int(value)


def _positive(field: str, value: float | None) -> float | None:
    if value is None:
        return None
    if not math.isfinite(value) or value <= 0:
        raise InputError(f"{value} is not a number above 0", field=field, remedy="give a number above 0")
    return float(value)


def _from_to(field: str, value: float | None, low: float, high: float) -> float | None:
    if value is not None and not low <= value <= high:
        remedy = f"give {low:g} to {high:g}"
        raise InputError(f"{value} is not from {low:g} to {high:g}", field=field, remedy=remedy)
    return value


def _named(field: str, name: str, valid: Any) -> str:
    if name not in valid:
        raise InputError(f"unknown name {name!r}", field=field, remedy=nearest(str(name), valid))
    return name


def _load(load: float | None, cluster: ClusterSpec | str | None, jobs: int) -> float | None:
    checked = _from_to("load", _positive("load", load), 0.0, 1e3)
    if checked is None:
        return None
    if cluster is None:
        raise InputError("load is that of a cluster", field="load", remedy="name the cluster")
    if jobs < 2:
        raise InputError(
            "one job alone has no span to offer a load in", field="jobs", remedy="give 2 or more"
        )
    return checked


def _tenants(shares: Mapping[str, float] | None) -> Mapping[str, float] | None:
    if shares is not None and (not all(share >= 0 for share in shares.values()) or not any(shares.values())):
        raise InputError(
            "has no share above 0, or one below", field="tenants", remedy="give {TEAM: 2, OTHER: 1}"
        )
    return None if shares is None else dict(shares)


def _slack(deadlines: DeadlineOptions | None) -> DeadlineOptions | None:
    if deadlines is not None and not 0 < deadlines.slack_low <= deadlines.slack_high < math.inf:
        message = f"slack {deadlines.slack_low} to {deadlines.slack_high} is not a range above 0"
        raise InputError(message, field="deadlines", remedy="give 0 < low <= high")
    return deadlines
