"""What a new user sets out to do, from the built wheel, in an empty folder: the scripts of tests/journeys."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_once import make_once

ROOT = Path(__file__).parent.parent
JOURNEYS = sorted((ROOT / "tests" / "journeys").glob("*.sh"))
NOT_POSSIBLE = 77
"""Exit status of a journey that needs what is not installed."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    """The folder that the wheel is installed into; its dependencies are those of the tests."""

    def install(folder):
        pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--no-deps"]
        subprocess.run([*pip, "--target", str(folder), str(wheel)], check=True, capture_output=True)

    return make_once(tmp_path_factory, "installed", install)


@pytest.fixture(scope="module")
def environment(installed):
    path = os.pathsep.join([str(installed / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return kept | {"PATH": path, "PYTHONPATH": str(installed)}


def test_the_wheel_is_what_runs(installed, environment, tmp_path):
    code = "import clustergym, clustergym.policies.fcfs as p; print(clustergym.__file__, p.__file__)"
    done = subprocess.run(
        ["python", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert all(name.startswith(str(installed)) for name in done.stdout.split())


@pytest.mark.parametrize("script", JOURNEYS, ids=lambda path: path.stem)
def test_a_journey_arrives(script, environment, tmp_path):
    done = subprocess.run(
        ["bash", str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    if done.returncode == NOT_POSSIBLE:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr


def test_there_are_journeys():
    assert len(JOURNEYS) == 4
