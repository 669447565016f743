"""Which process is one that an earlier command started: its id alone may have gone to another one."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clustergym.operators.live import local_slurm
from clustergym.operators.live.local_slurm import LocalSlurm, _read_start_time, _runs
from scenarios import small_cluster

from clustergym.cluster.cluster_files import load_cluster
from clustergym.common.errors import InputError

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc")


def test_a_process_is_known_by_its_id_and_its_start() -> None:
    # Field 22 of /proc/PID/stat; the name, field 2, may hold spaces and brackets.
    with open("/proc/self/stat", encoding="utf-8") as stat:
        started = stat.read().rsplit(")", 1)[1].split()[22 - 3]
    assert started.isdigit()
    assert _read_start_time(os.getpid()) == started
    assert _runs((os.getpid(), started))
    assert not _runs((os.getpid(), str(int(started) + 1)))


@pytest.fixture
def started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LocalSlurm, subprocess.Popen[bytes]]]:
    """A cluster's folder, which says that one daemon runs: a process that sleeps."""
    monkeypatch.setattr(local_slurm, "packages_root", lambda: None)
    cluster = LocalSlurm(load_cluster("arena-a"), tmp_path / "slurm")
    cluster.folder.mkdir()
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        known = [(sleeper.pid, _read_start_time(sleeper.pid))]
        (cluster.folder / "processes.json").write_text(json.dumps(known), encoding="utf-8")
        yield cluster, sleeper
        sleeper.kill()


def test_daemons_that_run_are_not_started_again(started: tuple[LocalSlurm, subprocess.Popen[bytes]]) -> None:
    cluster, sleeper = started
    cluster.start()
    assert sleeper.poll() is None
    assert [path.name for path in cluster.folder.iterdir()] == ["processes.json"]


def test_daemons_of_an_earlier_command_are_asked_to_end(
    started: tuple[LocalSlurm, subprocess.Popen[bytes]],
) -> None:
    cluster, sleeper = started
    cluster.stop()
    assert sleeper.wait(5.0) == -signal.SIGTERM
    assert not cluster.folder.exists()


def write_programs(folder: Path, log: Path, **scripts: str) -> None:
    """Write programs that note how they are called, and then do something else than Slurm's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, script in scripts.items():
        (folder / name).write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n{script}\n', encoding="utf-8")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize("unpacked", [False, True])
def test_a_cluster_starts_and_stops(unpacked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, called, log = tmp_path / "root", tmp_path / "called", tmp_path / "slurm/daemons.log"
    (root / "usr/lib/any/slurm-wlm").mkdir(parents=True)
    # At first the nodes are not there yet.
    all_called = f"[ -f {root}/asked ] && [ $(grep -c ^slurm {called}) = 4 ]"
    states = f"{all_called} && echo idle || echo unknown\ntouch {root}/asked\necho idle\necho idle"
    write_programs(root / "usr/sbin", called, slurmctld="exec sleep 60", slurmd="exec sleep 60")
    write_programs(root / "usr/bin", called, sinfo=states)
    monkeypatch.setattr(local_slurm, "packages_root", lambda: root if unpacked else None)
    monkeypatch.setattr(local_slurm, "_free_ports", lambda count: list(range(7000, 7000 + count)))
    if not unpacked:
        monkeypatch.setenv("PATH", f"{root}/usr/sbin:{root}/usr/bin:{os.environ['PATH']}")
    cluster = LocalSlurm(small_cluster({"A40": (2, 4), "A10": (1, 2)}), tmp_path / "slurm", gres=unpacked)
    cluster.start()
    try:
        stepd = f"-d {root}/usr/sbin/slurmstepd-wlm " * unpacked
        daemons = [f"slurmd -D {stepd}-N {name}" for name in sorted(cluster.names)]
        calls = called.read_text().splitlines()
        assert sorted(line for line in calls if line.startswith("slurm")) == ["slurmctld -D", *daemons]
        assert calls.count("sinfo -h -N -o %T") == len(calls) - 4 >= 2
        written = (tmp_path / "slurm/slurm.conf").read_text().splitlines()
        nodes = [line.split() for line in written if line.startswith("NodeName=")]
        assert {words[0]: words[2:] for words in nodes} == {
            f"NodeName={name}": [
                "NodeAddr=127.0.0.1", f"Port={port}", f"CPUs={gpus}", "RealMemory=1000", f"Feature={of}",
                "State=UNKNOWN", *[f"Gres=gpu:{of}:{gpus}"] * unpacked,
            ]
            for name, port, gpus, of in (
                ("a40n0", 7001, 4, "a40"), ("a40n1", 7002, 4, "a40"), ("a10n0", 7003, 2, "a10"),
            )
        }  # fmt: skip
        assert "SlurmctldPort=7000" in written
        assert f"StateSaveLocation={tmp_path}/slurm/state" in written
        assert ("GresTypes=gpu" in written) is unpacked
        assert (f"PluginDir={root}/usr/lib/any/slurm-wlm" in written) is unpacked
        assert (tmp_path / "slurm/gres.conf").exists() is unpacked
        if unpacked:
            assert (tmp_path / "slurm/gres.conf").read_text().splitlines()[2] == (
                "NodeName=a10n0 Name=gpu Type=a10 File=/dev/tty[0-1]"
            )
            plugins = cluster.slurm.environment["LD_LIBRARY_PATH"]
            assert plugins == f"{root}/usr/lib/any/slurm-wlm:{root}/usr/lib/any"
        assert cluster.slurm.environment["SLURM_CONF"] == f"{tmp_path}/slurm/slurm.conf"
        assert sorted(path.name for path in (tmp_path / "slurm/spool").iterdir()) == sorted(cluster.names)
        running = [tuple(one) for one in json.loads((tmp_path / "slurm/processes.json").read_text())]
        assert len(running) == 4
        assert all(map(_runs, running))
        assert not log.read_text()
    finally:
        cluster.stop()
    assert not any(map(_runs, running))
    assert not cluster.folder.exists()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo one; echo fatal: no >&2; exit 1", "fatal: no"),
        ("exec sleep 60", "the nodes do not become idle"),
    ],
)
def test_daemons_that_do_not_start(
    program: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_programs(tmp_path / "bin", tmp_path / "called", slurmctld=program, slurmd="exec sleep 60")
    write_programs(tmp_path / "bin", tmp_path / "called", sinfo="echo down")
    monkeypatch.setattr(local_slurm, "packages_root", lambda: None)
    monkeypatch.setattr(local_slurm, "START_S", 60.0 if "fatal" in said else 0.1)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    cluster = LocalSlurm(small_cluster({"A40": (1, 4)}), tmp_path / "slurm")
    with pytest.raises(InputError, match=f"of Slurm do not start: {said}") as caught:
        cluster.start()
    assert caught.value.field == "live.engine"
    assert not cluster.folder.exists()
    assert "slurmctld -D" in (tmp_path / "called").read_text().splitlines()
