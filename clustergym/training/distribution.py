"""Draws training scenarios: jobs of a trace, a cluster, a load, speedup curves, restart costs and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from annotated_types import MinLen

from clustergym.cluster.spec import ClusterSpec, Fabric, GpuType, NodeGroup
from clustergym.common import random_streams
from clustergym.common.arrays import Floats, Ints
from clustergym.common.columns import round_up_counts
from clustergym.common.errors import InputError, nearest, require, require_known
from clustergym.common.parameter_types import (
    IN_ORDER,
    IN_ORDER_OR_NONE,
    AtLeastTwo,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    PositiveRange,
)
from clustergym.common.parameters import Parameters
from clustergym.envs.episodes import SPLITS
from clustergym.scenario.costs import Costs, Search
from clustergym.scenario.scenario import Scenario, list_allowed_counts
from clustergym.trace.trace import Trace
from clustergym.training.windows import SOURCES, Window, WindowFiles, draw_window, job_tables, trace_window

RESTART_S = (20.0, 60.0)
"""Seconds to save and load a checkpoint, before the factor."""
GPUS_PER_NODE = 8


@dataclass(frozen=True)
class Distribution(Parameters):
    """A distribution of training scenarios: ranges from which load, cluster, jobs and costs are sampled.

    Attributes
    ----------
    origin : str
        Of the windows: real, synthetic, mixed, or files, those of `traces`.
    generators : tuple of str
        Of conf/generator: those of synthetic windows, one of which is drawn.
    jobs : pair of int
    gpus : int or tuple of int
        GPUs of the cluster, shared out evenly over its types; of several one is drawn.
    types : tuple of int
        Numbers of GPU types, one of which is drawn.
    load : tuple of float
        Offered GPU time at the request over capacity x span, GPUs counted by their types' mean speed.
    restart_factor : pair of float
    size_error : pair of float
        Standard deviation of the log of known over real iteration times.
    traces : mapping, tuple of mappings, or None
        Of `origin=files`: trace files on a scenario of their own, as
        `clustergym.training.windows.WindowFiles.from_given` takes them; of several such sources one is drawn
        for each window. `gpus` and `types` are then of no use.
    search : str
        For a plan on an allotment that a job has not had before (`clustergym.scenario.costs.Costs`).
    max_duration_s : float or None
        Longer jobs are cut to it; before the load is set.
    deadline_slack : pair of float, or nothing
        Time from submission to deadline over the run time at the request on the first type; nothing: no
        deadlines.
    """

    config_key: ClassVar[str] = "scenarios"
    origin: str = "mixed"
    generators: Annotated[tuple[str, ...], MinLen(1)] = SOURCES
    jobs: Annotated[tuple[AtLeastTwo, ...], IN_ORDER] = (200, 400)
    gpus: PositiveInt | Annotated[tuple[PositiveInt, ...], MinLen(1)] = 64
    types: Annotated[tuple[PositiveInt, ...], MinLen(1)] = (2, 3)
    load: PositiveRange = (0.6, 1.4)
    restart_factor: PositiveRange = (0.25, 4.0)
    size_error: Annotated[tuple[NonNegativeFloat, ...], IN_ORDER] = (0.0, 1.0)
    traces: Mapping[str, Any] | tuple[Mapping[str, Any], ...] | None = None
    search: Search = "proxy"
    max_duration_s: PositiveFloat | None = None
    deadline_slack: Annotated[tuple[PositiveFloat, ...], IN_ORDER_OR_NONE] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for count in self.types:
            require(count <= min(self.sizes), "scenarios.types", count, "give 1 to the number of GPUs")
        for name in self.generators:
            require(name in SOURCES, "scenarios.generators", name, nearest(name, SOURCES))
        if (self.origin == "files") != (self.traces is not None):
            remedy = "give both scenarios.origin=files and scenarios.traces, or neither"
            raise InputError("goes with origin=files alone", field="scenarios.traces", remedy=remedy)
        for one in self.sources:
            WindowFiles.from_given(one, least=1)

    @property
    def sources(self) -> tuple[Mapping[str, Any], ...]:
        """The sources of trace files; none but with `origin=files`."""
        if self.traces is None:
            return ()
        return (self.traces,) if isinstance(self.traces, Mapping) else self.traces

    @property
    def sizes(self) -> tuple[int, ...]:
        """The possible sizes of the cluster in GPUs; each episode samples one."""
        return (self.gpus,) if isinstance(self.gpus, int) else self.gpus

    def draw(self, split: str, seed: int, index: int) -> Scenario:
        """Sample scenario number `index` of a split; equal arguments give equal scenarios."""
        return draw_scenario(self, split, seed, index)

    def draw_factors(self, rng: np.random.Generator) -> tuple[float, float, float]:
        """Sample a load, a factor on restart costs, and how far known times are off (deviation of logs)."""
        load = float(rng.uniform(self.load[0], self.load[1]))
        restart = float(np.exp(rng.uniform(*np.log(self.restart_factor))))
        return load, restart, float(rng.uniform(self.size_error[0], self.size_error[1]))


def draw_scenario(distribution: Distribution, split: str, seed: int, index: int) -> Scenario:
    """Sample scenario number `index` of a split; equal arguments give equal scenarios in any process."""
    require_known(split, SPLITS, "split", "split")
    rng = random_streams.TRAINING_WINDOWS.generator(seed, SPLITS.index(split), index)
    if distribution.sources:
        return trace_window(rng, split, distribution.sources, distribution.jobs, distribution.draw_factors)
    jobs = int(rng.integers(distribution.jobs[0], distribution.jobs[1] + 1))
    window = draw_window(rng, split, distribution.origin, jobs, distribution.generators)
    if distribution.max_duration_s is not None:
        window = replace(window, duration_s=np.minimum(window.duration_s, distribution.max_duration_s))
    factors = distribution.draw_factors(rng)
    types = int(rng.choice(np.array(distribution.types)))
    gpus = (
        int(rng.choice(np.array(distribution.sizes)))
        if len(distribution.sizes) > 1
        else distribution.sizes[0]
    )
    cluster, costs = _cluster(gpus, types), Costs(search=distribution.search, profile={})
    drawn = _scenario(rng, window, cluster, costs, *factors)
    return _with_deadlines(rng, drawn, distribution.deadline_slack) if distribution.deadline_slack else drawn


def _with_deadlines(rng: np.random.Generator, scenario: Scenario, slack: tuple[float, ...]) -> Scenario:
    """Give every job a random deadline, sampled last, so that all else stays the same."""
    trace = scenario.trace
    run_s = scenario.reference_iteration_time_s * trace.iterations
    ahead_s = np.maximum(np.round(rng.uniform(slack[0], slack[1], size=len(trace)) * run_s, 3), 0.001)
    return replace(scenario, trace=replace(trace, deadline_s=trace.submit_s + ahead_s))


def _cluster(gpus: int, types: int) -> ClusterSpec:
    """Return a cluster with a number of GPU types, in nodes of up to eight GPUs."""
    groups = []
    for t, share in enumerate(_shares(gpus, types)):
        per_node = min(GPUS_PER_NODE, share & -share)
        gpu_type = GpuType(f"type{t}", 100.0, 20.0, None, 40.0, 900.0, "pcie4", 32.0, 100.0)
        groups.append(NodeGroup(gpu_type, share // per_node, per_node))
    return ClusterSpec(f"{gpus}-gpus-{types}-types", tuple(groups), Fabric())


def _shares(gpus: int, types: int) -> Sequence[int]:
    """Divide GPUs among types, in whole nodes where that is possible."""
    unit = GPUS_PER_NODE if gpus >= GPUS_PER_NODE * types else 1
    units = gpus // unit
    shares = [(units // types + (t < units % types)) * unit for t in range(types)]
    shares[0] += gpus - sum(shares)
    return shares


def _scenario(
    rng: np.random.Generator,
    window: Window,
    cluster: ClusterSpec,
    costs: Costs,
    load: float,
    restart: float,
    error: float,
) -> Scenario:
    n, counts = len(window.gpus), np.array(list_allowed_counts(cluster, "power_of_two"), dtype=np.int64)
    # So that every job can run on any type at its request.
    fitting = counts[counts <= cluster.capacity.min()]
    gpus = np.minimum(round_up_counts(window.gpus), fitting[-1])
    iterations = np.maximum(1, np.rint(window.duration_s)).astype(np.int64)
    at_request_s = window.duration_s / iterations
    times = iteration_times(rng, gpus, at_request_s, len(cluster.groups), counts, cluster.capacity)
    # One error for all allotments of a job: its size is misjudged, its speedup is not.
    known = times * np.exp(error * rng.normal(size=n))[:, None, None]
    checkpoint_s = rng.uniform(*RESTART_S, size=n) * restart
    # GPUs, each weighted by jobs' mean speed on its type relative to the first type.
    at_request = np.take_along_axis(times, np.searchsorted(counts, gpus)[:, None, None], axis=2)[..., 0]
    fast_gpus = float((cluster.capacity * (at_request[:, :1] / at_request).mean(axis=0)).sum())
    span_s = float((window.duration_s * gpus).sum()) / (load * fast_gpus)
    # load = GPU-seconds at the request / (GPUs, weighted by speed, x span).
    stretch = span_s / max(float(window.submit_s[-1]), 1e-9)
    names = {
        "job_id": tuple(f"j{row}" for row in range(n)),
        "model_family": tuple(f"m{row:05d}" for row in range(n)),
    }
    trace = Trace.from_columns(window.name, np.round(window.submit_s * stretch, 3), iterations, gpus, **names)
    tables, order = job_tables(trace, cluster, counts, times, known)
    return Scenario(window.name, 0, cluster, trace, tables, checkpoint_s[order], costs, rounds="event")


SPEED_SPREAD = 0.25
"""Standard deviation of a job's log speed on a type about the type's own."""
LIMITS = (0.8, 0.4)
"""Shares of the jobs that run from one GPU on, and that may shrink to half or less of their request."""


def speedups(rng: np.random.Generator, jobs: int, counts: Ints) -> Floats:
    """Sample a speedup curve for each job: throughput over that on one GPU, shape (jobs, K counts).

    A third of the jobs each follows a power law (exponent 0.5 to 1), Amdahl's law (serial part 10^-3 to
    10^-0.5), and compute plus communication that grows with the count and can win, so that more GPUs
    can be slower.
    """
    g = counts[None, :].astype(np.float64)
    law = rng.integers(3, size=jobs)[:, None]
    power = g ** rng.uniform(0.5, 1.0, size=(jobs, 1))
    serial = 10 ** rng.uniform(-3.0, -0.5, size=(jobs, 1))
    amdahl = 1.0 / (serial + (1.0 - serial) / g)
    talk = 10 ** rng.uniform(-3.0, -0.7, size=(jobs, 1)) * (g > 1)
    growth = rng.uniform(0.0, 0.6, size=(jobs, 1))
    communication = 1.0 / (1.0 / g + talk * g**growth)
    chosen: Floats = np.choose(law, [power, amdahl, communication])
    return chosen


def least_counts(rng: np.random.Generator, gpus: Ints) -> Ints:
    """Sample the fewest GPUs that each job fits on, at most its request, shape (n,)."""
    chance = rng.random(len(gpus))
    halved = np.maximum(gpus // 2 ** rng.integers(0, 3, size=len(gpus)), 1)
    return np.where(chance < LIMITS[0], 1, halved).astype(np.int64)


def iteration_times(
    rng: np.random.Generator, gpus: Ints, at_request_s: Floats, types: int, counts: Ints, capacity: Ints
) -> Floats:
    """Sample seconds per iteration by job, GPU type and count, shape (n, T, K); inf where a job cannot fit.

    Parameters
    ----------
    rng : Generator
    gpus : ndarray of int, shape (n,)
        Requested GPUs.
    at_request_s : ndarray of float, shape (n,)
        Seconds per iteration at the request on the fastest type.
    types : int
        The first is the fastest; each next one is 1.2 to 2.5 times slower on average.
    counts, capacity : ndarray of int, shape (K,) and (T,)
    """
    n = len(gpus)
    slower = np.concatenate([[1.0], np.cumprod(rng.uniform(1.2, 2.5, size=types - 1))])
    factor = slower * np.exp(rng.normal(0.0, SPEED_SPREAD, size=(n, types)) * (np.arange(types) > 0))
    curve = speedups(rng, n, counts)
    at_request = np.take_along_axis(curve, np.searchsorted(counts, gpus)[:, None], axis=1)
    seconds = at_request_s[:, None, None] * factor[:, :, None] * (at_request / curve)[:, None, :]
    fits = counts >= least_counts(rng, gpus)[:, None]
    # A count above a type's GPUs can never be had there, whatever fits in memory.
    room = counts <= capacity[:, None]
    times: Floats = np.where(fits[:, None, :] & room[None], seconds, np.inf)
    return times
