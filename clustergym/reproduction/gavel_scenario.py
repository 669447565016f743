"""Gavel's published jobs on its cluster, at the rates of its throughput table."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from clustergym.errors import InputError
from clustergym.oracle.base import OracleTables
from clustergym.reproduction.study import RunSpec, check_published
from clustergym.scenario import Scenario, allowed_counts, model_classes
from clustergym.sim.costs import Costs
from clustergym.workload.readers.gavel import LAYOUTS
from clustergym.workload.trace import Trace

TRACE, RATES = Path("traces_physical") / "max_min_fairness.trace", Path("simulation_throughputs.json")
NAMES = {"V100": "v100", "P100": "p100", "K80": "k80"}
"""GPU types of conf/cluster/gavel-48.yaml, and what the table calls them."""

Rates = Mapping[str, Mapping[tuple[str, int], float]]
"""GPU type -> (job type, workers) -> steps per second of a job on its own."""


def check_data(folder: Path) -> None:
    """Raise an `InputError` unless the published files are there."""
    check_published(folder / "gavel" / name for name in (TRACE, RATES))


def read_rates(path: Path) -> Rates:
    """Read the throughput table.

    Raises
    ------
    InputError
        If it is not the published layout.
    """
    try:
        table: Any = json.loads(path.read_text(encoding="utf-8"))
        return {
            ours: {ast.literal_eval(key): float(pairs["null"]) for key, pairs in table[theirs].items()}
            for ours, theirs in NAMES.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, SyntaxError) as error:
        message = f"is not Gavel's throughput table: {error}"
        raise InputError(message, file=path, remedy="give simulation_throughputs.json") from None


@cache
def scenario_of(data: Path, spec: RunSpec) -> Scenario:
    """Return the 96 jobs on 8 V100, 16 P100 and 24 K80, with preemption that costs nothing.

    A step counts as an iteration. A job type on a number of workers is a model class of its own:
    the table has no rates of a job on other counts than it asks for.
    """
    from clustergym.cluster.config import load_cluster

    cluster, rates = load_cluster("gavel-48"), read_rates(data / "gavel" / RATES)
    trace = _trace(data / "gavel" / TRACE)
    classes, counts = model_classes(trace), allowed_counts(cluster, "power_of_two")
    times = np.full((len(classes), len(cluster.gpu_types), len(counts), 4), np.inf)
    for row, model in enumerate(classes):
        name, _, workers = model.family.rpartition(" x ")
        for kind, gpu in enumerate(cluster.gpu_types):
            rate = rates[gpu].get((name, int(workers)), 0.0)
            if rate > 0:
                times[row, kind, counts.index(int(workers))] = 1.0 / rate
    return Scenario(
        name="gavel-96",
        version=1,
        cluster=cluster,
        trace=trace,
        tables=OracleTables(classes, cluster.gpu_types, np.array(counts), times, times, times),
        checkpoint_s=np.zeros(len(classes)),
        costs=Costs(search="proxy", profile={}),
    )


def _trace(path: Path) -> Trace:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    names = LAYOUTS[10]
    for at, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise InputError(f"has {len(row)} fields, not {len(names)}", file=path, line=at, remedy="mend it")
    column = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    n = len(rows)
    gpus = np.array([int(one) for one in column["scale_factor"]], dtype=np.int64)
    return Trace(
        name=path.stem,
        job_id=tuple(str(row) for row in range(n)),
        submit_s=np.array([float(one) for one in column["arrival_time"]]),
        model_family=tuple(f"{one} x {k}" for one, k in zip(column["job_type"], gpus, strict=True)),
        model_size=("",) * n,
        global_batch=np.ones(n, dtype=np.int64),
        iterations=np.array([int(one) for one in column["total_steps"]], dtype=np.int64),
        gpu_type=("",) * n,
        gpus=gpus,
        deadline_s=np.full(n, np.nan),
        priority=np.zeros(n, dtype=np.int64),
        user=("",) * n,
        virtual_cluster=("",) * n,
        line=np.arange(1, n + 1),
    )
