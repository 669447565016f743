"""Which process is one that an earlier command started: its id alone may have gone to another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from clustergym.cluster.cluster_files import load_cluster
from clustergym.live import local_slurm
from clustergym.live.local_slurm import LocalSlurm, _read_start_time, _runs

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
