"""Build a Scenario from a composed configuration (plain mappings)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from clustergym.cluster.cluster_files import cluster_from_config, load_cluster
from clustergym.cluster.parts import DivisibleCluster
from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.arrays import Floats
from clustergym.common.errors import InputError, require
from clustergym.common.parameter_types import (
    Delay,
    Duration,
    FractionBelowOne,
    Period,
    PositiveInt,
    Seed,
    Window,
)
from clustergym.common.parameters import Parameters, build, check_value
from clustergym.oracle.base import Oracle, OracleTables
from clustergym.oracle.models.catalog import Catalog
from clustergym.oracle.models.model_spec import ModelClass, ModelSpec
from clustergym.oracle.oracle_config import on_free_links, oracle_from_config, require_fabric
from clustergym.scenario.costs import Costs
from clustergym.scenario.disturbances import DISTURBANCES
from clustergym.scenario.gpu_requests import whole_gpus_alone, with_parts
from clustergym.scenario.pairs import Interference, PairSpeeds
from clustergym.scenario.scenario import Scenario, list_allowed_counts, model_classes
from clustergym.scenario.trace_config import TraceChoice, make_trace, trace_choice
from clustergym.trace.options import ReferenceTime
from clustergym.trace.pair_tables import PairTable, read_pair_table
from clustergym.trace.trace import Trace

if TYPE_CHECKING:
    from clustergym.scenario.tenants.queue_tree import Tenants


@dataclass(frozen=True)
class Rules(Parameters):
    """The keys of the configuration's group `scenario`, without those of disturbances.

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
        Queues of tenants: a YAML file, or a column of the trace (`clustergym.scenario.tenants.queue_tree`).
    contention : bool
        Whether jobs share the links between switches (`clustergym.sim.links`).
    pairs : str or None
        Table of pairs of jobs that share GPUs (`clustergym.trace.pair_tables`); null: none share.
    interference : str
        `refuse`, `free` or `estimate`: what becomes of a pair that the table lacks.
    scored_s : pair of float or None
        Window of submission of the jobs that are scored (`Scenario.scored_s`); null: all jobs are.
    apart_s : float
        Least seconds between decision points at events (`Scenario.apart_s`).
    most_gpus : int or None
        Most GPUs that any job may hold; null: those of its type. A request for more is `oversize`.
    estimates_off : float
        Largest share by which policies are told wrong times, drawn for each model class and GPU type.
    family_off : float
        Share by which all times of one model family are told too long, or too short; both are drawn.
    priority_classes : int
        Classes of priority from which each job's is drawn, from 0 on; 1: the trace's own priorities stay.
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
    scored_s: Window | None = None
    apart_s: Delay = 0.0
    most_gpus: PositiveInt | None = None
    estimates_off: FractionBelowOne = 0.0
    family_off: FractionBelowOne = 0.0
    priority_classes: PositiveInt = 1


@dataclass(frozen=True, eq=False)
class Conditions:
    """All that defines a scenario except trace and seed: cluster, oracle, rules, costs and disturbances.

    Scenarios of many traces share what was computed of the cluster and of the model classes.

    Attributes
    ----------
    rules : Rules
    costs : Costs
    horizon_s : float or None
    cluster : ClusterSpec
    oracle : Oracle
    disturbances : mapping
        Keys of each disturbance, by the disturbance's key.
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
    _times: dict[ClusterSpec, ReferenceTime] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Conditions:
        """Read from a composed configuration all that defines a scenario except trace and seed."""
        given = config["scenario"]
        rules: Rules = build(Rules, given, "scenario", beside=DISTURBANCES)
        costs: Costs = build(Costs, config["costs"], "costs")
        horizon_s = check_value(config.get("horizon_s"), Duration | None, "horizon_s")
        cluster = make_cluster(config["cluster"])
        # A job may be profiled on every type, so the type with fewest GPUs is the limit.
        most = int(cluster.capacity.min())
        for name, price in costs.profile.items():
            remedy = f"cluster {cluster.name} has no more than {most} GPUs of one type"
            require(price.gpus <= most, f"costs.profile.{name}.gpus", price.gpus, remedy)
        disturbances = {key: {} if given.get(key) is None else given[key] for key in DISTURBANCES}
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
        """Build the scenario of a trace under these conditions.

        Parameters
        ----------
        chosen : mapping or TraceChoice
            The `trace` group of the configuration.
        seed : int
        """
        cluster, rules = self.cluster, self.rules
        seed = check_value(seed, Seed, "seed")
        choice = chosen if isinstance(chosen, TraceChoice) else trace_choice(chosen)
        trace, parts = self.trace(choice, seed), None
        if isinstance(cluster, DivisibleCluster):
            if self.pairs is not None:
                message, remedy = "are of whole GPUs, and these can be divided", "give scenario.pairs=null"
                raise InputError(message, field="scenario.pairs", remedy=remedy)
            # The requests hold the models that each job accepts; the trace then names no type.
            trace, parts = with_parts(trace, cluster, rules.other_types)
        else:
            whole_gpus_alone(trace, cluster)
            trace = _with_cluster_types(trace, cluster, rules)
        if rules.priority_classes > 1:
            priority = random_streams.PRIORITIES.generator(seed).integers(
                rules.priority_classes, size=len(trace)
            )
            trace = replace(trace, priority=priority)
        classes = model_classes(trace)
        checkpoint_s = np.array([self._checkpoint(model, trace) for model in classes])
        counts = list_allowed_counts(cluster, rules.counts, trace.gpus if choice.counts == "keep" else ())
        counts = [count for count in counts if count <= (rules.most_gpus or count)]
        tables, communication_s = self._tables(classes, cluster, counts)
        pairs = None
        if self.pairs is not None:
            pairs = PairSpeeds.from_table(self.pairs, classes, cluster, tables.counts, rules.interference)
        asked = (
            disturbance.from_config(self.disturbances[key], cluster, trace, seed)
            for key, disturbance in DISTURBANCES.items()
        )
        scenario = Scenario(
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
            apart_s=rules.apart_s,
            scored_s=None if rules.scored_s is None else (rules.scored_s[0], rules.scored_s[1]),
            estimates_off=_draw_wrong_estimates(rules, classes, trace, len(cluster.gpu_types), seed),
        )
        if not scenario.scored.any():
            remedy = f"the trace's submissions lie from 0 to {scenario.trace.submit_s.max(initial=0.0):g} s"
            message = "no job is submitted in this window"
            raise InputError(message, field="scenario.scored_s", remedy=remedy)
        _check_some_fit(scenario, self.oracle)
        return scenario

    def trace(self, chosen: Mapping[str, Any] | TraceChoice, seed: int) -> Trace:
        """Read or generate the trace that keys of the configuration's group `trace` (`chosen`) describe.

        Raises the errors of `scenario`.
        """
        return make_trace(
            chosen, seed, self.cluster, self.rules.counts, self.make_reference_times, self.oracle_tables
        )

    def make_reference_times(self, cluster: ClusterSpec) -> ReferenceTime:
        """Return a function that gives a job's iteration time alone on a cluster in compact placement."""
        from clustergym.trace.draw import ReferenceTimes

        if cluster not in self._times:
            # Tables that are kept on disk are built for all counts at once: one file serves all draws.
            counts = list_allowed_counts(cluster, self.rules.counts) if self.oracle.worth_caching else ()
            remedy = self.oracle.remedy if self.oracle.name == "table" else ""
            self._times[cluster] = ReferenceTimes(cluster, self.oracle_tables, counts, remedy)
        return self._times[cluster]

    def oracle_tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> OracleTables:
        """Return this oracle's iteration times by class, GPU type and count, for links without contention."""
        return self._tables(classes, cluster, counts)[0]

    def _tables(
        self, classes: Sequence[ModelClass], cluster: ClusterSpec, counts: Sequence[int]
    ) -> tuple[OracleTables, Floats | None]:
        """Build the oracle's tables and, with contention, the seconds of traffic in them.

        Tables that take long to build are cached on disk.
        """
        oracle = self.oracle
        for note in oracle.notes(classes, cluster):
            from clustergym.oracle.table_cache import print_note

            print_note(note)

        def make_tables(cluster: ClusterSpec) -> OracleTables:
            from clustergym.oracle.table_cache import table_source

            return table_source(oracle)(classes, cluster, counts)

        if not self.rules.contention:
            return make_tables(cluster), None
        require_fabric(oracle)
        return on_free_links(make_tables, cluster)

    def _checkpoint(self, model: ModelClass, trace: Trace) -> float:
        """Return the seconds to save and load the checkpoint of a model class of a trace."""
        if not self.oracle.knows_models:
            # No model says how large the checkpoint is.
            return self.costs.restart_s or 0.0
        if model not in self._checkpoint_s:
            spec = _find_model_spec(model, self.oracle.catalog, trace)
            self._checkpoint_s[model] = self.costs.checkpoint_s(
                model.model, model.family, spec.parameters, spec.dtype, spec.relaunch_s
            )
        return self._checkpoint_s[model]


def _check_some_fit(scenario: Scenario, oracle: Oracle) -> None:
    """Raise an `InputError` if no job can ever start."""
    jobs, cluster = len(scenario.trace), scenario.cluster.name
    if not jobs or scenario.request_gpus.any():
        return
    # The remedy depends on the reason: a larger cluster helps against one of the two only.
    large = int(scenario.oversize_jobs.sum())
    why = [f"{large} ask for more GPUs than it has"] * bool(large)
    why += [f"{jobs - large} {oracle.lacks}"] * (jobs > large)
    raise InputError(
        f"all {jobs} jobs would be dropped on cluster {cluster}: {' and '.join(why)}",
        file=scenario.trace.path or None,
        field="trace",
        remedy=oracle.remedy if large < jobs else "name a larger cluster",
    )


def _check_divisible(rules: Rules, costs: Costs, disturbances: Mapping[str, Any]) -> None:
    """Raise an `InputError` for conditions under which GPUs cannot be divided."""
    whole = "jobs on a divisible cluster have what they ask for: give"
    require(rules.counts == "any", "scenario.counts", rules.counts, f"{whole} any")
    require(not costs.profile, "costs.profile", "a price", f"{whole} costs=free or another without profiles")
    planned = (disturbances.get("reservations") or {}).get("path")
    require(rules.queues is None, "scenario.queues", rules.queues, "queues hold whole GPUs: give null")
    require(planned is None, "scenario.reservations.path", planned, f"{whole} null")


def build_scenario(config: Mapping[str, Any]) -> Scenario:
    """Build the scenario that a composed configuration describes.

    Parameters
    ----------
    config : mapping
        Groups `cluster`, `trace`, `oracle`, `costs`, `scenario`, and `seed`, `horizon_s`.
    """
    return Conditions.from_config(config).scenario(config["trace"], config["seed"])


GROUPS = ("cluster", "trace", "oracle", "costs", "scenario", "seed", "horizon_s")
"""Keys of a configuration that a scenario depends on."""


def kept_scenario(config: Mapping[str, Any]) -> Scenario:
    """Return a configuration's scenario; reuse the object if one of the last runs of a sweep has built it.

    One that names a file by its absolute path is built anew, for the file may have changed.
    """
    # Text, as a mapping is no key of a cache; a composed configuration has plain values throughout.
    text = json.dumps({group: config[group] for group in GROUPS if group in config})
    if any(os.path.isabs(word) for word in re.findall(r'"([^"]*)"', text)):
        return build_scenario(config)
    return build_from_json(text)


@lru_cache(maxsize=8)
def build_from_json(text: str) -> Scenario:
    """Build the scenario of a configuration that is given as JSON."""
    return build_scenario(json.loads(text))


def make_cluster(config: Mapping[str, Any]) -> ClusterSpec:
    """Build the cluster from the configuration's group `cluster`, or from the file that its `path` names."""
    require(isinstance(config, Mapping), "cluster", config, "give its keys")
    path = config.get("path")
    if path is not None:
        return load_cluster(str(Path(str(path)).absolute()))
    return cluster_from_config({key: value for key, value in config.items() if key != "path"})


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


def _draw_wrong_estimates(
    rules: Rules, classes: Sequence[ModelClass], trace: Trace, types: int, seed: int
) -> Floats | None:
    """Draw the factors on the times that policies are told, shape (C, T); None if they are told the truth."""
    by, draws = rules.estimates_off, random_streams.WRONG_FAMILY.generator(seed)
    if not (by or rules.family_off):
        return None
    off = random_streams.WRONG_ESTIMATES.generator(seed).uniform(1 - by, 1 + by, (len(classes), types))
    # A family is drawn as often as its jobs come, so that one of hardly any jobs seldom is.
    family = trace.model_classes[int(draws.integers(len(trace)))].family
    factor = 1 + draws.choice([-1, 1]) * rules.family_off
    return np.where([[model.family == family] for model in classes], factor, 1.0) * off


def _tenants(rules: Rules, trace: Trace, cluster: ClusterSpec) -> Tenants | None:
    if rules.queues is None:
        return None
    from clustergym.scenario.tenants.queue_tree import Tenants

    tenants = Tenants.from_queues(rules.queues, trace, cluster.gpu_types)
    tenants.tree.check_capacity(cluster.gpu_types, cluster.capacity.tolist())
    return tenants


def _find_model_spec(model: ModelClass, catalog: Catalog, trace: Trace) -> ModelSpec:
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
