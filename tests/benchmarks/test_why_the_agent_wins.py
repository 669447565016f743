"""The page on why the learned agent wins has the figures of its runs (tables: test_results_table.py)."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def maker(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("why_the_agent_wins")


def test_the_picture_is_of_the_figures(maker):
    made = maker.picture(maker.read()["states"])
    remedy = "run `python benchmarks/why_the_agent_wins.py draw`"
    assert made == maker.PICTURE.read_text(encoding="utf-8"), remedy


@pytest.mark.parametrize("name", ["auction", "how long a job is in the system"])
def test_a_run_of_today_has_the_figure_that_is_kept(maker, name):
    pytest.importorskip("numba", reason="pip install 'clustergym[learn]'")
    cell = ("ares", "helios", 902)
    kept = maker.find_jct(maker.read(), name, cell)
    assert maker.find_jct({"jct_s": {}}, name, cell) == pytest.approx(kept, rel=1e-9)


def test_a_part_left_out_of_the_rate_leaves_the_other_part(maker):
    # The rate is half of the marginal gain less the size: without the work left, the gain keeps its weight.
    work = maker.make_agent_without(maker.WITHOUT["how much work a job has left"]).auction_weights
    gain = maker.make_agent_without(maker.WITHOUT["what another GPU adds to a job's speed"]).auction_weights
    all_of_it = maker.make_agent_without(()).auction_weights
    at = maker.features.NAMES.index
    rate, size, marginal = (at(name) for name in ("rate", "size", "marginal_start"))
    assert (work[rate], work[size], gain[rate], gain[marginal]) == (0.0, 0.0, 0.0, 0.0)
    assert work[marginal] == pytest.approx(all_of_it[marginal] + all_of_it[rate] / 2)
    assert gain[size] == pytest.approx(all_of_it[size] - all_of_it[rate])
