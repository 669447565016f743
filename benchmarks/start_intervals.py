"""How many starts the 80 % intervals of `clustergym twin eta` hold, on logs of drawn jobs with known rules.

`PYTHONPATH=tests/support python benchmarks/start_intervals.py [--json FILE]` draws a log for each policy and
seed, and asks at moments of its later half at which jobs wait, by what was known then, when they start.
Starts of one moment, and of moments of one busy time, are off together: `+-` is the standard error over
moments, and too small where queues last for longer than moments are apart. Some ten CPU-minutes a log.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from clustergym.operators.twin.advice import estimate_starts
from clustergym.operators.twin.ahead import Ahead
from clustergym.operators.twin.folder import TwinFolder
from drawn_logs import draw_jobs, run_log, sacct_text, write_cluster

from clustergym.common.columns import DAY_S
from clustergym.sim.log import EventType
from clustergym.trace.log_files import write_log
from clustergym.trace.present import Present, log_job
from clustergym.trace.readers import sacct
from clustergym.trace.readers.sacct import SlurmJob
from clustergym.trace.trace import Trace

POLICIES = {"fcfs": "fcfs", "slurm": "slurm-multifactor backfill=easy weight_fair_share=0"}
JOBS_A_DAY = 105


def make_twin(folder: Path, policy: str, days: float, seed: int) -> tuple[TwinFolder, dict[str, str]]:
    """Return a twin of 32 GPUs of two types whose log a policy made, and the hosts of each job."""
    folder.mkdir(parents=True)
    write_cluster(folder, A100=2, V100=2)
    log = draw_jobs(folder, round(JOBS_A_DAY * days), days * DAY_S, seed, 8)
    queues = folder / "queues.yaml"
    queues.write_text("queues: {team0: {}, team1: {}, team2: {}}\n", encoding="utf-8")
    twin = TwinFolder(folder)
    result = run_log(folder, log, twin.policy_words(policy), str(queues))
    (folder / "sacct.txt").write_text(sacct_text(result), encoding="utf-8")
    write_log(sacct.read_log(folder / "sacct.txt"), folder / "log.csv")
    simulation = result.run.simulation
    job_id = simulation.scenario.trace.job_id
    return twin, {
        job_id[event.job]: ",".join(f"n{node}" for node, _ in event.nodes)
        for event in simulation.log.events
        if event.event_type == EventType.START
    }


def snapshot(trace: Trace, now_s: float) -> Present:
    """Return the jobs of a log that ran or waited at a moment, in seconds on the log's clock."""
    assert trace.start_s is not None
    end_s = trace.start_s + trace.work_iterations
    running, waiting = list[SlurmJob](), list[SlurmJob]()
    for row in np.flatnonzero((trace.submit_s <= now_s) & (end_s > now_s)).tolist():
        job = log_job(trace, row)
        if trace.start_s[row] <= now_s:
            running.append(replace(job, state="RUNNING", start_s=float(trace.start_s[row])))
        else:
            waiting.append(job)
    return Present(now_s, tuple(running), tuple(waiting))


def measure(
    twin: TwinFolder, hosts: Mapping[str, str], policy: str, moments: int, draws: int, seed: int
) -> list[dict[str, Any]]:
    """Return a row for each job that waited at a moment: its interval, and when it started."""
    trace = twin.log
    assert trace.start_s is not None
    start_s = dict(zip(trace.job_id, trace.start_s.tolist(), strict=True))
    first_s, last_s = float(trace.submit_s[len(trace) // 2]), float(trace.submit_s[-1])
    rows, generator = list[dict[str, Any]](), np.random.default_rng(seed)
    while moments:
        now_s = float(generator.uniform(first_s, last_s))
        present = snapshot(trace, now_s)
        if not present.waiting:
            continue
        moments -= 1
        running = (replace(job, hosts=hosts[job.job_id]) for job in present.running)
        present = replace(present, running=tuple(running))
        ahead = Ahead(twin, present, policy, until_s=now_s)
        for row in estimate_starts(ahead, draws, seed):
            low, high = (np.inf if row[key] is None else row[key] for key in ("p10_s", "p90_s"))
            began = start_s[row["job_id"]] - now_s
            where = "below" if began < low else "above" if began > high else "inside"
            rows.append({"now_s": now_s, "began_s": began, "p10_s": low, "p90_s": high, "where": where})
    return rows


def summarise(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the shares of starts inside, below and above, and the standard error over moments."""
    at, where = np.array([row["now_s"] for row in rows]), np.array([row["where"] for row in rows])
    inside = where == "inside"
    moments, held, jobs = np.unique(at), [], []
    for moment in moments:
        held.append(inside[at == moment].sum())
        jobs.append((at == moment).sum())
    # Of a ratio of sums over moments (Cochran, Sampling Techniques, 1977, section 6.3).
    off = np.array(held) - inside.mean() * np.array(jobs)
    error = float(np.sqrt((off**2).sum())) / len(rows)
    shares = {name: float((where == name).mean()) for name in ("inside", "below", "above")}
    return {"moments": len(moments), "starts": len(rows), **shares, "error": error}


def main() -> None:
    """Measure and print a row for each policy and seed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("policies", nargs="*", metavar="POLICY", help=", ".join(POLICIES))
    parser.add_argument("--days", type=float, default=42.0, help="of each log (42)")
    parser.add_argument("--moments", type=int, default=80, help="of each later half at which jobs wait (80)")
    parser.add_argument("--draws", type=int, default=19, help="of run times (19)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the logs (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    options = parser.parse_args()
    if unknown := set(options.policies) - POLICIES.keys():
        parser.error(f"no policy {sorted(unknown)[0]}; there are {', '.join(POLICIES)}")
    found = []
    print(f"{'policy':<7} {'seed':>4} {'moments':>8} {'starts':>7} {'inside':>15} {'below':>7} {'above':>7}")
    with tempfile.TemporaryDirectory() as name:
        for policy in options.policies or POLICIES:
            for seed in options.seeds:
                twin, hosts = make_twin(Path(name) / f"{policy}-{seed}", POLICIES[policy], options.days, seed)
                rows = measure(twin, hosts, POLICIES[policy], options.moments, options.draws, seed)
                told = summarise(rows)
                print(
                    f"{policy:<7} {seed:>4} {told['moments']:>8} {told['starts']:>7} "
                    f"{told['inside']:>7.1%} +- {told['error']:>4.1%} {told['below']:>7.1%} "
                    f"{told['above']:>7.1%}",
                    flush=True,
                )
                found.append({"policy": policy, "seed": seed, **told, "rows": rows})
    if options.json is not None:
        options.json.write_text(json.dumps({"logs": found}), encoding="utf-8")
        print(f"wrote {options.json}")


if __name__ == "__main__":
    main()
