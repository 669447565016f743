"""A policy drives sixty sbatch scripts on a Slurm that others use too, through a restart and a kill.

`python benchmarks/live_scripts.py [--scripts 60] [--keep FOLDER]` starts, as root, a cluster of 16 GPUs with
accounts in a database, two partitions that share a node, another user's jobs, and a node that is reserved for
him. `clustergym live live.jobs=FOLDER` drives the scripts; meanwhile it is killed (SIGKILL) and started
again, and slurmctld is restarted. What the scripts wrote, and what `sacct` says, is then held against what
was asked.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from slurm_cluster import AccountedSlurm, Accounting, a40_cluster, open_accounting

from clustergym.common.errors import InputError

NODES, GPUS = 4, 4
OTHER = "nobody"
RESERVED = "a40n3"
LAST_LINES = 40
EVERY = {"SINFO_PARTITION": "every"}
PARTITIONS = (
    "PartitionName=main Nodes=a40n[0-2] Default=YES MaxTime=INFINITE State=UP",
    "PartitionName=debug Nodes=a40n[2-3] MaxTime=INFINITE State=UP",
    "PartitionName=every Nodes=ALL State=DOWN",
)
SCRIPT = """\
#!/bin/bash
#SBATCH -A {account} -p {partition} -N {nodes} --ntasks-per-node=1 --mem=1
#SBATCH --gres=gpu:a40:{each} --time={minutes} -o /dev/null
{more}
# Works for {run_s} s in all, over all its runs.
said={folder}/{name}
echo "begin $SLURM_JOB_ID $CLUSTERGYM_ATTEMPT $CLUSTERGYM_GPUS" >> $said.log
trap 'echo "saved $done_s" >> $said.log; exit 3' USR1
done_s=$(cat $said.state 2> /dev/null || echo 0)
while [ "$done_s" -lt {run_s} ]; do
    sleep 1
    done_s=$((done_s + 1))
    echo $done_s > $said.state
done
echo "end $SLURM_JOB_ID" >> $said.log
"""


class SharedSlurm(AccountedSlurm):
    """The cluster, whose slurmctld can be restarted."""

    def restart_controller(self) -> None:
        """End slurmctld, and start it again some seconds later."""
        self._children[0].terminate()
        self._children[0].wait()
        time.sleep(3.0)
        self._launch([self._program("slurmctld"), "-D"])


def write_scripts(folder: Path, said: Path, count: int, seed: int) -> None:
    """Draw the scripts; a third of them can be stopped, and half of these resized."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    said.mkdir()
    said.chmod(0o777)
    for at in range(count):
        partition = str(rng.choice(["main", "debug"], p=[0.75, 0.25]))
        gpus = int(rng.choice([1, 2, 4, 8] if partition == "main" else [1, 2, 4]))
        more = ""
        if at % 3 == 0:
            more = "#SBATCH --signal=B:USR1@10"
            more += f"\n#CLUSTERGYM sizes={gpus // 2},{gpus}" if at % 6 == 0 and gpus in (2, 4) else ""
        text = SCRIPT.format(
            account=["vision", "speech"][at % 2],
            partition=partition,
            nodes=max(1, gpus // GPUS),
            each=min(gpus, GPUS),
            minutes=int(rng.integers(1, 6)),
            more=more,
            run_s=int(rng.integers(3, 16)),
            folder=said,
            name=f"job{at:02d}",
        )
        (folder / f"job{at:02d}.sh").write_text(text, encoding="utf-8")


def make_cluster(folder: Path, db: Accounting) -> SharedSlurm:
    """Return the cluster with its accounts, not started."""
    spec = a40_cluster("shared", NODES, GPUS)
    settings = {
        "SchedulerParameters": "bf_interval=2,sched_interval=2,batch_sched_delay=0,sched_min_interval=0",
        "MinJobAge": "10",
        "SlurmdUser": "root",
    }
    local = SharedSlurm(spec, folder / "shared", settings, PARTITIONS, db, gres=True)
    local.slurm.environment.update(EVERY)
    commands = []
    for account in ("vision", "speech", "others"):
        user = OTHER if account == "others" else local.user
        commands.append(["add", "account", account, "cluster=shared"])
        commands.append(["add", "user", user, f"account={account}", "cluster=shared"])
    local.record_accounts(commands)
    return local


def submit_others(local: SharedSlurm, count: int, least_s: int) -> list[str]:
    """Submit jobs of the other user to both partitions, of so many seconds; return their numbers."""
    numbers = []
    for at in range(count):
        where = ["-p", "debug", "--reservation=his"] if at % 3 == 0 else ["-p", "main"]
        words = ["sbatch", "--parsable", f"--uid={OTHER}", "-A", "others", *where, "--mem=1", "-t", "3"]
        words += [f"--gres=gpu:a40:{1 + at % 3}", "-o", "/dev/null", "--chdir", "/", "-J", "clustergym"]
        numbers += local.slurm.read(*words, "--wrap", f"exec sleep {least_s + 5 * (at % 5)}")
    return numbers


@contextmanager
def _driving(
    local: SharedSlurm, scripts: Path, out: Path, policy: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start `clustergym live` on the scripts; kill it at the end, if it still runs."""
    words = [sys.executable, "-m", "clustergym", "live", *policy, "live.engine=slurm", "live.poll_s=0.5"]
    words += [f"live.jobs={scripts}", f"hydra.run.dir={out}"]
    with (out.parent / "live.txt").open("ab") as log:
        live = subprocess.Popen(words, env=local.slurm.environment, stdout=log, stderr=log)
    try:
        yield live
    finally:
        live.kill()
        live.wait()


def play(
    folder: Path, count: int, policy: Sequence[str], most_s: float = 900.0, *, disturbed: bool = True
) -> dict[str, Any]:
    """Run it all, and return what came of it; without the kill and the restart if it is not disturbed."""
    scripts, said, out = folder / "scripts", folder / "said", folder / "live"
    write_scripts(scripts, said, count, 1)
    with open_accounting(folder) as db:
        local = make_cluster(folder, db)
        try:
            local.start()
            del local.slurm.environment["SINFO_PARTITION"]
            words = ("scontrol", "create", "reservation", "reservationname=his", f"users={OTHER}")
            local.slurm.read(*words, f"nodes={RESERVED}", "starttime=now", "duration=60", "flags=ignore_jobs")
            others = submit_others(local, max(count // 6, 3), 20 if disturbed else 1)
            folders, until = (scripts, said, out), time.monotonic() + most_s
            ended = _drive_through(local, folders, count if disturbed else 0, policy, until)
            while local.slurm.read("squeue", "-h", "-a", "-o", "%A"):
                time.sleep(1.0)
            time.sleep(8.0)
            return {**judge(local, said, count, others), **ended}
        finally:
            print_last_lines(local, folder)
            local.stop()


def print_last_lines(local: SharedSlurm, folder: Path) -> None:
    """Print to stderr what names the cause of a failure, before the cluster's files go."""
    for words in (["sinfo", "-N", "-a", "-h", "-o", "%N %T %H %E"], ["squeue", "-a", "-o", "%A %j %T %r %N"]):
        done = local.slurm.run(*words)
        print(f"{' '.join(words)}\n{done.stdout}{done.stderr}", file=sys.stderr)
    for path in (local.folder / "slurmctld.log", folder / "live.txt"):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        print("\n".join([f"{path.name}:", *lines[-LAST_LINES:]]), file=sys.stderr)


def _drive_through(
    local: SharedSlurm, folders: tuple[Path, Path, Path], disturbed: int, policy: Sequence[str], until: float
) -> dict[str, int]:
    """Drive the scripts to their end, then once more.

    Of a run that is disturbed (it has so many scripts, else 0) it is killed when a sixth of them have begun;
    later slurmctld is restarted.
    """
    scripts, said, out = folders
    if disturbed:
        with _driving(local, scripts, out, policy) as live:
            _await_scripts(said, disturbed // 6, live, until)
        time.sleep(2.0)
    with _driving(local, scripts, out, policy) as live:
        if disturbed:
            _await_scripts(said, disturbed // 3, live, until)
            local.restart_controller()
        status = live.wait(timeout=max(until - time.monotonic(), 1.0))
    before = local.slurm.read("squeue", "-h", "-a", "-t", "all", "-o", "%A")
    with _driving(local, scripts, out, policy) as live:
        again = live.wait(timeout=max(until - time.monotonic(), 1.0))
    after = local.slurm.read("squeue", "-h", "-a", "-t", "all", "-o", "%A")
    return {"status": status, "again": again, "submitted_again": len(set(after) - set(before))}


def _await_scripts(said: Path, count: int, live: subprocess.Popen[bytes], until: float) -> None:
    """Wait until so many scripts have begun."""
    while len(list(said.glob("*.log"))) < count:
        if live.poll() is not None or time.monotonic() > until:
            raise InputError("the run ended, or began too few scripts", remedy="see live.txt")
        time.sleep(0.2)


def judge(local: SharedSlurm, said: Path, count: int, others: Sequence[str]) -> dict[str, Any]:
    """Hold what the scripts wrote, and what sacct says, against what was asked."""
    lines = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in said.glob("*.log")}
    ends = Counter(name for name, rows in lines.items() for row in rows if row.startswith("end"))
    begun = {
        name: [row.split()[3] for row in rows if row.startswith("begin")] for name, rows in lines.items()
    }
    words = ("sacct", "-a", "-n", "-X", "-P", "-S", "now-1hours", "-o", "JobIDRaw,User,State,NodeList")
    rows = [row.split("|") for row in local.slurm.read(*words)]
    his = {row[0]: row for row in rows if row[1] == OTHER}
    ours = [row for row in rows if row[1] == local.user]
    return {
        "scripts": count,
        "ended_once": sum(ends[name] == 1 for name in lines),
        "ended_more_often": sum(number > 1 for number in ends.values()),
        "runs": sum(map(len, begun.values())),
        "ran_at_several_sizes": sum(len(set(sizes)) > 1 for sizes in begun.values()),
        "saved": sum(row.startswith("saved") for rows in lines.values() for row in rows),
        "on_reserved_node": sum(row[3] == RESERVED for row in ours),
        "of_others": len(others),
        "of_others_completed": sum(his[number][2] == "COMPLETED" for number in others if number in his),
    }


def main() -> None:
    """Play it and print what came of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scripts", type=int, default=60, help="(60)")
    parser.add_argument("--policy", nargs="+", default=["policy=srtf"], metavar="WORD", help="(policy=srtf)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep scripts, logs and ledger here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        # Scripts of the other user are in it while they run.
        Path(name).chmod(0o755)
        try:
            folder = options.keep or Path(name)
            for key, value in play(folder.absolute(), options.scripts, options.policy).items():
                print(f"{key.replace('_', ' ')}: {value}")
        except (InputError, OSError, subprocess.SubprocessError) as error:
            parser.error(str(error))


if __name__ == "__main__":
    main()
