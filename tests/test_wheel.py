"""The wheel works in a new environment, from any folder."""

import json
import os
import subprocess
import sys
import venv

import pytest
from made_once import make_once


@pytest.fixture(scope="module")
def python(tmp_path_factory, wheel):
    """The interpreter of an environment that holds the built wheel and its dependencies only."""

    def install(folder):
        venv.create(folder, with_pip=False)
        # By the pip of these tests, and compiling only what is imported: half of the time.
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"]
        subprocess.run([*pip, "--no-compile", str(wheel)], check=True, capture_output=True)

    return make_once(tmp_path_factory, "environment", install) / "bin" / "python"


def call(python, *arguments, cwd):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return subprocess.run(
        [python, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_the_main_job_runs_from_another_folder(python, tmp_path):
    done = call(python, "-m", "clustergym.run", "policy=arena", "hydra.run.dir=here", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "here" / "result.json").read_text())
    assert result["metrics"]["jobs_finished"] == 244
    replayed = call(python, "-m", "clustergym.replay", "here", "here/compare/fcfs", cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert replayed.stdout.count(": equal:") == 2


def test_the_console_script_lists_the_commands(python, tmp_path):
    script = python.parent / "clustergym"
    done = subprocess.run([script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert all(name in done.stdout for name in ("run", "replay", "collect", "trace", "cluster"))
    bad = subprocess.run([script, "rnu"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stderr) == (2, "error: unknown command 'rnu' (did you mean run or train?)\n")


def test_nothing_heavy_is_a_dependency(python, tmp_path):
    code = (
        "import importlib.util as u; print([m for m in ('torch', 'matplotlib', 'wandb') if u.find_spec(m)])"
    )
    assert call(python, "-c", code, cwd=tmp_path).stdout.strip() == "[]"


def test_a_users_policies_do_not_hide_the_built_in_ones(python, tmp_path):
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "__init__.py").write_text("raise RuntimeError('a folder of the user')")
    (tmp_path / "policies.py").write_text("raise RuntimeError('a file of the user')")
    for interpreter in (python, sys.executable):  # the wheel, and the checkout that is tested
        done = call(interpreter, "-m", "clustergym.run", "policy=fcfs", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    script = python.parent / "clustergym"
    subprocess.run([script, "run", "policy=ares"], cwd=tmp_path, capture_output=True, check=True)
