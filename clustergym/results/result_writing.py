"""Write the files of a result, completely or not at all."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from clustergym.common.arrays import Ints
from clustergym.common.errors import InputError
from clustergym.common.reading import read_json
from clustergym.common.version import __version__
from clustergym.results.columns import (
    IN_COLUMNS,
    change_tables,
    choose_logs,
    event_tables,
    split_rows,
    write_columns,
)
from clustergym.results.decision_log import DECISIONS_SCHEMA
from clustergym.results.measured_run import Result
from clustergym.results.metrics.jobs import job_table, write_csv
from clustergym.results.metrics.timeline import timeline_table
from clustergym.results.result_files import UNFINISHED
from clustergym.scenario.policy import Placer, Policy
from clustergym.scenario.registry import list_parameters
from clustergym.scenario.request_changes import request_changes
from clustergym.scenario.scenario import Scenario
from clustergym.sim import columns as c
from clustergym.sim.compiled.event_log import ArrayEvents
from clustergym.sim.engine import Change
from clustergym.sim.engines import AnySimulation
from clustergym.sim.guard import Logs
from clustergym.sim.log import NO_JOB, Event, EventType

RESULT_SCHEMA = "clustergym.result/1"
FILES = ("config.yaml", "jobs.csv", "timeline.csv", "decisions.jsonl.gz", "events.jsonl.gz", "result.json")
"""The files of a result in the order of writing, so that a folder with a result.json is complete.

The tables of a large run are in columns, in the files of `clustergym.results.columns.IN_COLUMNS`."""


def run_key(scenario: Scenario, policy: Policy, placer: Placer, seed: int) -> str:
    """Return a SHA-256 of everything that determines a run's result."""
    parts = {
        "version": __version__,
        "scenario": scenario.sha256,
        "policy": [policy.name, list_parameters(policy), *filter(None, [policy.fingerprint()])],
        "placer": [placer.name, list_parameters(placer), *filter(None, [placer.fingerprint()])],
        "seed": seed,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def find_finished_result(folder: Path, key: str, logs: Logs = "auto") -> dict[str, Any] | None:
    """Return the content of a folder's result if it has this run key and log format; else None."""
    if logs != "auto" and (folder / IN_COLUMNS["jobs.csv"]).exists() != (logs == "columns"):
        return None
    try:
        result = read_json(folder / "result.json", 2**24, "run it again")
    except InputError:
        return None
    return result if isinstance(result, dict) and result.get("run_key") == key else None


@contextlib.contextmanager
def mark_unfinished(folder: Path, policy: str) -> Iterator[None]:
    """Mark a folder as holding an unfinished run, inside the `with` block."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / UNFINISHED
    mark.write_text(f"{policy}: begun and not finished\n", encoding="utf-8")
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def make_content(result: Result, policy: Policy, placer: Placer, seed: int) -> dict[str, Any]:
    """Return the content of result.json for a finished run."""
    run, simulation = result.run, result.run.simulation
    scenario = simulation.scenario
    losses = {cause: loss._asdict() for cause, loss in result.losses.items()}
    return {
        "schema": RESULT_SCHEMA,
        "run_key": run_key(scenario, policy, placer, seed),
        "policy": {
            "name": policy.name,
            "parameters": list_parameters(policy),
            "counters": dict(policy.counters()),
        },
        "placer": {"name": placer.name, "parameters": list_parameters(placer)},
        "information_class": policy.information_class.value,
        "scenario": {"name": scenario.name, "version": scenario.version, "sha256": scenario.sha256},
        "seed": seed,
        "horizon_s": scenario.horizon_s,
        "end_s": simulation.end_s,
        "requests_changed": int(scenario.request_changed.sum()),
        **({"request_changes": changes} if (changes := request_changes(scenario).counts) else {}),
        "metrics": dict(result.metrics),
        **({"tenants": result.tenants} if result.tenants else {}),
        **_summarise_pairs(simulation),
        **({"losses": losses} if losses else {}),
        "digest": result.digest,
        "decisions": {
            "count": run.decision_times.count,
            "seconds_p50": run.decision_times.percentile(0.50),
            "seconds_p99": run.decision_times.percentile(0.99),
        },
        "wall_s": run.wall_s,
        "engine": simulation.engine,
        "versions": {
            "clustergym": __version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in ("numpy", "simpy", "hydra-core")},
        },
    }


def _summarise_pairs(simulation: AnySimulation) -> dict[str, Any]:
    """Return the pairs' part of result.json: launches beside another job, by the source of their speeds."""
    pairs, sharing = simulation.scenario.pairs, simulation.sharing
    if pairs is None or sharing is None:
        return {}
    missing = int(np.triu(pairs.missing.any(axis=(2, 3))).sum())
    launches = {"table": 0, pairs.interference: 0} | dict(sharing.launches)
    return {"pairs": {"interference": pairs.interference, "missing": missing, "launches": launches}}


def write_result(
    folder: Path, config: Mapping[str, Any], result: Result, content: Mapping[str, Any], logs: Logs = "auto"
) -> list[Path]:
    """Write all files of a run, result.json last so that an unfinished run has none; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".writing-", dir=folder) as scratch:
        made = Path(scratch)
        (made / "config.yaml").write_text(yaml.safe_dump(dict(config), sort_keys=False), encoding="utf-8")
        simulation, scenario = result.run.simulation, result.run.simulation.scenario
        jobs = job_table(result.jobs, scenario.trace, _requests(result))
        timeline = timeline_table(result.timeline)
        in_columns = choose_logs(logs, len(scenario.trace)) == "columns"
        names = [IN_COLUMNS.get(name, name) if in_columns else name for name in FILES]
        if in_columns:
            types, (header, *_) = scenario.cluster.gpu_types, decision_lines(simulation, content, ())
            events = event_tables(simulation.log.events, types)
            write_columns(made / names[1], split_rows(jobs), {})
            write_columns(made / names[2], split_rows(timeline), {})
            write_columns(made / names[3], change_tables(simulation.iterate_changes(), types), header)
            write_columns(made / names[4], events, {})
        else:
            write_csv(jobs, made / names[1])
            write_csv(timeline, made / names[2])
            _write_packed(made / names[3], _json_lines(decision_lines(simulation, content)))
            _write_packed(made / names[4], _event_texts(simulation))
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        (made / "result.json").write_text(text, encoding="utf-8")
        for name in ("result.json", *IN_COLUMNS, *IN_COLUMNS.values()):
            (folder / name).unlink(missing_ok=True)
        for name in names:
            shutil.move(made / name, folder / name)
    return [folder / name for name in names]


def _requests(result: Result) -> dict[str, Any]:
    """Return the columns of the jobs' table that its records do not have."""
    scenario = result.run.simulation.scenario
    types = [*scenario.cluster.gpu_types, "any"]
    requests: dict[str, Any] = {
        "request_gpu_type": [types[gpu_type] for gpu_type in scenario.request_type.tolist()],
        "request_gpus": scenario.request_gpus,
        "request_changed": scenario.request_changed.astype(int),
        "finish_time_fairness": result.fairness,
    }
    if scenario.trace.outcome is not None:
        requests["log_outcome"] = list(scenario.trace.outcome)
    return requests | _whose(scenario)


def _whose(scenario: Scenario) -> dict[str, Any]:
    """Return the columns of jobs.csv that say whose each job is, as far as the trace and the queues do."""
    trace, tenants = scenario.trace, scenario.tenants
    found = {"user": trace.user, "team": trace.virtual_cluster, "partition": trace.partition or ()}
    found["queue"] = () if tenants is None else tuple(tenants.tree.leaves[leaf] for leaf in tenants.leaf)
    return {name: column for name, column in found.items() if any(column)}


_encode = json.JSONEncoder(separators=(",", ":")).encode
LINES = 1000
"""Lines that are packed together: a call of the packer takes longer than the packing of a line."""


def _write_packed(path: Path, texts: Iterable[str]) -> None:
    with gzip.GzipFile(path, "wb", compresslevel=6, mtime=0) as packed:
        for text in texts:
            packed.write(text.encode())


def _json_lines(lines: Iterable[object]) -> Iterator[str]:
    left = iter(lines)
    while some := list(islice(left, LINES)):
        yield "".join(f"{_encode(line)}\n" for line in some)


def _event_texts(simulation: AnySimulation) -> Iterator[str]:
    events = simulation.log.events
    # Events of rented nodes are of no job.
    if not isinstance(events, ArrayEvents) or (events.event[:, c.JOB] == NO_JOB).any():
        return _json_lines(event_lines(simulation))
    job_id, names = simulation.scenario.trace.job_id, simulation.setting.gpu_types
    return events.json_lines([*map(_encode, job_id)], [*map(_encode, names)])


def decision_lines(
    simulation: AnySimulation, result: Mapping[str, Any], changes: Iterable[Change] | None = None
) -> Iterable[Any]:
    """Yield the lines of the decision log: a header, then an object for each decision that changed something.

    `changes` are those of the simulation unless they are given.
    """
    yield {
        "schema": DECISIONS_SCHEMA,
        "scenario_sha256": simulation.scenario.sha256,
        "policy": result["policy"]["name"],
        "information_class": simulation.information.value,
        "round_s": simulation.round_s,
        "placer": {"name": result["placer"]["name"], **result["placer"]["parameters"]},
        "seed": result["seed"],
    }
    names, job_id = simulation.setting.gpu_types, simulation.scenario.trace.job_id
    for change in simulation.iterate_changes() if changes is None else changes:
        line: dict[str, Any] = {"time_s": change.time_s}
        line |= {"capacity": list(change.capacity)} if change.capacity else {}
        if change.launch:
            line["launch"] = [[job_id[row], names[gpu_type], gpus] for row, gpu_type, gpus in change.launch]
        if change.preempt:
            line["preempt"] = [job_id[row] for row in change.preempt]
        if change.drop:
            line["drop"] = [job_id[row] for row in change.drop]
        if change.batch:
            line["batch"] = [[job_id[row], batch] for row, batch in change.batch]
        if change.partner:
            line["beside"] = [[job_id[row], job_id[other]] for row, other in change.partner]
        if change.avoid:
            line["avoid"] = [[job_id[row], list(nodes)] for row, nodes in change.avoid]
        if change.notice:
            line["notice"] = [job_id[row] for row in change.notice]
        if change.move:
            line["move"] = [[job_id[row], target] for row, target in change.move]
        yield line


def event_lines(simulation: AnySimulation) -> Iterable[dict[str, Any]]:
    """Yield the event log as JSON objects, one for each event."""
    names, job_id = simulation.setting.gpu_types, simulation.scenario.trace.job_id
    for event in simulation.log.events:
        line: dict[str, Any] = {"time_s": event.time_s, "kind": str(event.event_type)}
        if event.job != NO_JOB:
            line["job_id"] = job_id[event.job]
        if event.gpus:
            line |= {"gpu_type": names[event.gpu_type], "gpus": event.gpus}
        if event.nodes:
            line["nodes"] = event.nodes
        line |= _part(event, simulation.scenario.trace.gpu_milli)
        if event.iteration_time_s:
            line |= {
                "locality": event.locality,
                "overhead_s": event.overhead_s,
                "iteration_time_s": event.iteration_time_s,
            }
        if event.batch:
            line["global_batch"] = event.batch
        if event.partner != NO_JOB:
            line["beside"] = job_id[event.partner]
        if event.reason:
            line["reason"] = event.reason
        line |= {key: value for key in ("cause", "write_share") if (value := getattr(event, key))}
        if event.event_type in (EventType.FAIL, EventType.HALT, EventType.UNDO):
            line |= {"lost_s": event.lost_s, "lost_iterations": event.lost_iterations}
        yield line


def _part(event: Event, gpu_milli: Ints | None) -> dict[str, Any]:
    """Return the keys of a launch on a divisible cluster: devices, and thousandths of each."""
    if gpu_milli is None or not event.nodes or event.job == NO_JOB:
        return {}
    devices = [at for at in range(event.devices.bit_length()) if (event.devices >> at) & 1]
    return {"devices": devices, "gpu_milli": int(gpu_milli[event.job])}
