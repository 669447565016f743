"""Sentences on boards' figures say what the intervals say, and name the conditions that reverse them."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from clustergym.benchmark.leaderboard.cells import Condition, FigureTable, Place, Row

ROOT = Path(__file__).parent.parent.parent


def rows_of(name: str, values: dict[tuple[str, str], float], spread: float = 0.01) -> dict[Place, Row]:
    """Return eight seeds of a policy with these mean JCTs by family and condition, a little apart."""
    out = {}
    for (family, condition), value in values.items():
        for seed in range(8):
            jct = value * (1.0 + spread * (-1) ** seed)
            place = Place(name, family, seed, condition)
            out[place] = Row(place, "{}", "", "", "", "", 0.0, "", "", {"jct_mean": jct})
    return out


def test_sentences_follow_the_intervals_and_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sentences = importlib.import_module("figure_sentences")
    titles = {
        name: SimpleNamespace(title=name.upper(), rules="simple") for name in ("ref", "fast", "slow", "same")
    }
    keys = SimpleNamespace(
        reference="ref",
        scenarios={"philly": [], "pai": []},
        policies=[*titles],
        compare="ratio",
        sealed=False,
        conditions={"late": Condition(overrides=["x=1"]), "never-run": Condition(overrides=["x=2"])},
    )
    everywhere = {
        ("philly", ""): 100.0,
        ("pai", ""): 100.0,
        ("philly", "late"): 100.0,
        ("pai", "late"): 100.0,
    }
    rows = rows_of("ref", everywhere, spread=0.0)
    rows |= rows_of("fast", {key: 80.0 if not key[1] else 110.0 for key in everywhere})
    # 4 times on one family, as on the other: no families in its text; the geometric mean is 2.
    rows |= rows_of("slow", {("philly", ""): 100.0, ("pai", ""): 400.0})
    rows |= rows_of("same", {("philly", ""): 100.0, ("pai", ""): 100.0}, spread=0.2)
    board = SimpleNamespace(metric="jct_mean", sign=1.0)
    table = FigureTable(board, keys, titles, rows)  # type: ignore[arg-type]
    assert sentences.state_board("b", table, titles) == (
        "`b`: Ahead of REF: FAST 0.80. Behind REF: SLOW 2.00 (philly 1.00, pai 4.00). "
        "Not told apart from it: SAME 0.98. Reversed under late: FAST (late)."
    )
