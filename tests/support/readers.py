"""Every reader of files that users bring, as one function of a file's bytes: for fuzzing and regressions."""

import gzip
import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from clustergym.operators.live import journal
from clustergym.operators.live.own.ledger import read_ledger
from clustergym.operators.live.own.script import read_script
from clustergym.operators.policies.slurm_rules import read_accounts, read_config
from clustergym.operators.twin.advice import read_shadow
from clustergym.operators.twin.figures import read_power
from clustergym.operators.twin.folder import TwinFolder, read_rules
from clustergym.papers.arena_scenarios import read_memory
from clustergym.papers.gavel_packing import read_rates
from scenarios import Job, small_scenario

from clustergym.agents import auction_checkpoints, checkpoints
from clustergym.benchmark.leaderboard.board import load_board
from clustergym.benchmark.leaderboard.cell_logs import read_logs
from clustergym.benchmark.leaderboard.cells import load_table, read_rows
from clustergym.benchmark.leaderboard.entry import Entry, read_entry
from clustergym.benchmark.leaderboard.sealed_entry import read_agents
from clustergym.benchmark.study.study_file import read_study
from clustergym.cluster.cluster_files import load_cluster
from clustergym.cluster.node_lists import cluster_keys, read_nodes
from clustergym.cluster.parts import read_divisible
from clustergym.commands.oracle.common import what_is_measured
from clustergym.oracle.calibration.measured_steps import validate_steps
from clustergym.oracle.calibration.placements import read_placements as read_step_times
from clustergym.oracle.calibration.validation import validate_memory
from clustergym.oracle.measured.iteration_times import read_measurements
from clustergym.oracle.measured.sia_oracle import read_profile
from clustergym.oracle.measured.sia_training import read_training
from clustergym.oracle.models.catalog import load_catalog
from clustergym.oracle.models.model_spec import ModelClass
from clustergym.oracle.models.shape_files import load_accelerator, load_transformer
from clustergym.oracle.stacks.catalog import load_stack
from clustergym.oracle.stacks.throughput import read_throughput
from clustergym.oracle.table_cache import Store
from clustergym.papers import openb
from clustergym.results import schedule_log
from clustergym.results.decision_log import read_decisions
from clustergym.results.folder_replay import _read_config
from clustergym.results.measured_run import simulate
from clustergym.results.report.by_key import _setting
from clustergym.results.report.event_curves import read_log
from clustergym.results.report.payload import _cluster, _timeline
from clustergym.results.report.series import column, read_table
from clustergym.results.result_files import read_result
from clustergym.results.result_writing import find_finished_result
from clustergym.scenario.configuration.overrides import check_words
from clustergym.scenario.disturbances.capacity import read_offers
from clustergym.scenario.disturbances.failures import read_schedule
from clustergym.scenario.disturbances.reservations import read_planned_jobs
from clustergym.scenario.failure_draws import read_switches
from clustergym.scenario.scenario import Scenario
from clustergym.scenario.scenario_config import build_scenario
from clustergym.scenario.tenants.queue_tree import load_queues
from clustergym.sim.program import read_program
from clustergym.trace.formats import FORMATS, ReadOptions, load_trace
from clustergym.trace.generators.sources import load_source
from clustergym.trace.pair_tables import read_pair_table
from clustergym.trace.present import read_queue
from clustergym.trace.readers import slurmdbd
from clustergym.trace.readers.pai import JOB_TABLE, TASK_TABLE
from clustergym.training import network_checkpoints, placer_checkpoints
from clustergym.training.evolution import History
from clustergym.training.program_task import load_task

Reader = Callable[[bytes, Path], object]
"""(Content, an empty folder to put files into) -> what was read."""

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ReadOptions(reference_time_s=lambda model, gpu_type, gpus: 1.0)
BETWEEN_FILES = b"\n=====\n"
"""Where a reader takes two files, what stands between them."""


@cache
def scenario() -> Scenario:
    """Return the scenario whose logs are read."""
    jobs = [Job("a", 0.0, 10, gpus=2), Job("b", 1.0, 10)]
    return small_scenario(jobs, {"X": (2, 2), "Y": (1, 2)}, {"m": {"X": {1: 1.0, 2: 0.6}, "Y": {1: 2.0}}})


def _written(name: str, read: Callable[[Path], object]) -> Reader:
    """Return the reader of a file of some name."""

    def reader(content: bytes, folder: Path) -> object:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        return read(path)

    return reader


def _packed(name: str, read: Callable[[Path], object]) -> Reader:
    return lambda content, folder: _written(name, read)(gzip.compress(content, 1), folder)


def _trace(format: str) -> Reader:
    return _written("trace.csv", lambda path: load_trace(path, format, OPTIONS))


def _two(names: tuple[str, str], read: Callable[[Path], object]) -> Reader:
    """Return the reader of a folder with two files."""

    def reader(content: bytes, folder: Path) -> object:
        first, _, second = content.partition(BETWEEN_FILES)
        for name, part in zip(names, (first, second), strict=True):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(part)
        return read(folder)

    return reader


def _slurm_archive(content: bytes, folder: Path) -> object:
    (folder / "tres.txt").write_text("Type|Name|ID\ngres|gpu|1001\ngres|gpu:a40|1002\n")
    return _written("jobs", slurmdbd.read_log)(content, folder)


def _provenance(content: bytes, folder: Path) -> object:
    native = b"job_id,submit_s,model_family,model_size,global_batch,iterations,gpus\na,0,gpt3,1.3B,128,10,4\n"
    digest = hashlib.sha256(native).hexdigest().encode()
    (folder / "trace.provenance.json").write_bytes(content.replace(b"SHA256", digest))
    return _trace("native")(native, folder)


def _reservations(path: Path) -> object:
    return read_planned_jobs(str(path), 3600.0, scenario().trace)


def _config(path: Path) -> object:
    return build_scenario(_read_config(path))


def _figure_keys(content: bytes, folder: Path) -> object:
    listed = ROOT / "leaderboards"
    (folder / "ares").mkdir()
    for name in ("policies.yaml", "ares/board.yaml"):
        (folder / name).write_bytes((listed / name).read_bytes())
    (folder / "ares/cells.yaml").write_bytes(content)
    return load_table(load_board("ares", folder))


def _in_board(read: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda path: read(path.parent)


def _override_folder(path: Path) -> object:
    return check_words(["--config-dir", str(path.parent)])


def _journal(path: Path) -> object:
    return journal.make_clock(path.parent)(0.0)


def _table_cache(path: Path) -> object:
    return Store(path.parent).read("a" * 64, (2, 2))


def _keyed(path: Path) -> object:
    """Read the configuration beside a result, for a table by one of its keys."""
    beside = path.parent / "result.json"
    beside.write_bytes((ROOT / "tests/regressions/result/valid.json").read_bytes())
    return _setting(read_result(beside))


def _own_history(path: Path) -> object:
    return History.read(path, {"population": 2, "generations": 2, "validate_every": 1})


def _cluster_of_nodes(path: Path) -> object:
    return cluster_keys(read_nodes(path)[0], "mine", {"gpu": "A100"}, path)


def _board(content: bytes, folder: Path) -> object:
    (folder / "fair").mkdir(exist_ok=True)
    (folder / "fair" / "board.yaml").write_bytes(content)
    return load_board("fair", folder)


def _sealed_entry(content: bytes, folder: Path) -> object:
    (folder / "mine").mkdir(exist_ok=True)
    (folder / "mine" / "program.py").touch()
    (folder / "mine" / "entry.yaml").write_bytes(content)
    return read_agents(load_board("rl").in_folder(folder))


def _about(read: Callable[[str], object], name: str) -> Reader:
    """Return the reader of a checkpoint's YAML beside the weights of a checkpoint of the package."""

    def reader(content: bytes, folder: Path) -> object:
        weights = folder / "agent.safetensors"
        weights.write_bytes((checkpoints.TRAINED / f"{name}.safetensors").read_bytes())
        (folder / "agent.yaml").write_bytes(content)
        return read(str(weights))

    return reader


def _weights(read: Callable[[str], object], name: str) -> Reader:
    """Return the reader of weights beside the YAML of a checkpoint of the package, with their digest."""
    there = checkpoints.TRAINED / f"{name}.safetensors"
    old = hashlib.sha256(there.read_bytes()).hexdigest()

    def reader(content: bytes, folder: Path) -> object:
        (folder / "agent.safetensors").write_bytes(content)
        about = there.with_suffix(".yaml").read_text(encoding="utf-8")
        new = hashlib.sha256(content).hexdigest()
        (folder / "agent.yaml").write_text(about.replace(old, new), encoding="utf-8")
        return read(str(folder / "agent.safetensors"))

    return reader


def _jobs_csv(path: Path) -> object:
    return column(read_table(path, ("job_id", "outcome", "submit_s", "jct_s")), "jct_s")


def _catalog(path: Path) -> object:
    catalog = load_catalog(extra=path)
    return [catalog.get(ModelClass("mine", size, 8)) for size in catalog.sizes("mine")]


READERS: Mapping[str, Reader] = {
    **{f"trace-{name}": _trace(name) for name in FORMATS if name != "pai"},
    "trace-auto": _trace("auto"),
    "trace-pai": _two(
        (f"{JOB_TABLE}.csv", f"{TASK_TABLE}.csv"), lambda folder: load_trace(folder, "pai", OPTIONS)
    ),
    "trace-slurm-archive": _slurm_archive,
    "trace-provenance": _provenance,
    "generator": _written("source.yaml", lambda path: load_source(str(path))),
    "queues": _written("queues.yaml", load_queues),
    "twin-policy": _written("policy.yaml", lambda path: TwinFolder(path.parent).policy_words(None)),
    "program": _written("program.py", read_program),
    # Not the one that keeps what it has read of a file.
    "task": _written("task.yaml", lambda path: load_task.__wrapped__(str(path))),
    "twin-queue": _written("squeue.txt", read_queue),
    "twin-power": _written("power.csv", lambda path: read_power(path, 150.0)),
    "twin-shadow": _written("shadow.jsonl", read_shadow),
    "node-list": _written("nodes.txt", _cluster_of_nodes),
    "slurm-config": _written("config.txt", read_config),
    "slurm-accounts": _written("assoc.txt", read_accounts),
    "kueue-rules": _written("queues.json", lambda path: read_rules([path], "account", False)),
    "live-script": _written("train.sh", read_script),
    "live-scripts": _written("jobs.jsonl", read_ledger),
    "study": _written("study.yaml", read_study),
    "pairs": _written("pairs.csv", read_pair_table),
    "pairs-gavel": _written("simulation_throughputs.json", read_pair_table),
    "rates-gavel": _written("simulation_throughputs.json", read_rates),
    "override-folder": _written("config.yaml", _override_folder),
    "cluster-divisible": _written("nodes.csv", read_divisible),
    "openb-nodes": _written("nodes.csv", openb.read_nodes),
    "openb-requests": _written("pods.csv", lambda path: openb.read_requests(path, ("V100", "T4"))),
    "openb-expected": _written("expected.csv", lambda path: openb.read_expected(path, "allocation")),
    "openb-orders": _written("orders/w.npz", lambda path: openb.read_orders(path.parents[1], "w", 3, 2)),
    "switch-failures": _written("failures.csv", lambda path: read_switches(path, scenario().cluster)),
    "failures": _written("failures.csv", lambda path: read_schedule(path, 4)),
    "offers": _written("offers.csv", lambda path: read_offers(path, {"spot": 2})),
    "reservations": _written("planned.csv", _reservations),
    "cluster": _written("cluster.yaml", lambda path: load_cluster(str(path))),
    "config": _written("config.yaml", _config),
    "models": _written("mine.yaml", _catalog),
    "oracle-table": _written("table.csv", lambda path: read_measurements(path, load_catalog())),
    "oracle-constants": _written("grid.yaml", lambda path: load_stack(str(path))),
    "accelerators": _written("gpus.yaml", lambda path: load_accelerator("H100", path)),
    "transformers": _written("shapes.yaml", lambda path: load_transformer("llama3-8B", path)),
    "hugging-face": _written("config.json", lambda path: load_transformer(str(path))),
    "stack": _written("mine.yaml", lambda path: load_stack(str(path))),
    "throughput": _written("throughput.csv", read_throughput),
    "oracle-placements": _written("placements_bert.csv", lambda path: read_step_times(path.parent)),
    "policy-parameters": _written("mine.yaml", lambda path: simulate(scenario(), str(path))),
    "oracle-memory": _written("memory.csv", validate_memory),
    "oracle-steps": _written("steps.csv", validate_steps),
    "oracle-data": _written("data.csv", lambda path: what_is_measured(str(path))),
    "arena-memory": _written("memory.csv", read_memory),
    "oracle-cache": _written(f"{'a' * 64}.npz", _table_cache),
    "sia-profile": _two(("placements-x.csv", "scalability-x.csv"), lambda folder: read_profile(folder, "x")),
    "sia-training": _two(("validation-32.csv", "validation-64.csv"), read_training),
    "decisions": _packed("decisions.jsonl.gz", lambda path: read_decisions(path, scenario())),
    "schedule": _packed("schedule.jsonl.gz", lambda path: schedule_log.read_schedule(path, scenario())),
    "events": _packed("events.jsonl.gz", lambda path: read_log(path, 2000.0)),
    "gzip": _written("decisions.jsonl.gz", lambda path: read_decisions(path, scenario())),
    "result": _written("result.json", read_result),
    "result-key": _written("result.json", lambda path: find_finished_result(path.parent, "a")),
    "result-config": _written("config.yaml", _keyed),
    "result-cluster": _written("config.yaml", _cluster),
    "journal": _written(journal.FILE_NAME, _journal),
    "jobs": _written("jobs.csv", _jobs_csv),
    "timeline": _written("timeline.csv", lambda path: _timeline(path, 2000.0, 500)),
    "board": _board,
    "entry": _written("entry.yaml", _in_board(lambda folder: read_entry(folder, load_board("fair"), Entry))),
    "sealed-entry": _sealed_entry,
    "entry-logs": _written("decisions.jsonl.gz", read_logs),
    "figures": _written("cells.csv.gz", lambda path: [*read_rows(path)]),
    "figure-keys": _figure_keys,
    "checkpoint": _about(auction_checkpoints.load, "elastic"),
    "checkpoint-weights": _weights(auction_checkpoints.load, "elastic"),
    "network": _about(network_checkpoints.load, "elastic-16"),
    "network-weights": _weights(network_checkpoints.load, "elastic-16"),
    "placer": _about(placer_checkpoints.NODES.load, "placer"),
    "placer-weights": _weights(placer_checkpoints.NODES.load, "placer"),
    "sharing": _about(placer_checkpoints.SHARES.load, "sharing"),
    "sharing-weights": _weights(placer_checkpoints.SHARES.load, "sharing"),
    "training-history": _written("history.json", _own_history),
    "checkpoint-schema": _about(checkpoints.read_schema, "elastic"),
}

SEEDS: Mapping[str, tuple[Path, ...]] = {
    "task": (ROOT / "conf/task/tenants.yaml",),
    "queues": (ROOT / "conf/queues/philly.yaml",),
    "study": (ROOT / "examples/studies/what-if.yaml",),
    "result-config": (ROOT / "tests/regressions/config/valid.yaml",),
    "result-cluster": (ROOT / "tests/regressions/config/valid.yaml",),
    "override-folder": (ROOT / "tests/regressions/config/valid.yaml",),
    "result-key": (ROOT / "tests/regressions/result/valid.json",),
    "checkpoint-schema": (checkpoints.TRAINED / "elastic.yaml",),
    "trace-native": (ROOT / "traces/philly-like-160-distributed.csv",),
    "generator": (ROOT / "conf/generator/philly.yaml", ROOT / "conf/generator/pai.yaml"),
    "cluster": (ROOT / "conf/cluster/arena-sim.yaml", ROOT / "conf/cluster/gavel-48.yaml"),
    "models": (ROOT / "conf/model/gpt3.yaml", ROOT / "conf/model/wide_resnet.yaml"),
    "oracle-constants": (ROOT / "conf/stack/alpa-2022.yaml",),
    "accelerators": (ROOT / "conf/hardware/accelerators.yaml",),
    "transformers": (ROOT / "conf/transformer/shapes.yaml",),
    "stack": (ROOT / "conf/stack/fsdp-2023.yaml",),
    "twin-policy": (ROOT / "conf/policy/kueue.yaml",),
    "policy-parameters": (ROOT / "conf/policy/kueue.yaml",),
    "board": (ROOT / "leaderboards/fair/board.yaml", ROOT / "leaderboards/placement/board.yaml"),
    "figure-keys": (ROOT / "leaderboards/ares/cells.yaml",),
    "checkpoint": (checkpoints.TRAINED / "elastic.yaml",),
    "checkpoint-weights": (checkpoints.TRAINED / "elastic.safetensors",),
    "network": (checkpoints.TRAINED / "elastic-16.yaml",),
    "network-weights": (checkpoints.TRAINED / "elastic-16.safetensors",),
    "placer": (checkpoints.TRAINED / "placer.yaml",),
    "placer-weights": (checkpoints.TRAINED / "placer.safetensors",),
    "sharing": (checkpoints.TRAINED / "sharing.yaml",),
    "sharing-weights": (checkpoints.TRAINED / "sharing.safetensors",),
}
"""Valid files of the repository to start from, besides those among the regressions."""


def valid_contents(name: str) -> list[bytes]:
    """Return small valid contents of a reader's file."""
    paths = [*sorted((ROOT / "tests" / "regressions" / name).glob("valid*")), *SEEDS.get(name, ())]
    return [path.read_bytes() for path in paths if path.stat().st_size < 20_000]
