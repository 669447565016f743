"""The scenario of each episode: a seed draws it, or a parameter or an option gives it."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError, nearest, require_known
from clustergym.common.parameter_types import NonNegativeInt
from clustergym.common.parameters import check_value
from clustergym.common.paths import conf_dir, traces_dir
from clustergym.envs.scheduling_parameters import SchedulingParameters
from clustergym.scenario.policy import InformationClass, Setting
from clustergym.scenario.scenario import Scenario, list_allowed_counts
from clustergym.scenario.scenario_config import Conditions
from clustergym.scenario.trace_config import trace_choice

OPTIONS = ("scenario", "trace", "trace_seed", "load", "run_seed")
KEPT = 256
"""Drawn scenarios that a process keeps for other episodes on the same trace."""

SPLITS = ("train", "dev", "test")
TRACES_OF: Mapping[str | None, int] = {"dev": 40, "test": 40}
"""Traces of a split among which episodes are drawn where `traces` does not say; of others any number."""

_kept: OrderedDict[tuple[Any, ...], Scenario] = OrderedDict()


def trace_seed(split: str, index: int) -> int:
    """Return the seed of trace number `index` of a split (train, test, ...); no two splits share a seed."""
    return index * len(SPLITS) + SPLITS.index(split)


class Episodes:
    """Chooses the scenario of each episode: the jobs, and the cluster, which is always the same.

    Parameters
    ----------
    parameters : SchedulingParameters
    """

    def __init__(self, parameters: SchedulingParameters) -> None:
        self.parameters = parameters
        _check_name("costs", parameters.costs, "costs")
        if parameters.failures is not None:
            _check_name("failures", parameters.failures, "failures")
        elif parameters.failure_scale != 1.0:
            message, remedy = "is given, but no failures", "give failures=rsc-1 as well"
            raise InputError(message, field="env.failure_scale", remedy=remedy)
        if not Path(parameters.source).is_file():
            _check_name("generator", parameters.source, "source")
        given = self.fixed
        self.cluster = given.cluster if given is not None else _cluster(parameters.cluster)[1]
        rule = given.counts_rule if given is not None else "power_of_two"
        counts = np.array(list_allowed_counts(self.cluster, rule), dtype=np.int64)
        self.setting = Setting(
            self.cluster.gpu_types,
            self.cluster.capacity,
            self.cluster.gpus_per_node,
            counts,
            parameters.round_s,
            batch_models=frozenset() if given is None else given.batch_models,
        )

    @cached_property
    def fixed(self) -> Scenario | None:
        """The scenario that all episodes have, or None if each episode samples its own."""
        parameters = self.parameters
        if parameters.scenario is not None:
            from clustergym.scenario.by_name import load_scenario

            _check_name("scenario", parameters.scenario, "scenario")
            overrides = [] if parameters.horizon_s is None else [f"horizon_s={parameters.horizon_s}"]
            if parameters.failures is not None:
                scale = f"scenario.failures.rate_scale={parameters.failure_scale}"
                overrides += [f"failures={parameters.failures}", scale]
            return load_scenario(parameters.scenario, overrides)
        if parameters.trace is not None:
            return self._conditions.scenario(_trace_file(parameters.trace), 0)
        return None

    def check_times(self) -> None:
        """Raise an `InputError` if agents would know no iteration time of some job; an auction needs one.

        Profiles of data parallelism alone lack jobs that need more memory. Drawn traces are alike: the first
        one shows it.
        """
        information = self.parameters.information_class
        if information != InformationClass.DATA_PARALLEL:
            return
        # From a stream of its own: a check must not move that of the episodes.
        options = {} if self.fixed is not None else {"trace_seed": 0}
        scenario = self.choose(options, random_streams.FIRST_EPISODE.generator(0))
        times = scenario.known_times(information)[scenario.class_of]
        enough = scenario.tables.counts >= scenario.request_gpus[:, None, None]
        missing = ~(np.isfinite(times) & enough).any(axis=(1, 2)) & (scenario.request_gpus > 0)
        if missing.any():
            message = f"{information} leaves {missing.sum()} of {len(missing)} jobs without times here"
            remedy = "an auction needs them: give information=profiled, or rule=ares and cluster=ares-16"
            raise InputError(message, field="env.information", remedy=remedy)

    def choose(self, options: Mapping[str, Any], rng: np.random.Generator) -> Scenario:
        """Return the scenario of the next episode, as `reset`'s options say; by default it is sampled.

        Parameters
        ----------
        options : mapping
            Of `reset`: `scenario` (a Scenario), `trace` (a name or file), `trace_seed`, `load`.
        rng : numpy.random.Generator
            Draws what the options leave open.
        """
        for name in options:
            require_known(name, OPTIONS, "option", f"options.{name}")
        if "scenario" in options:
            return self._check_given(options["scenario"])
        if "trace" in options:
            name = check_value(options["trace"], str, "options.trace")
            return self._conditions.scenario(_trace_file(name), 0)
        drawn = "trace_seed" in options or "load" in options
        if self.fixed is not None and not drawn:
            return self.fixed
        return self._draw_scenario(options, rng)

    def _draw_scenario(self, options: Mapping[str, Any], rng: np.random.Generator) -> Scenario:
        parameters = self.parameters
        if parameters.scenario is not None:
            raise InputError(
                "the scenario has its own trace", field="options", remedy="leave out trace_seed and load"
            )
        below = parameters.traces or TRACES_OF.get(parameters.split, 2**31)
        # Drawn even where an option gives them: the stream stands at the same place after every reset.
        seed, load = int(rng.integers(below)), float(rng.choice(parameters.loads))
        if parameters.split is not None:
            seed = trace_seed(parameters.split, seed)
        seed = check_value(options.get("trace_seed", seed), NonNegativeInt, "options.trace_seed")
        load = check_value(options.get("load", load), float, "options.load")
        trace = {
            "source": parameters.source,
            "rule": parameters.rule,
            "jobs": parameters.jobs,
            "load": load,
            "deadlines": parameters.deadlines,
            "max_gpus": parameters.max_gpus,
            "min_duration_s": parameters.min_duration_s,
            "max_duration_s": parameters.max_duration_s,
            "requests": "arena",
            "bursty": parameters.bursty,
        }
        return self._keep(trace, seed)

    def _keep(self, trace: Mapping[str, Any], seed: int) -> Scenario:
        """Return a sampled scenario, built at most once in this process."""
        key = self._name, seed, *trace.items()
        # Taken out and put back at the end: what was not used for longest goes first.
        made = _kept.pop(key, None)
        # A generator in a file of one's own may have changed since.
        if made is None or Path(self.parameters.source).is_file():
            made = self._conditions.scenario(_trace_choice(*trace.items()), seed)
        _kept[key] = made
        if len(_kept) > KEPT:
            _kept.popitem(last=False)
        return made

    @cached_property
    def _name(self) -> str:
        """A text that tells apart sampled scenarios which have the same seed."""
        parameters = self.parameters
        named = [parameters.costs, parameters.horizon_s, parameters.failures, parameters.failure_scale]
        named += [parameters.queues, parameters.checkpoint_every_s]
        return json.dumps([*named, self.cluster.fingerprint()])

    @cached_property
    def _conditions(self) -> Conditions:
        parameters = self.parameters
        return Conditions.from_config(
            {
                "cluster": _cluster(parameters.cluster)[0],
                "oracle": _read_group("oracle", "roofline"),
                "costs": _read_group("costs", parameters.costs),
                "scenario": {
                    "name": "episode",
                    "oversize": "drop",
                    "other_types": "any",
                    "queues": parameters.queues,
                    "checkpoints": {"every_s": parameters.checkpoint_every_s},
                    **self._failures,
                },
                "horizon_s": parameters.horizon_s,
            }
        )

    @property
    def _failures(self) -> dict[str, Any]:
        """The configuration of the failures that the parameters name; empty for none."""
        if self.parameters.failures is None:
            return {}
        given = _read_group("failures", self.parameters.failures)
        given["failures"] = {**given["failures"], "rate_scale": self.parameters.failure_scale}
        return given

    def _check_given(self, scenario: Any) -> Scenario:
        remedy = "make the environment with that scenario's cluster"
        if not isinstance(scenario, Scenario):
            raise InputError("is not a Scenario", field="options.scenario", remedy="give load_scenario(…)")
        same: Ints = scenario.tables.counts
        if scenario.cluster.gpu_types != self.cluster.gpu_types or not np.array_equal(
            same, self.setting.counts
        ):
            raise InputError("has other GPU types or counts", field="options.scenario", remedy=remedy)
        return scenario


def _check_name(group: str, name: str, field: str) -> None:
    """Raise an InputError unless conf/GROUP has a file NAME.yaml."""
    known = [found.stem for found in (conf_dir() / group).glob("*.yaml")]
    require_known(name, known, group, f"env.{field}")


def _read_group(group: str, name: str) -> dict[str, Any]:
    """Return the content of conf/GROUP/NAME.yaml."""
    text = (conf_dir() / group / f"{name}.yaml").read_text(encoding="utf-8")
    read: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return read


def _cluster(name: str) -> tuple[dict[str, Any], Any]:
    """Return the configuration of a cluster, and the cluster."""
    from clustergym.cluster.cluster_files import load_cluster

    cluster = load_cluster(name)
    path = conf_dir() / "cluster" / f"{name}.yaml"
    if path.is_file():
        return _read_group("cluster", name), cluster
    return {"path": name}, cluster


_trace_choice = lru_cache(maxsize=256)(lambda *items: trace_choice(dict(items)))


def _trace_file(name: str) -> dict[str, Any]:
    """Return the configuration of a committed trace, or of a trace file."""
    if (traces_dir() / f"{name}.csv").is_file():
        return {"committed": name}
    if Path(name).is_file():
        return {"path": name}
    known = [found.stem for found in traces_dir().glob("*.csv")]
    raise InputError(f"no trace {name!r}", field="env.trace", remedy=nearest(name, known))
