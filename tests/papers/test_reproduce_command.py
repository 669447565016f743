"""What `clustergym reproduce` asks of a paper's module, and where pages, claims and figures go."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from clustergym.papers.page import Report
from clustergym.papers.reproduce import main
from clustergym.papers.reproduction import Options

from clustergym.papers import reproduce

CLAIM = SimpleNamespace(plain=lambda: {"claim": "faster"})


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, Options]]:
    """Have papers that note what is asked of them, in an empty folder."""
    calls: list[tuple[str, Options]] = []

    def module(paper: str) -> Any:
        def run(options: Options) -> Report:
            calls.append((paper, options))
            return Report(f"page of {paper}", [{"policy": paper}], [CLAIM])

        return SimpleNamespace(SUMMARY=f"summary of {paper}", reproduce=run)

    monkeypatch.setattr(reproduce, "_module", module)
    monkeypatch.setattr(reproduce, "claims_text", lambda paper, quick, found: f"{paper} {quick} {len(found)}")
    monkeypatch.setattr(reproduce, "find_claims", lambda folder: {"sia": [CLAIM]})
    monkeypatch.setattr(reproduce, "joint_page", lambda claims, quick: f"joint {quick}")
    monkeypatch.setattr(reproduce, "verdict_table", lambda claims, quick: "the verdicts")
    monkeypatch.setattr(reproduce, "verdict_counts", lambda found: {"held": len(found)})
    monkeypatch.delenv("CLUSTERGYM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return calls


def files() -> dict[str, str]:
    """Return what lies in the folder, by name."""
    return {str(path): path.read_text() for path in sorted(Path().rglob("*")) if path.is_file()}


def test_a_page_of_ones_own(asked: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("CLUSTERGYM_DATA", "/published")
    words = ["fgd", "--quick", "--policies", "fgd,,best-fit", "--workloads", "a", "--seeds", "42,43"]
    assert main([*words, "--workers", "2", "--out", "mine/page.md", "--work", "done"]) == 0
    options = Options(Path("/published"), True, ("fgd", "best-fit"), Path("done"), 2, ("a",), (42, 43))
    assert asked == [("fgd", options)]
    # Its claims are not the paper's, so that neither they nor the page of all claims is written.
    assert files() == {"mine/page.md": "page of fgd"}
    assert capsys.readouterr().out.splitlines() == ["page of fgd", "wrote mine/page.md"]
    for word in (["--policies", "fcfs"], ["--workloads", "a"], ["--seeds", "1"]):
        assert main(["fgd", "--quick", "--data", "here", *word]) == 0
        assert list(files()) == ["mine/page.md", "outputs/reproduction/quick/fgd.md"]
    assert asked[-1][1].data == Path("here")
