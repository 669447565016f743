"""Gavel's published curves of mean JCT over load, with jobs packed two to a GPU and not (OSDI '20)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clustergym.cluster.cluster_files import cluster_from_config
from clustergym.cluster.spec import ClusterSpec
from clustergym.common import random_streams
from clustergym.common.errors import InputError
from clustergym.common.left_out import not_read
from clustergym.common.reading import read_json
from clustergym.common.tables import table
from clustergym.oracle.base import OracleTables
from clustergym.scenario.costs import Costs
from clustergym.scenario.pairs import PairSpeeds
from clustergym.scenario.scenario import Scenario, model_classes
from clustergym.trace.pair_tables import PairKey, PairTable, Workload, gavel_pairs, job_and_count
from clustergym.trace.trace import Trace

from .claims import difference
from .page import Section, passage
from .reproduction import Figures, Found, Parameters, RunSpec, change, number

RATES = Path("gavel") / "simulation_throughputs.json"
PACKING = "36 GPUs of each type, free restarts"
"""Setting of the runs of this module."""
EACH = 36
MEASURED = 1
"""Priority of the jobs whose JCT counts; it has no effect on Gavel."""
SCALES, SCALE_SHARES = (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)


LARGEST_BYTES = 2**26
NAMES = {"V100": "v100", "P100": "p100", "K80": "k80"}
"""GPU types, and what the table calls them."""

Rates = Mapping[str, Mapping[tuple[str, int], float]]
"""GPU type -> (job type, workers) -> steps per second of a job on its own."""


class Load(NamedTuple):
    """A Poisson stream of jobs at one arrival rate; jobs `first` to `last` are measured.

    `published` is the mean JCT in hours, not packed and packed.
    """

    jobs_per_h: float
    first: int
    last: int
    after: int
    published: tuple[float, float]
    several: bool = False

    @property
    def name(self) -> str:
        """Name of the stream of jobs and of its trace."""
        gpus = "1 to 8 GPUs" if self.several else "one GPU"
        return f"{self.jobs_per_h:g} jobs an hour, {gpus}"

    def spec(self, parameters: Parameters) -> RunSpec:
        """Describe the run of the policy Gavel on this stream, with some parameters."""
        return RunSpec(self.name, None, PACKING, "gavel", parameters)


LOADS = (
    Load(1.2, 1000, 1500, 150, (17.67, 19.69)),
    Load(2.0, 1000, 1500, 250, (16.95, 18.26)),
    Load(3.2, 1000, 1500, 350, (16.08, 16.18)),
    Load(4.4, 1000, 1500, 450, (17.48, 17.78)),
    Load(4.8, 1000, 1500, 500, (18.97, 18.67)),
    Load(5.2, 1000, 1500, 550, (22.02, 19.14)),
    Load(5.6, 2000, 2500, 600, (28.96, 19.64)),
    Load(6.0, 2000, 2500, 600, (41.23, 20.42)),
)
SEVERAL = (Load(2.8, 1000, 1500, 350, (55.78, 38.25), several=True),)
ALL = {load.name: load for load in (*LOADS, *SEVERAL)}
UNPACKED: Parameters = (("packed", False),)
PACKED: Parameters = (("packed", True),)


def _cluster() -> ClusterSpec:
    nodes = [{"gpu_type": gpu_type, "count": EACH // 4, "gpus_per_node": 4} for gpu_type in NAMES]
    return cluster_from_config({"name": "gavel-108", "nodes": nodes})


def _family(job_type: str, gpus: int) -> str:
    return f"{job_type} x {gpus}"


@cache
def _table(path: Path) -> tuple[Rates, PairTable]:
    entries, sha256 = gavel_pairs(path)
    ours = {theirs: gpu_type for gpu_type, theirs in NAMES.items()}
    kept = {}
    for entry in entries:
        pair = (Workload(_family(name, entry.gpus), 1) for name in (entry.first, entry.second))
        kept[PairKey(ours[entry.gpu_type], entry.gpus, *pair)] = entry.kept
    return read_rates(path), PairTable(path, kept, sha256)


def draw_trace(load: Load, rates: Rates, seed: int = 0) -> Trace:
    """Generate a random stream of jobs, distributed as by the generator (`utils.py`) of Gavel's artifact.

    Job types are uniform, those of several GPUs among those that have such rates; a job runs 10^x minutes on
    V100, x uniform from 1.5 to 3 for four fifths of the jobs, from 3 to 4 for the others.
    """
    rng, n = random_streams.GAVEL_JOBS.generator(seed), load.last + load.after
    submit_s = np.cumsum(rng.exponential(3600 / load.jobs_per_h, n))
    long = rng.random(n) < 0.2
    minutes = 10 ** np.where(long, rng.uniform(3, 4, n), rng.uniform(1.5, 3, n))
    gpus = rng.choice(SCALES, size=n, p=SCALE_SHARES) if load.several else np.ones(n, dtype=np.int64)
    jobs = [_draw_job(rng, rates["V100"], int(count)) for count in gpus]
    steps = np.maximum(np.rint(minutes * 60 * np.array([rate for _, rate in jobs])), 1)
    return Trace.from_columns(
        load.name,
        np.round(submit_s - submit_s[0], 6),
        steps.astype(np.int64),
        gpus.astype(np.int64),
        model_family=tuple(family for family, _ in jobs),
        priority=np.where((np.arange(n) >= load.first) & (np.arange(n) < load.last), MEASURED, 0),
    )


def _draw_job(
    rng: np.random.Generator, rates: Mapping[tuple[str, int], float], gpus: int
) -> tuple[str, float]:
    names = sorted(name for (name, count), rate in rates.items() if count == gpus and rate > 0)
    name = names[int(rng.integers(len(names)))]
    return _family(name, gpus), rates[name, gpus]


def packing_scenario(data: Path, spec: RunSpec) -> Scenario:
    """Build a scenario of a stream of jobs on 36 V100, 36 P100 and 36 K80; restarts cost nothing."""
    rates, pairs = _table(data / RATES)
    trace = draw_trace(ALL[spec.trace], rates, spec.seed)
    alone = build_scenario(_cluster(), trace, rates, sorted(set(trace.gpus.tolist())))
    classes, counts = alone.tables.classes, alone.tables.counts
    speeds = PairSpeeds.from_table(pairs, classes, alone.cluster, counts, "refuse")
    return replace(alone, horizon_s=float(trace.submit_s[-1]), pairs=speeds)


def build_scenario(cluster: ClusterSpec, trace: Trace, rates: Rates, counts: Sequence[int]) -> Scenario:
    """Build a scenario of jobs at the speeds of Gavel's table, with preemption that costs nothing.

    A step counts as an iteration. A job type on a number of workers is a model class of its own:
    the table has no rates of a job on other counts than it asks for.
    """
    classes = model_classes(trace)
    times = np.full((len(classes), len(cluster.gpu_types), len(counts), 4), np.inf)
    for row, model in enumerate(classes):
        name, _, gpus = model.family.rpartition(" x ")
        for at, gpu_type in enumerate(cluster.gpu_types):
            if (rate := rates[gpu_type].get((name, int(gpus)), 0.0)) > 0:
                times[row, at, counts.index(int(gpus))] = 1.0 / rate
    return Scenario(
        name=cluster.name.replace("gavel-48", "gavel-96"),
        version=1,
        cluster=cluster,
        trace=trace,
        tables=OracleTables(classes, cluster.gpu_types, np.array(counts), times, times, times),
        checkpoint_s=np.zeros(len(classes)),
        costs=Costs(search="proxy", profile={}),
    )


def _jct_h(figures: Figures) -> float:
    """Return the mean JCT of the jobs that count, hours; one that has not ended counts up to now."""
    hours: float = figures["by_priority"][str(MEASURED)]["jct_mean_so_far"] / 3600
    return hours


def packing_section() -> Section:
    """Return the page's section on jobs that share GPUs."""
    loads = [*LOADS, *SEVERAL]
    return Section([load.spec(which) for load in loads for which in (UNPACKED, PACKED)], _curve)


def _curve(found: Found) -> str:
    headers, lines = ["stream", "jobs counted"], []
    for what in ("alone, h", "packed, h", "change"):
        headers += [what, "published"]
    for load in (*LOADS, *SEVERAL):
        ours = [_jct_h(found[load.spec(which)]) for which in (UNPACKED, PACKED)]
        cells = [number(hours, 2) for pair in zip(ours, load.published, strict=True) for hours in pair]
        changes = [change(packed, alone) for alone, packed in (ours, load.published)]
        lines.append([load.name, f"{load.first:,} to {load.last:,}", *cells, *changes])
    return f"{passage('gavel', 'packing')}\n\n{table(headers, lines)}"


OBJECTIVES = {
    "max_min_fairness": "max-min fairness",
    "max_min_water_filling": "max-min fairness, water filling",
    "finish_time_fairness": "finish-time fairness",
    "min_makespan": "minimum makespan",
    "max_total_throughput": "maximum total throughput",
}
"""The objectives of Gavel's linear programs, in the page's words."""


def packing_figures(found: Found) -> tuple[dict[str, float], dict[str, float]]:
    """Return by stream the change of mean JCT by sharing GPUs, percent: ours where it was run, and theirs."""
    ours, theirs = {}, {}
    for load in (*LOADS, *SEVERAL):
        specs = [load.spec(which) for which in (PACKED, UNPACKED)]
        theirs[load.name] = difference(load.published[1], load.published[0])
        if all(spec in found for spec in specs):
            ours[load.name] = difference(*(_jct_h(found[spec]) for spec in specs))
    return ours, theirs


def read_rates(path: Path) -> Rates:
    """Read Gavel's throughput table: steps/s of a job alone, by GPU type, then (job type, number of GPUs)."""
    remedy = "give simulation_throughputs.json"
    table = read_json(path, LARGEST_BYTES, remedy)
    try:
        not_read(
            [
                f"GPU type {name}"
                for name in table
                if name.removesuffix("_unconsolidated") not in NAMES.values()
            ]
        )
        return {
            ours: {job_and_count(key): float(pairs["null"]) for key, pairs in table[theirs].items()}
            for ours, theirs in NAMES.items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"is not Gavel's throughput table: {error}"
        raise InputError(message, file=path, remedy=remedy) from None
