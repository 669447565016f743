"""Which process is one that an earlier command started: its id alone may have gone to another one."""

from __future__ import annotations

import os

import pytest

from clustergym.live.local_slurm import _read_start_time, _runs

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="there is no /proc")


def test_a_process_is_known_by_its_id_and_its_start() -> None:
    # Field 22 of /proc/PID/stat; the name, field 2, may hold spaces and brackets.
    with open("/proc/self/stat", encoding="utf-8") as stat:
        started = stat.read().rsplit(")", 1)[1].split()[22 - 3]
    assert started.isdigit()
    assert _read_start_time(os.getpid()) == started
    assert _runs((os.getpid(), started))
    assert not _runs((os.getpid(), str(int(started) + 1)))
