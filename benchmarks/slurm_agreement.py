"""How often policy slurm-multifactor starts jobs as Slurm itself does, on drawn `sleep` jobs in six settings.

`python benchmarks/slurm_agreement.py [SETTING ...] [--json FILE]` starts clusters of Slurm on this machine,
with accounts in a database, and runs the drawn jobs of each setting twice, all together: some five minutes.
The second run says how well Slurm agrees with itself. `--recorded FILE ...` compares with the runs of such
files instead of running Slurm, and prints means over several. A CPU of Slurm stands for a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from clustergym.operators.policies.slurm_multifactor import SlurmMultifactor
from clustergym.operators.policies.slurm_placer import SlurmPlacer
from slurm_cluster import AccountedSlurm, Accounting, a40_cluster, open_accounting

from clustergym.common.errors import InputError
from clustergym.oracle.base import OracleTables
from clustergym.scenario.costs import Costs
from clustergym.scenario.scenario import Scenario, list_allowed_counts, model_classes
from clustergym.scenario.tenants.queue_tree import Tenants
from clustergym.sim.drive import simulate
from clustergym.sim.log import EventType
from clustergym.trace.trace import Trace

NODES, GPUS = 4, 8
SPAN_S, LONGEST_S = 60.0, 420.0
"""Seconds in which jobs are submitted, and after which a run counts as hanging."""
BEGIN_S, BURST_S = 15.0, 4.0
"""The first burst of submissions comes so long after a whole minute, others at multiples of the second.

Slurm's scheduler wakes once a second, at moments that nobody knows, and divides shares with each minute.
"""
WAKES_S, PHASES_S = 1.0, (0.0, 0.25, 0.5, 0.75)
"""The policy decides as often. As the part of the second is not known, it is run with each of these."""
ITERATION_S, OVERHEAD_S = 0.01, 0.12
"""An iteration of a simulated job, and what a job of Slurm takes beside its sleep until its CPUs are free."""
SHARES = {"a": 50, "b": 30, "c": 20}
OFTEN = {"bf_interval": 1, "bf_resolution": 1, "bf_max_time": 30, "sched_interval": 1}
"""Backfill every second and to the second. `bf_max_time` is `bf_interval` else, which cuts passes short."""
ALWAYS = {
    "default_queue_depth": 1000,
    "bf_max_job_test": 1000,
    "batch_sched_delay": 0,
    "sched_min_interval": 0,
}


@dataclass(frozen=True)
class Setting:
    """A way to set Slurm up, and the policy's parameters that stand for it.

    Attributes
    ----------
    name : str
    scheduler : mapping of str to int
        Parameters of Slurm's scheduler besides `ALWAYS`.
    fair : bool
        Whether the fair tree counts.
    limits : mapping of str to int
        Most GPUs of an account.
    qos, partitions, shapes : bool
        Whether jobs have qualities of service, partitions of unlike priority, node counts and arrays.
    """

    name: str
    scheduler: Mapping[str, int] = field(default_factory=lambda: OFTEN)
    fair: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    qos: bool = False
    partitions: bool = False
    shapes: bool = False


SETTINGS = (
    Setting("backfill"),
    Setting("default", scheduler={}),
    Setting("fair_tree", fair=True),
    Setting("limits_qos", limits={"a": 20, "b": 16}, qos=True),
    Setting("partitions", partitions=True),
    Setting("shapes", shapes=True),
)


@dataclass(frozen=True)
class SleepJob:
    """A drawn job: what it asks for and how long it sleeps."""

    name: str
    submit_s: float
    gpus: int
    run_s: int
    limit_minutes: int
    account: str
    urgent: bool
    nodes: int
    tasks: int = 1


def draw_jobs(setting: Setting, count: int, seed: int) -> list[SleepJob]:
    """Draw the jobs of a setting; those of all settings are alike but for shapes and arrays."""
    rng = np.random.default_rng(seed)
    submit_s = BEGIN_S + np.sort(rng.uniform(0.0, SPAN_S, count)) // BURST_S * BURST_S
    jobs = []
    for at, submitted in enumerate(submit_s.tolist()):
        gpus = int(rng.choice([1, 2, 4, 8, 16], p=[0.25, 0.25, 0.25, 0.15, 0.1]))
        run_s = int(8 * 9 ** rng.uniform())
        limit = math.ceil(run_s * rng.uniform(1.15, 4.0) / 60)
        account = str(rng.choice(list(SHARES), p=[0.4, 0.3, 0.3]))
        urgent, spread, array = (rng.uniform(size=3) < [0.25, 0.4, 0.2]).tolist()
        nodes = max(1, gpus // GPUS) * (2 if spread and gpus > 1 else 1)
        tasks = 3 if setting.shapes and array and gpus <= 4 else 1
        jobs.append(
            SleepJob(
                f"{account}{at}", submitted, gpus, run_s, limit, account, setting.qos and urgent, nodes, tasks
            )
        )
    return jobs


# Slurm


def slurm_settings(setting: Setting) -> dict[str, str]:
    """Return the lines of `slurm.conf` that make a setting."""
    scheduler = {**ALWAYS, **setting.scheduler}
    return {
        "SchedulerParameters": ",".join(f"{key}={value}" for key, value in scheduler.items()),
        "PriorityType": "priority/multifactor",
        "PriorityCalcPeriod": "1",
        "PriorityDecayHalfLife": "7-0",
        "PriorityMaxAge": "7-0",
        "PriorityWeightAge": "1000",
        "PriorityWeightFairshare": "10000" if setting.fair else "0",
        "PriorityWeightPartition": "1000",
        "PriorityWeightQOS": "1000",
        "SlurmctldDebug": "debug",
        "DebugFlags": "Backfill",
    }


def run_slurm(
    setting: Setting, jobs: Sequence[SleepJob], number: int, folder: Path, db: Accounting, logs: Path | None
) -> Any:
    """Run the jobs on a cluster of their own; return the wait of each and what was seen of the queue.

    Slurm computes shares every minute since its start, and rounds times of reservations to whole minutes:
    daemons and submissions begin with a minute, so that all runs are alike in this.
    """
    cluster = f"{setting.name.replace('_', '')}{number}"
    partitions = ["PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityJobFactor=0"]
    if setting.partitions:
        partitions += [
            f"PartitionName={name} Nodes=ALL MaxTime=INFINITE State=UP PriorityJobFactor={factor}"
            for name, factor in SHARES.items()
        ]
    spec = a40_cluster(cluster, NODES, GPUS)
    local = AccountedSlurm(spec, folder / cluster, slurm_settings(setting), partitions, db)
    commands = []
    for name, share in SHARES.items():
        commands.append(["add", "account", name, f"cluster={cluster}", f"fairshare={share}"])
        if name in setting.limits:
            commands[-1].append(f"grptres=cpu={setting.limits[name]}")
        commands.append(["add", "user", local.user, f"account={name}", f"cluster={cluster}"])
        commands.append(["modify", "account", name, "where", f"cluster={cluster}", "set", "qos=normal,high"])
    local.record_accounts([["add", "qos", "high", "priority=10"], *commands])
    try:
        _await_minute()
        local.start()
        _await_minute()
        load = os.getloadavg()[0]
        found = _play(setting, jobs, local)
        released_s = read_releases(local.folder / "slurmctld.log")
        return {**found, "released_s": released_s, "load": [load, os.getloadavg()[0]]}
    finally:
        if logs is not None:
            logs.mkdir(parents=True, exist_ok=True)
            for path in local.folder.glob("slurmctld.log"):
                shutil.copy(path, logs / f"{cluster}.log")
        local.stop()


def _await_minute() -> None:
    time.sleep(-time.time() % 60.0)


def _play(setting: Setting, jobs: Sequence[SleepJob], local: AccountedSlurm) -> dict[str, Any]:
    begin, queue, log = time.monotonic(), [], local.folder / "completions.txt"
    for submit_s, burst in itertools.groupby(jobs, key=lambda job: job.submit_s):
        time.sleep(max(0.0, begin + submit_s - time.monotonic()))
        numbers = [_submit(setting, job, local) for job in burst]
        # All at once, so that no run sees a part of a burst.
        local.slurm.read("scontrol", "release", ",".join(numbers))
    while True:
        shown = local.slurm.run("squeue", "-h", "-r", "-o", "%j %T %Q %r").stdout.split("\n")
        queue.append([round(time.monotonic() - begin, 1), [line for line in shown if line]])
        if not any(shown) or time.monotonic() - begin > LONGEST_S:
            break
        time.sleep(3.0)
    time.sleep(1.0)
    runs = _read_runs(log)
    if lost := [job.name for job in jobs if len(runs.get(job.name, [])) != job.tasks]:
        remedy = "run fewer settings at once, or on a machine with less to do"
        raise InputError(f"{', '.join(lost)} had not ended after {LONGEST_S:g} s", remedy=remedy)
    return {"runs": runs, "queue": queue}


def read_releases(log: Path) -> list[float]:
    """Return when slurmctld released each job, in order of submission; seconds since the first's minute."""
    found = dict[int, float]()
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if released := re.match(r"\[(\S+)\] .*release hold on JobId=(\d+)", line):
            found[int(released[2])] = datetime.fromisoformat(released[1]).timestamp()
    first_s = min(found.values()) // 60 * 60
    return [found[number] - first_s for number in sorted(found)]


def _submit(setting: Setting, job: SleepJob, local: AccountedSlurm) -> str:
    """Submit a job held, and return its number."""
    words = ["--parsable", "--hold", "-J", job.name, "-A", job.account, "-t", str(job.limit_minutes)]
    words += ["-o", "/dev/null", "-n", str(job.gpus), "-c", "1", "--mem=1"]
    if setting.shapes:
        words += ["-N", str(job.nodes), "--ntasks-per-node", str(max(1, job.gpus // job.nodes))]
    if job.tasks > 1:
        words += [f"--array=0-{job.tasks - 1}"]
    words += ["--qos", "high"] if job.urgent else []
    words += ["-p", job.account] if setting.partitions else []
    done = local.slurm.run("sbatch", *words, "--chdir", "/", "--wrap", f"exec sleep {job.run_s}")
    if done.returncode:
        raise InputError(f"sbatch {' '.join(words)}: {done.stderr.strip()}", remedy="see slurmctld.log")
    return done.stdout.strip()


def _read_runs(log: Path) -> dict[str, list[list[float]]]:
    """Return, by job, submission and start of each task in seconds since the first submission, in order."""
    found: dict[str, list[list[float]]] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        entry = dict(re.findall(r"(\w+)=(\S*)", line))
        stamps = [
            datetime.fromisoformat(entry[key]).timestamp() for key in ("SubmitTime", "StartTime", "EndTime")
        ]
        found.setdefault(entry["Name"], []).append(stamps)
    # Submissions began with a minute.
    first = min(one[0] for tasks in found.values() for one in tasks) // 60 * 60
    return {
        name: sorted([[stamp - first for stamp in one] for one in tasks], key=lambda one: one[1])
        for name, tasks in found.items()
    }


# The policy


def run_policy(
    setting: Setting,
    jobs: Sequence[SleepJob],
    folder: Path,
    overhead_s: float = OVERHEAD_S,
    rounds_s: float = WAKES_S,
    policy: Callable[..., SlurmMultifactor] = SlurmMultifactor,
    **more: Any,
) -> dict[str, list[list[float]]]:
    """Return submission, start and end of the same jobs under the policy, as `run_slurm`."""
    tasks = [(job, f"{job.name}_{at}") for job in jobs for at in range(job.tasks)]
    trace = Trace.from_columns(
        "sleep",
        submit_s=np.array([job.submit_s for job, _ in tasks]),
        iterations=np.array([round((job.run_s + overhead_s) / ITERATION_S) for job, _ in tasks]),
        gpus=np.array([job.gpus for job, _ in tasks]),
        job_id=tuple(name for _, name in tasks),
        model_family=("m",) * len(tasks),
        global_batch=np.full(len(tasks), 32),
        gpu_type=("",) * len(tasks),
        priority=np.array([int(job.urgent) for job, _ in tasks]),
    )
    trace = replace(
        trace,
        time_limit_s=np.array([60.0 * job.limit_minutes for job, _ in tasks]),
        virtual_cluster=tuple(job.account for job, _ in tasks),
        nodes=np.array([job.nodes for job, _ in tasks]) if setting.shapes else None,
    )
    cluster = a40_cluster("slurm", NODES, GPUS)
    counts, classes = list_allowed_counts(cluster, "power_of_two"), model_classes(trace)
    table = np.full((len(classes), 1, len(counts), 4), ITERATION_S)
    tables = OracleTables(classes, cluster.gpu_types, np.array(counts), table, table, table)
    queues = folder / f"{setting.name}.yaml"
    text = "assign_by: virtual_cluster\nqueues:\n"
    for name, share in SHARES.items():
        limit = f", limit: {setting.limits[name]}" if name in setting.limits else ""
        priority = share if setting.partitions else 0
        text += f"  {name}: {{weight: {share}, priority: {priority}{limit}}}\n"
    queues.write_text(text, encoding="utf-8")
    scenario = Scenario(
        name="sleep",
        version=0,
        cluster=cluster,
        trace=trace,
        tables=tables,
        checkpoint_s=np.zeros(len(classes)),
        costs=Costs(search="proxy", profile={}),
        rounds=rounds_s,
        horizon_s=None,
        oversize="error",
        counts_rule="power_of_two",
        tenants=Tenants.from_queues(str(queues), trace, cluster.gpu_types),
    )
    parameters = {
        "backfill_interval_s": setting.scheduler.get("bf_interval", 30.0),
        "backfill_resolution_s": setting.scheduler.get("bf_resolution", 60.0),
        "batch_sched_delay_s": float(ALWAYS["batch_sched_delay"]),
        "fair_share_interval_s": 60.0,
        "gres": False,
        **({} if setting.fair else {"weight_fair_share": 0.0}),
        **more,
    }
    done = simulate(scenario, policy(**parameters), SlurmPlacer())
    found: dict[str, list[list[float]]] = {}
    starts = {e.job: e.time_s for e in done.simulation.log.events if e.event_type == EventType.START}
    for at, name in enumerate(trace.job_id):
        begun, submitted = starts[at], float(trace.submit_s[at])
        one = [submitted, begun, begun + float(trace.iterations[at]) * ITERATION_S]
        found.setdefault(name.rpartition("_")[0], []).append(one)
    return {name: sorted(tasks, key=lambda one: one[1]) for name, tasks in found.items()}


# Comparison


def compare(
    one: Mapping[str, Sequence[Sequence[float]]], other: Mapping[str, Sequence[Sequence[float]]]
) -> dict[str, float]:
    """Return the mean waits of two runs, their ratio, and the part of pairs that start in the same order."""
    pairs = [(a, b) for name in one for a, b in zip(one[name], other[name], strict=True)]
    begun = np.array([[a[1], b[1]] for a, b in pairs])
    waits = np.array([[a[1] - a[0], b[1] - b[0]] for a, b in pairs]).mean(axis=0)
    upper = np.triu_indices(len(pairs), 1)
    gaps = [(begun[:, None, k] - begun[None, :, k])[upper] for k in (0, 1)]
    return {
        "jobs": len(pairs),
        "mean_wait_s": float(waits[0]),
        "other_mean_wait_s": float(waits[1]),
        "ratio": float(waits[1] / waits[0]),
        "pair_order": float((gaps[0] * gaps[1] >= 0).mean()),
        "within_2_s": float((abs(begun[:, 0] - begun[:, 1]) <= 2.0).mean()),
    }


def run_clusters(
    settings: Sequence[Setting], drawn: Mapping[str, list[SleepJob]], folder: Path, logs: Path | None
) -> dict[str, list[Any]]:
    """Run each setting twice on Slurm, all together."""
    with open_accounting(folder) as db, ThreadPoolExecutor(2 * len(settings)) as pool:
        runs = {
            one.name: [pool.submit(run_slurm, one, drawn[one.name], at, folder, db, logs) for at in (1, 2)]
            for one in settings
        }
        print(f"Slurm runs {2 * len(settings)} clusters; at most {LONGEST_S:g} s", flush=True)
        found = {}
        for name, pair in runs.items():
            try:
                found[name] = [one.result() for one in pair]
            except (InputError, OSError, ValueError) as error:
                print(f"{name} was not run: {error}", flush=True)
        return found


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print each setting's agreement of Slurm with itself, and of the policy with Slurm."""
    print(
        f"{'setting':<12} {'pair':<18} {'jobs':>5} {'mean wait, s':>13} {'ratio':>6} {'order':>7} "
        f"{'in 2 s':>7}"
    )
    for row in rows:
        waits = f"{row['mean_wait_s']:.1f} {row['other_mean_wait_s']:.1f}"
        print(
            f"{row['setting']:<12} {row['pair']:<18} {row['jobs']:>5.0f} {waits:>13} {row['ratio']:>6.3f} "
            f"{row['pair_order']:>7.2%} {row['within_2_s']:>7.0%}"
        )


def compare_all(
    settings: Sequence[Setting], recorded: Mapping[str, Any], folder: Path
) -> list[dict[str, Any]]:
    """Return a row for Slurm with itself and one for the policy with both its runs, by setting."""
    rows = []
    for setting in settings:
        jobs = [SleepJob(**job) for job in recorded["jobs"][setting.name]]
        first, second = runs = recorded["slurm"][setting.name]
        ours = [run_at_phase(setting, as_submitted(jobs, first), phase_s, folder) for phase_s in PHASES_S]
        pairs = [compare(run["runs"], one) for run in runs for one in ours]
        itself = compare(first["runs"], second["runs"])
        rows.append({"setting": setting.name, "pair": "Slurm, Slurm", **itself})
        rows.append({"setting": setting.name, "pair": "Slurm, policy", **average(pairs)})
    return rows


def mean_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the means of the rows of each setting and pair."""
    found = dict[tuple[str, str], list[dict[str, float]]]()
    for row in rows:
        figures = {key: value for key, value in row.items() if key not in ("setting", "pair")}
        found.setdefault((row["setting"], row["pair"]), []).append(figures)
    return [
        {"setting": setting, "pair": pair, **average(figures)} for (setting, pair), figures in found.items()
    ]


def run_at_phase(
    setting: Setting, jobs: Sequence[SleepJob], phase_s: float, folder: Path
) -> dict[str, list[list[float]]]:
    """Return what `run_policy` does if the policy decides so long before each whole second.

    Times are whole seconds then, rounded down, as Slurm's are.
    """
    later = [replace(job, submit_s=job.submit_s + phase_s) for job in jobs]
    found = run_policy(setting, later, folder)
    return {
        name: [[math.floor(time_s - phase_s) for time_s in one] for one in tasks]
        for name, tasks in found.items()
    }


def average(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the means of what `compare` returns."""
    return {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]}


def as_submitted(jobs: Sequence[SleepJob], run: Mapping[str, Any]) -> list[SleepJob]:
    """Return the jobs, submitted when a run of Slurm released them."""
    return [
        replace(job, submit_s=released_s) for job, released_s in zip(jobs, run["released_s"], strict=True)
    ]


def main() -> None:
    """Run the settings and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [one.name for one in SETTINGS]
    parser.add_argument("settings", nargs="*", metavar="SETTING", help=", ".join(names))
    parser.add_argument("--jobs", type=int, default=50, help="jobs of each setting (50)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write jobs, runs and rows here")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep the logs of slurmctld here")
    words = "runs of Slurm that --json wrote"
    parser.add_argument("--recorded", type=Path, nargs="+", metavar="FILE", help=words)
    arguments = parser.parse_args()
    unknown = set(arguments.settings) - set(names)
    if unknown:
        parser.error(f"no setting {sorted(unknown)[0]}; there are {', '.join(names)}")
    settings = [one for one in SETTINGS if one.name in (arguments.settings or names)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            rows, recorded = [], dict[str, Any]()
            for path in arguments.recorded or ():
                recorded = json.loads(path.read_text(encoding="utf-8"))
                known = [one for one in settings if one.name in recorded["slurm"]]
                rows.append(compare_all(known, recorded, folder))
            if arguments.recorded is None:
                drawn = {one.name: draw_jobs(one, arguments.jobs, arguments.seed) for one in settings}
                slurm = run_clusters(settings, drawn, folder, arguments.logs)
                jobs = {key: [asdict(job) for job in jobs] for key, jobs in drawn.items()}
                recorded = {"jobs": jobs, "slurm": slurm}
                if arguments.json is not None:
                    arguments.json.write_text(json.dumps(recorded), encoding="utf-8")
                rows.append(compare_all([one for one in settings if one.name in slurm], recorded, folder))
        except (InputError, OSError, ValueError) as error:
            parser.error(str(error))
    for of_one in rows:
        print_table(of_one)
    if len(rows) > 1:
        print(f"means of {len(rows)} draws")
        print_table(mean_rows([row for of_one in rows for row in of_one]))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({**recorded, "rows": rows}), encoding="utf-8")
        print(f"wrote {arguments.json}")


if __name__ == "__main__":
    main()
