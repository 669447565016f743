"""Sweeps: what they run, what a failure or a kill leaves, and equal results from every launcher."""

import importlib.util
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from clustergym.commands.run import main
from clustergym.scenario.configuration.sweeps import total_runs

ROOT = Path(__file__).parents[2]
SMALL = ["compare=null", "trace=philly-like", "trace.jobs=30", "table=false", "progress=false"]
CELLS = ["policy=fcfs,sjf,las", "seed=0,1"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "clustergym.run", *arguments]


def environment(home: Path | None = None) -> dict[str, str]:
    """Return the variables of a process; with a home folder of its own, where a Ray cluster left no token."""
    kept = {key: value for key, value in os.environ.items() if home is None or not key.startswith("RAY_")}
    own = {} if home is None else {"HOME": str(home)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", **own}


def digests(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.glob("*/result.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        found[f"{result['policy']['name']} {result['seed']}"] = result["digest"]
    return found


def test_the_runs_of_a_sweep_are_counted():
    # Parameters of the sweep unless the command line has others: 2 x 3 x 1, then 1 x 3 x 4.
    params = {"policy": "fcfs,sjf", "seed": "range(3)"}
    assert total_runs(params, ["compare=null"]) == 6
    assert total_runs(params, ["policy=arena", "policy.search_depth=1,2,3,4"]) == 12
    assert total_runs(None, ["costs='a,b'"]) == 1


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_run_that_fails_does_not_stop_the_others(launcher, tmp_path, monkeypatch, capfd):
    pytest.importorskip("joblib")
    monkeypatch.chdir(tmp_path)
    several = [] if launcher == "basic" else ["hydra.launcher.n_jobs=2"]
    # joblib's processes live on between tests, in the working directory of the first.
    sweep = ["-m", f"hydra/launcher={launcher}", *several, f"hydra.sweep.dir={tmp_path / 'out'}", *SMALL]
    assert main([*sweep, "policy=elasticflow,fcfs,las"]) == 2
    shown = capfd.readouterr().err
    assert "3 of 3 runs ended, 1 of them failed" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("error: ")]
    assert "policy=elasticflow" in line
    assert "needs deadlines" in line
    assert set(digests(tmp_path / "out")) == {"fcfs 0", "las 0"}
    # Mended and run again, only what failed runs.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/result.json")}
    assert main([*sweep, "policy=elasticflow,fcfs,las", "trace.deadlines=true"]) == 0
    assert not list((tmp_path / "out").glob("*/error.txt"))
    assert before.keys() < set((tmp_path / "out").glob("*/result.json"))


def test_a_sweep_prints_its_table_once(tmp_path, capsys):
    words = ["-m", f"hydra.sweep.dir={tmp_path / 'out'}", "compare=null", *SMALL[1:3]]
    assert main([*words, "policy=fcfs,las", "progress=false", "report=false"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("jct_mean ↓") == 1
    header = next(line for line in shown.splitlines() if "fcfs" in line and "las" in line)
    assert shown.index("mean JCT") < shown.index(header), "a line a run, then the table"


def test_processes_that_live_on_write_where_the_sweep_was_started(tmp_path, monkeypatch, capfd):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="pip install 'clustergym[sweep]'")
    for name in ("first", "it's the second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        sweep = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "policy=fcfs,las"]
        assert main([*sweep, *SMALL]) == 0
        assert "2 of 2 runs ended" in capfd.readouterr().err
        assert len(digests(tmp_path / name / "multirun")) == 2


def test_a_sweep_that_is_killed_goes_on_and_runs_nothing_twice(tmp_path):
    arguments = command("-m", "hydra.sweep.dir=out", *SMALL, *CELLS, "policy=fcfs,sjf,las,srtf,tiresias")
    rng, seen, whole = random.Random(5), {}, 10
    for more in (0, 2):
        process = subprocess.Popen(
            arguments, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        # At some moment of the first run, or of one after so many more.
        while process.poll() is None and not (
            (tmp_path / "out").is_dir() and len(digests(tmp_path / "out")) >= len(seen) + more
        ):
            time.sleep(0.02)
        time.sleep(rng.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        now = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").glob("*/result.json")}
        assert seen.items() <= now.items(), "a finished run was lost or run again"
        assert all(json.loads(path.read_text())["digest"] for path in now)
        seen = now
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.count("finished already, not run again") == len(seen)
    assert len(digests(tmp_path / "out")) == whole
    assert seen.items() <= {p: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("*/result.json")}.items()


def swept(folder: Path, *words: str, home: Path | None = None) -> dict[str, str]:
    arguments = command("-m", f"hydra.sweep.dir={folder}", *SMALL, *CELLS, *words)
    subprocess.run(
        arguments, cwd=folder.parent, env=environment(home), check=True, capture_output=True, text=True
    )
    return digests(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    found = swept(tmp_path_factory.mktemp("basic") / "out")
    assert len(found) == 6
    return found


TWO = ("policy=fcfs,las", "seed=1")
"""Two of the cells: a launcher's processes import all anew."""


def of_two(plain):
    return {name: plain[name] for name in ("fcfs 1", "las 1")}


def test_joblib_gives_the_same_results(plain, tmp_path):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher", reason="pip install 'clustergym[sweep]'")
    words = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *TWO)
    assert swept(tmp_path / "out", *words) == of_two(plain)


def test_submitit_gives_the_same_results(plain, tmp_path):
    pytest.importorskip("submitit", reason="pip install 'clustergym[sweep]'")
    words = ("hydra/launcher=submitit_local", "hydra.launcher.timeout_min=5", *TWO)
    assert swept(tmp_path / "out", *words) == of_two(plain)


needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: pip install 'clustergym[ray]'"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_nodes(ray: str, address: str, nodes: list[subprocess.Popen[str]], log: Path) -> None:
    """Wait until the last of the nodes has joined, however long it takes; one that ended never will."""
    asked = [ray, "status", f"--address={address}"]
    while True:
        shown = subprocess.run(asked, env=environment(log.parent), capture_output=True, text=True).stdout
        if len(re.findall(r"^ 1 node_", shown, re.MULTILINE)) == len(nodes):
            return
        assert nodes[-1].poll() is None, log.read_text()
        time.sleep(0.5)


# Ray gives a node 30 s to start, which a machine that does other work does not keep.
@pytest.mark.nightly
@needs_ray
def test_a_ray_cluster_of_two_nodes_gives_the_same_results(plain, tmp_path):
    ray = str(Path(sys.executable).with_name("ray"))
    address = f"127.0.0.1:{free_port()}"
    common = ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats", "--block"]
    head = ["--head", f"--port={address.partition(':')[2]}", "--include-dashboard=false"]
    nodes = []
    try:
        for which in (head, [f"--address={address}"]):
            log = tmp_path / f"node-{len(nodes)}.txt"
            with log.open("w") as told:
                start = [ray, "start", *which, *common]
                nodes.append(subprocess.Popen(start, env=environment(tmp_path), stdout=told, stderr=told))
            wait_for_nodes(ray, address, nodes, log)
        launcher = ("hydra/launcher=ray_cluster", f"hydra.launcher.ray.init.address={address}")
        assert swept(tmp_path / "out", *launcher, home=tmp_path) == plain
    finally:
        for node in reversed(nodes):
            node.terminate()
            node.wait(30)


@pytest.mark.nightly
@needs_ray
def test_the_ray_launcher_starts_its_own_where_an_earlier_cluster_left_its_address(
    plain, monkeypatch, tmp_path
):
    with tempfile.TemporaryDirectory(dir="/tmp") as there:  # Ray's sockets need short paths.
        Path(there, "ray").mkdir()
        Path(there, "ray", "ray_current_cluster").write_text(f"127.0.0.1:{free_port()}\n", encoding="utf-8")
        monkeypatch.setenv("RAY_TMPDIR", there)
        assert swept(tmp_path / "out", "hydra/launcher=ray", *TWO) == of_two(plain)


def test_an_unknown_objective_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["objective=jct_meen", "policy=fcfs", *SMALL]) == 2
    assert capsys.readouterr().err.startswith(
        "error: objective: unknown metric 'jct_meen' (did you mean jct_mean or"
    )
