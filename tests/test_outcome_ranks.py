"""The tables of docs/job-outcomes.md are those of its figures, and these are what runs make."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
REMEDY = "run `python benchmarks/outcome_ranks.py`"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import outcome_ranks

    return outcome_ranks


def test_the_page_is_what_its_figures_make(benchmark: Any) -> None:
    text, kept = benchmark.PAGE.read_text(), json.loads(benchmark.FIGURES.read_text())
    assert benchmark.page_of(text, kept) == text, (
        f"{benchmark.PAGE} is not of its figures: {REMEDY} --seeds 0"
    )
    assert benchmark.figures_text(kept) == benchmark.FIGURES.read_text()
    assert benchmark.page_of(text.replace("| ares |", "| aries |"), kept) == text


@pytest.mark.parametrize(("workload", "policy"), [("philly", "sjf"), ("helios", "hesrpt")])
def test_kept_figures_are_what_a_run_makes(benchmark: Any, workload: str, policy: str) -> None:
    kept = json.loads(benchmark.FIGURES.read_text())[workload]["0"]["jct_s"][policy]
    scenarios = [benchmark.scenario_of(workload, 0, choice) for choice in ("ignore", workload)]
    found = benchmark.jcts_of(policy, scenarios, 0)
    assert found == pytest.approx(kept), f"{policy} has changed: delete {benchmark.FIGURES}, and {REMEDY}"


def test_a_swap_is_clear_if_both_intervals_are(benchmark: Any) -> None:
    # b takes twice as long as a at every seed, then half: clear. Ahead in the mean of mixed seeds alone: not.
    before = {"a": np.full(12, 10.0), "b": np.full(12, 20.0)}
    after = {"a": np.full(12, 20.0), "b": np.full(12, 10.0)}
    assert benchmark.swapped(before, after) == [("a", "b", "0.50", "2.00", "yes")]
    assert benchmark.swapped(before, before) == []
    mixed = {"a": np.full(12, 10.0), "b": np.where(np.arange(12) % 2, 1.0, 18.0)}
    [(ahead, behind, _, _, clear)] = benchmark.swapped(before, mixed)
    assert (ahead, behind, clear) == ("a", "b", "no")
    assert list(benchmark.ranks(before)) == ["a", "b"]
