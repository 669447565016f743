"""Writes the page of all papers' claims, from the claims that each paper's run has left."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from clustergym.benchmark.papers import PAPERS
from clustergym.benchmark.papers.claims import HEADERS, TOLERANCE, VERDICTS, PaperClaim
from clustergym.benchmark.papers.page import passage
from clustergym.common.errors import InputError
from clustergym.common.markdown import table

OF_PREPRINT, IF_FAIR = "counted with its preprint", "otherwise if fair"


def claims_path(page: Path) -> Path:
    """Return where the claims of a paper's page stand: beside it."""
    return page.with_suffix(".claims.json")


def claims_text(paper: str, quick: bool, claims: Sequence[PaperClaim]) -> str:
    """Return the content of the file of a paper's claims."""
    plain = {"paper": paper, "quick": quick, "claims": [claim.plain() for claim in claims]}
    return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def read_claims(path: Path) -> list[PaperClaim]:
    """Return the claims of a file that `reproduce` has written, of claims alone or by `--json`."""
    try:
        return [PaperClaim.of(row) for row in json.loads(path.read_text(encoding="utf-8"))["claims"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"is no file of claims: {type(error).__name__} {error}"
        remedy = "write it again by `clustergym reproduce PAPER`"
        raise InputError(message, file=path, remedy=remedy) from None


def page_name(paper: str) -> str:
    """Return the name of the file of a paper's page."""
    return f"{paper}.md"


def found_claims(folder: Path) -> dict[str, list[PaperClaim]]:
    """Return the claims of the papers that have a file of them in a folder."""
    paths = {paper: claims_path(folder / page_name(paper)) for paper in PAPERS}
    return {paper: read_claims(path) for paper, path in paths.items() if path.is_file()}


def joint_page(claims: dict[str, list[PaperClaim]], quick: bool) -> str:
    """Return the page in Markdown, of the claims by paper; it says which papers have none."""
    head = passage("all", "head", papers=len(PAPERS), command="all" + " --quick" * quick)
    reading = passage("all", "reading", tolerance=100 * TOLERANCE)
    parts = [head, verdict_table(claims, quick), reading, "## Claims", _rows(claims)]
    return "\n\n".join(parts) + "\n"


def verdict_counts(claims: Sequence[PaperClaim]) -> dict[str, int]:
    """Return how many claims have each verdict; a figure that the preprint stated first counts there."""
    own = [claim for claim in claims if not claim.first_stated_by]
    counts = Counter(claim.main_verdict for claim in own)
    return {
        "claims": len(claims),
        **{name: counts[name] for name in VERDICTS},
        OF_PREPRINT: len(claims) - len(own),
        IF_FAIR: sum("(fair: " in claim.verdict for claim in own),
    }


def verdict_table(claims: dict[str, list[PaperClaim]], quick: bool) -> str:
    """Return the table of verdicts by paper; it says which papers have none."""
    headers, rows = ["paper", "command", *verdict_counts([])], []
    for paper, title in PAPERS.items():
        name, told = title, ["no claims kept", *[""] * (len(headers) - 3)]
        if paper in claims:
            name, told = _link(paper), list(map(str, verdict_counts(claims[paper]).values()))
        rows.append([name, _command(paper, quick), *told])
    every = [claim for found in claims.values() for claim in found]
    rows.append(["all", _command("all", quick), *map(str, verdict_counts(every).values())])
    return table(headers, rows, words=(0, 1))


def _command(paper: str, quick: bool) -> str:
    return f"`clustergym reproduce {paper}{' --quick' * quick}`"


def _rows(claims: dict[str, list[PaperClaim]]) -> str:
    headers = ["paper's" if name == "paper" else name for name in HEADERS]
    rows = ([_link(paper), *claim.cells] for paper in PAPERS for claim in claims.get(paper, ()))
    return table(["paper", *headers], rows, words=(0, 1, 2, 6, 7))


def _link(paper: str) -> str:
    return f"[{PAPERS[paper]}]({page_name(paper)})"
