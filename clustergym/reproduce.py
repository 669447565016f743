"""`python -m clustergym.reproduce PAPER`: a paper's figures beside ours, as a generated document."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from clustergym.arguments import Parser
from clustergym.errors import InputError, exits_on_bad_input, nearest
from clustergym.paths import atomic_path
from clustergym.reproduction import PAPERS
from clustergym.reproduction.study import Options

DATA = Path("../shared/data")


def _parser() -> argparse.ArgumentParser:
    papers = "\n".join(f"  {name:<10}{importlib.import_module(PAPERS[name]).SUMMARY}" for name in PAPERS)
    parser = Parser(
        prog="python -m clustergym.reproduce",
        description=f"Run a paper's comparison and hold its figures beside ours.\n\npapers:\n{papers}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paper", metavar="PAPER")
    parser.add_argument("--quick", action="store_true", help="only what takes a few minutes")
    parser.add_argument(
        "--data", metavar="DIR", type=Path, help=f"published data ($CLUSTERGYM_DATA, else {DATA})"
    )
    parser.add_argument("--policies", metavar="NAME,…", help="files of conf/policy instead of the paper's")
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="document to write (docs/reproduction/PAPER.md, or PAPER-quick.md)",
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the same figures, unrounded")
    parser.add_argument(
        "--work", metavar="DIR", type=Path, help="finished runs, not run again (outputs/reproduction/PAPER)"
    )
    parser.add_argument("--workers", metavar="N", type=int, default=1, help="processes (1)")
    return parser


def _options(given: argparse.Namespace) -> Options:
    if given.workers < 1:
        raise InputError(
            f"{given.workers} is no number of processes", field="--workers", remedy="give 1 or more"
        )
    names = None if given.policies is None else tuple(name for name in given.policies.split(",") if name)
    return Options(
        data=given.data or Path(os.environ.get("CLUSTERGYM_DATA", DATA)),
        quick=given.quick,
        policies=names,
        work=given.work or Path("outputs/reproduction") / given.paper,
        workers=given.workers,
    )


def _write(path: Path, text: str, field: str) -> None:
    try:
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise InputError(message, file=path, field=field, remedy="name another file") from None


def _draw(path: Path, draw: Callable[[Path], None]) -> None:
    try:
        draw(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=path, field="--out") from None


@exits_on_bad_input
def main(argv: list[str] | None = None) -> int:
    """Reproduce a paper: print its tables, write the document and, where asked, JSON."""
    given = _parser().parse_args(argv)
    if given.paper not in PAPERS:
        raise InputError(f"unknown paper {given.paper!r}", remedy=nearest(given.paper, PAPERS))
    report = importlib.import_module(PAPERS[given.paper]).reproduce(_options(given))
    out = given.out or Path("docs/reproduction") / f"{given.paper}{'-quick' * given.quick}.md"
    for name, draw in report.plots.items():
        _draw(out.parent / name, draw)
    _write(out, report.text, "--out")
    if given.json is not None:
        plain = {"paper": given.paper, "quick": given.quick, "claims": report.claims, "runs": report.figures}
        _write(given.json, json.dumps(plain, indent=2, allow_nan=False) + "\n", "--json")
    print(report.text)
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
