"""The figures of the README and of the docs are those that the committed boards, claims and runs give."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import yaml

from clustergym.common.version import __version__

ROOT = Path(__file__).parent.parent
REMEDY = "run `python benchmarks/results_table.py`"


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("results_table")


def test_figures_of_committed_files_are_current(tables):
    made = {name: make() for name, make in tables.BLOCKS.items()}
    for page in tables.PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert tables.written(page, made) == text, f"{page} is behind: {REMEDY}"


def test_figures_name_the_error_of_the_oracle_that_made_them(tables):
    """Boards are not credited with the error of another oracle, nor a simulator with its best policy."""
    figures = importlib.import_module("committed_figures")
    said = {"grid": figures.oracle_errors("Mean error", "grid")}
    said["roofline"] = figures.oracle_errors("Mean error", "roofline")
    assert said["grid"] != said["roofline"]
    text = tables.BLOCKS["best"]()
    named = "Arena's testbed, Arena's simulation"
    assert f"({named}) come from `oracle=grid`. Its error is {said['grid']} in the mean" in text
    assert f"`oracle=roofline`. Its error is {said['roofline']} in the mean" in text
    text = tables.BLOCKS["validated"]()
    said_of = "`oracle=roofline` made the tables of Ares's cluster. Its error is "
    assert said_of + said["roofline"] in text
    assert "with `elasticflow-ls`, the least well reproduced of 5 policies, " in text


def test_every_block_stands_somewhere(tables):
    found = {
        name
        for page in tables.PAGES
        for _, name, _ in tables.BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    }
    assert found == {*tables.BLOCKS, "waits"}


def test_why_arena_waits_is_current(tables, monkeypatch):
    monkeypatch.setattr(tables, "WAITS", {"as published": "arena", "profiles are free": "arena, free"})
    text = (ROOT / "docs/concepts.md").read_text(encoding="utf-8")
    assert tables.waits(1) in text, f"{REMEDY} --runs"


def test_links_lead_from_docs_where_they_led_from_the_root(tables):
    text = "[a](docs/testing.md#x) [b](leaderboards/fair/README.md)"
    assert tables.with_docs_links(text) == "[a](testing.md#x) [b](../leaderboards/fair/README.md)"


def test_the_readme_is_short_and_its_table_too():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    table = text.split("<!-- figures: best -->")[1].split("<!-- end -->")[0]
    # A row a scheduler, and two.
    assert len(re.findall(r"^\|", table, re.MULTILINE)) - 2 <= 18


def test_the_citation_names_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "version"} <= set(citation)
    assert citation["version"] == __version__
