"""A user's own scripts on a real Slurm that others use, through a restart of slurmctld and a kill."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

from clustergym.common.errors import InputError

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "benchmarks"))


@pytest.fixture
def folder():
    """A folder that another user can enter, as pytest's own cannot be: his jobs' scripts are in it."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.parametrize(
    ("count", "disturbed"), [(2, False), pytest.param(8, True, marks=pytest.mark.nightly, id="disturbed")]
)
def test_every_script_runs_once_to_its_end(folder, count, disturbed):
    from live_scripts import play

    if os.geteuid() or not Path("/dev/tty3").exists():
        pytest.skip("GPUs of Slurm need root and the terminals that stand for them")
    try:
        told = play(folder, count, ["policy=srtf"], most_s=500.0 if disturbed else 120.0, disturbed=disturbed)
    except InputError as error:
        if error.field in ("packages", "live.engine"):
            pytest.skip(str(error))
        raise
    assert (told["ended_once"], told["ended_more_often"]) == (count, 0)
    assert told["of_others_completed"] == told["of_others"] == 3
    assert (told["on_reserved_node"], told["status"]) == (0, 0)
    assert (told["again"], told["submitted_again"]) == (0, 0)
