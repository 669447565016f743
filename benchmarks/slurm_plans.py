"""How often policy slurm-multifactor plans what Slurm's backfill planned, pass by pass, by slurmctld's log.

`python benchmarks/slurm_agreement.py --logs FOLDER --json FILE` keeps logs and draws; then
`python benchmarks/slurm_plans.py FOLDER FILE [--json FILE]` plans each pass of backfill in them again
(`DebugFlags=Backfill`) from the state at its beginning, for the jobs that Slurm planned and in its order. So
nothing adds up from pass to pass.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from clustergym.operators.policies import node_reservations
from clustergym.operators.policies.node_reservations import NodeReservations, consecutive_best_fit
from slurm_agreement import GPUS, NODES, SETTINGS, SleepJob

from clustergym.cluster.spec import Nodes
from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError

LINE = re.compile(r"\[(?P<stamp>\d{4}-\d\d-\d\dT[\d:.]+)\] (?P<text>.*)")
EVENTS = {
    "begin": re.compile(r"_attempt_backfill: beginning"),
    "end": re.compile(r"_attempt_backfill: completed testing"),
    "plan": re.compile(r"JobId=(\d+) to start at (\S+), end at \S+ on nodes (\S+) in"),
    "backfilled": re.compile(r"Started JobId=(\d+) in \S+ on (\S+)"),
    "started": re.compile(r"Allocate JobId=(\d+) NodeList=(\S+)"),
    "ended": re.compile(r"_job_complete: JobId=(\d+) done"),
}
RULES = ("windows", "choice", "nodes")
"""Rules that can be switched off: windows of ends (each end alone instead), the choice of nodes (the first
that are free), and reservations of nodes (none)."""
Plan = tuple[int, tuple[int, ...]]
"""Start in whole seconds, and nodes."""


@dataclass
class Pass:
    """A pass of backfill: the state at its beginning, and what Slurm planned, in its order."""

    now_s: int
    free: list[int]
    running: list[tuple[float, Nodes]]
    plans: dict[int, Plan] = field(default_factory=dict)


def node_numbers(listed: str) -> tuple[int, ...]:
    """Return the numbers of nodes in a list such as `a40n[0-1,3]`."""
    inside = re.fullmatch(r"[a-z0-9]*n\[?([\d,-]+)\]?", listed)
    if inside is None:
        raise ValueError(f"{listed} is no list of nodes of this cluster")
    found: list[int] = []
    for part in inside[1].split(","):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return tuple(found)


def read_events(lines: Sequence[str], jobs: Collection[int]) -> Iterator[tuple[int, str, int, Sequence[str]]]:
    """Yield the second, kind, job number (0: none) and further words of what a log of slurmctld tells."""
    for line in lines:
        entry = LINE.match(line)
        for kind, pattern in EVENTS.items() if entry is not None else ():
            match = pattern.search(entry["text"]) if entry is not None else None
            if entry is not None and match is not None:
                number, *words = match.groups() or ("0",)
                if number == "0" or int(number) in jobs:
                    yield _second(entry["stamp"]), kind, int(number), words
                break


def _second(stamp: str) -> int:
    return int(datetime.fromisoformat(stamp).timestamp())


def read_passes(lines: Sequence[str], jobs: Mapping[int, SleepJob], shapes: bool) -> Iterator[Pass]:
    """Yield the passes of a log of slurmctld.

    Parameters
    ----------
    lines : sequence of str
    jobs : mapping of int to SleepJob
        By number; others are left out.
    shapes : bool
        Whether jobs asked for numbers of nodes.
    """
    free, running = [GPUS] * NODES, dict[int, tuple[float, Nodes]]()
    now = Pass(0, [], [])
    for time_s, kind, number, words in read_events(lines, jobs):
        if kind == "begin":
            now = Pass(time_s, list(free), list(running.values()))
        elif kind == "end":
            yield now
        elif kind == "plan":
            now.plans[number] = _second(words[0]), node_numbers(words[1])
        elif kind == "ended":
            for node, gpus in running.pop(number, (0.0, ()))[1]:
                free[node] += gpus
        else:
            held = _held(free, jobs[number], node_numbers(words[0]), shapes)
            running[number] = time_s + 60.0 * jobs[number].limit_minutes, held
            for node, gpus in held:
                free[node] -= gpus
            if kind == "backfilled":
                now.plans[number] = now.now_s, tuple(node for node, _ in held)


def _held(free: Sequence[int], job: SleepJob, nodes: tuple[int, ...], shapes: bool) -> Nodes:
    """Return what a job holds on the nodes that it was given; the log does not say how many CPUs of each."""
    there = np.array([count if node in nodes else 0 for node, count in enumerate(free)])
    return consecutive_best_fit(there, job.gpus, job.nodes if shapes else 0, capped=False) or ()


def plan_again(
    one: Pass, jobs: Mapping[int, SleepJob], resolution_s: float, shapes: bool, *, completing: bool = False
) -> dict[int, Plan]:
    """Return the policy's plans for the jobs that Slurm planned in a pass: limits keep others from it.

    Parameters
    ----------
    one : Pass
    jobs : mapping of int to SleepJob
    resolution_s : float
    shapes : bool
        Whether jobs asked for numbers of nodes.
    completing : bool
        Whether nodes whose last job was just being cleared away kept what Slurm planned for the next second,
        and the policy for now.
    """
    plan = NodeReservations(float(one.now_s), np.array(one.free), one.running, resolution_s, 86_400.0)
    usable, plans = np.ones(NODES, dtype=np.bool_), {}
    for number in one.plans:
        job = jobs[number]
        limit_s = 60.0 * job.limit_minutes
        planned = plan.plan(usable, job.gpus, job.nodes if shapes else 0, limit_s)
        if planned is None:
            continue
        if completing and planned.start_s <= one.now_s < one.plans[number][0] <= one.now_s + 2:
            planned = replace(planned, start_s=one.now_s + 1.0)
        if planned.start_s <= one.now_s:
            plan.start(planned.nodes, one.now_s + limit_s)
        else:
            plan.reserve(planned, limit_s)
        plans[number] = int(planned.start_s), tuple(node for node, _ in planned.nodes)
    return plans


def compare_log(log: Path, jobs: Mapping[int, SleepJob], resolution_s: float, shapes: bool) -> dict[str, int]:
    """Return the number of passes and plans of a log, and of those that the policy makes alike."""
    names = ("passes", "passes_alike", "plans", "plans_alike", "plans_alike_completing")
    counts = dict.fromkeys(names, 0)
    for one in read_passes(log.read_text(encoding="utf-8").splitlines(), jobs, shapes):
        ours = plan_again(one, jobs, resolution_s, shapes)
        alike = [_is_alike(ours.get(number), plan) for number, plan in one.plans.items()]
        counts["passes"] += 1
        counts["passes_alike"] += all(alike)
        counts["plans"] += len(alike)
        counts["plans_alike"] += sum(alike)
        ours = plan_again(one, jobs, resolution_s, shapes, completing=True)
        counts["plans_alike_completing"] += sum(
            _is_alike(ours.get(at), plan) for at, plan in one.plans.items()
        )
    return counts


def _first_free(free: Ints, gpus: int, nodes: int = 0, *, capped: bool = True) -> Nodes | None:
    each, left, found = gpus // nodes if nodes else 1, gpus, []
    for node in np.flatnonzero(free >= each).tolist():
        taken = min(each if nodes else int(free[node]), left)
        if taken:
            found.append((node, taken))
            left -= taken
    return None if left else tuple(found)


def switch_off(rule: str) -> None:
    """Leave out a rule of the plans from now on."""
    if rule == "windows":
        node_reservations.FIRST_WINDOW_S = 1e-6
    elif rule == "choice":
        node_reservations.consecutive_best_fit = _first_free  # type: ignore[assignment]
    else:
        NodeReservations.reserve = lambda self, planned, limit_s: None  # type: ignore[method-assign]


def _is_alike(ours: Plan | None, plan: Plan) -> bool:
    """Whether two plans are of the same nodes and second; the log may stamp a start with the next one."""
    return ours is not None and ours[1] == plan[1] and abs(ours[0] - plan[0]) <= 1


def main() -> None:
    """Compare all logs of a folder and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logs", type=Path, metavar="FOLDER", help="logs that slurm_agreement.py --logs kept")
    parser.add_argument("recorded", type=Path, metavar="FILE", help="what its --json wrote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here")
    parser.add_argument("--off", choices=RULES, help="a rule to switch off")
    arguments = parser.parse_args()
    if arguments.off is not None:
        switch_off(arguments.off)
    rows: list[dict[str, Any]] = []
    try:
        recorded = json.loads(arguments.recorded.read_text(encoding="utf-8"))["jobs"]
        for setting in SETTINGS:
            drawn = [SleepJob(**job) for job in recorded.get(setting.name, [])]
            if any(job.tasks > 1 for job in drawn):
                print(f"{setting.name} has arrays, whose tasks the log does not tell apart")
                continue
            jobs = dict(enumerate(drawn, 1))
            resolution_s = float(setting.scheduler.get("bf_resolution", 60))
            for log in sorted(arguments.logs.glob(f"{setting.name.replace('_', '')}[0-9].log")):
                counts = compare_log(log, jobs, resolution_s, setting.shapes)
                rows.append({"setting": setting.name, "log": log.name, **counts})
    except (InputError, OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{arguments.recorded} or a log cannot be used: {error}")
    head = ("setting", "log", "passes", "alike", "plans", "alike", "with completing")
    print("{:<12} {:<18} {:>7} {:>7} {:>7} {:>7} {:>16}".format(*head))
    for row in rows:
        print(
            f"{row['setting']:<12} {row['log']:<18} {row['passes']:>7} {row['passes_alike']:>7} "
            f"{row['plans']:>7} {row['plans_alike']:>7} {row['plans_alike_completing']:>16}"
        )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"rows": rows}), encoding="utf-8")
        print(f"wrote {arguments.json}")


if __name__ == "__main__":
    main()
