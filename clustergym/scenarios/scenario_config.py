"""Build a Scenario from a composed configuration (plain mappings)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from clustergym.arrays import Floats
from clustergym.cluster.cluster_files import cluster_from_config, load_cluster
from clustergym.cluster.divisible import DivisibleCluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.inputs.errors import InputError, nearest, require
from clustergym.inputs.parameter_types import Duration, Period, Seed
from clustergym.inputs.parameters import Parameters, build, checked
from clustergym.inputs.paths import traces_dir
from clustergym.models.catalog import Catalog
from clustergym.models.model_class import ModelClass
from clustergym.models.model_spec import ModelSpec
from clustergym.oracle.base import Oracle, OracleTables
from clustergym.oracle.oracle_config import oracle_from_config
from clustergym.oracle.traffic import on_free_links, require_fabric
from clustergym.scenarios.costs import Costs
from clustergym.scenarios.disturbances import KINDS
from clustergym.scenarios.pairs import Interference, PairSpeeds
from clustergym.scenarios.parts import whole_gpus_alone, with_parts
from clustergym.scenarios.scenario import Scenario, allowed_counts, model_classes
from clustergym.workload.generators.parts import PARTS_SOURCE, PartWorkload, at_load, generate_parts
from clustergym.workload.options import LimitChoice
from clustergym.workload.pair_tables import PairTable, read_pair_table
from clustergym.workload.trace import Trace

if TYPE_CHECKING:
    from clustergym.tenants.assigned import Tenants
    from clustergym.workload.options import ReadOptions


@dataclass(frozen=True)
class Rules(Parameters):
    """The `scenario` group of the configuration, without the keys of disturbances.

    Attributes
    ----------
    name, version : str, int
        Name and version of the scenario.
    rounds : str or float
        `policy`, `event`, or seconds.
    counts : str
        `power_of_two` or `any`.
    oversize : str
        `error` or `drop`: a request for more GPUs than the cluster has.
    other_types : str
        `error` or `any`: a request for a GPU type that the cluster does not have.
    queues : str or None
        Queues of tenants: a YAML file, or a column of the trace (`clustergym.tenants.assigned`).
    contention : bool
        Whether jobs share the links between switches (`clustergym.sim.links`).
    pairs : str or None
        Table of pairs of jobs that share GPUs (`clustergym.workload.pair_tables`); null: none share.
    interference : str
        `refuse`, `free` or `estimate`: what becomes of a pair that the table lacks.
    """

    config_key: ClassVar[str] = "scenario"
    name: str
    version: int = 0
    rounds: Literal["policy", "event"] | Period = "policy"
    counts: Literal["power_of_two", "any"] = "power_of_two"
    oversize: Literal["error", "drop"] = "error"
    other_types: Literal["error", "any"] = "error"
    queues: str | None = None
    contention: bool = False
    pairs: str | None = None
    interference: Interference = "refuse"


@dataclass(frozen=True, eq=False)
class Conditions:
    """The conditions of scenarios: a composed configuration without its trace and seed.

    Scenarios of many traces share what was computed of the cluster and of the model classes.

    Attributes
    ----------
    rules : Rules
    costs : Costs
    horizon_s : float or None
    cluster : ClusterSpec
    oracle : Oracle
    disturbances : mapping
        Keys of each kind of disturbance, by the kind's key.
    pairs : PairTable or None
        Speeds of pairs of jobs that share GPUs.
    """

    rules: Rules
    costs: Costs
    horizon_s: float | None
    cluster: ClusterSpec
    oracle: Oracle
    disturbances: Mapping[str, Any]
    pairs: PairTable | None = None
    _checkpoint_s: dict[ModelClass, float] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Conditions:
        """Return the conditions of a configuration; see `build_scenario`."""
        given = config["scenario"]
        rules: Rules = build(Rules, given, "scenario", beside=KINDS)
        costs: Costs = build(Costs, config["costs"], "costs")
        horizon_s = checked(config.get("horizon_s"), Duration | None, "horizon_s")
        cluster = make_cluster(config["cluster"])
        most = int(cluster.capacity.min())
        for name, price in costs.profile.items():
            remedy = f"cluster {cluster.name} has no more than {most} GPUs of one type"
            require(price.gpus <= most, f"costs.profile.{name}.gpus", price.gpus, remedy)
        disturbances = {key: given.get(key, {}) for key in KINDS}
        if isinstance(cluster, DivisibleCluster):
            _check_divisible(rules, costs, disturbances)
        if rules.pairs is None and rules.interference != Rules.interference:
            message, remedy = "is given, but no table of pairs", "give scenario.pairs=FILE, or leave it out"
            raise InputError(message, field="scenario.interference", remedy=remedy)
        pairs = None if rules.pairs is None else read_pair_table(Path(rules.pairs))
        return cls(
            rules, costs, horizon_s, cluster, oracle_from_config(config["oracle"]), disturbances, pairs
        )

    def scenario(self, chosen: Mapping[str, Any] | TraceChoice, seed: Any) -> Scenario:
        """Build the scenario of a trace.

        Parameters
        ----------
        chosen : mapping or TraceChoice
            The `trace` group of the configuration.
        seed : int

        Raises
        ------
        InputError
            If the trace or the seed is not valid, or the trace does not go with the conditions.
        """
        cluster, rules = self.cluster, self.rules
        seed = checked(seed, Seed, "seed")
        trace, parts = make_trace(chosen, seed, cluster, rules.counts), None
        if isinstance(cluster, DivisibleCluster):
            if self.pairs is not None:
                message, remedy = "are of whole GPUs, and these can be divided", "give scenario.pairs=null"
                raise InputError(message, field="scenario.pairs", remedy=remedy)
            trace, parts = with_parts(trace, cluster, rules.other_types)
        else:
            whole_gpus_alone(trace, cluster)
            trace = _with_cluster_types(trace, cluster, rules)
        classes = model_classes(trace)
        checkpoint_s = np.array([self._checkpoint(model, trace) for model in classes])
        tables, communication_s = _tables(self.oracle, classes, cluster, rules)
        pairs = None
        if self.pairs is not None:
            pairs = PairSpeeds.of(self.pairs, classes, cluster, tables.counts, rules.interference)
        asked = (
            kind.from_config(self.disturbances[key], cluster, trace, seed) for key, kind in KINDS.items()
        )
        return Scenario(
            name=rules.name,
            version=rules.version,
            cluster=cluster,
            trace=trace,
            tables=tables,
            checkpoint_s=checkpoint_s,
            costs=self.costs,
            rounds=rules.rounds,
            horizon_s=self.horizon_s,
            counts_rule=rules.counts,
            oversize=rules.oversize,
            communication_s=communication_s,
            disturbances=tuple(disturbance for disturbance in asked if disturbance is not None),
            parts=parts,
            tenants=_tenants(rules, trace, cluster),
            pairs=pairs,
        )

    def _checkpoint(self, model: ModelClass, trace: Trace) -> float:
        """Return the seconds to save and load the checkpoint of a model class of a trace."""
        if not self.oracle.knows_models:
            return 0.0
        if model not in self._checkpoint_s:
            spec = _known(model, self.oracle.catalog, trace)
            self._checkpoint_s[model] = self.costs.checkpoint_s(
                model.model, model.family, spec.parameters, spec.dtype, spec.relaunch_s
            )
        return self._checkpoint_s[model]


def _check_divisible(rules: Rules, costs: Costs, disturbances: Mapping[str, Any]) -> None:
    """Raise an `InputError` for conditions under which GPUs cannot be divided."""
    whole = "jobs on a divisible cluster have what they ask for: give"
    require(rules.counts == "any", "scenario.counts", rules.counts, f"{whole} any")
    require(not costs.profile, "costs.profile", "a price", f"{whole} costs=free or another without profiles")
    planned = (disturbances.get("reservations") or {}).get("path")
    require(rules.queues is None, "scenario.queues", rules.queues, "queues hold whole GPUs: give null")
    require(planned is None, "scenario.reservations.path", planned, f"{whole} null")


def build_scenario(config: Mapping[str, Any]) -> Scenario:
    """Build the scenario of a composed configuration.

    Parameters
    ----------
    config : mapping
        Groups `cluster`, `trace`, `oracle`, `costs`, `scenario`, and `seed`, `horizon_s`.

    Raises
    ------
    InputError
        If anything in the configuration, or in a file it names, is not valid.
    """
    return Conditions.of(config).scenario(config["trace"], config["seed"])


def _tables(
    oracle: Oracle, classes: tuple[ModelClass, ...], cluster: ClusterSpec, rules: Rules
) -> tuple[OracleTables, Floats | None]:
    """Build the oracle's tables and, with contention, the seconds of traffic in them.

    Tables that take long to build are cached on disk.
    """
    counts = allowed_counts(cluster, rules.counts)

    def tables_of(cluster: ClusterSpec) -> OracleTables:
        if not oracle.worth_caching:
            return oracle.tables(classes, cluster, counts)
        from clustergym.oracle.table_cache import cached_tables

        return cached_tables(oracle, classes, cluster, counts, progress=True)

    if not rules.contention:
        return tables_of(cluster), None
    require_fabric(oracle)
    return on_free_links(tables_of, cluster)


def make_cluster(config: Mapping[str, Any]) -> ClusterSpec:
    """Build the cluster of the `cluster` group; a file in `path` replaces the group's other keys."""
    require(isinstance(config, Mapping), "cluster", config, "give its keys")
    path = config.get("path")
    if path is not None:
        return load_cluster(str(Path(str(path)).absolute()))
    return cluster_from_config({key: value for key, value in config.items() if key != "path"})


@dataclass(frozen=True)
class TraceChoice(Parameters):
    """The `trace` group of the configuration.

    Attributes
    ----------
    path : str or None
        A trace file; wins over `committed` and `source`.
    format : str
        Format of the file; `auto`: detected.
    rule : str
        How model, batch and iterations are drawn for records that have only time,
        duration and GPUs: `arena` or `ares`.
    committed : str or None
        A trace shipped with the project.
    source : str or None
        A generator, with the fields below; `load` is offered load on the run's cluster. `openb` asks for
        parts of GPUs and goes with a divisible cluster (`clustergym.workload.generators.parts`); on such a
        cluster `load` changes the times between the submissions of a file, too.
    any_type : bool
        Let jobs whose record names no GPU type run on any; otherwise the `arena` rule and
        the generators draw one of the cluster's.
    gavel_steps : str
        Whether the steps of a Gavel trace are the whole `job`'s or each `worker`'s.
    sia_profiles : str or None
        Sia's profiles folder, from which its jobs get their iterations.
    sia_lengths : str
        `validated` or `noise`, as in `ReadOptions`.
    outcomes : str
        How jobs end (`clustergym.workload.outcomes`): `ignore`, each completes after the work it did in its
        log; `keep`, as the log says; or drawn by the shares of a cluster, `philly`, `helios`, `seren` or
        `kalos`.
    time_limits : str or pair of float
        Time limits of jobs (`clustergym.workload.time_limits`): `ignore`; `keep`, those of the trace; or
        drawn between two factors of the run time.
    keep_shares : bool
        Keep the parts of GPUs that PAI's jobs ask for.
    jobs, span_s, load, deadlines, requests, max_gpus, min_duration_s, max_duration_s, start_hour, tenants,
    bursty
        Parameters of the generator, `clustergym.workload.generators.generate`.
    seed : int or None
        Seed of the draw or the generator; null: the run's seed.
    """

    config_key: ClassVar[str] = "trace"
    path: str | None = None
    format: str = "auto"
    rule: Literal["arena", "ares"] = "arena"
    committed: str | None = None
    source: str | None = None
    outcomes: str = "ignore"
    time_limits: LimitChoice = "ignore"
    jobs: int = 200
    span_s: float | None = None
    load: float | None = None
    any_type: bool = False
    gavel_steps: str = "job"
    sia_profiles: str | None = None
    sia_lengths: Literal["validated", "noise"] = "validated"
    keep_shares: bool = False
    deadlines: bool = False
    requests: str = "source"
    max_gpus: int | None = None
    min_duration_s: float | None = None
    max_duration_s: float | None = None
    start_hour: int = 0
    tenants: Mapping[str, float] | None = None
    bursty: float = 0.0
    seed: Seed | None = None


def trace_choice(config: Mapping[str, Any]) -> TraceChoice:
    """Return the checked `trace` group of a configuration."""
    choice: TraceChoice = build(TraceChoice, config, "trace")
    return choice


def make_trace(
    config: Mapping[str, Any] | TraceChoice, seed: int, cluster: ClusterSpec, counts: str = "power_of_two"
) -> Trace:
    """Read or generate the trace of the `trace` group.

    GPU counts in a file of another format are rounded up to powers of two unless `counts` is `any`.
    """
    choice = config if isinstance(config, TraceChoice) else trace_choice(config)
    seed = seed if choice.seed is None else choice.seed
    trace = _plain_trace(choice, seed, cluster, counts)
    if choice.outcomes != "ignore" or trace.outcome is not None:
        from clustergym.workload.drawn_outcomes import with_outcomes

        trace = with_outcomes(trace, choice.outcomes, cluster, seed)
    if choice.time_limits != "ignore" or trace.time_limit_s is not None:
        from clustergym.workload.time_limits import with_time_limits

        trace = with_time_limits(trace, choice.time_limits, cluster, seed)
    return trace


def _plain_trace(choice: TraceChoice, seed: int, cluster: ClusterSpec, counts: str) -> Trace:
    """Read or generate the trace; it has outcomes where its file has."""
    if choice.path is not None:
        from clustergym.workload.formats import load_trace

        found = load_trace(
            choice.path, format=choice.format, options=_read_options(choice, seed, cluster, counts)
        )
        if choice.load is None or not isinstance(cluster, DivisibleCluster):
            return found
        return at_load(found, int(cluster.capacity[0]), choice.load)
    if choice.committed is not None:
        return _committed(choice.committed)
    if choice.source is None:
        raise InputError(
            "names no trace", field="trace", remedy="give trace.path=FILE, trace.committed or trace.source"
        )
    from clustergym.workload.generators import DeadlineOptions, generate

    if choice.source == PARTS_SOURCE:
        return _generated_parts(choice, seed, cluster)
    return generate(
        choice.source,
        jobs=choice.jobs,
        span_s=choice.span_s,
        seed=seed,
        rule=choice.rule,
        cluster=cluster,
        load=choice.load,
        gpu_types=() if choice.any_type else cluster.gpu_types,
        deadlines=DeadlineOptions() if choice.deadlines else None,
        requests=choice.requests,
        max_gpus=choice.max_gpus,
        min_duration_s=choice.min_duration_s,
        max_duration_s=choice.max_duration_s,
        start_hour=choice.start_hour,
        tenants=choice.tenants,
        bursty=choice.bursty,
    )


def _generated_parts(choice: TraceChoice, seed: int, cluster: ClusterSpec) -> Trace:
    own = ("load", "min_duration_s", "max_duration_s")
    given = {name: float(value) for name in own if (value := getattr(choice, name)) is not None}
    return generate_parts(PartWorkload(choice.jobs, seed, int(cluster.capacity.sum()), **given))


def _read_options(choice: TraceChoice, seed: int, cluster: ClusterSpec, counts: str) -> ReadOptions:
    """Return the options for reading a trace of another format for a cluster."""
    from clustergym.workload.options import ReadOptions, types_to_draw

    return ReadOptions(
        seed=seed,
        rule=choice.rule,
        power_of_two=counts == "power_of_two",
        gpu_types=types_to_draw(choice.rule, choice.any_type, cluster.gpu_types),
        gavel_steps=choice.gavel_steps,
        sia_profiles=choice.sia_profiles,
        sia_lengths=choice.sia_lengths,
        outcomes=choice.outcomes,
        keep_shares=choice.keep_shares,
    )


def _committed(name: str) -> Trace:
    from clustergym.workload.native import read_trace

    path = traces_dir() / f"{name}.csv"
    if not path.is_file():
        names = [found.stem for found in traces_dir().glob("*.csv")]
        raise InputError(f"no committed trace {name!r}", field="trace.committed", remedy=nearest(name, names))
    return read_trace(path)


def _with_cluster_types(trace: Trace, cluster: ClusterSpec, rules: Rules) -> Trace:
    """Check that the cluster has the requested GPU types, or let such jobs request any type."""
    missing = set(trace.gpu_type) - set(cluster.gpu_types) - {""}
    if not missing:
        return trace
    if rules.other_types == "any":
        kept = tuple(name if name in cluster.gpu_types else "" for name in trace.gpu_type)
        return replace(trace, gpu_type=kept)
    row = next(row for row, name in enumerate(trace.gpu_type) if name in missing)
    raise InputError(
        f"job {trace.job_id[row]} asks for {trace.gpu_type[row]}, which cluster {cluster.name} does not "
        f"have (it has {', '.join(cluster.gpu_types)})",
        file=trace.path or None,
        line=int(trace.line[row]) or None,
        field="gpu_type",
        remedy="name another cluster, or let such jobs run on any type with scenario.other_types=any",
    )


def _tenants(rules: Rules, trace: Trace, cluster: ClusterSpec) -> Tenants | None:
    if rules.queues is None:
        return None
    from clustergym.tenants.assigned import Tenants

    tenants = Tenants.of(rules.queues, trace, cluster.gpu_types)
    tenants.tree.check_capacity(cluster.gpu_types, cluster.capacity.tolist())
    return tenants


def _known(model: ModelClass, catalog: Catalog, trace: Trace) -> ModelSpec:
    """Return the specification of a model; raise an `InputError` for its first job if there is none."""
    try:
        return catalog.get(model)
    except InputError as error:
        row = trace.model_classes.index(model)
        raise InputError(
            error.message,
            file=trace.path or None,
            line=int(trace.line[row]) or None,
            field="model_family",
            remedy=error.remedy,
        ) from error
