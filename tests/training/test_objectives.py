"""benchmarks/objectives.py: what a policy's return would be, from an agent's gain over it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clustergym.training.played_traces import simulate_policy

NAME = "ClusterGym/Elastic-16-v1"
PARAMETERS: dict[str, Any] = {"jobs": 6, "max_duration_s": 14400.0}


pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.compiled


@pytest.fixture
def objectives(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the script as a module, which measures on three traces."""
    pytest.importorskip("stable_baselines3", reason="tiers.py, which it imports, needs it")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    module = importlib.import_module("objectives")
    monkeypatch.setattr(module, "TRACES", 3)
    return module


def test_a_policy_s_return_is_minus_its_mean_jct(objectives: Any) -> None:
    judge = objectives.Judge(NAME, "test", 3, **PARAMETERS)
    # The first legal action of each environment: it does not matter how the agent plays.
    first = lambda _, masks: masks.argmax(axis=1)  # noqa: E731
    own = judge.play(first).returns
    found = objectives.find_returns(NAME, "hesrpt round_s=300", PARAMETERS, first, own)
    jct_s = simulate_policy(judge.envs, judge.seeds, "hesrpt")
    # The term `jobs_in_system` adds up to minus the mean JCT in hours.
    np.testing.assert_allclose(found, -jct_s / 3600.0, rtol=1e-9)
    assert (own < found).all()
    np.testing.assert_array_equal(judge.play(first).returns, own)


def test_an_unknown_environment_is_one_line(objectives: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert objectives.main(["deadlin-16"]) == 2
    assert "deadline-16" in capsys.readouterr().err
