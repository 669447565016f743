"""The costs of a run: waits by group, GPU-hours by use, money, energy and carbon.

The watts of a busy GPU by its power limit come from a table of measurements such as Zeus's (ml-energy/zeus).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.arrays import Floats
from clustergym.common.columns import texts
from clustergym.common.errors import InputError
from clustergym.common.text_files import read_csv
from clustergym.results.report.event_curves import read_log
from clustergym.results.report.series import column, read_table
from clustergym.trace.trace import FAILED, KILLED

from .waits import BY, JobTable, list_groups, waits

COLUMNS = ("network", "batch_size", "optimizer", "power_limit", "time_per_epoch", "average_power")


class MeasuredPower(NamedTuple):
    """Measured power and slowdown of training under one limit of the GPU's power.

    Attributes
    ----------
    watts : float
        Mean over the networks that were measured there.
    slower : float
        Time of an epoch over that at the highest limit, geometric mean over the same trainings.
    networks : int
    """

    watts: float
    slower: float
    networks: int


def read_power(path: Path, limit_w: float) -> MeasuredPower:
    """Read a table of measured trainings; return mean watts and the slowdown at a power limit in watts.

    Parameters
    ----------
    path : Path
        CSV with `COLUMNS`: watts, and seconds of an epoch, by network, batch, optimizer and power limit.
    limit_w : float
    """
    read = read_csv(path, COLUMNS, optional=("dataset",))
    limits, epoch_s, watts = (column(read, name) for name in COLUMNS[3:])
    known = np.isfinite(limits) & (watts > 0) & (epoch_s > 0) & np.isfinite(watts) & np.isfinite(epoch_s)
    here = known & (limits == limit_w)
    if not here.any():
        there = ", ".join(f"{limit:g}" for limit in np.unique(limits[known])[:20].tolist())
        remedy = f"there are {there}" if there else "give a table with watts"
        message = f"nothing was measured at {limit_w:g} W"
        raise InputError(message, file=path, field="power_limit", remedy=remedy)
    of_run = list(zip(*(read.columns[name] for name in COLUMNS[:3]), strict=True))
    highest = known & (limits == limits[known].max())
    fastest = {of_run[at]: float(epoch_s[at]) for at in np.flatnonzero(highest).tolist()}
    at_limit = np.flatnonzero(here).tolist()
    slower = [np.log(epoch_s[at] / fastest[of_run[at]]) for at in at_limit if of_run[at] in fastest]
    of_network: dict[str, list[int]] = {}
    for at in at_limit:
        of_network.setdefault(read.columns["network"][at], []).append(at)
    by_network = [watts[of_network[network]].mean() for network in sorted(of_network)]
    mean = float(np.exp(np.mean(slower))) if slower else float("nan")
    return MeasuredPower(float(np.mean(by_network)), mean, len(by_network))


GOODPUT = {
    "productive": "work of jobs that completed",
    "ended_early": "work of jobs that failed or were killed",
    "restarts": "standing still at restarts",
    "failures": "work that failures undid",
    "waiting": "idle while jobs waited (fragmented, or kept by rules)",
    "idle": "idle, and nobody waited",
}
"""What becomes of the GPU-hours of a cluster."""
WARM_UP = 0.1
"""Share of the time of submissions that the steady window leaves out at its start."""
HOURS = 24
COSTS = ("held_gpu_s", "overhead_gpu_s", "lost_gpu_s")
"""Columns of jobs.csv on what a job cost."""
LATE, LATE_S = 2.0, 1800.0
"""A job is late that takes longer than so many times its work at its request, and longer than this (s).

As in `Capacity` (`clustergym.envs.capacity.world.is_late`): a log has no due times.
"""


@dataclass(frozen=True)
class Prices:
    """A cluster's price of a GPU-hour, watts of its GPUs, and carbon emissions of a kWh.

    Attributes
    ----------
    gpu_hour : float or None
        Of a GPU, used or not.
    watts : mapping of str to (float, float)
        Watts of a GPU by type, busy and idle.
    carbon : tuple of float
        Grams of CO2 of a kWh in each hour of the day, or one number for all.
    """

    gpu_hour: float | None = None
    watts: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    carbon: tuple[float, ...] = ()


class UsageCurve(NamedTuple):
    """The jobs of a finished run, and the held GPUs and queue length over time, as arrays.

    Attributes
    ----------
    jobs : JobTable
    wait_s, run_s, jct_s, held_gpu_s, overhead_gpu_s, lost_gpu_s : ndarray of float, shape (n,)
    log_outcome : list of str
    time_s, queued : ndarray of float, shape (B,)
    held, capacity : dict of str to ndarray of float, shape (B,)
        GPUs held, and GPUs that are there, by type.
    rent, rented_gpu_hours : float
        USD for nodes that are rented.
    """

    jobs: JobTable
    wait_s: Floats
    run_s: Floats
    jct_s: Floats
    held_gpu_s: Floats
    overhead_gpu_s: Floats
    lost_gpu_s: Floats
    log_outcome: list[str]
    time_s: Floats
    queued: Floats
    held: dict[str, Floats]
    capacity: dict[str, Floats]
    rent: float = 0.0
    rented_gpu_hours: float = 0.0


def read_course(
    folder: Path, origin_s: float, cluster: ClusterSpec, metrics: Mapping[str, float | None]
) -> UsageCurve:
    """Read a run's jobs and use of GPUs over time.

    Parameters
    ----------
    folder : Path
    origin_s : float
        When its clock starts, seconds since 1970.
    cluster : ClusterSpec
        With the nodes that may be rented.
    metrics : mapping
        Of its result.json.
    """
    names = ("submit_s", "first_start_s", "run_s", "jct_s", "request_gpus", *COSTS)
    jobs = read_table(folder / "jobs.csv", names)
    found = {name: column(jobs, name) for name in names}
    held = {gpu_type: f"held_gpus_{gpu_type}" for gpu_type in cluster.gpu_types}
    times = read_table(folder / "timeline.csv", ("time_s", "queued_jobs", *held.values()))
    words = {name: texts(jobs, name) for name in ("team", "partition", "log_outcome")}
    gpus = np.nan_to_num(found["request_gpus"]).astype(np.int64)
    row_s = column(times, "time_s")
    time_s, capacity = _find_capacity(folder, cluster, row_s, "cost" in metrics)
    row = np.searchsorted(row_s, time_s, "right") - 1
    return UsageCurve(
        jobs=JobTable(
            gpus, found["held_gpu_s"], found["submit_s"], origin_s, words["team"], words["partition"]
        ),
        wait_s=found["first_start_s"] - found["submit_s"],
        **{name: found[name] for name in ("run_s", "jct_s", *COSTS)},
        log_outcome=words["log_outcome"],
        time_s=time_s,
        queued=column(times, "queued_jobs")[row],
        held={gpu_type: column(times, name)[row] for gpu_type, name in held.items()},
        capacity=capacity,
        rent=metrics.get("cost") or 0.0,
        rented_gpu_hours=metrics.get("rented_gpu_hours") or 0.0,
    )


def _find_capacity(
    folder: Path, cluster: ClusterSpec, time_s: Floats, rents: bool
) -> tuple[Floats, dict[str, Floats]]:
    """Return the times at which a timeline or the GPUs that are there change, and these GPUs by type."""
    outages = read_log(folder / "events.jsonl.gz", float(time_s[-1])).outages if rents else []
    # A run begins with every node that is rented out of use.
    rented = {outage.node for outage in outages if not outage.start_s}
    outages = [outage for outage in outages if outage.node in rented]
    time_s = np.union1d(time_s, [at for outage in outages for at in (outage.start_s, outage.end_s)])
    capacity = np.tile(cluster.capacity.astype(np.float64)[:, None], len(time_s))
    for node, start_s, end_s in outages:
        gone = slice(*np.searchsorted(time_s, (start_s, end_s)).tolist())
        capacity[cluster.node_type[node], gone] -= cluster.node_gpus[node]
    return time_s, dict(zip(cluster.gpu_types, capacity, strict=True))


def check_counts(course: UsageCurve, path: Path) -> None:
    """Raise an `InputError` if a job held another number of GPUs than it requested."""
    run_s = np.where(course.run_s > 0, course.run_s, np.nan)
    other = np.abs(course.held_gpu_s / run_s - course.jobs.gpus) > 1e-6
    if other.any():
        message = f"{int(other.sum())} jobs held other GPUs than they asked for, and a log does not say how "
        message += "fast they are then"
        remedy = "add oracle=roofline, by which models are drawn; or choose a policy that resizes no job"
        raise InputError(message, file=path, field="--policy", remedy=remedy)


def summarise_run(course: UsageCurve, prices: Prices) -> dict[str, Any]:
    """Return a run's waits, utilisation, cost, energy (kWh) and carbon emissions (kg) as plain values.

    What is rented costs its rent, all other GPUs the price of a GPU-hour.
    """
    found: dict[str, Any] = {"waits": {}, "lost": {}, "late_jobs": count_late(course)}
    for by in BY:
        found["waits"][by] = {
            name: waits(course.wait_s[mine], course.run_s[mine])
            for name, mine in list_groups(course.jobs, by)
        }
    lost = course.overhead_gpu_s + course.lost_gpu_s
    early = np.isin(course.log_outcome, (FAILED, KILLED))
    lost = lost + np.where(early, course.held_gpu_s - lost, 0.0)
    for by in ("team", "size"):
        found["lost"][by] = {
            name: float(lost[mine].sum()) / 3600 for name, mine in list_groups(course.jobs, by)
        }
    found["goodput_gpu_hours"] = goodput = divide_goodput(course)
    found["utilisation"] = utilisation(course)
    found |= {"rented_gpu_hours": course.rented_gpu_hours, "rent": course.rent}
    if prices.gpu_hour is not None:
        # A use of one's own GPUs and of rented ones has no one price.
        uses = {} if course.rented_gpu_hours else goodput
        found["cost"] = {name: hours * prices.gpu_hour for name, hours in uses.items()}
        own_hours = sum(goodput.values()) - course.rented_gpu_hours
        found["cost"]["all"] = own_hours * prices.gpu_hour + course.rent
    if prices.watts:
        by_hour = energy_by_hour(course, prices.watts)
        found["energy_kwh"] = float(by_hour.sum())
        if prices.carbon:
            found["carbon_kg"] = float(np.dot(by_hour, np.broadcast_to(prices.carbon, HOURS))) / 1000
    return found


def count_late(course: UsageCurve) -> int:
    """Return how many jobs are late (`LATE`); those that never start count."""
    work_s = (course.held_gpu_s - course.overhead_gpu_s - course.lost_gpu_s) / course.jobs.gpus
    return int((~(course.jct_s <= np.maximum(LATE * work_s, LATE_S))).sum())


def divide_goodput(course: UsageCurve) -> dict[str, float]:
    """Return the GPU-hours of each use, such as productive or idle, from the first submission to the end."""
    overhead, undone = float(course.overhead_gpu_s.sum()), float(course.lost_gpu_s.sum())
    working = course.held_gpu_s - course.overhead_gpu_s - course.lost_gpu_s
    early = np.isin(course.log_outcome, (FAILED, KILLED))
    lasting, held = np.diff(course.time_s), sum(course.held.values(), np.zeros(len(course.time_s)))[:-1]
    free_gpu_s = (sum(course.capacity.values(), np.zeros(len(course.time_s)))[:-1] - held) * lasting
    waited = course.queued[:-1] > 0
    gpu_s = {
        "productive": float(working[~early].sum()),
        "ended_early": float(working[early].sum()),
        "restarts": overhead,
        "failures": undone,
        "waiting": float(free_gpu_s[waited].sum()),
        "idle": float(free_gpu_s[~waited].sum()),
    }
    return {name: value / 3600 for name, value in gpu_s.items()}


def utilisation(course: UsageCurve) -> float | None:
    """Return the share of GPUs that are held, from the end of the warm-up to the last submission."""
    first, last = float(course.jobs.submit_s.min()), float(course.jobs.submit_s.max())
    begin = first + WARM_UP * (last - first)
    if last <= begin:
        return None
    edges = np.clip(course.time_s, begin, last)
    held, there = (sum(of.values(), np.zeros(len(edges)))[:-1] for of in (course.held, course.capacity))
    return float(np.dot(held, np.diff(edges)) / np.dot(there, np.diff(edges)))


def energy_by_hour(course: UsageCurve, watts: Mapping[str, tuple[float, float]]) -> Floats:
    """Return GPUs' energy in kWh by hour of the day, shape (24,); `watts` is (busy, idle) by GPU type.

    A held GPU takes its busy watts, any other its idle ones.
    """
    missing = sorted(set(course.capacity) - set(watts))
    if missing:
        remedy = f"give --watts {missing[0]}=BUSY/IDLE"
        raise InputError(f"no watts are given for {', '.join(missing)}", field="--watts", remedy=remedy)
    power = np.zeros(len(course.time_s))
    for gpu_type, gpus in course.capacity.items():
        busy, idle = watts[gpu_type]
        power += busy * course.held[gpu_type] + idle * (gpus - course.held[gpu_type])
    # Cut the course at every full hour, so that each piece lies in one hour of the day.
    clock = course.jobs.origin_s + course.time_s
    hours = np.arange(np.ceil(clock[0] / 3600), np.floor(clock[-1] / 3600) + 1) * 3600
    edges = np.union1d(clock, hours)
    at = np.searchsorted(clock, edges[:-1], side="right") - 1
    kwh = power[at] * np.diff(edges) / 3.6e6
    hour = (edges[:-1] // 3600 % HOURS).astype(np.int64)
    return np.bincount(hour, weights=kwh, minlength=HOURS).astype(np.float64)
