"""Agents from a file in Rack-told: their hours are those of the same agent here, faults end in one line."""

import hashlib
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from clustergym.commands import evaluate
from clustergym.common.errors import InputError
from clustergym.sim.program import Limits
from clustergym.training.agent_task import compare_hours
from clustergym.training.program_task import evaluate_program, load_task

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import rack_told

FIT = """import numpy as np
class Agent:
    def act(self, observation, mask):
        free = np.where(mask[:8], observation["free"], np.inf)
        return free.argmin() if mask[:8].any() else 16 if mask[16] else mask.argmax()
"""
WAITS = """class Agent:
    def reset(self): self.usual = 16
    def act(self, observation, mask): return self.usual if mask[16] else int(mask.argmax())
"""
PEEKS = """import gc; names = [type(one).__name__ for one in gc.get_objects()]
        raise RuntimeError([names.count(name) for name in ("RackEnv", "RackState", "RackArrays", "Gangs")])"""
VALUE, KEPT = "9f2c5b01d4e87a33", json.loads(rack_told.KEPT.read_text(encoding="utf-8"))


@pytest.mark.parametrize("text", [FIT, WAITS])
def test_a_program_costs_what_its_agent_costs(text: str, tmp_path: Path) -> None:
    (file := tmp_path / "one.py").write_text(text, encoding="utf-8")
    outcome = evaluate_program(file, load_task("rack-told"), "test", traces=2)
    own, reference = [play_here(text, seed) for seed in (2, 5)], KEPT["costs"]["rule"][:2]
    assert outcome["artifacts"]["hours"] == pytest.approx(own)
    assert outcome["artifacts"]["reference_hours"] == pytest.approx(reference, abs=1e-4)
    assert outcome["combined_score"] == pytest.approx(sum(reference) / sum(own), abs=1e-3)


def play_here(text: str, seed: int) -> float:
    exec(text, names := dict[str, Any]())
    env, agent, hours, over = gymnasium.make("ClusterGym/Rack-told-v0"), names["Agent"](), 0.0, False
    seen, info = env.reset(options={"trace_seed": seed})
    getattr(agent, "reset", lambda: None)()
    while not over:
        seen, reward, terminated, truncated, info = env.step(agent.act(seen, info["action_mask"]))
        over, hours = terminated or truncated, hours - float(reward)
    return hours


def test_a_ratio_is_of_sums_and_its_interval_of_pairs() -> None:
    """Hours 2 and 6 over 1 and 3 are 2 in each resample; 2 and 3 over 1 and 3 are 5 / 4, or from 1 to 2."""
    assert compare_hours([2.0, 6.0], [1.0, 3.0]) == pytest.approx((2.0, 2.0, 2.0))
    assert compare_hours([2.0, 3.0], [1.0, 3.0]) == pytest.approx((1.25, 1.0, 2.0))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return 16", "action: 16 is not possible (legal: 0, 1"),
        ("return 99", "action: 99 is not an action (give a whole number from 0 to 16)"),
        ("return 1 // 0", "line 3: ZeroDivisionError"),
        ("open('/etc/passwd').read()", "PermissionError: a program may not open '/etc/passwd'"),
        ("import os; os._exit(0)", "program: ended its process with status 0"),
        ("while True: pass", "used more than 0.3 s of CPU time for a decision (decide in less)"),
        (PEEKS, "RuntimeError: [0, 0, 0, 0]"),
    ],
)
def test_a_fault_is_one_line(body: str, said: str, tmp_path: Path) -> None:
    text = f"class Agent:\n    def act(self, observation, mask):\n        {body}\n"
    (file := tmp_path / "one.py").write_text(text, encoding="utf-8")
    task = replace(load_task("rack-told"), limits=Limits(cpu_s=30, decision_cpu_s=0.3))
    outcome = evaluate_program(file, task, traces=1)
    assert (outcome["status"], outcome["combined_score"]) == ("error", 0.0)
    assert re.fullmatch(f".*{re.escape(said)}.*", outcome["artifacts"]["error"])


def test_a_later_value_draws_the_traces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "one.py").write_text(FIT, encoding="utf-8")
    sha256 = hashlib.sha256(FIT.encode()).hexdigest()
    first = 2**32 + int(hashlib.sha256(f"{sha256}\n{VALUE}\n0".encode()).hexdigest()[:8], 16)
    words = ["--policy-file", str(file), "--task", "rack-told", "--traces", "1", "--beacon"]
    assert evaluate.main([*words, VALUE.upper()]) == 0
    found = json.loads(capsys.readouterr().out)["artifacts"]
    assert [found[name] for name in ("mode", "sha256", "beacon")] == ["sealed", sha256, VALUE]
    assert found["hours"] == pytest.approx([play_here(FIT, first)])
    assert evaluate.main([*words, "soon"]) == 2
    assert "--beacon: soon is not valid (give 16 to 256 hexadecimal digits)" in capsys.readouterr().err


def test_an_entered_program_is_a_row_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(load_task("rack-told").weights) == KEPT["weights"]
    (file := tmp_path / "one.py").write_text(FIT, encoding="utf-8")
    rule, sha256 = KEPT["costs"]["rule"], hashlib.sha256(FIT.encode()).hexdigest()
    told = {"mode": "sealed", "sha256": sha256, "hours": [2 * each for each in rule], "reference_hours": rule}
    file.with_suffix(".json").write_text(json.dumps({"artifacts": told}), encoding="utf-8")
    monkeypatch.setattr(rack_told, "ENTERED", tmp_path)
    assert f"| one, sealed | {2 * np.mean(rule):.3f} | 2.000 [2.000, 2.000] |" in rack_told.describe(KEPT)
    file.write_text(FIT + "# changed\n", encoding="utf-8")
    with pytest.raises(InputError, match="evaluate the program anew"):
        rack_told.describe(KEPT)
