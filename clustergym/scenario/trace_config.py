"""Read or generate the trace that the `trace` group of a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from clustergym.cluster.cluster_files import gpu_type_names, load_cluster
from clustergym.cluster.parts import DivisibleCluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.errors import InputError, nearest
from clustergym.common.parameter_types import Seed
from clustergym.common.parameters import Parameters, build
from clustergym.common.paths import traces_dir
from clustergym.trace.options import GeneratorOptions, LimitChoice, LogOptions, ReferenceTime
from clustergym.trace.trace import Trace
from clustergym.trace.trace_statistics import build_tables, offer

if TYPE_CHECKING:
    from clustergym.trace.draw import TablesOf
    from clustergym.trace.options import ReadOptions


TimesOn = Callable[[ClusterSpec], ReferenceTime]
"""Cluster -> the iteration times by which recorded durations are turned into iterations."""


@dataclass(frozen=True)
class TraceChoice(GeneratorOptions, LogOptions, Parameters):
    """The keys of the configuration's group `trace`, with options of generators and of logs.

    Attributes
    ----------
    path : str or None
        A trace file; wins over `committed` and `source`.
    format : str
        Format of the file; `auto`: detected.
    rule : str
        How model, batch and iterations are drawn for records that have only time,
        duration and GPUs, and of generated jobs: `arena` or `ares`.
    reference_cluster : str or None
        Cluster, by name or file, on which the recorded durations of a log hold: its GPU types are drawn and
        its iteration times turn seconds into iterations; null: the run's own cluster.
    counts : str
        `round`: GPU counts in a file of another format are rounded up to powers of two where the scenario
        allows no others. `keep`: the counts of the trace stay, and the scenario allows them too.
    committed : str or None
        A trace shipped with the project.
    source : str or None
        A generator, with the options of `GeneratorOptions`; `load` is offered load on the run's cluster.
        `llm-2026` is a workload of today's language models (`clustergym.trace.generators.llm`), which needs
        `oracle=stack`. `openb` asks for parts of GPUs and goes with a divisible cluster
        (`clustergym.trace.generators.parts`); on such a cluster `load` changes the times between the
        submissions of a file, too.
    any_type : bool
        Let jobs whose record names no GPU type run on any; otherwise the `arena` rule and
        the generators draw one of the cluster's.
    outcomes : str
        How jobs end (`clustergym.trace.outcomes`): `ignore`, each completes after the work it did in its
        log; `keep`, as the log says; or drawn by the shares of a cluster, `philly`, `helios`, `seren` or
        `kalos`.
    time_limits : str or pair of float
        Time limits of jobs (`clustergym.scenario.trace_config`): `ignore`; `keep`, those of the trace; or
        drawn between two factors of the run time.
    nodes : str
        `keep`: jobs of a log ask for as many nodes as they had there, where nodes of the cluster have as many
        GPUs; the placer must place so (`slurm`). `ignore`: for any.
    deadlines : bool
        Give each generated job a deadline, as in ElasticFlow's trace.
    seed : int or None
        Seed of the draw or the generator; null: the run's seed.
    """

    config_key: ClassVar[str] = "trace"
    path: str | None = None
    format: str = "auto"
    reference_cluster: str | None = None
    counts: Literal["round", "keep"] = "round"
    committed: str | None = None
    source: str | None = None
    outcomes: str = "ignore"
    time_limits: LimitChoice = "ignore"
    nodes: Literal["ignore", "keep"] = "ignore"
    any_type: bool = False
    deadlines: bool = False
    seed: Seed | None = None


def trace_choice(config: Mapping[str, Any]) -> TraceChoice:
    """Check the configuration's group `trace`, and return it as an object."""
    choice: TraceChoice = build(TraceChoice, config, "trace")
    return choice


def make_trace(
    config: Mapping[str, Any] | TraceChoice,
    seed: int,
    cluster: ClusterSpec,
    counts: str = "power_of_two",
    times_on: TimesOn | None = None,
    tables_of: TablesOf | None = None,
) -> Trace:
    """Read or generate the trace that the configuration's group `trace` describes.

    Parameters
    ----------
    config : mapping or TraceChoice
    seed : int
    cluster : ClusterSpec
    counts : str
        GPU counts in a file of another format are rounded up to powers of two unless this is `any` or
        `trace.counts` is `keep`.
    times_on : callable, optional
        Iteration times on a cluster, by which a log's durations are turned into iterations; by default the
        roofline oracle's.
    tables_of : callable, optional
        Iteration times by which limits and outcomes are drawn; by default the roofline oracle's.
    """
    choice = config if isinstance(config, TraceChoice) else trace_choice(config)
    seed = seed if choice.seed is None else choice.seed
    # First the jobs, then how they end, then their limits, which are drawn from the run time asked for.
    trace = _plain_trace(choice, seed, cluster, counts, times_on)
    if choice.outcomes != "ignore" or trace.outcome is not None:
        from clustergym.trace.drawn_outcomes import with_outcomes

        trace = with_outcomes(trace, choice.outcomes, cluster, seed, tables_of=tables_of)
    if choice.time_limits != "ignore" or trace.time_limit_s is not None:
        trace = with_time_limits(trace, choice.time_limits, cluster, seed, tables_of=tables_of)
    return trace


def _plain_trace(
    choice: TraceChoice, seed: int, cluster: ClusterSpec, counts: str, times_on: TimesOn | None
) -> Trace:
    """Read or generate the trace; it has outcomes where its file has."""
    if choice.path is not None:
        from clustergym.trace.formats import load_trace

        options = _read_options(choice, seed, cluster, counts, times_on)
        found = load_trace(choice.path, format=choice.format, options=options)
        if choice.load is None or not isinstance(cluster, DivisibleCluster):
            return found
        from clustergym.trace.generators.parts import at_load

        return at_load(found, int(cluster.capacity[0]), choice.load)
    if choice.committed is not None:
        return _read_committed(choice.committed)
    if choice.source is None:
        raise InputError(
            "names no trace", field="trace", remedy="give trace.path=FILE, trace.committed or trace.source"
        )
    from clustergym.trace.generators import DeadlineOptions, generate
    from clustergym.trace.generators.llm import LLM_SOURCE
    from clustergym.trace.generators.parts import PARTS_SOURCE

    if choice.source == PARTS_SOURCE:
        return _generate_parts(choice, seed, cluster)
    if choice.source == LLM_SOURCE:
        return _generate_llm(choice, seed, cluster, times_on)
    return generate(
        choice.source,
        seed=seed,
        cluster=cluster,
        gpu_types=() if choice.any_type else cluster.gpu_types,
        deadlines=DeadlineOptions() if choice.deadlines else None,
        **{option.name: getattr(choice, option.name) for option in fields(GeneratorOptions)},
    )


def _generate_parts(choice: TraceChoice, seed: int, cluster: ClusterSpec) -> Trace:
    from clustergym.trace.generators.parts import PartWorkload, generate_parts

    own = ("load", "min_duration_s", "max_duration_s")
    given = {name: float(value) for name in own if (value := getattr(choice, name)) is not None}
    return generate_parts(PartWorkload(choice.jobs, seed, int(cluster.capacity.sum()), **given))


def _generate_llm(choice: TraceChoice, seed: int, cluster: ClusterSpec, times_on: TimesOn | None) -> Trace:
    if times_on is None:
        message, remedy = "needs the times of the run's oracle", "choose scenario=llm-2026"
        raise InputError(message, field="trace.source", remedy=remedy)
    from clustergym.trace.generators.llm import LlmWorkload, generate_llm

    own = {"span_s": choice.span_s, "load": choice.load, "max_duration_s": choice.max_duration_s}
    given = {name: float(value) for name, value in own.items() if value is not None}
    return generate_llm(LlmWorkload(choice.jobs, seed, **given), cluster, times_on(cluster))


def _read_options(
    choice: TraceChoice, seed: int, cluster: ClusterSpec, counts: str, times_on: TimesOn | None
) -> ReadOptions:
    """Return the options for reading a trace of another format for a cluster."""
    from clustergym.trace.records import make_options

    # A log's seconds hold where it was recorded: types are drawn, and seconds turned into iterations, there.
    reference = cluster if choice.reference_cluster is None else _reference(choice.reference_cluster)
    node_gpus = dict(zip(reference.gpu_types, reference.gpus_per_node.tolist(), strict=True))
    return make_options(
        reference,
        None if times_on is None else times_on(reference),
        rule=choice.rule,
        any_type=choice.any_type,
        type_name=gpu_type_names(cluster, reference),
        seed=seed,
        power_of_two=counts == "power_of_two" and choice.counts == "round",
        outcomes=choice.outcomes,
        node_gpus=node_gpus if choice.nodes == "keep" else None,
        **{option.name: getattr(choice, option.name) for option in fields(LogOptions)},
    )


def _reference(name: str) -> ClusterSpec:
    try:
        return load_cluster(name)
    except InputError as error:
        if error.file is not None:
            raise
        raise InputError(error.message, field="trace.reference_cluster", remedy=error.remedy) from error


def _read_committed(name: str) -> Trace:
    from clustergym.trace.native import read_trace

    path = traces_dir() / f"{name}.csv"
    if not path.is_file():
        names = [found.stem for found in traces_dir().glob("*.csv")]
        raise InputError(f"no committed trace {name!r}", field="trace.committed", remedy=nearest(name, names))
    return read_trace(path)


def with_time_limits(
    trace: Trace,
    choice: LimitChoice,
    cluster: ClusterSpec,
    seed: int,
    field: str = "trace.time_limits",
    tables_of: TablesOf | None = None,
) -> Trace:
    """Return the trace with time limits by a rule: none, its own, or random multiples of jobs' run times.

    The f-model of Mu'alem and Feitelson (TPDS 2001): users ask for more time than their jobs take, evenly
    between the run time and f + 1 times it. A lower factor below 1 makes limits that some jobs exceed.

    `cluster` is where run times are measured, by the tables of `tables_of` (`build_tables`). A job's run time
    is that of all the work it asks for, at its request. A job whose run time is not known has no limit.
    """
    if choice == "ignore":
        return replace(trace, time_limit_s=None)
    if choice == "keep":
        if trace.time_limit_s is None or np.isnan(trace.time_limit_s).all():
            remedy = f"give the column time_limit_s, or draw limits by {field}=[1,5]"
            raise InputError("says no job's time limit", file=trace.path or None, field=field, remedy=remedy)
        return trace
    low, high = (float(factor) for factor in choice)
    # As asked: a user sets a limit without knowing that the job will fail or be killed.
    run_s = offer(trace.as_asked(), cluster, build_tables(trace, cluster, tables_of)).duration_s
    factor = low + (high - low) * random_streams.TIME_LIMITS.generator(seed).random(len(trace))
    drawn = {"time_limits": {"factors": [low, high], "seed": seed}}
    return replace(trace, time_limit_s=run_s * factor, provenance={**trace.provenance, **drawn})
