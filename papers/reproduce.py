"""`clustergym reproduce PAPER`: write pages with papers' figures and claims beside ours."""

import argparse
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from clustergym.papers.page import (
    Report,
    claims_path,
    claims_text,
    find_claims,
    joint_page,
    page_name,
    verdict_counts,
    verdict_table,
)
from clustergym.papers.reproduction import Options
from clustergym.papers.titles import BY_WORKLOAD, PAPERS

from clustergym.common.errors import InputError, Parser, exits_on_bad_input, require_known
from clustergym.common.paths import data_folder
from clustergym.common.writing import write_json, write_text

PAGES, QUICK_PAGES = Path("docs/reproduction"), Path("outputs/reproduction/quick")
ALL, CLAIMS = "all", "claims"
SUMMARIES = {
    ALL: "every paper, then the page of all claims and their verdicts by paper",
    CLAIMS: "that page and the verdicts alone, from what earlier runs wrote; runs nothing",
}


def _module(paper: str) -> ModuleType:
    return importlib.import_module(f"clustergym.papers.{paper}")


def _parser() -> argparse.ArgumentParser:
    summaries = {name: _module(name).SUMMARY for name in PAPERS} | SUMMARIES
    papers = "\n".join(f"  {name:<10}{summary}" for name, summary in summaries.items())
    parser = Parser(
        prog="clustergym reproduce",
        description="Run a paper's comparison and hold its figures beside ours. Its claims, and the page "
        f"of all papers' claims, are written beside its page.\n\nPAPER is one of:\n{papers}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paper", metavar="PAPER", help="its name, one of these")
    parser.add_argument("--quick", action="store_true", help="only what takes a few minutes")
    parser.add_argument("--data", metavar="DIR", type=Path, help="published data ($CLUSTERGYM_DATA)")
    parser.add_argument("--policies", metavar="NAME,…", help="files of conf/policy instead of the paper's")
    parser.add_argument(
        "--workloads", metavar="NAME,…", help="of fgd: lists of pods instead of all in orders/"
    )
    parser.add_argument("--seeds", metavar="N,…", help="of fgd: instead of all in orders/")
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help=f"document to write, alone ({PAGES}/PAPER.md, {QUICK_PAGES}/PAPER.md; of all claims README.md)",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the same figures, unrounded")
    parser.add_argument(
        "--work", metavar="DIR", type=Path, help="finished runs, not run again (outputs/reproduction/PAPER)"
    )
    parser.add_argument("--workers", metavar="N", type=int, default=1, help="processes (1)")
    return parser


def _check(given: argparse.Namespace) -> None:
    known = [*PAPERS, ALL, CLAIMS]
    require_known(given.paper, known, "paper")
    if given.workers < 1:
        raise InputError(
            f"{given.workers} is not a number of processes", field="--workers", remedy="give 1 or more"
        )
    for field, value in (("--out", given.out), ("--policies", given.policies)):
        if given.paper == ALL and value is not None:
            raise InputError("is for one paper", field=field, remedy="name the paper, or leave it out")
    for field, value in (("--workloads", given.workloads), ("--seeds", given.seeds)):
        if value is not None and given.paper not in BY_WORKLOAD:
            message = f"is not for {given.paper}"
            raise InputError(message, field=field, remedy=f"leave it out, or name {', '.join(BY_WORKLOAD)}")


def _options(given: argparse.Namespace, paper: str) -> Options:
    work = given.work if given.work is None or given.paper != ALL else given.work / paper
    return Options(
        data=given.data or data_folder(),
        quick=given.quick,
        policies=_parse_list(given.policies),
        work=work or Path("outputs/reproduction") / paper,
        workers=given.workers,
        workloads=_parse_list(given.workloads),
        seeds=_seeds(given.seeds),
    )


def _parse_list(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name for name in text.split(",") if name)


def _seeds(text: str | None) -> tuple[int, ...] | None:
    given = _parse_list(text)
    if given == () or any(not re.fullmatch(r"\d{1,9}", seed, re.ASCII) for seed in given or ()):
        raise InputError(
            f"{text!r} is no list of seeds", field="--seeds", remedy="give whole numbers, as 42,43"
        )
    return None if given is None else tuple(map(int, given))


def _pages(given: argparse.Namespace) -> Path:
    """Return the folder of the pages; those of the quick form are no documents, and stay with its runs."""
    return QUICK_PAGES if given.quick else PAGES


def _reproduce(given: argparse.Namespace, paper: str) -> Report:
    """Run a paper's comparison; print and write it, and write its claims unless the file was chosen."""
    report: Report = _module(paper).reproduce(_options(given, paper))
    out = given.out or _pages(given) / page_name(paper)
    write_text(out, report.text, "--out")
    if _is_papers_own(given):
        write_text(claims_path(out), claims_text(paper, given.quick, report.claims), "--out")
    print(report.text)
    print(f"wrote {out}")
    return report


def _is_papers_own(given: argparse.Namespace) -> bool:
    """Return whether the page is the paper's own, at its own place, so that its claims are kept."""
    return all(value is None for value in (given.out, given.policies, given.workloads, given.seeds))


def _join(given: argparse.Namespace) -> dict[str, Any]:
    """Write the page of all papers' claims and print their verdicts; return both."""
    claims = find_claims(_pages(given))
    path = given.out or _pages(given) / page_name("README")
    write_text(path, joint_page(claims, given.quick), "--out")
    if given.paper not in PAPERS:
        print(verdict_table(claims, given.quick))
    print(f"wrote {path}")
    return {
        "verdicts": {paper: verdict_counts(found) for paper, found in claims.items()},
        "papers": {paper: [claim.plain() for claim in found] for paper, found in claims.items()},
    }


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Run `clustergym reproduce`: compare papers' figures with ours, print tables and write pages."""
    given = _parser().parse_args(argv)
    _check(given)
    plain: dict[str, Any] = {"quick": given.quick}
    for paper in PAPERS if given.paper == ALL else [given.paper] if given.paper in PAPERS else []:
        report = _reproduce(given, paper)
        plain = {"paper": paper, "quick": given.quick, "runs": report.figures}
        plain["claims"] = [claim.plain() for claim in report.claims]
    if given.paper == CLAIMS or _is_papers_own(given):
        joined = _join(given)
        if given.paper not in PAPERS:
            plain = {"quick": given.quick, **joined}
    write_json(given.json, plain)
    if given.json is not None:
        print(f"wrote {given.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
