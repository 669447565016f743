"""The page of all claims: counts, and that the committed one is what its files make."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from clustergym.papers.claims import VERDICTS, PaperClaim, claims_table
from clustergym.papers.page import (
    Report,
    claims_path,
    claims_text,
    find_claims,
    joint_page,
    page_name,
    read_claims,
    verdict_counts,
)
from clustergym.papers.titles import PAPERS
from error_lines import error_line

from clustergym.common.errors import InputError
from clustergym.papers import reproduce

PAGES = Path(__file__).parents[2] / "docs" / "reproduction"
CLAIMS = [
    PaperClaim("mean JCT", "Fig. 1", -50.0, fair=-20.0, as_published=-48.0, why="profiling free: -48 %"),
    PaperClaim("gain", "Fig. 2", 1.5, fair=0.9, unit="x", neutral=1.0, why="not known"),
    PaperClaim("loss", "Fig. 3", None, why="needs a training run"),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder in which every paper gives the three claims."""
    monkeypatch.chdir(tmp_path)
    report = Report(claims_table(CLAIMS), [], CLAIMS)
    module = SimpleNamespace(SUMMARY="a paper", reproduce=lambda options: report)
    monkeypatch.setattr(reproduce.importlib, "import_module", lambda name: module)
    return tmp_path / "docs" / "reproduction"


def test_verdicts_are_counted_by_paper():
    text = joint_page({"arnold": CLAIMS, "sia": CLAIMS[:1]}, quick=False)
    # Of three claims one is reproduced as published and smaller if fair, one reversed, one not simulated.
    assert "| `clustergym reproduce arnold` | 3 | 1 | 0 | 0 | 1 | 0 | 1 | 0 | 0 | 1 |" in text
    assert "| [Sia (SOSP '23)](sia.md) | `clustergym reproduce sia` | 1 | 1 |" in text
    assert "| all | `clustergym reproduce all` | 4 | 2 | 0 | 0 | 1 | 0 | 1 | 0 | 0 | 2 |" in text
    assert "| `clustergym reproduce arena` | no claims kept |" in text


def test_a_figure_taken_over_from_a_preprint_counts_there_alone():
    taken = replace(CLAIMS[0], first_stated_by="crius")
    counts = verdict_counts([taken, CLAIMS[1]])
    assert (counts["claims"], counts["reproduced"], counts["reversed"]) == (2, 0, 1)
    assert (counts["counted with its preprint"], counts["otherwise if fair"]) == (1, 0)
    assert sum(counts[name] for name in (*VERDICTS, "counted with its preprint")) == 2


def test_figures_of_arena_that_crius_states_count_once():
    """Every figure that Arena's page has in common with Crius's is marked as the preprint's."""
    arena, crius = (read_claims(PAGES / f"{paper}.claims.json") for paper in ("arena", "crius"))
    stated = {claim.paper for claim in crius if claim.paper is not None}
    twice = [claim for claim in arena if claim.paper in stated]
    assert len(twice) >= 20
    assert all(claim.first_stated_by == "crius" for claim in twice)
    assert 5.98 not in {claim.paper for claim in arena}
    from_crius = {claim.claim for claim in twice if "Crius, section 8.5" in claim.source}
    assert {name.split(" against ")[0] for name in from_crius} == {
        *("share of deadlines met", "mean throughput", "peak throughput", "mean JCT")
    }


def test_a_run_leaves_its_claims_and_the_joint_page(folder, capsys):
    assert reproduce.main(["arnold"]) == 0
    assert read_claims(folder / "arnold.claims.json") == CLAIMS
    assert (folder / "README.md").read_text() == joint_page({"arnold": CLAIMS}, quick=False)
    assert reproduce.main(["sia", "--quick"]) == 0
    quick = Path("outputs/reproduction/quick")
    assert (quick / "README.md").read_text() == joint_page({"sia": CLAIMS}, quick=True)
    assert (
        "[Sia (SOSP '23)](sia.md) | `clustergym reproduce sia --quick`" in (quick / "README.md").read_text()
    )
    assert sorted(find_claims(folder)) == ["arnold"]
    assert {path.name for path in folder.iterdir()} == {"README.md", "arnold.claims.json", "arnold.md"}


def test_all_papers_and_then_the_page_again_without_a_run(folder, capsys, monkeypatch):
    assert reproduce.main(["all", "--json", "all.json"]) == 0
    printed = capsys.readouterr().out
    assert "| all | `clustergym reproduce all` | 21 | 7 | 0 | 0 | 7 | 0 | 7 | 0 | 0 | 7 |" in printed
    assert printed.endswith("wrote all.json\n")
    first = (folder / "README.md").read_text()
    assert first == joint_page(dict.fromkeys(PAPERS, CLAIMS), quick=False)
    written = json.loads(Path("all.json").read_text())
    assert list(written["papers"]) == list(written["verdicts"]) == list(PAPERS)
    assert written["verdicts"]["sia"]["reproduced"] == 1
    (folder / "README.md").unlink()
    broken = SimpleNamespace(SUMMARY="a paper", reproduce=lambda options: pytest.fail("a run"))
    monkeypatch.setattr(reproduce.importlib, "import_module", lambda name: broken)
    assert reproduce.main(["claims"]) == 0
    assert (folder / "README.md").read_text() == first
    assert reproduce.main(["claims", "--out", "page.md"]) == 0
    assert Path("page.md").read_text() == first


@pytest.mark.parametrize("text", ["{", "[]", '{"claims": [{}]}', '{"claims": [{"claim": "x"}]}'])
def test_a_damaged_file_of_claims_is_one_line(text, folder, capsys):
    folder.mkdir(parents=True)
    (folder / "sia.claims.json").write_text(text)
    with pytest.raises(InputError, match=r"sia\.claims\.json: is no file of claims"):
        read_claims(folder / "sia.claims.json")
    assert reproduce.main(["claims"]) == 2
    error_line(capsys)
    assert [path.name for path in folder.iterdir()] == ["sia.claims.json"]


def test_the_committed_page_is_made_of_the_committed_claims():
    page = PAGES / page_name("README")
    assert page.read_text(encoding="utf-8") == joint_page(find_claims(PAGES), quick=False)


@pytest.mark.parametrize("page", sorted(path.name for path in PAGES.glob("*.claims.json")) or [None])
def test_a_papers_page_has_the_claims_of_its_file(page):
    if page is None:
        pytest.skip("no paper has a file of claims")
    paper = json.loads((PAGES / page).read_text(encoding="utf-8"))
    claims = read_claims(PAGES / page)
    text = (PAGES / page.replace(".claims.json", ".md")).read_text(encoding="utf-8")
    assert claims_path(PAGES / page_name(paper["paper"])).name == page
    assert claims
    assert not paper["quick"]
    assert claims_table(claims) in text
    assert claims_text(paper["paper"], paper["quick"], claims) == (PAGES / page).read_text(encoding="utf-8")
