"""Live runs on a real Slurm, started on this machine from Debian's packages or what is installed."""

import contextlib
import getpass
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from clustergym.operators.commands import live
from clustergym.operators.live.backend import Part
from clustergym.operators.live.local_slurm import LocalSlurm, packages_root
from clustergym.operators.live.slurm import SlurmWords
from clustergym.operators.live.slurm_backend import SlurmBackend
from error_lines import error_line

from clustergym.cluster.spec import ClusterSpec
from clustergym.common.errors import InputError
from clustergym.scenario.by_name import load_scenario

FOUR = "cluster.nodes=[{gpu_type:A40,count:2,gpus_per_node:4},{gpu_type:A10,count:2,gpus_per_node:4}]"
# The failures of nodes meet jobs that run.
SMALL = [
    FOUR,
    "trace.jobs=9",
    "trace.max_gpus=8",
    "scenario.failures.mtbf_s=20000",
    "scenario.failures.seed=2",
]
QUIET = ["progress=false", "report=false", "table=false"]


@pytest.fixture(scope="module", autouse=True)
def slurm_is_there():
    try:
        packages_root()
    except InputError as error:
        pytest.skip(str(error))


def daemons(folder: Path) -> int:
    """Return how many daemons of Slurm have the configuration of a run's folder."""
    found, own = 0, f"SLURM_CONF={folder}/slurm/slurm.conf".encode()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (path / "cmdline").read_bytes()
            found += (b"slurmctld" in command or b"slurmd" in command) and own in (
                path / "environ"
            ).read_bytes()
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A cluster of four nodes, as a user's: its commands are on PATH."""
    spec: ClusterSpec = load_scenario("live-small", SMALL).cluster
    local = LocalSlurm(spec, tmp_path_factory.mktemp("user") / "slurm")
    before = {key: os.environ.get(key) for key in local.slurm.environment}
    try:
        local.start()
        os.environ.update(local.slurm.environment)
        yield local
    finally:
        for key, value in before.items():
            os.environ.pop(key, None) if value is None else os.environ.update({key: value})
        local.stop()


def backend(cluster: LocalSlurm, run: str) -> SlurmBackend:
    return SlurmBackend(cluster.slurm, SlurmWords(cluster.names, "", False, ()), run)


def shown(cluster: SlurmBackend, down: set[int], parts: set[str]) -> None:
    """Wait until a cluster shows what it should."""
    until = time.monotonic() + 120.0
    while ((seen := cluster.poll()).down, set(seen.parts)) != (down, parts):
        assert time.monotonic() < until, seen
        time.sleep(0.05)


def on_the_users(folder: Path, *words: str) -> list[str]:
    own = ["live.engine=slurm", "live.gpus=cpus", "live.inject_failures=true", f"hydra.run.dir={folder}"]
    return ["policy=arena", *own, *SMALL, *QUIET, *words]


def test_parts_of_nodes_are_held_confirmed_and_ended(cluster):
    ours = backend(cluster, "aa")
    assert ours.submit("cg-aa-1-1.0", Part((0, 1), 3)) == ""
    assert ours.submit("cg-aa-2-1.0", Part((0,), 1)) == ""
    assert ours.poll().parts == {"cg-aa-1-1.0": Part((0, 1), 3), "cg-aa-2-1.0": Part((0,), 1)}
    assert "Unable to allocate resources" in ours.submit("cg-aa-3-1.0", Part((0,), 1))
    other = backend(cluster, "bb")
    assert (other.poll().parts, len(other.others()), ours.others()) == ({}, 2, [])
    ours.node_down(1)
    shown(ours, down={1}, parts={"cg-aa-2-1.0"})
    ours.node_up(1)
    ours.close()
    shown(ours, down=set(), parts=set())
    log = {entry.name: (entry.state, entry.nodes) for entry in ours.log() or () if entry.nodes}
    assert log == {"cg-aa-1-1.0": ("NODE_FAIL", (0, 1)), "cg-aa-2-1.0": ("CANCELLED", (0,))}


def test_lock_step_equals_the_simulator(cluster, tmp_path, capsys):
    out = tmp_path / "out"
    assert live.main(on_the_users(out)) == 0
    assert "decisions, nodes and times equal the simulator's" in capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    assert result["metrics"]["failures_mean"] > 0
    done = result["live"]["completions"]
    assert done["started"] == done["recorded"] == done["same_nodes"] > 9
    with (
        gzip.open(out / "decisions.jsonl.gz") as ours,
        gzip.open(out / "simulated/decisions.jsonl.gz") as theirs,
    ):
        assert ours.read() == theirs.read()
    assert cluster.slurm.read("squeue", "-h") == []


def test_a_second_run_and_others_jobs_are_refused_and_stay(cluster, tmp_path, capsys):
    first = backend(cluster, "first")
    first.claim("/somewhere")
    assert first.first_claim() == (True, f"run first of {getpass.getuser()}, /somewhere")
    assert live.main(on_the_users(tmp_path / "out")) == 2
    told = error_line(capsys)
    assert "the cluster is driven by run first of " in told
    assert ", /somewhere (wait for it, or go on with it: give its folder as hydra.run.dir)" in told
    first.close()
    done = cluster.slurm.run("salloc", "--no-shell", "-J", "theirs", "-w", cluster.names[3])
    assert done.returncode == 0
    assert live.main(on_the_users(tmp_path / "out")) == 2
    assert "its nodes have jobs that this run did not start: job" in error_line(capsys)
    assert cluster.slurm.read("squeue", "-h", "-o", "%j %T") == ["theirs RUNNING"]
    cluster.slurm.run("scancel", "--name=theirs")
    assert live.main(on_the_users(tmp_path / "out", "live.gpus=gres")) == 2
    assert "live.gpus: node a40n0 has 0 GPUs (Gres gpu)" in error_line(capsys)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def out(tmp_path):
    yield tmp_path / "out"
    LocalSlurm(load_scenario("live-small", SMALL).cluster, tmp_path / "out" / "slurm").stop()


def test_killed_and_started_again_it_takes_up_what_runs_and_leaves_nothing(out):
    words = ["policy=fcfs", f"hydra.run.dir={out}", *SMALL, *QUIET, "trace.jobs=6"]
    command = [sys.executable, "-m", "clustergym.live", *words]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    journal = out / "journal.jsonl"
    while first.poll() is None and not (journal.is_file() and journal.read_bytes().count(b"\n") > 12):
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    # slurmctld with its helper, and four slurmd.
    assert daemons(out) == 6
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "goes on where run " in again.stdout
    assert "equal the simulator's" in again.stdout
    done = json.loads((out / "result.json").read_text())["live"]["completions"]
    assert done["started"] == done["recorded"] == done["same_nodes"]
    assert daemons(out) == 0
    assert not (out / "slurm").exists()
