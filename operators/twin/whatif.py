"""Compare other rules, more GPUs or other quotas with today's rules, on drawn months of a log.

A drawn month has the weeks of the log, in another order and with repetition.
"""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from clustergym.benchmark.study.study_file import Study, read_cells, read_study, run_cells, slug
from clustergym.cluster.cluster_files import canonical_gpu_type, load_cluster
from clustergym.common import random_streams
from clustergym.common.arrays import Ints
from clustergym.common.columns import DAY_S
from clustergym.common.errors import InputError, nearest
from clustergym.common.writing import write_text
from clustergym.results.metrics.statistics import estimate, estimate_nonnegative
from clustergym.scenario.tenants.queue_tree import load_queues
from clustergym.trace.log_files import write_log
from clustergym.trace.records import RecordedJobs
from clustergym.trace.trace import Trace

from .figures import Prices, check_counts, read_course, summarise_run
from .folder import CLUSTER, QUEUES, TwinFolder
from .plans import Plan, read_plans
from .waits import BY


class Drawn(NamedTuple):
    """A log resampled at random: its file, number of jobs, and start of its clock (seconds since 1970)."""

    path: Path
    jobs: int
    origin_s: float


MANY_WEEKS = 8
"""Whole weeks from which on whole weeks are drawn; of fewer, days of the same weekday."""


def drawn_days(trace: Trace, days: int, seed: int) -> Ints:
    """Sample for each of `days` new days the day of the log that it repeats, shape (days,).

    They are whole weeks of a log of at least `MANY_WEEKS`; otherwise each is a day of the same weekday,
    or any day of a log of less than two weeks.
    """
    whole = int((trace.span_s + 1) // DAY_S)
    if whole < 2:
        remedy = "give a longer log: two days at least, better eight weeks"
        raise InputError(f"covers {trace.span_s / 3600:.1f} h", file=trace.path or None, remedy=remedy)
    generator = random_streams.RESAMPLED_WEEKS.generator(seed, 0)
    if whole < 14:
        return generator.integers(0, whole, days)
    at, weeks = np.arange(days), whole // 7
    chosen = generator.integers(0, weeks, days)
    week = chosen[at // 7] if weeks >= MANY_WEEKS else chosen
    found: Ints = 7 * week + at % 7
    return found


def draw_log(trace: Trace, days: float, seed: int, path: Path) -> Drawn:
    """Write a log of days resampled from a trace; each job keeps its time of day and its duration.

    Parameters
    ----------
    trace : Trace
        A log whose jobs do an iteration a second.
    days : float
    seed : int
    path : Path
    """
    chosen_days = drawn_days(trace, max(int(np.ceil(days)), 1), seed)
    day = np.floor((trace.submit_s - trace.submit_s[0]) / DAY_S).astype(np.int64)
    rows, submit_s, job_id = list[int](), list[float](), list[str]()
    for at, chosen in enumerate(chosen_days.tolist()):
        for row in np.flatnonzero(day == chosen).tolist():
            moved_s = float(trace.submit_s[row]) + (at - chosen) * DAY_S
            if moved_s - float(trace.submit_s[0]) < days * DAY_S:
                rows.append(row)
                submit_s.append(moved_s)
                job_id.append(f"{trace.job_id[row]}~{at}")
    if not rows:
        raise InputError("has no job in the drawn days", file=trace.path or None, remedy="give more days")
    drawn, origin = trace.take(rows), trace.clock_start_s
    kept = "gpus", "gpu_type", "user", "virtual_cluster", "partition", "outcome", "priority", "nodes"
    log = RecordedJobs(
        path=path,
        format="drawn",
        sha256="",
        row=np.arange(len(rows)),
        line=[0] * len(rows),
        duration_s=drawn.work_iterations.astype(np.float64),
        job_id=job_id,
        submit_s=origin + np.array(submit_s),
        left_out=Counter(),
        time_limit_s=drawn.time_limit_s,
        **{name: getattr(drawn, name) for name in kept},
    )
    write_log(log, path)
    return Drawn(path, len(rows), origin + min(submit_s))


TODAY = "today"
METRICS = {
    "queue_mean": "mean wait",
    "jct_mean": "mean time to completion",
    "gpu_utilization": "GPUs in use",
    "lost_gpu_hours": "GPU-hours lost",
}


@dataclass(frozen=True)
class Question:
    """A what-if question about a cluster: which rules, quotas or GPUs to change.

    Attributes
    ----------
    policies : tuple of str
        Rules beside today's, as `NAME KEY=VALUE …` or YAML files.
    add : tuple of str
        GPUs as `16xA100`.
    quotas, limits : mapping of str to float
        GPUs by queue.
    days : float
        Length of each drawn month.
    resamples : int
        How many are drawn.
    words : tuple of str
        Overrides of every run.
    plans : Path or None
        File of capacity plans.
    """

    policies: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    quotas: Mapping[str, float] | None = None
    limits: Mapping[str, float] | None = None
    days: float = 30.0
    resamples: int = 5
    words: tuple[str, ...] = ()
    plans: Path | None = None


def changed_cluster(twin: TwinFolder, add: Sequence[str], out: Path) -> Path:
    """Write the cluster's file with whole nodes added for texts such as `16xA100`; return its path."""
    load_cluster(str(twin.file(CLUSTER).absolute()))
    given = twin.content(CLUSTER)
    nodes = [dict(group) for group in given.get("nodes", [])]
    own = {str(group["gpu_type"]).lower(): group for group in nodes}
    for text in add:
        found = re.fullmatch(r"(\d{1,6})x(\S+)", text)
        if found is None:
            raise InputError(f"{text!r} is no number of GPUs", field="--add", remedy="give 16xA100")
        gpus, name = int(found[1]), found[2]
        if name.lower() not in own:
            own[name.lower()] = {"gpu_type": canonical_gpu_type(name), "count": 0, "gpus_per_node": 8}
            nodes.append(own[name.lower()])
        group = own[name.lower()]
        more, left = divmod(gpus, group["gpus_per_node"])
        if left or not more:
            remedy = f"give a multiple of {group['gpus_per_node']}, the GPUs of a node"
            raise InputError(f"{gpus} GPUs are no whole number of nodes", field="--add", remedy=remedy)
        group["count"] += more
    path = out / CLUSTER
    write_text(path, yaml.safe_dump({**given, "nodes": nodes}, sort_keys=False), "--out")
    load_cluster(str(path.absolute()))
    return path


def changed_queues(twin: TwinFolder, question: Question, out: Path) -> Path:
    """Write the file of queues with the quotas and limits that a question changes; return its path."""
    load_queues(twin.file(QUEUES))
    given = twin.content(QUEUES)
    queues = {name: dict(queue or {}) for name, queue in given["queues"].items()}
    for field, amounts in (("quota", question.quotas), ("limit", question.limits)):
        for name, gpus in (amounts or {}).items():
            if name not in queues:
                raise InputError(f"no queue {name!r}", field=f"--{field}", remedy=nearest(name, queues))
            queues[name][field] = gpus
    path = out / QUEUES
    write_text(path, yaml.safe_dump({**given, "queues": queues}, sort_keys=False), "--out")
    load_queues(path)
    return path


def write_studies(twin: TwinFolder, question: Question, out: Path) -> tuple[list[Study], dict[int, Drawn]]:
    """Resample logs at random and write a question's study files; return the studies and the logs by seed.

    The first is of all but the plans, each of which is one.
    """
    amounts = [*(question.quotas or {}).items(), *(question.limits or {}).items()]
    told = [*(f"{text} more" for text in question.add), *(f"{name} {gpus:g}" for name, gpus in amounts)]
    changed, plans = " and ".join(told), dict[str, Plan]()
    if question.plans is not None:
        own = load_cluster(str(twin.file(CLUSTER).absolute()))
        plans = read_plans(question.plans, own, (TODAY, changed))
    if not (question.policies or changed or plans):
        remedy = "give --policy, --add, --quota, --limit or --plans"
        raise InputError("nothing is to be changed", field="whatif", remedy=remedy)
    logs, seeds = (out / "logs").absolute(), range(question.resamples)
    logs.mkdir(parents=True, exist_ok=True)
    drawn = {seed: draw_log(twin.log, question.days, seed, logs / f"log-{seed}.csv") for seed in seeds}
    log = f"'{logs!s}/log-${{seed}}.csv'"
    scenarios = {TODAY: twin.words(log=log, more=question.words)}
    if changed:
        cluster = changed_cluster(twin, question.add, out) if question.add else None
        queues = changed_queues(twin, question, out) if question.quotas or question.limits else None
        scenarios[changed] = twin.words(log=log, cluster=cluster, queues=queues, more=question.words)
    policies = {"today's rules": twin.policy_words(None)}
    policies |= {text: twin.policy_words(text) for text in question.policies}
    studies = [_write_study(out / "study.yaml", scenarios, policies, seeds)]
    for name, plan in plans.items():
        folder = out / "plans" / slug(name)
        more = (*question.words, *plan.words)
        scenarios = {name: twin.words(log=log, cluster=changed_cluster(twin, plan.add, folder), more=more)}
        within = {label: plan.policy_words(given) for label, given in policies.items()}
        studies.append(_write_study(folder / "study.yaml", scenarios, within, seeds))
    return studies, drawn


Labelled = Mapping[str, Sequence[str]]
"""Overrides by the label of a scenario or policy."""


def _write_study(path: Path, scenarios: Labelled, policies: Labelled, seeds: Sequence[int]) -> Study:
    content = {
        "title": "What if",
        "scenarios": {label: shlex.join(["own-log", *words]) for label, words in scenarios.items()},
        "policies": {label: shlex.join(words) for label, words in policies.items()},
        "seeds": list(seeds),
        "metrics": METRICS,
        "reference_policy": "today's rules",
    }
    content |= {"reference_scenario": TODAY} if TODAY in scenarios else {}
    write_text(path, yaml.safe_dump(content, sort_keys=False, width=1000), "--out")
    return read_study(path)


def ask(
    twin: TwinFolder, question: Question, prices: Prices, out: Path, hydra_words: Sequence[str] = ()
) -> dict[str, Any]:
    """Simulate a what-if question on resampled logs; return all figures, each with a confidence interval.

    A run that is finished is not run again, so that a question which was stopped goes on.
    """
    studies, drawn = write_studies(twin, question, out)
    cells = [cell for study in studies for cell in study.cells()]
    status, finished = run_cells(cells, out / "runs", hydra_words)
    if status:
        raise InputError("some runs failed", file=out / "study.yaml", remedy="mend them, and ask again")
    by_option: dict[str, list[dict[str, Any]]] = {}
    for study in studies:
        for cell, result in read_cells(study, out / "runs").runs:
            folder = out / "runs" / cell.folder
            changed = cell.scenario != TODAY and (question.add or study is not studies[0])
            path = study.path.parent / CLUSTER if changed else twin.file(CLUSTER)
            cluster = load_cluster(str(path.absolute()))
            course = read_course(folder, drawn[cell.seed].origin_s, cluster, result.metrics)
            if not any(word.startswith("oracle") for word in question.words):
                check_counts(course, folder / "jobs.csv")
            label = make_label(study, cell.scenario, cell.policy)
            by_option.setdefault(label, []).append(summarise_run(course, prices))
    return {
        "schema": "clustergym.twin-whatif/1",
        "runs": len(cells),
        "finished_before": finished,
        "days": question.days,
        "jobs": [one.jobs for one in drawn.values()],
        "options": {label: summary(runs) for label, runs in by_option.items()},
        "ratios": {label: ratios(by_option[TODAY], runs) for label, runs in by_option.items()},
        "differences": {
            label: differences(by_option[TODAY], runs) for label, runs in by_option.items() if label != TODAY
        },
    }


def make_label(study: Study, scenario: str, policy: str) -> str:
    """Return the label of a scenario with a policy; `today` if both are those of today."""
    parts = [scenario] * (scenario != TODAY) + [policy] * (policy != study.reference_policy)
    return ", ".join(parts) or TODAY


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Average the figures of several runs; return each as its mean with the ends of its 95 % interval."""
    found: dict[str, Any] = {}
    for key in dict.fromkeys(key for run in runs for key in run):
        values = [run[key] for run in runs if run.get(key) is not None]
        if values and isinstance(values[0], Mapping):
            found[key] = summary(values)
        elif values:
            of_all = estimate_nonnegative([float(value) for value in values])
            found[key] = {"mean": of_all.mean, "low": of_all.low, "high": of_all.high}
    return found


def ratios(today: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return for each group of jobs the mean wait divided by that under today's rules, on the same logs.

    It is the ratio of the means over months, between the least and the greatest ratio that leaving out one
    month gives.
    """
    found: dict[str, Any] = {}
    for by, groups in today[0]["waits"].items():
        found[by] = {}
        for name in groups:
            pairs = [(_mean(a, by, name), _mean(b, by, name)) for a, b in zip(today, runs, strict=True)]
            known = np.array([pair for pair in pairs if None not in pair], dtype=np.float64).reshape(-1, 2)
            if not len(known) or known[:, 0].sum() <= 0:
                continue
            sums = known.sum(axis=0)
            without = [sums - row for row in known if sums[0] > row[0]] if len(known) > 1 else []
            each = [float(mine / of_today) for of_today, mine in without] or [float(sums[1] / sums[0])]
            found[by][name] = {"ratio": float(sums[1] / sums[0]), "low": min(each), "high": max(each)}
    return found


def differences(today: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what runs wait, are late and cost less those under today's rules, on the same logs.

    Each is a mean over months; from three on it has Student's 95 % interval of the months' differences.
    """
    found: dict[str, Any] = {}
    for key, read in READ.items():
        pairs = [(read(a), read(b)) for a, b in zip(today, runs, strict=True)]
        known = [b - a for a, b in pairs if a is not None and b is not None]
        if known:
            of_all = estimate(known)
            found[key] = {"mean": of_all.mean, "periods": len(known)}
            found[key] |= {"low": of_all.low, "high": of_all.high} if len(known) > 2 else {}
    return found


READ: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "wait_s": lambda run: _mean(run, "all", BY["all"]),
    "late_jobs": lambda run: float(run["late_jobs"]),
    "cost": lambda run: float(run["cost"]["all"] if "cost" in run else run["rent"]),
}
"""The figures of a run that options are compared by."""


def _mean(run: Mapping[str, Any], by: str, name: str) -> float | None:
    group = run["waits"][by].get(name)
    return None if group is None else group["mean_s"]
