"""Recipes for other libraries: short, and they run; RLlib's runs in .ci/nightly."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
RECIPES = sorted(path.stem for path in EXAMPLES.glob("recipe_*.py"))
NEEDS = {"recipe_sb3": "stable_baselines3", "recipe_cleanrl": "torch", "recipe_torchrl": "torchrl"}


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_at_most_60_lines(name):
    assert len((EXAMPLES / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 60


@pytest.mark.parametrize("name", NEEDS)
def test_a_recipe_trains(name, monkeypatch, capsys):
    pytest.importorskip(NEEDS[name])
    monkeypatch.setattr(sys, "argv", [name, "3"])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    # In three seconds Stable-Baselines3 may still be at its first hundred episodes; it ends with greedy play.
    told = "greedy on unseen traces" if name == "recipe_sb3" else "CPU-s: return"
    lines = [line for line in capsys.readouterr().out.splitlines() if told in line]
    assert lines
    assert "nan" not in "".join(lines)
