"""Gavel's published curves of mean JCT over load, with jobs packed two to a GPU and not (OSDI '20)."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import cluster_from_config
from clustergym.cluster.spec import ClusterSpec
from clustergym.oracle.base import OracleTables
from clustergym.scenarios.costs import Costs
from clustergym.scenarios.pairs import PairSpeeds
from clustergym.scenarios.scenario import Scenario, model_classes
from clustergym.workload.pair_tables import GavelPair, PairKey, PairTable, Workload, gavel_pairs
from clustergym.workload.trace import Trace

RATES = Path("gavel") / "simulation_throughputs.json"
TYPES = {"V100": "v100", "P100": "p100", "K80": "k80"}
EACH = 36
"""GPUs of each type."""
MEASURED = 1
"""Priority, without effect on Gavel, of the jobs whose JCT counts."""


class Load(NamedTuple):
    """A Poisson stream of one-GPU jobs; those from `first` to `last` count, and `after` more follow them."""

    jobs_per_h: float
    first: int
    last: int
    after: int

    @property
    def name(self) -> str:
        """Name of the trace."""
        return f"{self.jobs_per_h:g} jobs/h, {self.first} to {self.last} of {self.last + self.after}"


def _cluster() -> ClusterSpec:
    nodes = [{"gpu_type": kind, "count": EACH // 4, "gpus_per_node": 4} for kind in TYPES]
    return cluster_from_config({"name": "gavel-108", "nodes": nodes})


@cache
def _table(path: Path) -> tuple[dict[str, dict[str, float]], list[GavelPair], str]:
    from clustergym.reproduction.gavel import read_rates

    rates, (entries, sha256) = read_rates(path), gavel_pairs(path)
    alone = {
        kind: {name: rate for (name, gpus), rate in of.items() if gpus == 1} for kind, of in rates.items()
    }
    return alone, [entry for entry in entries if entry.gpus == 1], sha256


def trace_of(load: Load, seed: int, v100: dict[str, float]) -> Trace:
    """Draw a stream: uniform job types; on V100 10^x minutes, x from 1.5 to 3 (80 %) or from 3 to 4.

    That is the artifact's generator (`scheduler/utils.py`), with draws of our own.
    """
    rng, n = np.random.default_rng([seed, 7]), load.last + load.after
    submit_s = np.cumsum(rng.exponential(3600 / load.jobs_per_h, n))
    long = rng.random(n) < 0.2
    minutes = 10 ** np.where(long, rng.uniform(3, 4, n), rng.uniform(1.5, 3, n))
    names = sorted(v100)
    drawn = rng.integers(len(names), size=n)
    rate = np.array([v100[name] for name in names])[drawn]
    steps = np.maximum(np.rint(minutes * 60 * rate), 1).astype(np.int64)
    counts = (np.arange(n) >= load.first) & (np.arange(n) < load.last)
    return Trace.of(
        load.name,
        np.round(submit_s - submit_s[0], 6),
        steps,
        np.ones(n, dtype=np.int64),
        model_family=tuple(names[at] for at in drawn.tolist()),
        priority=np.where(counts, MEASURED, 0),
    )


def scenario_of(data: Path, load: Load, seed: int) -> Scenario:
    """Return the stream on 36 V100, 36 P100 and 36 K80, until its last job arrives; restarts cost nothing."""
    alone, entries, sha256 = _table(data / RATES)
    cluster, trace = _cluster(), trace_of(load, seed, alone["V100"])
    classes, counts = model_classes(trace), [1]
    times = np.full((len(classes), len(cluster.gpu_types), 1, 4), np.inf)
    for row, model in enumerate(classes):
        for at, kind in enumerate(cluster.gpu_types):
            if (rate := alone[kind].get(model.family, 0.0)) > 0:
                times[row, at, 0] = 1.0 / rate
    ours = {theirs: kind for kind, theirs in TYPES.items()}
    kept = {
        PairKey(ours[entry.gpu_type], 1, Workload(entry.first, 1), Workload(entry.second, 1)): entry.kept
        for entry in entries
    }
    table = PairTable(data / RATES, kept, sha256)
    return Scenario(
        name="gavel-108",
        version=1,
        cluster=cluster,
        trace=trace,
        tables=OracleTables(classes, cluster.gpu_types, np.array(counts), times, times, times),
        checkpoint_s=np.zeros(len(classes)),
        costs=Costs(search="proxy", profile={}),
        horizon_s=float(trace.submit_s[-1]),
        pairs=PairSpeeds.of(table, classes, cluster, np.array(counts), "refuse"),
    )


PUBLISHED = {
    "unpacked": {
        1.2: 17.67,
        2.0: 16.95,
        3.2: 16.08,
        4.4: 17.48,
        4.8: 18.97,
        5.2: 22.02,
        5.6: 28.96,
        6.0: 41.23,
    },
    "packed": {
        1.2: 19.69,
        2.0: 18.26,
        3.2: 16.18,
        4.4: 17.78,
        4.8: 18.67,
        5.2: 19.14,
        5.6: 19.64,
        6.0: 20.42,
    },
}
