"""How well a twin replays half an hour of a real Slurm: drawn jobs, `sacct`'s log, import and `twin fit`.

`python benchmarks/slurm_twin.py --out FOLDER` starts clusters of Slurm on this machine (as root, as GRES
wants it), each with GPUs, accounts in a database and Slurm's default intervals of backfill, submits drawn
`sleep` jobs for `--minutes 30`, writes what an operator prints into FOLDER/SETTING, and fits a twin to it.
`--recorded FOLDER` fits what such a run wrote.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from slurm_cluster import AccountedSlurm, Accounting, a40_cluster, open_accounting

from clustergym.common.errors import InputError

NODES, GPUS, LOAD = 6, 4, 1.05
SHARES = {"vision": 50, "speech": 30, "robots": 20}
SETTINGS = {"age": "0", "fair": "10000"}
"""Settings by name, with the weight of fair share."""
PRINTED = {
    "sacct.txt": "sacct -a -X -P -S now-1days -o JobID,User,Account,Partition,QOS,Submit,Start,End,"
    "ElapsedRaw,State,Timelimit,AllocTRES,ReqTRES,NNodes",
    "nodes.txt": "scontrol show node",
    "config.txt": "scontrol show config",
    "assoc.txt": "sacctmgr -P show assoc cluster={cluster} format=Account,User,ParentName,Share,GrpTRES",
}
"""What an operator prints, by file."""


@dataclass(frozen=True)
class SleepJob:
    """A drawn job."""

    submit_s: float
    gpus: int
    run_s: int
    limit_minutes: int
    account: str


def draw_jobs(minutes: float, seed: int) -> list[SleepJob]:
    """Draw jobs that ask for `LOAD` times what the cluster has."""
    rng = np.random.default_rng(seed)
    sizes, odds = [1, 2, 4, 8, 12], [0.35, 0.25, 0.2, 0.15, 0.05]
    shortest_s, longest_s = 10.0, 240.0
    mean_s = (longest_s - shortest_s) / math.log(longest_s / shortest_s)
    count = round(60 * minutes * LOAD * NODES * GPUS / (np.dot(sizes, odds) * mean_s))
    jobs = []
    for submit_s in np.sort(rng.uniform(0.0, 60 * minutes, count)).tolist():
        gpus = int(rng.choice(sizes, p=odds))
        run_s = int(shortest_s * (longest_s / shortest_s) ** rng.uniform())
        limit = math.ceil(run_s * rng.uniform(1.15, 4.0) / 60)
        account = str(rng.choice(list(SHARES), p=[0.4, 0.35, 0.25]))
        jobs.append(SleepJob(submit_s, gpus, run_s, limit, account))
    return jobs


def run_slurm(name: str, jobs: Sequence[SleepJob], folder: Path, db: Accounting, out: Path) -> None:
    """Run the jobs on a cluster of their own, and write what an operator prints of it."""
    spec = a40_cluster(name, NODES, GPUS)
    settings = {
        "PriorityType": "priority/multifactor",
        "PriorityDecayHalfLife": "7-0",
        "PriorityMaxAge": "7-0",
        "PriorityWeightAge": "100000",
        "PriorityWeightFairshare": SETTINGS[name],
        "MinJobAge": "300",
    }
    partition = ["PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"]
    local = AccountedSlurm(spec, folder / name, settings, partition, db, gres=True)
    commands = []
    for account, share in SHARES.items():
        commands.append(["add", "account", account, f"cluster={name}", f"fairshare={share}"])
        commands.append(["add", "user", local.user, f"account={account}", f"cluster={name}"])
    local.record_accounts(commands)
    try:
        local.start()
        begin = time.monotonic()
        for job in jobs:
            time.sleep(max(0.0, begin + job.submit_s - time.monotonic()))
            nodes = max(1, job.gpus // GPUS)
            words = ["--parsable", "-A", job.account, "-t", str(job.limit_minutes), "-o", "/dev/null"]
            words += ["-N", str(nodes), f"--gres=gpu:a40:{job.gpus // nodes}", "--mem=1", "--chdir", "/"]
            words += [f"--ntasks-per-node={job.gpus // nodes}"]
            local.slurm.read("sbatch", *words, "--wrap", f"exec sleep {job.run_s}")
        while local.slurm.read("squeue", "-h", "-o", "%A"):
            time.sleep(5.0)
        time.sleep(5.0)
        out.mkdir(parents=True, exist_ok=True)
        for file, words in PRINTED.items():
            lines = local.slurm.read(*words.format(cluster=name).split())
            (out / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    finally:
        local.stop()


def record(minutes: float, seed: int, out: Path) -> None:
    """Run all settings on Slurm, beside each other."""
    with tempfile.TemporaryDirectory() as name, open_accounting(Path(name)) as db:
        jobs = draw_jobs(minutes, seed)
        print(f"{len(jobs)} jobs, {minutes:g} minutes", flush=True)
        with ThreadPoolExecutor(len(SETTINGS)) as pool:
            runs = [
                pool.submit(run_slurm, setting, jobs, Path(name), db, out / setting) for setting in SETTINGS
            ]
            for run in runs:
                run.result()


def fit(out: Path) -> list[tuple[str, dict[str, Any]]]:
    """Import what each setting printed, by the commands of the page, and return its fit."""
    found = []
    for setting in SETTINGS:
        mine = out / setting / "mine"
        shutil.rmtree(mine, ignore_errors=True)
        source = {name: str(out / setting / name) for name in PRINTED}
        commands = [
            ["trace", "import", source["sacct.txt"], "--nodes", source["nodes.txt"], "-o", f"{mine}/log.csv"],
            ["cluster", "import", source["nodes.txt"], "-o", f"{mine}/cluster.yaml"],
            ["twin", "rules", source["config.txt"], source["assoc.txt"], "-o", str(mine)],
            ["twin", "fit", str(mine), "--json", f"{mine}/fit.json"],
        ]
        for words in commands:
            subprocess.run([sys.executable, "-m", "clustergym", *words], check=True, capture_output=True)
        found.append((setting, json.loads((mine / "fit.json").read_text(encoding="utf-8"))))
    return found


def main() -> None:
    """Record, unless that was done, and fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="of submissions (30)")
    parser.add_argument("--seed", type=int, default=1, help="of the draw (1)")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where to write what Slurm prints")
    parser.add_argument("--recorded", type=Path, metavar="FOLDER", help="what --out wrote")
    arguments = parser.parse_args()
    if (arguments.out is None) == (arguments.recorded is None):
        parser.error("give --out FOLDER, or --recorded FOLDER")
    try:
        if arguments.recorded is None:
            record(arguments.minutes, arguments.seed, arguments.out)
        fits = fit(arguments.recorded or arguments.out)
    except (InputError, OSError, ValueError, subprocess.CalledProcessError) as error:
        parser.error(str(error))
    print(f"{'setting':<8} {'jobs':>5} {'logged, s':>10} {'replayed, s':>12} {'ratio':>6} {'in 60 s':>8}")
    for setting, told in fits:
        row = told["waits"]["all"]["all jobs"]
        logged, replayed = row["logged"]["mean_s"], row["simulated"]["mean_s"]
        ratio = replayed / logged if logged else float("nan")
        line = f"{setting:<8} {told['jobs']:>5} {logged:>10.1f} {replayed:>12.1f} {ratio:>6.3f}"
        print(f"{line} {row['close']:>8.1%}")


if __name__ == "__main__":
    main()
