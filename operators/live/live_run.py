"""Run a policy on a real scheduler, and write and compare the result beside the simulator's.

The scheduler's own log of ended allocations is written beside what the run says it held.
"""

import csv
import gzip
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from pathlib import Path
from statistics import median
from typing import Any

from clustergym.common.errors import InputError, visible
from clustergym.common.progress import show_jobs_progress
from clustergym.common.writing import atomic_path
from clustergym.results.measured_run import make_result
from clustergym.results.result_writing import find_finished_result, make_content, run_key, write_result
from clustergym.scenario.policy import Policy
from clustergym.scenario.registry import make_placer
from clustergym.scenario.scenario import Scenario
from clustergym.sim.drive import drive
from clustergym.sim.engine import StalledError

from .backend import FakeBackend, FinishedAllocation, Part
from .bridge import LiveSimulation
from .checks import LiveOptions, check_alone, check_scenario, choose_words
from .clocks import LiveClock, ScaledClock
from .journal import make_clock, open_journal
from .link import Answer, Link
from .local_slurm import LocalSlurm, may_have_gpus, node_names
from .slurm import PREFIX, Slurm, SlurmWords
from .slurm_backend import SlurmBackend


def first_difference(live: Path, simulated: Path) -> str:
    """Describe the first event in which the event logs of two folders differ; empty if they are equal."""
    pairs = zip_longest(_events(live), _events(simulated), fillvalue="nothing")
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours != theirs:
            return f"event {number}: live {ours}, simulated {theirs}"
    return ""


def _events(folder: Path) -> Iterator[str]:
    with gzip.open(folder / "events.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield line.strip()


def call_lines(live: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines of text on a live run's calls and the scheduler's log, from `live` in its result.json."""
    calls = ", ".join(
        f"{told['count']} {call} ({told['median_ms']:.0f} ms, at most {told['max_ms']:.0f})"
        for call, told in live["calls"].items()
    )
    yield f"run {live['run']} on {live['scheduler']}: {calls or 'no calls'}; ms: median until confirmed"
    done = live["completions"]
    if done is None:
        yield "the scheduler keeps no log of ended jobs that can be read"
        return
    states = ", ".join(f"{count} {state}" for state, count in done["states"].items())
    yield (
        f"the scheduler's log has {done['recorded']} of {done['started']} allocations, "
        f"{done['same_nodes']} on the same nodes ({states})"
    )
    if live["seconds_per_hour"]:
        hours = done["held_gpu_s"] / 3600
        ours = live["held_gpu_hours"]
        yield f"by its whole seconds they held {hours:.2f} GPU h, by this run's log {ours:.2f}"


FILE_NAME = "completions.csv"
COLUMNS = ("allocation", "state", "nodes", "gpus_per_node", "start_s", "end_s")
"""Seconds of the run (in lock-step wall seconds since it began); nodes: numbers with blanks between."""


def compare(
    started: Mapping[str, Part], log: Sequence[FinishedAllocation] | None, run_s: Callable[[float], float]
) -> dict[str, Any] | None:
    """Count which of a run's allocations the scheduler's log has, on which nodes, and how they ended.

    `run_s` returns the second of the run at a time, seconds since 1970.

    Returns
    -------
    dict or None
        `started`: allocations given; `recorded`: of these, how many the log has; `same_nodes`: of these,
        how many on the same nodes; `states`: how often each ended how; `held_gpu_s`: GPU-seconds by the log's
        whole seconds. None: the scheduler keeps no log.
    """
    if log is None:
        return None
    held = {entry.name: entry for entry in log if entry.name in started and entry.nodes}
    states = sorted(entry.state for entry in held.values())
    return {
        "started": len(started),
        "recorded": len(held),
        "same_nodes": sum(entry.nodes == started[name].nodes for name, entry in held.items()),
        "states": {state: states.count(state) for state in dict.fromkeys(states)},
        "held_gpu_s": sum(
            (run_s(entry.end_s) - run_s(entry.start_s)) * len(entry.nodes) * started[name].gpus
            for name, entry in held.items()
        ),
    }


def write_completions(
    folder: Path,
    started: Mapping[str, Part],
    log: Sequence[FinishedAllocation] | None,
    run_s: Callable[[float], float],
) -> None:
    """Write a run's ended allocations to a CSV file; `run_s` converts times of the log to the run's."""
    with atomic_path(folder / FILE_NAME) as path, path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for entry in log or ():
            if entry.name in started and entry.nodes:
                nodes, gpus = " ".join(map(str, entry.nodes)), started[entry.name].gpus
                times = (round(run_s(entry.start_s), 3), round(run_s(entry.end_s), 3))
                writer.writerow((entry.name, entry.state, nodes, gpus, *times))


def run_live(
    scenario: Scenario, policy: Policy, config: Mapping[str, Any], options: LiveOptions, folder: Path
) -> dict[str, Any]:
    """Run a policy on a scheduler and write the result to a folder unless it is there; return the result."""
    seed, placer = int(config["seed"]), make_placer(config["placer"])
    parts = [run_key(scenario, policy, placer, seed), options.engine, options.clock, options.seconds_per_hour]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    done = find_finished_result(folder, key)
    if done is not None:
        print(f"{policy.name}: finished already, not run again ({folder / 'result.json'})")
        return done
    check_scenario(scenario, policy, options)
    with open_journal(folder, key, options.clock) as journal:
        name = journal.header["run"]
        if journal.entries:
            print(f"goes on where run {name} was, after {len(journal.entries)} calls")
        with back_end(scenario, options, folder, name) as backend:
            clock = LiveClock() if options.clock == "lockstep" else ScaledClock(options.seconds_per_hour)
            link = Link(backend, clock, options.poll_s, options.patience_s)
            ask = journal.asking(link.ask, link.continue_run)
            given = (scenario, placer, policy.information_class, policy.round_s, seed)
            simulation = LiveSimulation(*given).connect(ask, PREFIX + name)
            link.expected = simulation.allocator.expected
            shown = bool(config.get("progress", True))
            try:
                with show_jobs_progress(policy.name, len(scenario.trace), shown) as show:
                    run = drive(simulation, policy, seed, show)
            except StalledError as error:
                field, remedy = f"policy {policy.name}", "nothing was written"
                raise InputError(str(error), field=field, remedy=remedy) from error
            log = backend.log()
        run_s = make_clock(folder)
    result = make_result(run)
    content = make_content(result, policy, placer, seed) | {"run_key": key}
    content["live"] = {
        "engine": options.engine,
        "scheduler": backend.told,
        "clock": options.clock,
        "seconds_per_hour": options.seconds_per_hour if options.clock == "scaled" else None,
        "run": name,
        "calls": {
            call: {"count": len(seconds), "median_ms": 1000 * median(seconds), "max_ms": 1000 * max(seconds)}
            for call, seconds in sorted(link.seconds.items())
        },
        "held_gpu_hours": float((result.jobs.held_gpu_s + result.jobs.profile_gpu_s).sum()) / 3600,
        "completions": compare(simulation.allocator.started, log, run_s),
    }
    write_result(folder, config, result, content)
    write_completions(folder, simulation.allocator.started, log, run_s)
    return content


def dry_run(scenario: Scenario, policy: Policy, config: Mapping[str, Any], options: LiveOptions) -> None:
    """Print the scheduler calls that a live run would make; make only those that read the cluster's state."""
    check_scenario(scenario, policy, options)
    if options.engine == "slurm":
        slurm = Slurm()
        words = choose_words(slurm, scenario.cluster, options, scenario.trace.virtual_cluster)
        check_alone(SlurmBackend(slurm, words, "dry").others())
    else:
        words = SlurmWords(node_names(scenario.cluster))
    link = Link(FakeBackend(scenario.cluster.node_gpus), LiveClock(), options.poll_s, options.patience_s)

    def ask(call: str, given: dict[str, Any]) -> Answer:
        print("".join(f"{line}\n" for line in words.list_commands(call, given)), end="")
        return link.ask(call, given)

    given = (scenario, make_placer(config["placer"]), policy.information_class, policy.round_s)
    simulation = LiveSimulation(*given, config["seed"]).connect(ask, f"{PREFIX}dry")
    drive(simulation, policy, config["seed"])


@contextmanager
def back_end(
    scenario: Scenario, options: LiveOptions, folder: Path, run: str
) -> Iterator[SlurmBackend | FakeBackend]:
    """Give a context with a run's back end, which claims the cluster; at its end, end what was started."""
    if options.engine == "fake":
        yield FakeBackend(scenario.cluster.node_gpus)
        return
    with ExitStack() as stack:
        if options.engine == "slurm-local":
            gres = options.gpus == "gres" and may_have_gpus(scenario.cluster)
            local = LocalSlurm(scenario.cluster, folder / "slurm", gres)
            stack.callback(local.stop)
            local.start()
            slurm, words = local.slurm, SlurmWords(local.names, gres=local.gres)
        else:
            slurm = Slurm()
            words = choose_words(slurm, scenario.cluster, options, scenario.trace.virtual_cluster)
        backend = stack.enter_context(_closing(SlurmBackend(slurm, words, run)))
        _claim(backend, str(folder.absolute()))
        yield backend


@contextmanager
def _closing(backend: SlurmBackend) -> Iterator[SlurmBackend]:
    """End all that a run started when it is over; its last line names what may be left."""
    failed: InputError | None = None
    try:
        yield backend
    except InputError as error:
        failed = error
        raise
    finally:
        left = backend.close()
        if left and failed is not None:
            message = f"{failed}; it may have left jobs: {left}"
            raise InputError(message, remedy="end them by hand") from None
        if left:
            print(f"note: the run may have left jobs: {visible(left)}", file=sys.stderr)


def _claim(backend: SlurmBackend, where: str) -> None:
    """Claim the cluster for a run, unless it has it from before it was killed."""
    if backend.first_claim() is None:
        check_alone(backend.others())
        backend.claim(where)
    first = backend.first_claim()
    if first is None:
        message = "the scheduler does not show the job with which the run claims the cluster"
        raise InputError(message, field="live.engine", remedy="look at its log")
    own, holder = first
    if not own:
        message = f"the cluster is driven by {holder}"
        remedy = "wait for it, or go on with it: give its folder as hydra.run.dir"
        raise InputError(message, field="live.engine", remedy=remedy)
