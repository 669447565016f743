"""Draw a log of known rules: jobs that a policy scheduled, printed as `sacct -P` prints them."""

from pathlib import Path

import numpy as np
import yaml

from clustergym.common.columns import iso, parse_seconds
from clustergym.results.measured_run import Result, simulate
from clustergym.scenario.by_name import compose
from clustergym.scenario.registry import make_placer, make_policy
from clustergym.scenario.scenario_config import build_scenario

ORIGIN_S = parse_seconds("2026-03-02 00:00:00")
"""A Monday."""
HEAD = "User|JobID|State|Submit|Start|End|ElapsedRaw|AllocTRES|Timelimit|Partition|Account|QOS|NNodes"
ENDS = ("COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "CANCELLED by 1001", "TIMEOUT")


def draw_jobs(folder: Path, jobs: int, span_s: float, seed: int, most_gpus: int = 16) -> Path:
    """Write a log of drawn jobs without starts: whole seconds, more by day than by night, three teams."""
    rng = np.random.default_rng([seed, 77])
    at = np.sort(rng.random(jobs) * span_s)
    day = at % 86_400 / 86_400
    at = np.sort(at + 3600 * 3 * np.sin(2 * np.pi * day)).clip(min=0).astype(int)
    gpus = rng.choice([1, 2, 3, 4, 8, 16, 32], p=[0.4, 0.16, 0.04, 0.18, 0.14, 0.06, 0.02], size=jobs)
    users = rng.integers(0, 12, jobs)
    usual = np.exp(rng.normal(7.6, 0.8, 12))[users]
    run = np.maximum((usual * np.exp(rng.normal(0, 0.9, jobs))).astype(int), 20)
    ratio = rng.uniform(0.2, 1.0, 12)[users] * rng.uniform(0.5, 1.0, jobs)
    limit = np.maximum(np.ceil(run / ratio / 600) * 600, 600).astype(int)
    path = folder / "drawn.csv"
    kinds = rng.choice(["A100", "V100"], size=jobs, p=[0.6, 0.4])
    rows = [
        f"{1000 + row},{iso(ORIGIN_S + int(at[row]))},{run[row]},{min(gpus[row], most_gpus)},{kinds[row]},"
        f"u{users[row]},team{users[row] % 3},{limit[row]},{['completed', 'failed', 'killed'][row % 3]},"
        f"{max(min(gpus[row], most_gpus) // 8, 1)}"
        for row in range(jobs)
    ]
    header = "job_id,submit_time,duration,gpus,gpu_type,user,virtual_cluster,time_limit_s,outcome,nodes"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def write_cluster(folder: Path, **count: int) -> Path:
    """Write a cluster of so many nodes of 8 GPUs of each type."""
    nodes = [{"gpu_type": name, "count": number, "gpus_per_node": 8} for name, number in count.items()]
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump({"name": "mine", "nodes": nodes}))
    return path


def run_log(folder: Path, log: Path, policy: list[str], queues: str | None = None) -> Result:
    """Return the run of a log under known rules."""
    words = ["scenario=own-log", f"cluster.path={folder / 'cluster.yaml'}", f"trace.path={log}"]
    words += ["trace.time_limits=keep", *policy, *([f"scenario.queues={queues}"] if queues else [])]
    config = compose(words)
    return simulate(build_scenario(config), make_policy(config["policy"]), make_placer(config["placer"]))


def sacct_text(result: Result) -> str:
    """Return a run as `sacct -P` prints it: times in whole seconds, with steps, in another column order."""
    trace, jobs = result.run.simulation.scenario.trace, result.jobs
    assert trace.time_limit_s is not None
    assert trace.nodes is not None
    lines = [HEAD]
    for row in range(len(trace)):
        start = ORIGIN_S + round(float(jobs.first_start_s[row]))
        end = ORIGIN_S + round(float(jobs.end_s[row]))
        gpus, kind = int(trace.gpus[row]), trace.gpu_type[row].lower()
        tres = f"billing={8 * gpus},cpu={8 * gpus},gres/gpu:{kind}={gpus},gres/gpu={gpus},mem=64G,node=1"
        limit_s = int(trace.time_limit_s[row])
        limit = f"{limit_s // 86400}-{limit_s // 3600 % 24:02d}:{limit_s // 60 % 60:02d}:{limit_s % 60:02d}"
        submit = iso(ORIGIN_S + float(trace.submit_s[row]))
        cells = (ENDS[row % len(ENDS)], submit, iso(start), iso(end), str(int(end - start)), tres, limit)
        place = f"gpu-{kind}|{trace.virtual_cluster[row]}|normal|{trace.nodes[row]}"
        lines.append(f"{trace.user[row]}|{trace.job_id[row]}|" + "|".join(cells) + f"|{place}")
        lines.append(f"|{trace.job_id[row]}.batch|" + "|".join(cells[:5]) + f"|cpu=8||{place}")
    return "\n".join(lines) + "\n"
