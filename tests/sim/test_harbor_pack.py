"""The task in Harbor's form: its verifier, run in a folder as Harbor runs it, rewards no cheat."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from clustergym.training.program_task import load_task

PACK = Path(__file__).resolve().parents[2] / "examples" / "harbor" / "elastic-scheduler"
UNGUARDED = """
import contextlib, sys
from clustergym.sim import program_child
from clustergym.training import program_task
program_task.Program = lambda text, *_: contextlib.nullcontext(program_child.load(text)())
from clustergym.commands.evaluate import main
sys.exit(main())
"""
"""The judge, which runs a program in its own process: what a verifier without guards would do."""


def verify(
    root: Path, program: Path, unguarded: bool = False, seeds: int = 1, cpu_s: int = 60
) -> tuple[dict[str, float], str]:
    """Run tests/test.sh on a program, with folders below `root`; return the rewards and what was printed."""
    shutil.copytree(PACK / "tests", root / "tests")
    (root / "app").mkdir()
    shutil.copy(program, root / "app" / "policy.py")
    task = yaml.safe_load((PACK / "tests" / "held-out.yaml").read_text(encoding="utf-8"))
    task |= {"test": task["test"][:seeds], "limits": {"cpu_s": cpu_s}}
    (root / "tests" / "held-out.yaml").write_text(yaml.safe_dump(task), encoding="utf-8")
    script = (PACK / "tests" / "test.sh").read_text(encoding="utf-8")
    script = re.sub(r"(?<![\w.])/(app|tests|logs)\b", rf"{root}/\1", script)
    # The user nobody may not start a Python that lies in somebody's home.
    script = script.replace(" --user nobody", "")
    if unguarded:
        (root / "unguarded.py").write_text(UNGUARDED, encoding="utf-8")
        script = script.replace("-m clustergym evaluate", str(root / "unguarded.py"))
    paths = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(PACK.parents[2]),
    }
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, **paths}, cwd=root, capture_output=True, text=True
    )
    return read_reward(root), done.stdout + done.stderr


def read_reward(root: Path) -> dict[str, float]:
    return json.loads((root / "logs" / "verifier" / "reward.json").read_text(encoding="utf-8") or "{}")


@pytest.mark.processes
@pytest.mark.slow
def test_the_solution_gets_its_known_reward(tmp_path: Path) -> None:
    script = (PACK / "solution" / "solve.sh").read_text(encoding="utf-8")
    assert re.findall(r" (/\S+)$", script, re.MULTILINE) == ["/app/policy.py"]
    reward, _ = verify(tmp_path, PACK / "solution" / "policy.py", seeds=4)
    known = tomllib.loads((PACK / "task.toml").read_text(encoding="utf-8"))["metadata"]["solution_reward"]
    assert reward["reward"] == pytest.approx(known, abs=5e-5)
    assert all(isinstance(one, float | int) for one in reward.values())


CHEATS = {
    "patched": "a program may not open '.*clustergym/training/",
    "future": "a program may not open '/tests/held-out.yaml'",
    "forged": "a program may not open '/logs/verifier/evaluation.json'",
    "leftover": "a program may not call os.fork",
    "endless": "(used more than 2 s of CPU time|ended its process with status)",
}


@pytest.mark.processes
@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_gets_nothing(name: str, tmp_path: Path) -> None:
    reward, printed = verify(tmp_path, PACK / "cheats" / f"{name}.py", cpu_s=2 if name == "endless" else 60)
    assert reward["reward"] == 0.0
    assert re.search(rf"^reward 0.0000: .*{CHEATS[name]}", printed, re.MULTILINE)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "least"), [("patched", 50.0), ("future", 0.99), ("forged", 9.0), ("leftover", 9.0)]
)
def test_it_would_be_rewarded_in_the_process_of_the_judge(name: str, least: float, tmp_path: Path) -> None:
    reward, _ = verify(tmp_path, PACK / "cheats" / f"{name}.py", unguarded=True)
    until = time.monotonic() + 60.0
    # What was left behind writes later.
    while name == "leftover" and reward.get("reward", 0.0) < least and time.monotonic() < until:
        time.sleep(0.2)
        reward = read_reward(tmp_path)
    assert reward["reward"] >= least


@pytest.mark.processes
def test_no_policy_gets_nothing(tmp_path: Path) -> None:
    empty = tmp_path / "empty.py"
    empty.write_text("")
    (tmp_path / "root").mkdir()
    assert verify(tmp_path / "root", empty)[0]["reward"] == 0.0


def test_the_files_have_the_form() -> None:
    config = tomllib.loads((PACK / "task.toml").read_text(encoding="utf-8"))
    assert re.fullmatch(r"[\w-]+/[\w-]+", config["task"]["name"])
    assert (config["verifier"]["environment_mode"], config["artifacts"]) == ("separate", ["/app/policy.py"])
    assert config["environment"]["network_mode"] == "no-network"
    for folder in ("environment", "tests"):
        text = (PACK / folder / "Dockerfile").read_text(encoding="utf-8")
        lines = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
        assert lines[0] == ["FROM", "clustergym"]
        assert lines[-1] == ["ENTRYPOINT", "[]"]
        for words in (rest.split() for word, rest in lines if word == "COPY"):
            assert (PACK / folder / words[0]).exists()
    assert os.access(PACK / "tests" / "test.sh", os.X_OK)
    public = load_task("elastic")
    held_out = load_task(str(PACK / "tests" / "held-out.yaml"))
    assert held_out.overrides == public.overrides
    assert {*held_out.test}.isdisjoint([*public.train, *public.test])
